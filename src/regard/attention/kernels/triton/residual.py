"""A residual sum and its layer norm in one reading on a GPU; on the way back the gradient in two precisions."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import on_device
from regard.attention.kernels.triton.reduce import down

FORTH, BACK = 660, 660  # programs: 5 for each of an H200's 132 processors, measured to be best


def added_norm(
    x: Tensor, more: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x (..., D) + more in the numbers of x, its layer norm in those of `more`, and (N,) of all N vectors: their means,
    and 1 / their deviations."""
    x, more = x.contiguous(), more.contiguous()
    width = x.size(-1)
    rows = x.numel() // width
    total, normed = torch.empty_like(x), torch.empty_like(more)
    mean, sharp = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    if rows:
        with on_device(x):
            _add_norm[(min(rows, FORTH),)](
                x,
                more,
                weight,
                bias,
                total,
                normed,
                mean,
                sharp,
                rows,
                width,
                eps,
                BLOCK=triton.next_power_of_2(width),
                num_warps=_warps(width, 512),
            )
    return total, normed, mean, sharp


def added_norm_back(
    for_total: Tensor, for_normed: Tensor, total: Tensor, weight: Tensor, mean: Tensor, sharp: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """From gradients of the sum and of its norm: that of x, the same in the numbers of the norm, and (2, D) in float32:
    those of weight and bias."""
    for_total, for_normed = for_total.contiguous(), for_normed.contiguous()
    width = total.size(-1)
    rows = len(mean)
    slope, near = torch.empty_like(total), torch.empty_like(for_normed)
    programs = min(rows, BACK)
    sums = torch.empty(programs, 2, width, dtype=torch.float32, device=total.device)
    if rows:
        with on_device(total):
            _add_norm_back[(programs,)](
                for_total,
                for_normed,
                total,
                weight,
                mean,
                sharp,
                slope,
                near,
                sums,
                rows,
                width,
                BLOCK=triton.next_power_of_2(width),
                num_warps=_warps(width, 256),
            )
    return slope, near, down(sums)


def _warps(width: int, each: int) -> int:
    """So many that each has no more than this of a row."""
    return max(1, min(16, triton.next_power_of_2(width) // each))


@triton.jit
def _add_norm(  # type: ignore[no-untyped-def]
    x, more, weight, bias, total, normed, mean, sharp, rows, width, eps, BLOCK: tl.constexpr
):
    """A program takes one row after another, the next two on their way, with weight and bias in hand."""
    cols = tl.arange(0, BLOCK)
    inside = cols < width
    scale = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(bias + cols, mask=inside, other=0.0).to(tl.float32)
    for row in tl.range(tl.program_id(0).to(tl.int64), rows, tl.num_programs(0), num_stages=3):
        here = row * width + cols
        added = tl.load(more + here, mask=inside, other=0.0).to(tl.float32)
        added += tl.load(x + here, mask=inside, other=0.0).to(tl.float32)
        rounded = added.to(total.dtype.element_ty)
        tl.store(total + here, rounded, mask=inside)
        added = rounded.to(tl.float32)
        middle = tl.sum(added, 0) / width
        apart = tl.where(inside, added - middle, 0.0)
        narrow = tl.rsqrt(tl.sum(apart * apart, 0) / width + eps)
        found = apart * narrow * scale + shift
        tl.store(normed + here, found.to(normed.dtype.element_ty), mask=inside)
        tl.store(mean + row, middle)
        tl.store(sharp + row, narrow)


@triton.jit
def _add_norm_back(  # type: ignore[no-untyped-def]
    for_total, for_normed, total, weight, mean, sharp, slope, near, sums, rows, width, BLOCK: tl.constexpr
):
    """As _add_norm; sums (programs, 2, width): what the rows of each want of weight and bias."""
    cols = tl.arange(0, BLOCK)
    inside = cols < width
    scale = tl.load(weight + cols, mask=inside, other=0.0).to(tl.float32)
    for_scale, for_shift = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(tl.program_id(0).to(tl.int64), rows, tl.num_programs(0), num_stages=3):
        here = row * width + cols
        narrow = tl.load(sharp + row)
        unit = (tl.load(total + here, mask=inside, other=0.0).to(tl.float32) - tl.load(mean + row)) * narrow
        wanted = tl.load(for_normed + here, mask=inside, other=0.0).to(tl.float32)
        straight = tl.load(for_total + here, mask=inside, other=0.0).to(tl.float32)
        for_shift += wanted
        for_scale += wanted * unit
        wanted *= scale  # 0 outside, so that sums over the row need not look where it ends
        along, level = tl.sum(wanted * unit, 0) / width, tl.sum(wanted, 0) / width
        found = straight + narrow * (wanted - level - unit * along)
        tl.store(slope + here, found.to(slope.dtype.element_ty), mask=inside)
        tl.store(near + here, found.to(near.dtype.element_ty), mask=inside)
    sums += tl.program_id(0) * 2 * width + cols
    tl.store(sums, for_scale, mask=inside)
    tl.store(sums + width, for_shift, mask=inside)
