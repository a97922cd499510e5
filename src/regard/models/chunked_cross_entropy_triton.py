"""Triton kernel of chunked_cross_entropy: the loss and its gradient in two passes over each row of logits.

The rows in flight are so few that they stay in the cache between the passes: memory is read once and written once.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import on_device
from regard.text import IGNORED

WARPS = 16
LANES = 32 * WARPS  # each takes 16 bytes at a time
PROGRAMS = 396  # 3 for each of an H200's 132 processors: measured to be best


def nll_and_gradients(logits: Tensor, targets: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """logits (n, V'), of which the first `size` of a row are words: the cross-entropy (n,), and in place its gradient,
    0 in the rest of a row and where a target is IGNORED."""
    nll = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    if len(logits):
        with on_device(logits):
            _nll_kernel[(min(len(logits), PROGRAMS),)](
                logits,
                targets,
                nll,
                len(logits),
                size,
                logits.size(1),
                smoothing,
                SMOOTH=smoothing > 0,
                IGNORED=IGNORED,
                LANES=LANES,
                EACH=16 // logits.element_size(),
                num_warps=WARPS,
            )
    return nll, logits


@triton.jit
def _nll_kernel(  # type: ignore[no-untyped-def]
    logits,
    targets,
    nll,
    rows,
    size,
    row,
    smoothing,
    SMOOTH: tl.constexpr,
    IGNORED: tl.constexpr,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
):
    """Each program takes one row after another, in base 2: z = x log2(e) - peak, with one rounding."""
    LOG2E: tl.constexpr = 1.4426950408889634
    BLOCK: tl.constexpr = LANES * EACH
    lanes = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)
    unmasked = size // (2 * BLOCK) * (2 * BLOCK)  # up to there loads need no mask
    for index in range(tl.program_id(0).to(tl.int64), rows, tl.num_programs(0)):
        pointers = logits + index * row + lanes
        target = tl.load(targets + index)
        if target == IGNORED:
            tl.store(nll + index, 0.0)
            for start in range(0, row, BLOCK):
                tl.store(pointers + start, tl.zeros((LANES, EACH), logits.dtype.element_ty), mask=start + lanes < row)
        else:
            target_logit = tl.load(logits + index * row + target).to(tl.float32)
            running_max = tl.full((LANES,), -3e38, tl.float32)  # of each lane; finite, so that -inf minus it is -inf
            mass, logit_sum = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
            # two blocks at a time, so that the sum is rescaled half as often; four loads in flight
            for start in tl.range(0, unmasked, 2 * BLOCK, loop_unroll_factor=2):
                x = tl.load(pointers + start, eviction_policy="evict_last").to(tl.float32)
                y = tl.load(pointers + start + BLOCK, eviction_policy="evict_last").to(tl.float32)
                if SMOOTH:
                    logit_sum += tl.sum(x + y, 1)
                higher = tl.maximum(running_max, LOG2E * tl.max(tl.maximum(x, y), 1))
                less = -higher[:, None]
                new = tl.sum(tl.exp2(tl.fma(x, LOG2E, less)) + tl.exp2(tl.fma(y, LOG2E, less)), 1)
                mass, running_max = mass * tl.exp2(running_max - higher) + new, higher
            for start in range(unmasked, size, BLOCK):
                word = start + lanes < size
                x = tl.load(pointers + start, mask=start + lanes < row, other=0.0, eviction_policy="evict_last")
                x = x.to(tl.float32)
                if SMOOTH:
                    logit_sum += tl.sum(tl.where(word, x, 0.0), 1)
                x = tl.where(word, x, -float("inf"))
                higher = tl.maximum(running_max, LOG2E * tl.max(x, 1))
                new = tl.sum(tl.exp2(tl.fma(x, LOG2E, -higher[:, None])), 1)
                mass, running_max = mass * tl.exp2(running_max - higher) + new, higher
            peak = tl.max(
                running_max, 0
            )  # subtracted first, as log_softmax does: the log-sum-exp of huge logits is too coarse
            total = tl.sum(mass * tl.exp2(running_max - peak), 0)
            target_log = tl.fma(target_logit, LOG2E, -peak)
            loss = tl.log2(total) - (1 - smoothing) * target_log
            inverse, uniform = 1 / total, 0.0
            if SMOOTH:
                loss -= smoothing * tl.fma(tl.sum(logit_sum, 0) / size, LOG2E, -peak)
                uniform = smoothing / size
            tl.store(nll + index, loss / LOG2E)
            for start in range(0, unmasked, 2 * BLOCK):
                x = tl.load(pointers + start, eviction_policy="evict_first").to(tl.float32)
                y = tl.load(pointers + start + BLOCK, eviction_policy="evict_first").to(tl.float32)
                x = tl.exp2(tl.fma(x, LOG2E, -peak)) * inverse - uniform
                y = tl.exp2(tl.fma(y, LOG2E, -peak)) * inverse - uniform
                tl.store(pointers + start, x.to(logits.dtype.element_ty), eviction_policy="evict_first")
                tl.store(pointers + start + BLOCK, y.to(logits.dtype.element_ty), eviction_policy="evict_first")
            for start in range(unmasked, row, BLOCK):
                x = tl.load(pointers + start, mask=start + lanes < row, other=0.0).to(tl.float32)
                grad = tl.exp2(tl.fma(x, LOG2E, -peak)) * inverse - uniform
                grad = tl.where(start + lanes < size, grad, 0.0)
                tl.store(pointers + start, grad.to(logits.dtype.element_ty), mask=start + lanes < row)
            tl.debug_barrier()  # all stores are done; the target's gradient is less by one
            grad = tl.exp2(target_log) * inverse - uniform - (1 - smoothing)
            tl.store(logits + index * row + target, grad.to(logits.dtype.element_ty))
