"""Taps: named hook points of attention, where listeners see each call and may replace its weights.

A model attends through a Tap instead of calling `attend` itself. Without listeners the two are the same, and nothing is
stored anywhere; inside `with capture(model) as heard:` every call is reported. The listeners are known to the context
alone (a ContextVar), never to the model: each thread and each asyncio task has its own, and tasks that are started
inside the block inherit them until it ends. Blocks may end in any order.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.attend import attend, average
from regard.attention.compiled_capture import clear_request, report, request_of, set_request
from regard.attention.grid import Grid
from regard.attention.inputs import autocast_disabled
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.observe import Attended, Observe, attention_statistics, union_of
from regard.attention.transforms import uncompiled
from regard.errors import PlaceError, SettingError, ShapeError

OnAttention = Callable[[str, Attended], Tensor | None]
"""Called with (place, Attended); weights (..., T, S) that it returns replace those of the call."""


@dataclass(eq=False)
class TapListener:
    """A listener at some taps: the statistics it requests, and the function that is called with them.

    `replaces`: whether `on_attention` may return weights. A call that only reports is computed as without a listener.
    `in_graph`: whether the model's output is computed from the same tensors as are reported, so that gradients of the
    output reach them. `hooked`: whether hooks of torch find the calls, which compiled code leaves out.
    `attending`: which of its places may compute attention, where not all do. `ended`: whether its block is over, in
    whichever context that was.
    """

    places: Mapping[nn.Module, str]
    observe: Observe
    on_attention: OnAttention
    replaces: bool = True
    in_graph: bool = False
    hooked: bool = False
    attending: Collection[nn.Module] | None = None
    ended: bool = False

    @property
    def eager(self) -> bool:
        """Whether no compiled graph can serve it: compiled code runs uncompiled until its block ends."""
        return self.replaces or self.in_graph or self.hooked or self.observe.prepared


_OBSERVE_NOTHING = Observe()
MAX_LISTED = 40  # places that an error lists

_listeners: ContextVar[tuple[TapListener, ...]] = ContextVar("regard_listeners", default=())
_lock = Lock()
_active: list[TapListener] = []  # the listeners of all contexts together
_any_listeners = False  # whether there are any
_stance: Any = None  # of torch.compile, while there are listeners that no graph can serve
_dispatching: ContextVar[bool] = ContextVar("regard_dispatching", default=False)


class Tap(nn.Module):
    """`attend` with a name: the path of the module that owns it, as in "decoder.3.cross"."""

    def forward(self, q: Tensor, k: Tensor | PreparedKeys, v: Tensor | None = None, **how: Any) -> Attended:
        if not has_listeners(self):
            return attend(q, k, v, **how)
        observe = how.pop("observe", None) or _OBSERVE_NOTHING
        values = k.values if isinstance(k, PreparedKeys) else k if v is None else v
        compute = partial(attend, q, k, v, **how)
        return dispatch(self, lambda observe: compute(observe=observe), values, how.get("dropout", 0.0), observe)

    @property
    def has_listeners(self) -> bool:
        """Whether this tap has listeners now."""
        return has_listeners(self)

    @property
    def is_replaceable(self) -> bool:
        """Whether a listener may replace the weights. Code that computes the average another way must ask first."""
        return is_replaceable(self)

    def report(self, compute: Callable[[Observe], Attended], v: Tensor) -> None:
        """Report to the listeners a call that was computed elsewhere, and that none of them may replace."""
        dispatch(self, compute, v)


def has_listeners(module: nn.Module) -> bool:
    """Whether this module has listeners now."""
    if torch.compiler.is_compiling():
        return request_of(module) is not None
    return _any_listeners and any(module in listener.places for listener in _listening())


def is_replaceable(module: nn.Module) -> bool:
    """Whether a listener to this module may replace the weights."""
    if torch.compiler.is_compiling():
        return (request := request_of(module)) is not None and request.eager
    return _any_listeners and any(one.replaces and module in one.places for one in _listening())


def is_in_graph(module: nn.Module) -> bool:
    """Whether this module's output must be computed from the same tensors as are reported."""
    if torch.compiler.is_compiling():
        return (request := request_of(module)) is not None and request.eager
    return _any_listeners and any(one.in_graph and module in one.places for one in _listening())


