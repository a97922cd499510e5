"""A residual sum and the norm after it, in one pass where a compiled training step on a GPU can take our kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.kernels.devices import no_kernels

HALF = (torch.bfloat16, torch.float16)


def compiled_half(x: Tensor) -> bool:
    """Whether this is being compiled, to learn, for a GPU that x is on and that runs Triton's kernels, with products of
    x and a matrix in half precision.

    Writing token by token has too little to do for what it costs to start a kernel that the compiler does not know.
    """
    if x.device.type != "cuda" or not torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    return dtype in HALF and no_kernels(x) is None


WIDEST = 4096  # of the vectors that one program holds
Three = tuple[Tensor, Tensor, Tensor]
Four = tuple[Tensor, Tensor, Tensor, Tensor]


class Residual(NamedTuple):
    """x + more, both (..., D), not added yet."""

    x: Tensor
    more: Tensor | None = None

    def whole(self) -> Tensor:
        return self.x if self.more is None else self.x + self.more

    def normed(self, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """The sum, and its norm: of `more`'s precision where one kernel serves both."""
        if self.more is None or self.more.dtype not in HALF or not _served(norm):
            total = self.whole()
            return total, norm(total)
        total, normed, *_ = _added_norm(self.x, self.more, norm.weight, norm.bias, norm.eps)
        return total, normed


def _served(norm: nn.Module) -> bool:
    if not isinstance(norm, nn.LayerNorm) or len(norm.normalized_shape) != 1 or norm.normalized_shape[0] > WIDEST:
        return False
    return norm.elementwise_affine and norm.bias is not None


@torch.library.custom_op("regard::added_norm", mutates_args=())
def _added_norm(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Four:
    """x + more, its norm, and (N,) of all N vectors: their means, and 1 / their deviations."""
    from regard.attention.kernels.triton.residual import added_norm

    return added_norm(x, more, weight, bias, eps)


@_added_norm.register_fake
def _(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Four:
    each = x.new_empty(x.numel() // x.size(-1), dtype=torch.float32)
    return x.new_empty(x.shape), more.new_empty(more.shape), each, torch.empty_like(each)


@torch.library.custom_op("regard::added_norm_back", mutates_args=())
def _added_norm_back(
    for_total: Tensor, for_normed: Tensor, total: Tensor, weight: Tensor, mean: Tensor, sharp: Tensor
) -> Three:
    """Gradients of x, of `more` (the same in its precision), and (2, D) of weight and bias."""
    from regard.attention.kernels.triton.residual import added_norm_back

    return added_norm_back(for_total, for_normed, total, weight, mean, sharp)


@_added_norm_back.register_fake
def _(for_total: Tensor, for_normed: Tensor, total: Tensor, weight: Tensor, mean: Tensor, sharp: Tensor) -> Three:
    near = for_normed.new_empty(for_normed.shape)
    return total.new_empty(total.shape), near, total.new_empty(2, total.size(-1), dtype=torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Four) -> None:
    total, _, mean, sharp = output
    weight, bias = inputs[2:4]
    ctx.save_for_backward(total, weight, mean, sharp)
    ctx.dtypes = weight.dtype, bias.dtype


def _backward(ctx: Any, for_total: Tensor, for_normed: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    slope, near, sums = _added_norm_back(for_total, for_normed, *ctx.saved_tensors)
    return slope, near, sums[0].to(ctx.dtypes[0]), sums[1].to(ctx.dtypes[1]), None


_added_norm.register_autograd(_backward, setup_context=_remember)
