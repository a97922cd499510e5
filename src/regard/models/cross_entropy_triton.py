"""Surprise and slopes of logits in two walks over each row on a GPU: chunked_cross_entropy in one kernel.

The rows in work are so few that they stay in the cache between the walks: memory is read once and written once.
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


def of_logits(logits: Tensor, targets: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """logits (n, V'), of which the first `size` of a row are words': the surprise (n,), and in place the slopes, 0 in
    the rest of a row and where a target is IGNORED."""
    found = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    if len(logits):
        with on_device(logits):
            _walk[(min(len(logits), PROGRAMS),)](
                logits,
                targets,
                found,
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
    return found, logits


@triton.jit
def _walk(  # type: ignore[no-untyped-def]
    logits,
    targets,
    found,
    places,
    size,
    row,
    smoothing,
    SMOOTH: tl.constexpr,
    IGNORED: tl.constexpr,
    LANES: tl.constexpr,
    EACH: tl.constexpr,
):
    """A program takes one row after another, in powers of two: z = x log2(e) - peak, in one rounding."""
    LOG2E: tl.constexpr = 1.4426950408889634
    BLOCK: tl.constexpr = LANES * EACH
    lanes = tl.arange(0, LANES)[:, None] * EACH + tl.arange(0, EACH)
    whole = size // (2 * BLOCK) * (2 * BLOCK)  # until there nobody needs to look where the row ends
    for place in range(tl.program_id(0).to(tl.int64), places, tl.num_programs(0)):
        here = logits + place * row + lanes
        target = tl.load(targets + place)
        if target == IGNORED:
            tl.store(found + place, 0.0)
            for start in range(0, row, BLOCK):
                tl.store(here + start, tl.zeros((LANES, EACH), logits.dtype.element_ty), mask=start + lanes < row)
        else:
            spoken = tl.load(logits + place * row + target).to(tl.float32)
            most = tl.full((LANES,), -3e38, tl.float32)  # of each lane; finite, so that nothing less it is nothing
            mass, added = tl.zeros((LANES,), tl.float32), tl.zeros((LANES,), tl.float32)
            # two at a time: what was summed is rescaled half as often; four on their way
            for start in tl.range(0, whole, 2 * BLOCK, loop_unroll_factor=2):
                x = tl.load(here + start, eviction_policy="evict_last").to(tl.float32)
                y = tl.load(here + start + BLOCK, eviction_policy="evict_last").to(tl.float32)
                if SMOOTH:
                    added += tl.sum(x + y, 1)
                higher = tl.maximum(most, LOG2E * tl.max(tl.maximum(x, y), 1))
                less = -higher[:, None]
                new = tl.sum(tl.exp2(tl.fma(x, LOG2E, less)) + tl.exp2(tl.fma(y, LOG2E, less)), 1)
                mass, most = mass * tl.exp2(most - higher) + new, higher
            for start in range(whole, size, BLOCK):
                word = start + lanes < size
                x = tl.load(here + start, mask=start + lanes < row, other=0.0, eviction_policy="evict_last")
                x = x.to(tl.float32)
                if SMOOTH:
                    added += tl.sum(tl.where(word, x, 0.0), 1)
                x = tl.where(word, x, -float("inf"))
                higher = tl.maximum(most, LOG2E * tl.max(x, 1))
                new = tl.sum(tl.exp2(tl.fma(x, LOG2E, -higher[:, None])), 1)
                mass, most = mass * tl.exp2(most - higher) + new, higher
            peak = tl.max(most, 0)  # taken off first, as log_softmax does: the log-sum-exp of huge logits is too coarse
            total = tl.sum(mass * tl.exp2(most - peak), 0)
            said = tl.fma(spoken, LOG2E, -peak)
            surprise = tl.log2(total) - (1 - smoothing) * said
            share, even = 1 / total, 0.0
            if SMOOTH:
                surprise -= smoothing * tl.fma(tl.sum(added, 0) / size, LOG2E, -peak)
                even = smoothing / size
            tl.store(found + place, surprise / LOG2E)
            for start in range(0, whole, 2 * BLOCK):
                x = tl.load(here + start, eviction_policy="evict_first").to(tl.float32)
                y = tl.load(here + start + BLOCK, eviction_policy="evict_first").to(tl.float32)
                x = tl.exp2(tl.fma(x, LOG2E, -peak)) * share - even
                y = tl.exp2(tl.fma(y, LOG2E, -peak)) * share - even
                tl.store(here + start, x.to(logits.dtype.element_ty), eviction_policy="evict_first")
                tl.store(here + start + BLOCK, y.to(logits.dtype.element_ty), eviction_policy="evict_first")
            for start in range(whole, row, BLOCK):
                x = tl.load(here + start, mask=start + lanes < row, other=0.0).to(tl.float32)
                slope = tl.exp2(tl.fma(x, LOG2E, -peak)) * share - even
                slope = tl.where(start + lanes < size, slope, 0.0)
                tl.store(here + start, slope.to(logits.dtype.element_ty), mask=start + lanes < row)
            tl.debug_barrier()  # all have written; the target's is less by one
            slope = tl.exp2(said) * share - even - (1 - smoothing)
            tl.store(logits + place * row + target, slope.to(logits.dtype.element_ty))
