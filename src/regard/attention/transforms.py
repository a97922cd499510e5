"""Transforms around a call of attention: torch.func (grad, vmap, jvp), forward-mode differentiation, torch.compile,
second derivatives. They decide which backend can serve it, and whether numbers can be read.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from regard.errors import BackendError


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
