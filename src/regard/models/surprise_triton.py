"""Surprise and slopes of logits in two walks over each row on a GPU: what models/surprise.py does, in one kernel."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.models.predictions import IGNORED

BLOCK, WARPS = 4096, 16  # large programs, few at once: the rows in work are to stay in the cache


def of_logits(logits: Tensor, targets: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """logits (n, V'), of which the first `size` of a row are words': the surprise (n,), and in place the slopes, 0 in
    the rest of a row and where a target is IGNORED."""
    found = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    if len(logits):
        _walk[(len(logits),)](
            logits,
            targets,
            found,
            size,
            logits.size(1),
            smoothing,
            SMOOTH=smoothing > 0,
            IGNORED=IGNORED,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )
    return found, logits


@triton.jit
def _walk(  # type: ignore[no-untyped-def]
    logits, targets, found, size, row, smoothing, SMOOTH: tl.constexpr, IGNORED: tl.constexpr, BLOCK: tl.constexpr
):
    """One program a row; its numbers are still near when it is walked through again."""
    place = tl.program_id(0).to(tl.int64)
    logits += place * row
    target = tl.load(targets + place)
    cols = tl.arange(0, BLOCK)
    there = target != IGNORED
    target = tl.where(there, target, 0)
    spoken = tl.load(logits + target).to(tl.float32)
    most = tl.full((BLOCK,), -float("inf"), tl.float32)  # of each column of blocks: joined once, at the end
    mass = tl.zeros((BLOCK,), tl.float32)
    added = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, row, 2 * BLOCK):  # two at a time: what was summed is rescaled half as often
        here, then = start + cols, start + BLOCK + cols
        x = tl.load(logits + here, mask=here < row, other=0.0, eviction_policy="evict_last").to(tl.float32)
        y = tl.load(logits + then, mask=then < row, other=0.0, eviction_policy="evict_last").to(tl.float32)
        if SMOOTH:
            added += tl.where(here < size, x, 0.0) + tl.where(then < size, y, 0.0)
        x = tl.where(here < size, x, -float("inf"))
        y = tl.where(then < size, y, -float("inf"))
        higher = tl.maximum(most, tl.maximum(x, y))
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        mass = mass * tl.exp(most - safe) + (tl.exp(x - safe) + tl.exp(y - safe))
        most = higher
    peak = tl.max(most, 0)  # taken off first, as log_softmax does: the log-sum-exp of huge logits is too coarse
    rest = tl.log(tl.sum(mass * tl.exp(most - peak), 0))
    surprise = rest - (1 - smoothing) * (spoken - peak)
    if SMOOTH:
        surprise -= smoothing * (tl.sum(added, 0) / size - peak)
    tl.store(found + place, tl.where(there, surprise, 0.0))
    for start in range(0, row, BLOCK):
        at = start + cols
        x = tl.load(logits + at, mask=at < row, other=0.0, eviction_policy="evict_first").to(tl.float32)
        slope = tl.exp(x - peak - rest) - tl.where(at == target, 1 - smoothing, 0.0)
        if SMOOTH:
            slope -= smoothing / size
        slope = tl.where(there & (at < size), slope, 0.0)
        tl.store(logits + at, slope.to(logits.dtype.element_ty), mask=at < row)
