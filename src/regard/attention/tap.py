"""Named points where anyone curious may listen, and say something back.

A model attends through a Tap instead of calling `attend` itself. While nobody listens the two are the same, and
nothing is kept anywhere; inside `with capture(model) as heard:` every call is reported. Who listens is known to the
context alone (a ContextVar), never to the model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial, reduce
from operator import or_
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.attend import attend, average
from regard.attention.grid import Grid
from regard.attention.inputs import own_precision
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.observe import Attended, Observe, describe
from regard.errors import PlaceError, ShapeError

Hear = Callable[[str, Attended], Tensor | None]
"""What a listener does with (place, what was attended there); returned weights (..., T, S) take the place of those."""


@dataclass(frozen=True)
class Listener:
    """Someone who listens at some taps: what they want to know, and what they do with it.

    `replaces`: whether `hear` may return weights. A call that only reports is computed as if nobody listened.
    """

    places: Mapping[nn.Module, str]
    observe: Observe
    hear: Hear
    replaces: bool = True


_NOTHING = Observe()
MOST_NAMED = 40  # places that an error lists

_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("regard_listeners", default=())
_counting = Lock()
_open = 0  # how many blocks let somebody hear, in all contexts together
_anybody = False  # whether there are any: compilers know how to watch a global, not a ContextVar


class Tap(nn.Module):
    """`attend` with a name: the path of the module that owns it, as in "decoder.3.cross"."""

    def forward(self, q: Tensor, k: Tensor | PreparedKeys, v: Tensor | None = None, **how: Any) -> Attended:
        if not is_heard(self):
            return attend(q, k, v, **how)
        own = how.pop("observe", None) or _NOTHING
        values = k.values if isinstance(k, PreparedKeys) else k if v is None else v
        compute = partial(attend, q, k, v, **how)
        return report(self, lambda observe: compute(observe=observe), values, how.get("dropout", 0.0), own)

    @property
    def heard(self) -> bool:
        """Whether anybody hears this tap now."""
        return is_heard(self)

    @property
    def replaceable(self) -> bool:
        """Whether somebody may answer with other weights. Who computes an average by another way must ask first."""
        return _anybody and any(one.replaces and self in one.places for one in _listeners.get())

    def report(self, compute: Callable[[Observe], Attended], v: Tensor) -> None:
        """Tell the listeners of a call that was computed elsewhere, and that none of them may replace."""
        report(self, compute, v)


def is_heard(who: nn.Module) -> bool:
    """Whether anybody listens to this module now."""
    return _anybody and any(who in listener.places for listener in _listeners.get())


def report(
    who: nn.Module,
    compute: Callable[[Observe], Attended],
    v: Tensor,
    dropout: float = 0.0,
    own: Observe = _NOTHING,
) -> Attended:
    """Compute what a module attends to with all that its listeners want to know, let them hear it and answer.

    `v` (..., S, Dv) and `dropout`: for the average, if somebody answers with other weights. `own`: what the module
    itself wants to know.
    """
    listeners = [listener for listener in _listeners.get() if who in listener.places]
    wanted = reduce(or_, (listener.observe for listener in listeners), own)
    got = compute(wanted)
    for listener in listeners:
        reply = listener.hear(listener.places[who], got.only(listener.observe))
        if reply is not None:
            got = _replaced(got, reply, v, dropout, wanted)
    return got.only(own)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Let this listener hear, and answer, until the block ends."""
    token = _listeners.set((*_listeners.get(), listener))
    _opened(+1)
    try:
        with _uncompiled():
            yield
    finally:
        _opened(-1)
        _listeners.reset(token)


def _uncompiled() -> AbstractContextManager[object]:
    """Inside, what was compiled runs as it is written: a graph that was made when nobody listened has no ears."""
    compiled = "torch._dynamo" in sys.modules  # slow to import, and whoever compiles has done it
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


def _opened(more: int) -> None:
    global _open, _anybody
    with _counting:
        _open += more
        _anybody = _open > 0


def places_of(model: nn.Module, places: str | Sequence[str] = "*") -> dict[nn.Module, str]:
    """The modules of a model that may be heard at places that match a pattern (as in file names) or one of several.

    They are its taps; in a model without any, whichever module calls torch's attention, so all of them.
    """
    patterns = [places] if isinstance(places, str) else list(places)
    everywhere = taps_of(model) or {module: path for path, module in model.named_modules()}
    for pattern in patterns:
        if not any(fnmatchcase(place, pattern) for place in everywhere.values()):
            known = list(everywhere.values())
            some = ", ".join(known if len(known) <= MOST_NAMED else [*known[:MOST_NAMED], "..."])
            raise PlaceError(f"places {pattern!r}, which match nothing", f"some of {some}", where="capture")
    return {who: at for who, at in everywhere.items() if any(fnmatchcase(at, pattern) for pattern in patterns)}


def taps_of(model: nn.Module) -> dict[nn.Module, str]:
    """The taps of a model with their places."""
    return {module: _place(path) for path, module in model.named_modules() if isinstance(module, Tap)}


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
    with own_precision(v):
        output = average(nn.functional.dropout(weights, dropout), v, grid)
    hidden = weights == 0
    return replace(got, output=output, **describe(weights, hidden, observe))
