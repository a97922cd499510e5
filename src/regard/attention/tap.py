"""Named points where anyone curious may listen, and say something back.

A model attends through a Tap instead of calling `attend` itself. While nobody listens the two are the same, and
nothing is kept anywhere; inside `with capture(model) as heard:` every call is reported. Who listens is known to the
context alone (a ContextVar), never to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial, reduce
from operator import or_
from typing import Any

from torch import Tensor, nn

from regard.attention.attend import attend, average
from regard.attention.grid import Grid
from regard.attention.memory import Memory
from regard.attention.observe import Attended, Observe, describe
from regard.errors import PlaceError, ShapeError

Hear = Callable[[str, Attended], Tensor | None]
"""What a listener does with (place, what was attended there); returned weights (..., T, S) take the place of those."""


@dataclass(frozen=True)
class Listener:
    """Someone who listens at some taps: what they want to know, and what they do with it."""

    places: Mapping[nn.Module, str]
    observe: Observe
    hear: Hear


_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("regard_listeners", default=())


class Tap(nn.Module):
    """`attend` with a name: the path of the module that owns it, as in "decoder.3.cross"."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor | None = None, **how: Any) -> Attended:
        return self._heard(partial(attend, q, k, v), k if v is None else v, how)

    def look(self, memory: Memory, q: Tensor, **how: Any) -> Attended:
        """The same where queries come one after another: a call for each of them."""
        return self._heard(partial(memory.look, q), memory.values, how)

    @property
    def listened(self) -> bool:
        """Whether anybody hears this tap now. Who computes what it reports by another way must ask first."""
        return any(self in listener.places for listener in _listeners.get())

    def _heard(self, compute: Callable[..., Attended], v: Tensor, how: dict[str, Any]) -> Attended:
        listeners = [listener for listener in _listeners.get() if self in listener.places]
        if not listeners:
            return compute(**how)
        own = how.pop("observe", None) or Observe()
        wanted = reduce(or_, (listener.observe for listener in listeners), own)
        got = compute(observe=wanted, **how)
        for listener in listeners:
            reply = listener.hear(listener.places[self], got.only(listener.observe))
            if reply is not None:
                got = _replaced(got, reply, v, how.get("dropout", 0.0), wanted)
        return got.only(own)


class Heard:
    """What was attended at each place, call by call.

    >>> heard["decoder.3.cross"]        # that place's only call  # doctest: +SKIP
    >>> heard.calls("decoder.3.cross")  # all of them, first to last  # doctest: +SKIP
    """

    def __init__(self, places: Sequence[str]) -> None:
        self._calls: dict[str, list[Attended]] = {place: [] for place in places}

    @property
    def places(self) -> list[str]:
        """Where somebody listens, in the order of the model."""
        return list(self._calls)

    def calls(self, place: str) -> list[Attended]:
        """Everything heard at this place, in the order of the calls."""
        if place not in self._calls:
            raise PlaceError(f"place {place!r}", f"one of {', '.join(self._calls)}", where="heard")
        return self._calls[place]

    def __getitem__(self, place: str) -> Attended:
        calls = self.calls(place)
        if len(calls) != 1:
            advice = "Run the model inside the with-block." if not calls else f"heard.calls({place!r}) lists them."
            raise PlaceError(f"{len(calls)} calls at {place!r}", "one call", where="heard", advice=advice)
        return calls[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return "Heard(" + ", ".join(f"{place}: {len(calls)}" for place, calls in self._calls.items()) + ")"


@contextmanager
def capture(model: nn.Module, places: str | Sequence[str] = "*", observe: Observe | None = None) -> Iterator[Heard]:
    """Hear every call at the places that match, such as "*.cross" or ["encoder.0.self", "encoder.1.*"].

    By default the whole weights are heard. The model's output does not change by one bit; while it trains, that of a
    loop with its own derivative (models/loop.py), which nobody can listen to, may change by rounding.
    """
    names = places_of(model, places)
    heard = Heard(list(names.values()))

    def hear(place: str, got: Attended) -> None:
        heard.calls(place).append(got)

    with listening(Listener(names, observe or Observe(weights=True), hear)):
        yield heard


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let this listener hear, and answer, until the block ends."""
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


def places_of(model: nn.Module, places: str | Sequence[str] = "*") -> dict[nn.Module, str]:
    """The taps of a model whose places match a pattern (as in file names) or one of several, with those places."""
    patterns = [places] if isinstance(places, str) else list(places)
    everywhere = {module: _place(path) for path, module in model.named_modules() if isinstance(module, Tap)}
    if not everywhere:
        raise PlaceError(
            f"a {type(model).__name__} without taps", "a model that attends through regard.Tap", where="capture"
        )
    for pattern in patterns:
        if not any(fnmatchcase(place, pattern) for place in everywhere.values()):
            raise PlaceError(
                f"places {pattern!r}, which match nothing", f"some of {', '.join(everywhere.values())}", where="capture"
            )
    return {tap: at for tap, at in everywhere.items() if any(fnmatchcase(at, pattern) for pattern in patterns)}


def _place(path: str) -> str:
    """A tap that its owner calls `tap` goes by the owner's name."""
    return path.removesuffix("tap").removesuffix(".") if path.split(".")[-1] == "tap" else path


def _replaced(got: Attended, weights: Tensor, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The same call with other weights: output and statistics follow them; lse stays what the scores said."""
    asked = (*got.lse.shape, v.size(-2))
    if tuple(weights.shape) != asked:
        raise ShapeError(f"replacement weights of shape {tuple(weights.shape)}", f"{asked}", where="Tap")
    grid = Grid(tuple(got.lse.shape[:-1]), got.lse.size(-1), v.size(-2), v.device)
    weights = weights.to(got.lse.dtype)
    output = average(nn.functional.dropout(weights, dropout), v, grid)
    hidden = weights == 0
    return replace(got, output=output, **describe(weights, hidden, observe))
