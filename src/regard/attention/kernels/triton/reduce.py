"""The sums of what several programs have summed, always in the same order: how weights shared by all rows learn."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import on_device

ROWS, COLS, WARPS = 128, 32, 8


def down(sums: Tensor) -> Tensor:
    """sums (programs, ...) of float32, whole in memory: their sum (...)."""
    found = torch.empty(sums.shape[1:], dtype=torch.float32, device=sums.device)
    width = found.numel()
    if width:
        with on_device(sums):
            _down[(triton.cdiv(width, COLS),)](sums, found, len(sums), width, ROWS=ROWS, COLS=COLS, num_warps=WARPS)
    return found


@triton.jit
def _down(sums, found, rows, width, ROWS: tl.constexpr, COLS: tl.constexpr):  # type: ignore[no-untyped-def]
    cols = tl.program_id(0) * COLS + tl.arange(0, COLS)
    met = tl.zeros((ROWS, COLS), tl.float32)
    for start in range(0, rows, ROWS):
        at = start + tl.arange(0, ROWS)
        met += tl.load(sums + at[:, None] * width + cols, mask=(at < rows)[:, None] & (cols < width), other=0.0)
    tl.store(found + cols, tl.sum(met, 0), mask=cols < width)