def _listening() -> list[TapListener]:
    """The listeners of this context whose blocks have not ended."""
    return [one for one in _listeners.get() if not one.ended]


def any_listeners() -> bool:
    """Whether any module has listeners, in any context."""
    return _any_listeners


def is_dispatching() -> bool:
    """Whether the attention of a module is being computed for its listeners now: nothing inside is another call."""
    return _dispatching.get()


@contextmanager
def dispatching() -> Iterator[None]:
    """Nothing inside is another call of attention."""
    token = _dispatching.set(True)
    try:
        yield
    finally:
        _dispatching.reset(token)


def dispatch(
    module: nn.Module,
    compute: Callable[[Observe], Attended],
    v: Tensor,
    dropout: float = 0.0,
    observe: Observe = _OBSERVE_NOTHING,
) -> Attended:
    """Compute what a module attends to with all that its listeners observe, and pass it to them; they may replace the
    weights.

    `v` (..., S, Dv) and `dropout`: for the average by replaced weights. `observe`: what the module itself observes.
    """
    if torch.compiler.is_compiling():
        return _dispatch_compiled(module, compute, v, dropout, observe)
    if not _any_listeners:
        return compute(observe)
    listeners = [listener for listener in _listening() if module in listener.places]
    wanted = union_of((observe, *(listener.observe for listener in listeners)))
    token = _dispatching.set(True)
    try:
        got = compute(wanted)
    finally:
        _dispatching.reset(token)
    for listener in listeners:
        seen = got if listener.observe == wanted else got.restrict(listener.observe)
        weights = listener.on_attention(listener.places[module], seen)
        if weights is not None:
            got = _with_weights(got, weights, v, dropout, wanted)
    return got if observe == wanted else got.restrict(observe)


def _dispatch_compiled(
    module: nn.Module, compute: Callable[[Observe], Attended], v: Tensor, dropout: float, observe: Observe
) -> Attended:
    """`dispatch` in a graph, which computes what all listeners request and reports it when it runs."""
    request = request_of(module)
    if request is None:
        return compute(observe)
    if request.eager:
        return _dispatch_uncompiled(module, compute, v, dropout, observe)
    got = compute(request.observe | observe)
    report(request, got)
    return got.restrict(observe)


@uncompiled(
    "Listeners replace the weights of this attention, go on with its tensors or request thumbnails of several sizes, "
    "and torch.compile was called inside their block. Compile the model before the block: it then runs uncompiled there"
)
def _dispatch_uncompiled(*call: Any) -> Attended:
    return dispatch(*call)


def _hear_compiled(module: nn.Module, got: Attended) -> None:
    """Pass what a graph reports to the listeners of the context that runs it."""
    for listener in _listening():
        if module in listener.places:
            listener.on_attention(listener.places[module], got.restrict(listener.observe))


@contextmanager
def listen(listener: TapListener) -> Iterator[None]:
    """Call this listener at its taps until the block ends, in this context and those that are copied from it."""
    listener.ended = False
    _listeners.set((*_listeners.get(), listener))
    with _lock:
        _active.append(listener)
    try:
        with _lock:
            _tell_compiler(listener)
        yield
    finally:
        listener.ended = True
        with _lock:
            _active.remove(listener)
            _tell_compiler(listener)
        # not by a token of the ContextVar, which would also take back what began later and goes on
        _listeners.set(tuple(one for one in _listeners.get() if one is not listener))


def _tell_compiler(changed: TapListener) -> None:
    """Request of compiled code what the listeners of all contexts together observe; where no graph can serve one of
    them, let compiled code run uncompiled."""
    global _any_listeners, _stance
    _any_listeners = bool(_active)
    attending = changed.places if changed.attending is None else changed.attending
    for module in () if changed.hooked else attending:
        _request(module, [one for one in _active if not one.hooked and module in one.places])
    sizes = {one.observe.thumbnail for one in _active} - {None}  # each context may ask for one, a graph has one
    eager = any(one.eager for one in _active) or len(sizes) > 1
    if eager and _stance is None and "torch._dynamo" in sys.modules:  # whoever compiles has imported it
        _stance = torch.compiler.set_stance("force_eager")
    elif not eager and _stance is not None:
        _stance.__exit__(None, None, None)
        _stance = None


