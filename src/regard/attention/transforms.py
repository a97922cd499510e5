"""Transforms around a call of attention: torch.func (grad, vmap, jvp), forward-mode differentiation, torch.compile,
second derivatives. They decide which backend can serve it, and whether numbers can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame
from torch.autograd import forward_ad

from regard.errors import BackendError

P = ParamSpec("P")
R = TypeVar("R")


def active_transforms() -> list[str]:
    """The transforms of torch.func around this call, outermost first; "jvp" for forward-mode differentiation too."""
    if torch.compiler.is_compiling():
        return []
    stack = torch._C._functorch.get_interpreter_stack() or ()
    found = [str(one.key()).rpartition(".")[2].lower() for one in stack]
    return [*found, "jvp"] if forward_ad._current_level >= 0 and "jvp" not in found else found


def is_readable(x: Tensor) -> bool:
    """Whether the numbers of x can be read without waiting for a device, breaking a compiled graph, or asking a batch
    of torch.func for one answer."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling() and not active_transforms()


def is_memory_lasting(device: torch.device) -> bool:
    """Whether tensors that are made now on a device keep their numbers after this call: a compiled or captured graph,
    which uses its memory again, is not being made."""
    if torch.compiler.is_compiling():
        return False
    return device.type != "cuda" or not torch.cuda.is_current_stream_capturing()


def current_stream(device: torch.device) -> int:
    """The stream of a device that work goes to now; 0 for a CPU."""
    return torch._C._cuda_getCurrentRawStream(device.index or 0) if device.type == "cuda" else 0


def is_plain_call(*tensors: Tensor) -> bool:
    """Whether a call on these tensors is computed at once and watched by nothing: no compiler, gradient, transform,
    dispatch mode or subclass. Then an operator's kernel may be called as it is, which takes the host a fraction of the
    time that a dispatch through Python takes."""
    if not has_addresses() or forward_ad._current_level >= 0:
        return False
    learns = torch.is_grad_enabled()
    for x in tensors:  # noqa: SIM110 (a generator takes three times as long)
        if type(x) not in _PLAIN or (learns and x.requires_grad):
            return False
    return True


def has_addresses() -> bool:
    """Whether tensors have addresses here: not while a graph is compiled, under a dispatch mode (of fake tensors, say)
    or inside a transform."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return False
    return torch._C._functorch.peek_interpreter_stack() is None


_PLAIN = (Tensor, torch.nn.Parameter)


def uncompiled(reason: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A function that a compiled graph leaves to call it as it is; with fullgraph=True, torch refuses it with this
    reason. As torch.compiler.disable, which would import the whole compiler."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            before = eval_frame.set_eval_frame(None)
            try:
                return function(*args, **kwargs)
            finally:
                eval_frame.set_eval_frame(before)

        run._torchdynamo_disable = True  # type: ignore[attr-defined]
        run._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return run

    return decorate


@contextmanager
def autograd_inside_operator() -> Iterator[None]:
    """Autograd records inside, in the body of an operator of torch.library, which runs below it."""
    keys = torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView
    with ExitStack() as stack:
        for key in keys:
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))
        stack.enter_context(torch.enable_grad())
        yield


def refuse_second_derivative(output: Tensor, backend: str) -> None:
    """Let the gradient of this output say in a sentence that it has none of its own, where torch would in its terms."""
    if torch.compiler.is_compiling() or active_transforms() or (node := output.grad_fn) is None:
        return

    def mark(gradients: Any, _: Any) -> Any:
        if not torch.is_grad_enabled():  # create_graph=False
            return None
        return tuple(one if one is None else _FirstDerivative.apply(one, backend) for one in gradients)

    node.register_hook(mark)


class _FirstDerivative(torch.autograd.Function):
    """A gradient that cannot be differentiated again."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor, backend: str) -> Tensor:
        ctx.backend = backend
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise BackendError(
            f"Backend {ctx.backend!r} has no second derivatives",
            where="attend",
            advice="Use backend='plain', or 'stream' for long inputs.",
        )
