"""How a map too large to hold is walked through: some leading dimensions at a time, some whole rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

import torch
from torch import Tensor

from regard.attention.grid import Lead
from regard.attention.inputs import Prepared
from regard.attention.masks import Everything

COMFORT = 2**21  # numbers in a block: eight megabytes of float32, where time was least on a CPU (smaller: more calls)
LIMIT = 2**22  # numbers a block may have so that matrix products are not too thin
THICK = 64  # rows at which a matrix product runs at full speed


@dataclass(frozen=True)
class Block:
    """Some queries, and the keys between the first and the last that any of them may look at."""

    lead: Lead
    rows: slice
    cols: slice
    inner: slice | None  # keys that the mask leaves to every one of these queries; None: it must be asked about all
    finite: bool  # no score or bias is -inf, so that only the mask hides keys

    @property
    def sighted(self) -> bool:
        """Whether surely each of these queries sees a key."""
        return self.inner is not None and self.finite

    def shape(self, part: Prepared) -> tuple[int, ...]:
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
    """Memory that every block is computed in: to ask for new memory each time would cost as much as the sums."""

    def __init__(self, like: Tensor) -> None:
        self.like = like.detach().new_empty(0)
        self.held: dict[str, Tensor] = {}

    def table(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A table of this shape, whose numbers are whatever was there; valid until the name is asked for again."""
        size, held = prod(shape), self.held.get(name, self.like[:0])
        if held.numel() < size:
            self.held[name] = held = self.like.new_empty(max(size, 2 * held.numel()))
        return held[:size].view(shape)


def parts(prepared: Prepared) -> Iterator[tuple[Lead, Prepared]]:
    """The leading dimensions in parts small enough for blocks of enough rows."""
    lead = prepared.grid.lead
    wanted = min(THICK, prepared.grid.T) * prepared.grid.S * prepared.score.pair_size(prepared.k)
    depth = 0
    if prepared.score.by_pair:
        while depth < len(lead) and prod(lead[depth:]) * wanted > COMFORT:
            depth += 1
    singles = product(*(range(size) for size in lead[:depth]))
    rest = (slice(None),) * (len(lead) - depth)
    for index in singles:
        piece = (*(slice(i, i + 1) for i in index), *rest)
        yield piece, prepared.part(piece) if depth else prepared


def blocks(lead: Lead, part: Prepared) -> Iterator[Block]:
    """Blocks of whole rows of one part; rows that may look nowhere at all are left out."""
    grid = part.grid
    if 0 in (*grid.lead, grid.T):
        return
    size = max(prod(grid.lead) * grid.S * part.score.pair_size(part.k), 1)
    step = max(COMFORT // size, min(THICK, LIMIT // size), 1)
    ends = _ends(part)
    solid = part.mask.solid and part.window is None
    finite = part.score.finite and (part.bias is None or part.bias.finite)
    for start in range(0, grid.T, step):
        rows = slice(start, min(start + step, grid.T))
        if ends is None:
            yield Block(lead, rows, slice(0, grid.S), slice(0, grid.S) if solid else None, finite)
            continue
        first, last, inner_first, inner_last = (end[rows] for end in ends)
        cols = slice(min(first), max(last))
        if cols.start >= cols.stop:
            continue
        inner = slice(max(inner_first), min(inner_last))
        yield Block(lead, rows, cols, inner if solid and inner.start < inner.stop else None, finite)


def _ends(part: Prepared) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """For each query: first and last key that any leading index may see, and that all of them may see."""
    grid = part.grid
    if isinstance(part.mask, Everything):
        return None
    lo, hi = torch.broadcast_tensors(*part.mask.span(grid))
    lo, hi = (end.expand(*end.shape[:-1], grid.T).reshape(-1, grid.T) for end in (lo, hi))
    empty = hi <= lo
    first = lo.masked_fill(empty, grid.S).amin(0).tolist()
    last = hi.masked_fill(empty, 0).amax(0).tolist()
    return first, last, lo.amax(0).tolist(), hi.amin(0).tolist()
