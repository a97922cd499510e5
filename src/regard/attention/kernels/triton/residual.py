"""Fused residual add and layer norm on a GPU: one pass over the rows forward, one backward."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import on_device
from regard.attention.kernels.triton.reduce import reduce_rows

FORWARD_PROGRAMS, BACKWARD_PROGRAMS = 660, 660  # 5 for each of an H200's 132 multiprocessors, measured to be best


def add_norm(
    x: Tensor, branch: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x (..., D) + branch in the dtype of x, its layer norm in the dtype of `branch`, and (N,) of all N vectors: their
    means, and 1 / their standard deviations."""
    x, branch = x.contiguous(), branch.contiguous()
    width = x.size(-1)
    rows = x.numel() // width
    total, normed = torch.empty_like(x), torch.empty_like(branch)
    mean, inverse_std = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if rows:
        with on_device(x):
            _add_norm_kernel[(min(rows, FORWARD_PROGRAMS),)](
                x,
                branch,
                weight,
                bias,
                total,
                normed,
                mean,
                inverse_std,
                rows,
                width,
                eps,
                BLOCK=triton.next_power_of_2(width),
                num_warps=_warps(width, 512),
            )
    return total, normed, mean, inverse_std


def add_norm_backward(
    grad_total: Tensor, grad_normed: Tensor, total: Tensor, weight: Tensor, mean: Tensor, inverse_std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """From the gradients of the sum and of its norm: that of x, the same in the dtype of the norm, and (2, D) in
    float32: those of weight and bias."""
    grad_total, grad_normed = grad_total.contiguous(), grad_normed.contiguous()
    width = total.size(-1)
    rows = len(mean)
    grad_x, grad_branch = torch.empty_like(total), torch.empty_like(grad_normed)
    programs = min(rows, BACKWARD_PROGRAMS)
    sums = torch.empty(programs, 2, width, dtype=torch.float32, device=total.device)
    if rows:
        with on_device(total):
            _add_norm_backward_kernel[(programs,)](
                grad_total,
                grad_normed,
                total,
                weight,
                mean,
                inverse_std,
                grad_x,
                grad_branch,
                sums,
                rows,
                width,
                BLOCK=triton.next_power_of_2(width),
                num_warps=_warps(width, 256),
            )
    return grad_x, grad_branch, reduce_rows(sums)


def _warps(width: int, each: int) -> int:
    """As many warps as leave each no more than this many numbers of a row."""
    return max(1, min(16, triton.next_power_of_2(width) // each))


@triton.jit
def _add_norm_kernel(  # type: ignore[no-untyped-def]
    x, branch, weight, bias, total, normed, mean, inverse_std, rows, width, eps, BLOCK: tl.constexpr
):
    """A program takes one row after another, with two rows prefetched, and holds weight and bias in registers."""
    cols = tl.arange(0, BLOCK)
    inside = cols < width
    scale = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + cols, mask=inside, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0).to(tl.int64), rows, tl.num_programs(0), num_stages=3):
        here = row * width + cols
        added = tl.load(branch + here, mask=inside, other=0.0).to(tl.float32)
        added += tl.load(x + here, mask=inside, other=0.0).to(tl.float32)
        rounded = added.to(total.dtype.element_ty)
        tl.store(total + here, rounded, mask=inside)
        added = rounded.to(tl.float32)
        row_mean = tl.sum(added, 0) / width
        centred = tl.where(inside, added - row_mean, 0.0)
        inverse_std_row = tl.rsqrt(tl.sum(centred * centred, 0) / width + eps)
        result = centred * inverse_std_row * scale + shift
        tl.store(normed + here, result.to(normed.dtype.element_ty), mask=inside)
        tl.store(mean + row, row_mean)
        tl.store(inverse_std + row, inverse_std_row)


@triton.jit
def _add_norm_backward_kernel(  # type: ignore[no-untyped-def]
    grad_total, grad_normed, total, weight, mean, inverse_std, grad_x, grad_branch, sums, rows, width,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """As `_add_norm_kernel`; sums (programs, 2, width): each program's share of the gradients of weight and bias."""
    cols = tl.arange(0, BLOCK)
    inside = cols < width
    scale = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    grad_scale, grad_shift = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0).to(tl.int64), rows, tl.num_programs(0), num_stages=3):
        here = row * width + cols
        inverse_std_row = tl.load(inverse_std + row)
        unit = (tl.load(total + here, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + row)) * inverse_std_row
        scaled_grad = tl.load(grad_normed + here, mask=inside, other=0.0).to(tl.float32)
        direct_grad = tl.load(grad_total + here, mask=inside, other=0.0).to(tl.float32)
        grad_shift += scaled_grad
        grad_scale += scaled_grad * unit
        scaled_grad *= scale  # 0 outside, so that sums over the row need not look where it ends
        projection, grad_mean = tl.sum(scaled_grad * unit, 0) / width, tl.sum(scaled_grad, 0) / width
        result = direct_grad + inverse_std_row * (scaled_grad - grad_mean - unit * projection)
        tl.store(grad_x + here, result.to(grad_x.dtype.element_ty), mask=inside)
        tl.store(grad_branch + here, result.to(grad_branch.dtype.element_ty), mask=inside)
    sums += tl.program_id(0) * 2 * width + cols
    tl.store(sums, grad_scale, mask=inside)
    tl.store(sums + width, grad_shift, mask=inside)
