"""Interventions on attention (activation patching): replace, zero or flatten the weights of heads while a model runs.

with intervene(model, "encoder.3.self", heads=[2], weights="uniform"): model(...)
with intervene(model, "*.cross", weights="zero", rows=4): model(...)                 # the fifth word attends to nothing
with intervene(model, "pooling", weights=lambda weights: weights.flip(-1)): model(...)

A place with an intervention computes by the definition (backend "plain"): its own weights, returned unchanged, give the
output of "plain", bit for bit. Nested blocks compose, the outer one first. Nothing is left on the model.
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
from regard.attention import (
    Attended,
    AttentionInputs,
    Observe,
    OnAttention,
    TapListener,
    intercept_attention,
    listen,
    places_of,
    taps_of,
)
from regard.errors import DtypeError, PlaceError, SettingError, ShapeError, unknown

Function = Callable[[Tensor], Tensor]
Weights = Literal["uniform", "zero"] | Tensor | Function
NAMES = ("uniform", "zero")
HIDDEN_GAP = 1e3  # below the best score: some models mask a key by a large negative number instead of minus infinity


@contextmanager
def intervene(
    model: nn.Module,
    places: str | Sequence[str] = "*",
    *,
    heads: int | Sequence[int] | None = None,
    weights: Weights,
    rows: int | Sequence[int] | None = None,
) -> Iterator[None]:
    """Replace the attention weights of a model at these places, given as for `capture`, until the block ends.

    heads    which heads; None: all. A place without heads has one, number 0.
    weights  "uniform": the same weight for every key that the query may see
             "zero": the output of the head is zero
             a tensor that broadcasts to (B, chosen heads, T, S); keys beyond the last one must have 0 there
             a function of the weights (B, chosen heads, T, S) that returns such a tensor; it may be differentiated
    rows     which queries; None: all. They are counted from 0 in a call of several queries; where queries come one at a
             time, as in decoding, over the calls in this block, after those that came together before them; a tensor
             then has a row for each.

    Weights need not sum to 1, and may be on masked keys; NaN, infinite and negative ones are refused.
    """
    _expect_known(weights)
    observe = Observe(weights=True, prepared=isinstance(weights, str) and weights == "uniform")
    chosen = _expect_numbers(heads, "heads"), _expect_numbers(rows, "rows")
    intervention = _Intervention(_find_places(model, places), weights, *chosen)
    _interventions.set((*_interventions.get(), intervention))
    try:
        with replace_weights(model, places, observe, intervention.on_attention):
            yield
    finally:
        _interventions.set(tuple(one for one in _interventions.get() if one is not intervention))


@contextmanager
def replace_weights(
    model: nn.Module, places: str | Sequence[str], observe: Observe, on_attention: OnAttention
) -> Iterator[None]:
    """Let `on_attention` return other weights for these places, in a model of ours or any other."""
    found, ours = _find_places(model, places), bool(taps_of(model))
    calls = 0

    def counted(place: str, got: Attended) -> Tensor | None:
        nonlocal calls
        calls += 1
        return on_attention(place, got)

    elsewhere: AbstractContextManager[object] = nullcontext() if ours else intercept_attention(model)
    with listen(TapListener(found, observe, counted)), elsewhere:
        yield
    if not ours and not calls:
        raise PlaceError(
            f"No attention was computed at {places!r}",
            where="intervene",
            advice="Run the model inside the block; places are modules that average values by a softmax.",
        )


def is_intervened(module: nn.Module) -> bool:
    """Whether an intervention on this module is active."""
    return any(module in one.places for one in _interventions.get())


def reset_query_counts() -> None:
    """Start a new run: its first query is number 0 again."""
    for one in _interventions.get():
        one.query_counts.clear()


@dataclass(eq=False)
class _Intervention:
    """One intervention, with the number of queries that each place has had."""

    places: Mapping[nn.Module, str]
    weights: Weights
    heads: tuple[int, ...] | None
    rows: tuple[int, ...] | None
    query_counts: dict[str, int] = field(default_factory=dict)

    def on_attention(self, place: str, got: Attended) -> Tensor | None:
        assert got.weights is not None
        whole = got.weights
        by_head = whole if whole.dim() > 3 else whole.unsqueeze(-3)  # (..., H, T, S)
        _expect_heads(self.heads, by_head.size(-3), place)
        T = by_head.size(-2)
        first = self.query_counts.get(place, 0) if T == 1 else 0
        self.query_counts[place] = first + T
        rows = None if self.rows is None else [row - first for row in self.rows if first <= row < first + T]
        if rows is not None and not rows:
            return None
        heads = None if self.heads is None else torch.tensor(self.heads, device=whole.device)
        own = by_head if heads is None else by_head.index_select(-3, heads)
        new = self._new_weights(own, got, first, heads)
        if rows is not None:
            here = torch.zeros(T, 1, dtype=torch.bool, device=whole.device)
            here[rows] = True
            new = torch.where(here, new, own)
        new = new if heads is None else by_head.index_copy(-3, heads, new)
        return new.reshape(whole.shape)

    def _new_weights(self, own: Tensor, got: Attended, first: int, heads: Tensor | None) -> Tensor:
        """The replacement of `own` (..., chosen heads, T, S); `first`: the number of its first query."""
        given = self.weights
        if isinstance(given, Tensor):
            if given.dim() == got.lse.dim() + 1 == 3:  # for a place without heads
                given = given.unsqueeze(-3)
            return _fit_to_call(given, own, first)
        if isinstance(given, str):
            return torch.zeros_like(own) if given == "zero" else self._uniform(own, got, heads)
        made = given(own)
        if not isinstance(made, Tensor):
            raise DtypeError(f"a {type(made).__name__} from a function of weights", "a tensor", where="intervene")
        _expect_weights(made)
        return _fit_to_call(made, own, first)

    @staticmethod
    def _uniform(own: Tensor, got: Attended, heads: Tensor | None) -> Tensor:
        """The same weight for every visible key."""
        assert got.prepared is not None
        visible = _visible_keys(got.prepared).reshape(*got.lse.shape, -1)
        visible = visible if visible.dim() > 3 else visible.unsqueeze(-3)
        visible = (visible if heads is None else visible.index_select(-3, heads)).to(own.dtype)
        return visible / visible.sum(-1, keepdim=True).clamp(min=1)


_interventions: ContextVar[tuple[_Intervention, ...]] = ContextVar("regard_interventions", default=())


def _visible_keys(prepared: AttentionInputs) -> Tensor:
    """Which keys each query may see, (..., T, S)."""
    scores = prepared.precise().scores()
    best = scores.amax(-1, keepdim=True) if scores.size(-1) else scores
    return (scores > -torch.inf) & (scores >= best - HIDDEN_GAP)


def _fit_to_call(given: Tensor, own: Tensor, first: int) -> Tensor:
    """Given weights as those of one call, (..., T, S)."""
    T, S = own.shape[-2:]
    found = given.to(own.device, own.dtype)
    if T == 1 and found.dim() > 1 and found.size(-2) > 1 and first < found.size(-2):
        found = found[..., first : first + 1, :]
    if found.dim() and found.size(-1) > S and not found[..., S:].any():
        found = found[..., :S]  # without keys of later steps
    try:
        return found.expand(own.shape)
    except RuntimeError:
        came = f"weights of shape {tuple(given.shape)} for query {first}" if T == 1 else f"weights {tuple(given.shape)}"
        raise ShapeError(came, f"a shape that broadcasts to {tuple(own.shape)}", where="intervene") from None


def _find_places(model: nn.Module, places: str | Sequence[str]) -> dict[nn.Module, str]:
    try:
        return places_of(model, places)
    except PlaceError as error:
        raise error.replace(where="intervene") from None


def _expect_numbers(numbers: int | Sequence[int] | None, what: str) -> tuple[int, ...] | None:
    """Heads or rows as distinct numbers from 0 on."""
    if numbers is None:
        return None
    found = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    if not found or len(set(found)) < len(found) or any(not isinstance(one, int) or one < 0 for one in found):
        raise SettingError(f"{what}={numbers!r}", "distinct numbers, counted from 0", where="intervene")
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
        raise PlaceError(f"head {missing} at {place}", f"one from 0 to {count - 1}", where="intervene")


def _expect_weights(weights: Tensor) -> None:
    if not weights.is_floating_point():
        raise DtypeError(f"weights of {weights.dtype}", "floating-point numbers", where="intervene")
    if not bool((weights.detach() >= 0).all()) or not bool(weights.detach().isfinite().all()):
        raise SettingError("weights that are negative, infinite or NaN", "numbers of 0 and more", where="intervene")


WeightEdits = tuple[tuple[int, float], ...]
"""Keys, each with its new weight."""


@dataclass(frozen=True)
class HeadIntervention:
    """At a place, a head (None: all of them), and a query (None: all): zero weights, uniform weights, or edits."""

    place: str
    head: int | None
    weights: Literal["zero", "uniform"] | WeightEdits
    query: int | None = None


@contextmanager
def apply_interventions(adapter: ModelAdapter, interventions: Sequence[HeadIntervention]) -> Iterator[None]:
    """Apply interventions to the model of an adapter until the block ends."""
    with ExitStack() as stack:
        for one in interventions:
            weights: Literal["zero", "uniform"] | Function
            weights = one.weights if isinstance(one.weights, str) else partial(edit_weights, edits=one.weights)
            how = intervene(adapter.model, one.place, heads=one.head, weights=weights, rows=one.query)
            stack.enter_context(how)
        yield


def edit_weights(weights: Tensor, edits: WeightEdits) -> Tensor:
    """Weights (..., T, S) with those of some keys set; the others share the rest in proportion."""
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
