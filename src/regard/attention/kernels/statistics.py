"""Attention statistics (top-k, entropy, received, thumbnail), accumulated over blocks, so that no map is ever held."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from regard.attention.grid import Grid, cut
from regard.attention.groups import Queries, Spans
from regard.attention.kernels.row_blocks import Block
from regard.attention.observe import Observe, Top, distance_of, pad_top

LOG_ZERO = -1e4
"""Stands for a log-weight of -inf in sums of w ln w: exp(-1e4) is 0 in every precision, and 0 * -1e4 is not NaN."""


WAITS_FOR_DEVICE = (torch.Tag.cudagraph_unsafe,)
"""The tags of an operator that loops over blocks: their ends are read from a mask, so no CUDA graph can hold it."""


def request_of(observe: Observe) -> tuple[Any, ...]:
    """The statistics that are requested, as a value that an operator takes (OperatorArguments.text)."""
    received = observe.counted.as_values() if observe.counted is not None else observe.received
    spans = None if observe.spans is None else observe.spans.as_values()
    return received, spans, *[getattr(observe, name) for name in _REQUESTED]


def requested(values: tuple[Any, ...]) -> Observe:
    received, spans, *rest = values
    found = dict(zip(_REQUESTED, rest, strict=True))
    counted = Queries(*received) if isinstance(received, tuple) else received
    return Observe(received=counted, spans=None if spans is None else Spans.from_values(spans), **found)


_REQUESTED = ("top", "entropy", "thumbnail", "peak", "distance")


def tensors_of(found: Mapping[str, Any]) -> list[Tensor]:
    """The statistics of `StreamingStatistics.found` as an operator returns them: those that there are."""
    top = found.get("top")
    parts = [] if top is None else [top.values, top.indices]
    return [*parts, *[found[name] for name in _SINGLE if found.get(name) is not None]]


def statistics_of(observe: Observe, tensors: list[Tensor]) -> dict[str, Any]:
    """The fields of an Attended from the tensors that an operator returned for this request."""
    found: dict[str, Any] = {}
    rest = list(tensors)
    if observe.top:
        found["top"] = Top(rest[0], rest[1])
        rest = rest[2:]
    for name in _SINGLE:
        if getattr(observe, name):
            found[name], rest = rest[0], rest[1:]
    return found


def empty_statistics(observe: Observe, grid: Grid, dtype: torch.dtype) -> list[Tensor]:
    """Tensors of the shapes of the statistics that are requested: what the meta kernel of an operator returns."""
    return tensors_of(zero_statistics(observe, grid, dtype))


_SINGLE = ("entropy", "received", "thumbnail", "peak", "distance", "spans")  # statistics of one tensor


def zero_statistics(observe: Observe, grid: Grid, dtype: torch.dtype) -> dict[str, Any]:
    """The statistics of a map before any block was added."""
    lead, T, S = grid.lead, grid.T, grid.S

    def zeros(*sizes: int) -> Tensor:
        return torch.zeros(*lead, *sizes, dtype=dtype, device=grid.device)

    found: dict[str, Any] = {"top": None}
    if observe.top:
        indices = torch.full((*lead, T, observe.top), -1, dtype=torch.long, device=grid.device)
        found["top"] = Top(zeros(T, observe.top), indices)
    found["entropy"] = zeros(T) if observe.entropy else None
    found["received"] = zeros(S) if observe.received else None
    cells = observe.thumbnail  # sym_min: a compiled graph serves texts shorter and longer than the thumbnail
    found["thumbnail"] = zeros(torch.sym_min(cells[0], T), torch.sym_min(cells[1], S)) if cells else None
    found["peak"] = torch.full((*lead, T), -torch.inf, dtype=dtype, device=grid.device) if observe.peak else None
    found["distance"] = zeros(T, 2) if observe.distance else None
    spans = observe.spans
    found["spans"] = None if spans is None else zeros(spans.rows(T), spans.keys.count)
    return found


class StreamingStatistics:
    """The statistics that Observe requests of a map (*lead, T, S), accumulated over blocks of full rows."""

    def __init__(self, observe: Observe, grid: Grid, dtype: torch.dtype, has_sink: bool = False) -> None:
        self.observe, self.grid, self.has_sink = observe, grid, has_sink
        self.closed = False  # True: the pass is over; blocks recomputed for gradients do not count twice
        found = zero_statistics(observe, grid, dtype)
        self.top: Top | None = found["top"]
        self.entropy, self.received, self.thumbnail, self.peak, self.distance, spans = (found[name] for name in _SINGLE)
        self.by_query = spans  # of each query to each group of keys, (*lead, T, H); groups of queries come last
        if observe.spans is not None:
            observe.spans.check(grid.T, grid.S)
            shape = (*grid.lead, grid.T, observe.spans.keys.count)
            self.by_query = torch.zeros(shape, dtype=dtype, device=grid.device)
        if self.thumbnail is not None:
            (R, C), T = self.thumbnail.shape[-2:], grid.T
            self.row_cell = torch.arange(T, device=grid.device) * R // max(T, 1)
            self.columns = ThumbnailColumns(grid.S, C, grid.device)

    @torch.no_grad()
    def add(
        self, block: Block, weights: Tensor, logs: Tensor, total: Tensor | None, peak: Tensor | None = None
    ) -> None:
        """Add the weights (..., t, s) of a block: exp(`logs`), still to be divided by `total` (..., t, 1), to which a
        sink may add. `peak` (..., t, 1): the largest score of each row.

        Without `total` they are final (a window's Gaussian was applied), and `logs` only says which keys are hidden,
        by -inf. Both tensors are overwritten.
        """
        weights, logs = weights.detach(), logs.detach()
        if self.received is not None or self.thumbnail is not None:
            self._sum_queries(block, weights, total)
        if self.peak is not None:
            assert peak is not None, "the peak of a row is that of its scores"
            cut(self.peak, block.lead, trailing=1)[..., block.rows] = peak.squeeze(-1)
        if self.distance is not None:
            here = distance_of(weights, block.rows.start, self.grid.T, block.cols.start, self.grid.S)
            cut(self.distance, block.lead)[..., block.rows, :] = here
        if self.observe.spans is not None:
            members = self.observe.spans.key_members(block.cols, self.grid.S, weights)
            sums = weights @ members.mT
            cut(self.by_query, block.lead)[..., block.rows, :] = sums if total is None else sums / total
        hidden = [(edge, logs[..., edge] == -torch.inf) for edge in block.edges] if self.top is not None else []
        if self.entropy is not None:
            entropy = (
                torch.special.entr(weights).sum(-1) if total is None else _entropy(weights, logs, total, self.has_sink)
            )
            cut(self.entropy, block.lead, trailing=1)[..., block.rows] = entropy
        if self.top is not None:
            for edge, where in hidden:
                weights[..., edge].masked_fill_(where, -1.0)
            found = _top_k(weights, total, self.observe.top)
            cut(self.top.values, block.lead)[..., block.rows, :] = found.values
            indices = torch.where(found.indices < 0, -1, found.indices + block.cols.start)
            cut(self.top.indices, block.lead)[..., block.rows, :] = indices

    def found(self) -> Mapping[str, Any]:
        """The finished fields of an Attended."""
        thumbnail = self.thumbnail
        if thumbnail is not None:
            in_row = torch.bincount(self.row_cell, minlength=thumbnail.size(-2))
            thumbnail = thumbnail / (in_row[:, None] * self.columns.sizes)
        spans = None if self.observe.spans is None else self.observe.spans.sum_queries(self.by_query)
        found = {"top": self.top, "entropy": self.entropy, "received": self.received, "thumbnail": thumbnail}
        return found | {"peak": self.peak, "distance": self.distance, "spans": spans}

    def _sum_queries(self, block: Block, weights: Tensor, total: Tensor | None) -> None:
        """Sum the weights over the queries of each thumbnail row, by a product with (cells, t): one pass over them."""
        rows = block.rows
        share = torch.ones_like(weights[..., :1]) if total is None else 1 / total
        counted = self.observe.counted
        if counted is not None and self.received is not None:
            chosen = counted.counted(rows, self.grid.T, weights.device).unsqueeze(-1)
            gave = ((share * chosen).mT @ weights).squeeze(-2)
            cut(self.received, block.lead, trailing=1)[..., block.cols] += gave
        if self.thumbnail is None:
            if counted is not None:
                return
            first, member = 0, share.mT
        else:
            cell = self.row_cell[rows]
            first = rows.start * self.thumbnail.size(-2) // self.grid.T
            last = (rows.stop - 1) * self.thumbnail.size(-2) // self.grid.T
            place = torch.arange(first, last + 1, device=cell.device)
            member = torch.where(cell == place[:, None], share.mT, 0.0)
        sums = member @ weights  # (..., cells, s)
        if self.received is not None and counted is None:
            cut(self.received, block.lead, trailing=1)[..., block.cols] += sums.sum(-2)
        if self.thumbnail is not None:
            here = cut(self.thumbnail, block.lead)
            here[..., first : first + sums.size(-2), :] += self.columns.sum(sums, block.cols)


class ThumbnailColumns:
    """The keys of each column of a thumbnail: cell c holds a run of floor(S / C) or one more."""

    def __init__(self, S: int, C: int, device: torch.device) -> None:
        edges = -(-torch.arange(C + 1, device=device) * S // max(C, 1))  # ceil: the first key of every cell
        self.first, self.sizes, self.S = edges[:-1], edges.diff(), S
        width = -(-S // max(C, 1))
        self.members = (self.first[:, None] + torch.arange(width, device=device)).clamp(max=max(S - 1, 0))
        self.inside = torch.arange(width, device=device) < self.sizes[:, None]
        self.even = S % max(C, 1) == 0

    def sum(self, x: Tensor, cols: slice) -> Tensor:
        """(..., cells) from (..., s), the keys `cols`."""
        x = torch.nn.functional.pad(x, (cols.start, self.S - cols.stop))
        if self.even:
            return x.unflatten(-1, (len(self.first), -1)).sum(-1)
        return (x[..., self.members] * self.inside).sum(-1)


def _entropy(weights: Tensor, logs: Tensor, total: Tensor, has_sink: bool) -> Tensor:
    """- sum p ln p with p = w / total and ln p = ln w - ln total; without a sink, sum p = 1."""
    total = total.squeeze(-1)
    mass = weights.sum(-1) / total if has_sink else 1.0
    return mass * total.log() - logs.clamp_(min=LOG_ZERO).mul_(weights).sum(-1) / total


def _top_k(ranked: Tensor, total: Tensor | None, k: int) -> Top:
    """The top k of each row, ties lowest index first. torch.topk breaks ties in any order, so one more is searched, and
    rows in which two of those are equal are sorted again by value and index."""
    values, indices = _search(ranked, min(k + 1, ranked.size(-1)))
    values = values if total is None else values / total
    tied = ((values[..., 1:] == values[..., :-1]) & (values[..., 1:] >= 0)).any(-1)
    if tied.any():
        rows = ranked[tied] if total is None else ranked[tied] / total.squeeze(-1)[tied].unsqueeze(-1)
        values[tied], indices[tied] = _in_order(rows, values.size(-1))
    return pad_top(values[..., :k], indices[..., :k], k)


def _in_order(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n largest of each row (r, s), largest first, ties by index."""
    if rows.dtype != torch.float32:
        found = rows.sort(dim=-1, descending=True, stable=True)
        return found.values[..., :n], found.indices[..., :n]
    # the bits of floats >= 0 are in their order, and those of -1 are below: value and index fit one integer
    last = rows.size(-1) - 1
    place = torch.arange(last, -1, -1, device=rows.device)
    keys = (rows.contiguous().view(torch.int32).long() << 32 | place).topk(n).values
    return (keys >> 32).int().view(torch.float32), last - (keys & 0xFFFFFFFF)


def _search(ranked: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The n largest of each row (..., s), largest first. The n largest lie in the n groups with the largest maxima, and
    maxima of groups {j, j + g, j + 2g, ...} take one fast pass, so only n groups are searched."""
    # keys in a group: a power of two (for the speed of amax) at which there are as many groups as keys in n of them
    fold = 2 ** (isqrt(ranked.size(-1) // n).bit_length() - 1)
    if fold < 8:
        found = ranked.topk(n)
        return found.values, found.indices
    groups = ranked.size(-1) // fold
    folded = ranked[..., : groups * fold].unflatten(-1, (fold, groups))
    best = folded.amax(-2).topk(n, sorted=False).indices.unsqueeze(-2)  # (..., 1, n)
    step = torch.arange(0, groups * fold, groups, device=ranked.device).unsqueeze(-1)
    places = (best + step).flatten(-2)  # (..., fold * n)
    if groups * fold < ranked.size(-1):
        rest = torch.arange(groups * fold, ranked.size(-1), device=ranked.device)  # fewer than one group
        places = torch.cat((places, rest.expand(*places.shape[:-1], -1)), -1)
    found = ranked.gather(-1, places).topk(n)
    return found.values, places.gather(-1, found.indices)
