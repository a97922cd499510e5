"""Sums the partial gradients of shared weights, one row for each program, always in the same order."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import on_device

ROWS, COLS, WARPS = 128, 32, 8


def reduce_rows(sums: Tensor) -> Tensor:
    """sums (programs, ...) of float32, contiguous: their sum (...) over the first dimension."""
    found = torch.empty(sums.shape[1:], dtype=torch.float32, device=sums.device)
    width = found.numel()
    if width:
        with on_device(sums):
            _reduce_rows[(triton.cdiv(width, COLS),)](
                sums, found, len(sums), width, ROWS=ROWS, COLS=COLS, num_warps=WARPS
            )
    return found


@triton.jit
def _reduce_rows(sums, found, rows, width, ROWS: tl.constexpr, COLS: tl.constexpr):  # type: ignore[no-untyped-def]
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, rows, ROWS):
        at = start + tl.arange(0, ROWS)
        total += tl.load(sums + at[:, None] * width + cols, mask=(at < rows)[:, None] & (cols < width), other=0.0)
    tl.store(found + cols, tl.sum(total, 0), mask=cols < width)
