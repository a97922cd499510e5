"""Row blocks of a map too large to hold: some leading dimensions at a time, some full rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor

from regard.attention.grid import Lead
from regard.attention.inputs import AttentionInputs
from regard.attention.masks import Everything

BLOCK_NUMBERS = 2**21  # in a block: eight megabytes of float32, the fastest on a CPU (smaller: more calls)
MAX_BLOCK_NUMBERS = 2**22  # that a block may have so that matrix products are not too thin
MIN_ROWS = 64  # at which a matrix product runs at full speed


@dataclass(frozen=True)
class Block:
    """Some queries, and the keys from the first to the last that any of them may see."""

    lead: Lead
    rows: slice
    cols: slice
    inner: slice | None  # keys that the mask leaves to all these queries; None: unknown, evaluate it
    finite: bool  # no score or bias is -inf, so that only the mask hides keys

    @property
    def all_live(self) -> bool:
        """Whether each of these queries surely sees a key."""
        return self.inner is not None and self.finite

    def shape(self, part: AttentionInputs) -> tuple[int, ...]:
        """The shape of this block's scores."""
        return (*part.grid.lead, self.rows.stop - self.rows.start, self.cols.stop - self.cols.start)

    @property
    def edges(self) -> list[slice]:
        """The keys that may be hidden from some of these queries, counted from cols.start."""
        first, last = self.cols.start, self.cols.stop
        if self.inner is None or not self.finite:
            return [slice(0, last - first)]
        ends = (slice(0, self.inner.start - first), slice(self.inner.stop - first, last - first))
        return [end for end in ends if end.start < end.stop]


class Scratch:
    """Memory that all blocks share: allocating it for each block would cost as much as the arithmetic."""

    def __init__(self, like: Tensor) -> None:
        self.like = like.detach().new_empty(0)
        self.buffers: dict[str, Tensor] = {}

    def buffer(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """An uninitialised tensor of this shape; valid until the next one of this name."""
        size, memory = prod(shape), self.buffers.get(name, self.like[:0])
        if memory.numel() < size:
            self.buffers[name] = memory = self.like.new_empty(max(size, 2 * memory.numel()))
        return memory[:size].view(shape)


def lead_parts(prepared: AttentionInputs) -> Iterator[tuple[Lead, AttentionInputs]]:
    """The leading dimensions in parts small enough for blocks of enough rows."""
    lead = prepared.grid.lead
    numbers = min(MIN_ROWS, prepared.grid.T) * prepared.grid.S * prepared.score.pair_size(prepared.k)
    depth = 0
    if prepared.score.by_pair:
        while depth < len(lead) and prod(lead[depth:]) * numbers > BLOCK_NUMBERS:
            depth += 1
    singles = product(*(range(size) for size in lead[:depth]))
    rest = (slice(None),) * (len(lead) - depth)
    for index in singles:
        piece = (*(slice(i, i + 1) for i in index), *rest)
        yield piece, prepared.part(piece) if depth else prepared


def blocks(lead: Lead, part: AttentionInputs) -> Iterator[Block]:
    """Blocks of full rows of one part, without rows that see no key."""
    grid = part.grid
    if 0 in (*grid.lead, grid.T):
        return
    size = max(prod(grid.lead) * grid.S * part.score.pair_size(part.k), 1)
    step = max(BLOCK_NUMBERS // size, min(MIN_ROWS, MAX_BLOCK_NUMBERS // size), 1)
    ends = _ends(part)
    contiguous = part.mask.contiguous and part.window is None and part.live is None
    finite = part.score.finite and (part.bias is None or part.bias.finite)
    for start in range(0, grid.T, step):
        rows = slice(start, min(start + step, grid.T))
        if ends is None:
            yield Block(lead, rows, slice(0, grid.S), slice(0, grid.S) if contiguous else None, finite)
            continue
        first, last, inner_first, inner_last = (end[rows] for end in ends)
        cols = slice(min(first), max(last))
        if cols.start >= cols.stop:
            continue
        inner = slice(max(inner_first), min(inner_last))
        yield Block(lead, rows, cols, inner if contiguous and inner.start < inner.stop else None, finite)


def _ends(part: AttentionInputs) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """For each query: the first and last key that any leading index may see, and that all of them may see."""
    grid = part.grid
    if isinstance(part.mask, Everything):
        return None
    lo, hi = torch.broadcast_tensors(*part.mask.span(grid))
    lo, hi = (end.expand(*end.shape[:-1], grid.T).reshape(-1, grid.T) for end in (lo, hi))
    empty = hi <= lo
    first = lo.masked_fill(empty, grid.S).amin(0).tolist()
    last = hi.masked_fill(empty, 0).amax(0).tolist()
    return first, last, lo.amax(0).tolist(), hi.amin(0).tolist()
