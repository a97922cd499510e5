"""Residual connection and layer norm, fused where a compiled training step on a GPU can use a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention.kernels.devices import triton_unsupported_reason

HALF_DTYPES = (torch.bfloat16, torch.float16)


def is_compiled_half_cuda(x: Tensor) -> bool:
    """Whether this is being compiled for training on the GPU of x, which runs Triton kernels, with matrix products in
    half precision.

    Generating token by token has too little work for the launch of a kernel that the compiler does not know.
    """
    if x.device.type != "cuda" or not torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    return dtype in HALF_DTYPES and triton_unsupported_reason(x) is None


MAX_WIDTH = 4096  # of a vector that one program holds
ThreeTensors = tuple[Tensor, Tensor, Tensor]
FourTensors = tuple[Tensor, Tensor, Tensor, Tensor]


class Residual(NamedTuple):
    """x + branch, both (..., D), not added yet."""

    x: Tensor
    branch: Tensor | None = None

    def total(self) -> Tensor:
        return self.x if self.branch is None else self.x + self.branch

    def add_norm(self, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """The sum, and its norm: in the dtype of `branch` where one kernel computes both."""
        if self.branch is None or self.branch.dtype not in HALF_DTYPES or not _is_supported(norm):
            total = self.total()
            return total, norm(total)
        total, normed, *_ = _add_norm(self.x, self.branch, norm.weight, norm.bias, norm.eps)
        return total, normed


def _is_supported(norm: nn.Module) -> bool:
    if not isinstance(norm, nn.LayerNorm) or len(norm.normalized_shape) != 1 or norm.normalized_shape[0] > MAX_WIDTH:
        return False
    return norm.elementwise_affine and norm.bias is not None


@torch.library.custom_op("regard::add_norm", mutates_args=())
def _add_norm(x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, eps: float) -> FourTensors:
    """x + branch, its norm, and (N,) of all N vectors: their means, and 1 / their standard deviations."""
    from regard.attention.kernels.triton.residual import add_norm

    return add_norm(x, branch, weight, bias, eps)


@_add_norm.register_fake
def _(x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, eps: float) -> FourTensors:
    each = x.new_empty(x.numel() // x.size(-1), dtype=torch.float32)
    return x.new_empty(x.shape), branch.new_empty(branch.shape), each, torch.empty_like(each)


@torch.library.custom_op("regard::add_norm_backward", mutates_args=())
def _add_norm_backward(
    grad_total: Tensor, grad_normed: Tensor, total: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor
) -> ThreeTensors:
    """Gradients of x, of `branch` (the same in its dtype), and (2, D) of weight and bias."""
    from regard.attention.kernels.triton.residual import add_norm_backward

    return add_norm_backward(grad_total, grad_normed, total, weight, mean, inverse_std)


@_add_norm_backward.register_fake
def _(
    grad_total: Tensor, grad_normed: Tensor, total: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor
) -> ThreeTensors:
    grad_branch = grad_normed.new_empty(grad_normed.shape)
    return total.new_empty(total.shape), grad_branch, total.new_empty(2, total.size(-1), dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: FourTensors) -> None:
    total, _, mean, inverse_std = output
    weight, bias = inputs[2:4]
    ctx.save_for_backward(total, weight, mean, inverse_std)
    ctx.dtypes = weight.dtype, bias.dtype


def _backward(ctx: Any, grad_total: Tensor, grad_normed: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    grad_x, grad_branch, sums = _add_norm_backward(grad_total, grad_normed, *ctx.saved_tensors)
    return grad_x, grad_branch, sums[0].to(ctx.dtypes[0]), sums[1].to(ctx.dtypes[1]), None


_add_norm.register_autograd(_backward, setup_context=_setup_context)
