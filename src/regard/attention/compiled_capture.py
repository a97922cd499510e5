"""Capture of compiled code: a graph of torch.compile computes what listeners request; an operator in it reports that.

While somebody listens to a module, the module carries an AttentionRequest, which compiled code guards on by its values:
a graph that computes the statistics is compiled once for each request, and without one the graph without them serves
again. The operator runs where the graph runs, in the thread and context of the call, so it can ask who listens there;
which module it speaks for is a tensor, so layers that share one graph stay apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch._library.effects import EffectType
from torch.library import custom_op

from regard.attention.observe import Attended, Observe, Top

OnCall = Callable[[nn.Module, Attended], None]

_ATTRIBUTE = "_attention_request"  # of a module that somebody listens to
_numbers = count()
_known: WeakKeyDictionary[nn.Module, tuple[int, Tensor]] = WeakKeyDictionary()  # the number of each module
_receivers: dict[int, tuple[ref[nn.Module], OnCall]] = {}  # by the number of a module that somebody listens to


@dataclass(eq=False)
class AttentionRequest:
    """What is requested of a module by all its listeners together.

    `eager`: no graph can serve them, so the module runs uncompiled. `number`: an integer tensor, the module's own, that
    graphs read; `key`: the same number, which they do not.
    """

    observe: Observe
    eager: bool
    number: Tensor
    key: int

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _no_request, ()  # nobody listens to a copy of the module


def _no_request() -> None:
    return None


def set_request(module: nn.Module, observe: Observe, eager: bool, on_call: OnCall) -> None:
    """From now on compiled code computes this for the module, and calls `on_call` with it."""
    if module not in _known:
        number = next(_numbers)
        _known[module] = number, torch.tensor(number, device="cpu")
    number, same = _known[module]
    _receivers[number] = ref(module), on_call
    module.__dict__[_ATTRIBUTE] = AttentionRequest(observe, eager, same, number)  # past the checks of nn.Module


def clear_request(module: nn.Module) -> None:
    """Nobody listens to this module any more."""
    if (before := request_of(module)) is not None:
        _receivers.pop(before.key, None)
        del module.__dict__[_ATTRIBUTE]


def request_of(module: nn.Module) -> AttentionRequest | None:
    """What compiled code computes for the listeners of this module; None: there are none."""
    found: AttentionRequest | None = getattr(module, _ATTRIBUTE, None)
    return found


def report(request: AttentionRequest, got: Attended) -> None:
    """Report a call from inside a compiled graph. What is reported is detached: gradients stay those of the graph."""
    names, tensors = [], []
    for name in _TENSORS:
        value = getattr(got, name)
        if value is not None:
            names.append(name)
            tensors.append(value.detach())
    if got.top is not None:
        names.append(_TOP)
        tensors += [got.top.values, got.top.indices]
    _report_operator(request.number, got.backend, " ".join(names), tensors)


_TOP = "top"
_TENSORS = [one.name for one in fields(Attended) if one.name not in ("backend", "prepared", _TOP)]


@custom_op("regard::report_attention", mutates_args=(), tags=(torch.Tag.cudagraph_unsafe,))
def _report_operator(number: Tensor, backend: str, names: str, tensors: list[Tensor]) -> None:
    """Pass the fields of an Attended to the receiver of a request. They are copied, since a graph may use their memory
    again."""
    receiver = _receivers.get(int(number))
    module = None if receiver is None else receiver[0]()
    if receiver is None or module is None:
        return
    copies = iter([x.clone() for x in tensors])
    found: dict[str, Any] = {}
    for name in names.split():
        found[name] = Top(next(copies), next(copies)) if name == _TOP else next(copies)
    receiver[1](module, Attended(backend=backend, **found))


@_report_operator.register_fake
def _(number: Tensor, backend: str, names: str, tensors: list[Tensor]) -> None:
    return None


# calls keep their order, and none is left out because its result is not used
torch.library._register_effectful_op("regard::report_attention", EffectType.ORDERED)