def _request(module: nn.Module, listeners: list[TapListener]) -> None:
    if not listeners:
        clear_request(module)
        return
    eager = any(one.eager for one in listeners)
    try:
        observe = union_of(tuple(one.observe for one in listeners))
    except SettingError:  # thumbnails of several sizes
        observe, eager = Observe(), True
    set_request(module, observe, eager, _hear_compiled)


def places_of(model: nn.Module, places: str | Sequence[str] = "*") -> dict[nn.Module, str]:
    """The modules of a model whose attention can be captured at places that match a glob pattern, or one of several.

    They are its taps; in a model without taps, whichever module calls torch's attention, so all of them.
    """
    patterns = [places] if isinstance(places, str) else list(places)
    named = modules_of(model)
    everywhere = _taps_among(named) or named
    if patterns == ["*"]:
        return everywhere
    for pattern in patterns:
        if not any(fnmatchcase(place, pattern) for place in everywhere.values()):
            raise _unmatched(pattern, list(everywhere.values()))
    return {module: at for module, at in everywhere.items() if any(fnmatchcase(at, pattern) for pattern in patterns)}


def _unmatched(pattern: str, places: list[str]) -> PlaceError:
    """The error for a pattern that matches no place."""
    patterns = {f"*.{place.rpartition('.')[2]}" for place in places}
    near = get_close_matches(pattern, [*places, *sorted(patterns)], n=1)
    suggestion = f"Did you mean {near[0]!r}? " if near else ""
    listed = ", ".join(places if len(places) <= MAX_LISTED else [*places[:MAX_LISTED], "..."])
    return PlaceError(f"No place matches {pattern!r}", where="capture", advice=f"{suggestion}Places: {listed}.")


def taps_of(model: nn.Module) -> dict[nn.Module, str]:
    """The taps of a model with their places."""
    return _taps_among(modules_of(model))


def _taps_among(named: Mapping[nn.Module, str]) -> dict[nn.Module, str]:
    return {module: _place(path) for module, path in named.items() if isinstance(module, Tap)}


def modules_of(model: nn.Module) -> dict[nn.Module, str]:
    """The modules of a model with their paths, in the order of `named_modules`, which takes ten times as long: one
    generator inside another for each level. Paths are the same if torch.compile wraps the model or parts of it."""
    found: dict[nn.Module, str] = {}
    waiting = [(model, "")]
    while waiting:
        module, path = waiting.pop()
        if module in found:
            continue
        children = module._modules
        if (inner := children.get(_WRAPPED)) is not None:
            waiting.append((inner, path))
            continue
        found[module] = path
        if children:
            start = f"{path}." if path else ""
            waiting += [(child, start + name) for name, child in reversed(children.items()) if child is not None]
    return found


_WRAPPED = "_orig_mod"  # what torch.compile calls the module inside its own


def _place(path: str) -> str:
    """A tap that its owner calls `tap` goes by the owner's name."""
    return path.removesuffix("tap").removesuffix(".") if path.split(".")[-1] == "tap" else path


def _with_weights(got: Attended, weights: Tensor, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The same call with other weights: output, statistics and sink follow them; lse stays that of the scores."""
    expected = (*got.lse.shape, v.size(-2))
    if tuple(weights.shape) != expected:
        raise ShapeError(f"replacement weights of shape {tuple(weights.shape)}", f"{expected}", where="Tap")
    grid = Grid(tuple(got.lse.shape[:-1]), got.lse.size(-1), v.size(-2), v.device)
    weights = weights.to(got.lse.dtype)
    with autocast_disabled(v):
        output = average(nn.functional.dropout(weights, dropout), v, grid)
    hidden = weights == 0
    left = None if got.sink is None else (1 - weights.sum(-1)).clamp(min=0.0)
    found = attention_statistics(weights, hidden, observe)  # scores stay, and their peaks
    return replace(got, output=output, sink=left, **found)
