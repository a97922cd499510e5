"""Triton kernels for GELU with the bias of the linear layer before it, forward and backward, bound by memory bandwidth.

Phi(-u) = 2^p(u), and p is smooth enough for a polynomial: one exponential where erf takes two dozen instructions.
The backward also sums the gradients of each column, which is the gradient of the bias.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import on_device
from regard.attention.kernels.triton.reduce import reduce_rows

COLS, WARPS = 256, 4  # a row of a warp: 32 x 16 bytes
FORWARD_ROWS, BACKWARD_ROWS = 16, 8  # at a time
PROGRAMS = 1056  # 8 for each of an H200's 132 processors


def gelu_bias(product: Tensor, bias: Tensor | None, tanh: bool) -> Tensor:
    """GELU of product (..., D) + bias (D,), computed in float32; `tanh`: by the tanh approximation."""
    product = product.contiguous()
    found, (grid, rows, width) = torch.empty_like(product), _launch_grid(product, FORWARD_ROWS)
    if product.numel():
        with on_device(product):
            _gelu_kernel[grid](
                product,
                product if bias is None else bias,
                found,
                rows,
                width,
                BIASED=bias is not None,
                TANH=tanh,
                ROWS=FORWARD_ROWS,
                COLS=COLS,
                num_warps=WARPS,
            )
    return found


def gelu_bias_backward(grad: Tensor, product: Tensor, bias: Tensor | None, tanh: bool) -> tuple[Tensor, Tensor]:
    """From the gradient (..., D) of the output: that of the product, and its sum (D,) in float32 for the bias."""
    product, grad = product.contiguous(), grad.contiguous()
    product_grad, (grid, rows, width) = torch.empty_like(product), _launch_grid(product, BACKWARD_ROWS)
    sums = torch.empty(grid[1], width, dtype=torch.float32, device=product.device)
    if product.numel():
        with on_device(product):
            _gelu_backward_kernel[grid](
                grad,
                product,
                product if bias is None else bias,
                product_grad,
                sums,
                rows,
                width,
                BIASED=bias is not None,
                TANH=tanh,
                ROWS=BACKWARD_ROWS,
                COLS=COLS,
                num_warps=WARPS,
            )
    return product_grad, reduce_rows(sums)


def _launch_grid(x: Tensor, at_once: int) -> tuple[tuple[int, int], int, int]:
    """The grid of programs (across columns, down rows) for x (..., D), the number of rows, and D."""
    width = x.size(-1)
    rows, across = x.numel() // max(1, width), max(1, triton.cdiv(width, COLS))
    return (across, min(triton.cdiv(rows, at_once), max(1, PROGRAMS // across))), rows, width


@triton.jit
def _gelu_kernel(  # type: ignore[no-untyped-def]
    product,
    bias,
    found,
    rows,
    width,
    BIASED: tl.constexpr,
    TANH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """Each program goes down its columns, whose bias it loads once."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    shift = _shift(bias, cols, width, BIASED)
    for start in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        at = start + tl.arange(0, ROWS)
        here, inside = at.to(tl.int64)[:, None] * width + cols, (at < rows)[:, None] & (cols < width)
        x = tl.load(product + here, mask=inside, other=0.0).to(tl.float32) + shift
        far, tail = _tail(x, TANH)
        tl.store(found + here, (tl.maximum(x, 0.0) - far * tail).to(found.dtype.element_ty), mask=inside)


@triton.jit
def _gelu_backward_kernel(  # type: ignore[no-untyped-def]
    grad,
    product,
    bias,
    product_grad,
    sums,
    rows,
    width,
    BIASED: tl.constexpr,
    TANH: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    """As _gelu_kernel; sums (programs down rows, width): the partial sums of the gradient."""
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    shift = _shift(bias, cols, width, BIASED)
    column_sum = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(tl.program_id(1) * ROWS, rows, tl.num_programs(1) * ROWS):
        at = start + tl.arange(0, ROWS)
        here, inside = at.to(tl.int64)[:, None] * width + cols, (at < rows)[:, None] & (cols < width)
        x = tl.load(product + here, mask=inside, other=0.0).to(tl.float32) + shift
        out_grad = tl.load(grad + here, mask=inside, other=0.0).to(tl.float32)
        far, tail = _tail(x, TANH)
        if TANH:
            steep = 1.5957691216 + 0.2140644488 * far * far  # 2 sqrt(2 / pi) (1 + 3 x 0.044715 u^2)
            low = tail - far * tail * (1 - tail) * steep
        else:
            low = tail - far * tl.exp2(
                -0.7213475204 * far * far - 1.3257480647
            )  # the normal density: log2(e) / 2 and its height
        out_grad *= tl.where(x < 0, low, 1 - low)  # the derivatives at u and -u sum to 1
        column_sum += out_grad
        tl.store(product_grad + here, out_grad.to(product_grad.dtype.element_ty), mask=inside)
    tl.store(sums + tl.program_id(1) * width + cols, tl.sum(column_sum, 0), mask=cols < width)


@triton.jit
def _shift(bias, cols, width, BIASED: tl.constexpr):  # type: ignore[no-untyped-def]
    if BIASED:
        return tl.load(bias + cols, mask=cols < width, other=0.0).to(tl.float32)[None, :]
    return tl.zeros((1, cols.shape[0]), tl.float32)


@triton.jit
def _tail(x, TANH: tl.constexpr):  # type: ignore[no-untyped-def]
    """u = |x|, at most 16, and Phi(-u) with relative error 2^-18 (of the tanh approximation 2^-13)."""
    u = tl.minimum(tl.abs(x), 16.0, propagate_nan=tl.PropagateNan.ALL)
    if TANH:
        p = 0.0010612273 - 4.5664411e-05 * u
        p = p * u - 0.0089980339
        p = p * u + 0.028969756
        p = p * u - 0.07549283
        p = p * u - 0.44714582
        p = p * u - 1.1530487
    else:
        p = 5.781615e-05 - 1.6270852e-06 * u
        p = p * u - 0.00090400093
        p = p * u + 0.0084166667
        p = p * u - 0.053798717
        p = p * u - 0.45860415
        p = p * u - 1.1512008
    return u, tl.exp2(p * u - 1.0)
