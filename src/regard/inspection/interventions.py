"""Other weights in the place of a model's own, and what it says then: is that head needed, does that look matter?

with intervene(model, "encoder.3.self", heads=[2], weights="uniform"): model(...)
with intervene(model, "*.cross", weights="zero", rows=4): model(...)                 # the fifth word looks at nothing
with intervene(model, "pooling", weights=lambda weights: weights.flip(-1)): model(...)

A changed place averages as the definition ("plain") does: its own weights handed back give what "plain" gives, to the
bit. Blocks inside each other compose, the outer one first. Nothing is left on the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from regard.adapters import ModelAdapter
from regard.attention import Attended, Hear, Listener, Observe, Prepared, listening, overheard, places_of, taps_of
from regard.errors import DtypeError, PlaceError, SettingError, ShapeError, unknown

Function = Callable[[Tensor], Tensor]
Weights = Literal["uniform", "zero"] | Tensor | Function
NAMES = ("uniform", "zero")
FAR = 1e3  # below the best score: some models hide a key by a large negative number instead of minus infinity


@contextmanager
def intervene(
    model: nn.Module,
    places: str | Sequence[str] = "*",
    *,
    heads: int | Sequence[int] | None = None,
    weights: Weights,
    rows: int | Sequence[int] | None = None,
) -> Iterator[None]:
    """Let a model look by other weights at these places, which are given as `capture` takes them, until the block ends.

    heads    which of them; None: all. A place without heads has one, number 0.
    weights  "uniform": the same for every key that the query may see
             "zero": the head says nothing
             a tensor that broadcasts to (B, heads chosen, T, S); keys beyond the last one must have 0 there
             a function of the weights (B, heads chosen, T, S) that returns such a tensor; it may be differentiated
    rows     which queries; None: all. A call of several queries counts them from 0. Where they come one at a time, as
             those of a decoder that writes, they are counted over the calls in this block, after those that came
             together before them; a tensor then has a row for each.

    Weights need not sum to 1, and may lie where the model could not look; NaN, infinite and negative ones are refused.
    """
    _expect_known(weights)
    observe = Observe(weights=True, prepared=isinstance(weights, str) and weights == "uniform")
    change = _Change(_found(model, places), weights, _counted(heads, "heads"), _counted(rows, "rows"))
    token = _changes.set((*_changes.get(), change))
    try:
        with answered(model, places, observe, change.hear):
            yield
    finally:
        _changes.reset(token)


@contextmanager
def answered(model: nn.Module, places: str | Sequence[str], observe: Observe, hear: Hear) -> Iterator[None]:
    """Let `hear` answer with other weights at these places, in a model of ours or in any other."""
    found, ours = _found(model, places), bool(taps_of(model))
    calls = 0

    def told(place: str, got: Attended) -> Tensor | None:
        nonlocal calls
        calls += 1
        return hear(place, got)

    elsewhere: AbstractContextManager[object] = nullcontext() if ours else overheard(model)
    with listening(Listener(found, observe, told)), elsewhere:
        yield
    if not ours and not calls:
        raise PlaceError(
            f"places {places!r}, where nothing attended",
            "places whose attention can be heard",
            where="intervene",
            advice='A model of transformers needs attn_implementation "sdpa" or "regard".',
        )


def is_changed(who: nn.Module) -> bool:
    """Whether the weights of this module are being changed now."""
    return any(who in change.places for change in _changes.get())


def count_anew() -> None:
    """Whatever runs now is another run: its first query is number 0 again."""
    for change in _changes.get():
        change.had.clear()


@dataclass(eq=False)
class _Change:
    """One intervention, which knows how many queries each place has had."""

    places: Mapping[nn.Module, str]
    weights: Weights
    heads: tuple[int, ...] | None
    rows: tuple[int, ...] | None
    had: dict[str, int] = field(default_factory=dict)

    def hear(self, place: str, got: Attended) -> Tensor | None:
        assert got.weights is not None
        whole = got.weights
        by_head = whole if whole.dim() > 3 else whole.unsqueeze(-3)  # (..., H, T, S)
        _expect_heads(self.heads, by_head.size(-3), place)
        T = by_head.size(-2)
        first = self.had.get(place, 0) if T == 1 else 0
        self.had[place] = first + T
        rows = None if self.rows is None else [row - first for row in self.rows if first <= row < first + T]
        if rows is not None and not rows:
            return None
        heads = None if self.heads is None else torch.tensor(self.heads, device=whole.device)
        own = by_head if heads is None else by_head.index_select(-3, heads)
        new = self._asked(own, got, first, heads)
        if rows is not None:
            here = torch.zeros(T, 1, dtype=torch.bool, device=whole.device)
            here[rows] = True
            new = torch.where(here, new, own)
        new = new if heads is None else by_head.index_copy(-3, heads, new)
        return new.reshape(whole.shape)

    def _asked(self, own: Tensor, got: Attended, first: int, heads: Tensor | None) -> Tensor:
        """What is to stand in the place of `own` (..., heads chosen, T, S); `first`: the number of its first query."""
        asked = self.weights
        if isinstance(asked, Tensor):
            if asked.dim() == got.lse.dim() + 1 == 3:  # a place without heads told it so
                asked = asked.unsqueeze(-3)
            return _laid(asked, own, first)
        if isinstance(asked, str):
            return torch.zeros_like(own) if asked == "zero" else self._uniform(own, got, heads)
        made = asked(own)
        if not isinstance(made, Tensor):
            raise DtypeError(f"a {type(made).__name__} from a function of weights", "a tensor", where="intervene")
        _expect_weights(made)
        return _laid(made, own, first)

    @staticmethod
    def _uniform(own: Tensor, got: Attended, heads: Tensor | None) -> Tensor:
        """The same weight for every key that may be seen."""
        assert got.prepared is not None
        seen = _seen(got.prepared).reshape(*got.lse.shape, -1)
        seen = seen if seen.dim() > 3 else seen.unsqueeze(-3)
        seen = (seen if heads is None else seen.index_select(-3, heads)).to(own.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)


_changes: ContextVar[tuple[_Change, ...]] = ContextVar("regard_changes", default=())


def _seen(prepared: Prepared) -> Tensor:
    """Which keys each query may see, (..., T, S)."""
    scores = prepared.precise().scores()
    best = scores.amax(-1, keepdim=True) if scores.size(-1) else scores
    return (scores > -torch.inf) & (scores >= best - FAR)


def _laid(given: Tensor, own: Tensor, first: int) -> Tensor:
    """Given weights as those of one call, (..., T, S)."""
    T, S = own.shape[-2:]
    laid = given.to(own.device, own.dtype)
    if T == 1 and laid.dim() > 1 and laid.size(-2) > 1 and first < laid.size(-2):
        laid = laid[..., first : first + 1, :]
    if laid.dim() and laid.size(-1) > S and not laid[..., S:].any():
        laid = laid[..., :S]  # of keys that are yet to come
    try:
        return laid.expand(own.shape)
    except RuntimeError:
        came = f"weights of shape {tuple(given.shape)} for query {first}" if T == 1 else f"weights {tuple(given.shape)}"
        raise ShapeError(came, f"what broadcasts to {tuple(own.shape)}", where="intervene") from None


def _found(model: nn.Module, places: str | Sequence[str]) -> dict[nn.Module, str]:
    try:
        return places_of(model, places)
    except PlaceError as error:
        raise PlaceError(error.came, error.expected, where="intervene") from None


def _counted(numbers: int | Sequence[int] | None, what: str) -> tuple[int, ...] | None:
    """Heads or rows as numbers from 0 on, each once."""
    if numbers is None:
        return None
    found = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if not found or len(set(found)) < len(found) or any(not isinstance(one, int) or one < 0 for one in found):
        raise SettingError(f"{what}={numbers!r}", "different numbers, counted from 0", where="intervene")
    return found


def _expect_known(weights: object) -> None:
    if isinstance(weights, Tensor):
        _expect_weights(weights)
    elif isinstance(weights, str):
        if weights not in NAMES:
            raise unknown(weights, NAMES, kind="weights", where="intervene")
    elif not callable(weights):
        came = f"weights of type {type(weights).__name__}"
        raise DtypeError(came, "'uniform', 'zero', a tensor or a function", where="intervene")


def _expect_heads(heads: tuple[int, ...] | None, count: int, place: str) -> None:
    missing = next((head for head in heads or () if head >= count), None)
    if missing is not None:
        raise PlaceError(f"head {missing} at {place}", f"one of its {count}, counted from 0", where="intervene")


def _expect_weights(weights: Tensor) -> None:
    if not weights.is_floating_point():
        raise DtypeError(f"weights of {weights.dtype}", "floating-point numbers", where="intervene")
    if not bool((weights.detach() >= 0).all()) or not bool(weights.detach().isfinite().all()):
        raise SettingError("weights that are negative, infinite or NaN", "numbers of 0 and more", where="intervene")


Edits = tuple[tuple[int, float], ...]
"""Keys, each with the weight that it is to have."""


@dataclass(frozen=True)
class Change:
    """At a place, a head (None: all of them), and a query (None: all): no weights, the same for all keys, or edits."""

    place: str
    head: int | None
    weights: Literal["zero", "uniform"] | Edits
    query: int | None = None


@contextmanager
def changed(adapter: ModelAdapter, changes: Sequence[Change]) -> Iterator[None]:
    """Let the model of an adapter be changed so until the block ends."""
    with ExitStack() as stack:
        for one in changes:
            weights: Literal["zero", "uniform"] | Function
            weights = one.weights if isinstance(one.weights, str) else partial(edited, edits=one.weights)
            how = intervene(adapter.model, one.place, heads=one.head, weights=weights, rows=one.query)
            stack.enter_context(how)
        yield


def edited(weights: Tensor, edits: Edits) -> Tensor:
    """Weights (..., T, S) with those of some keys set; the others share what is left as they did before."""
    known = [(key, value) for key, value in edits if key < weights.size(-1)]
    rest = weights.clone()
    for key, _ in known:
        rest[..., key] = 0.0
    total = rest.sum(-1, keepdim=True)
    left = max(0.0, 1.0 - sum(value for _, value in known))
    rest = rest * (left / total.masked_fill(total == 0, 1.0))
    for key, value in known:
        rest[..., key] = value
    return rest
