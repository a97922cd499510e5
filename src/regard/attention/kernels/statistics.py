"""Statistics of the map, gathered block by block as the weights pass by, so that nobody ever holds the map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.blocks import Block
from regard.attention.masks import Grid, cut
from regard.attention.observe import Observe, Top, whole_top

NEVER = -1e4
"""Stands for a log-weight of -inf in sums of w ln w: exp(-1e4) is 0 in every precision, and 0 * -1e4 is not NaN."""


class Statistics:
    """What Observe asks for of a map (*lead, T, S), filled in as blocks of whole rows arrive."""

    def __init__(self, observe: Observe, grid: Grid, dtype: torch.dtype) -> None:
        lead, T, S = grid.lead, grid.T, grid.S

        def zeros(*sizes: int) -> Tensor:
            return torch.zeros(*lead, *sizes, dtype=dtype, device=grid.device)

        self.observe, self.grid = observe, grid
        self.sealed = False  # True: the pass is over; blocks computed again for gradients are not counted twice
        self.top: Top | None = None
        if observe.top:
            indices = torch.full((*lead, T, observe.top), -1, dtype=torch.long, device=grid.device)
            self.top = Top(zeros(T, observe.top), indices)
        self.entropy = zeros(T) if observe.entropy else None
        self.received = zeros(S) if observe.received else None
        self.thumbnail: Tensor | None = None
        if observe.thumbnail:
            R, C = min(observe.thumbnail[0], T), min(observe.thumbnail[1], S)
            self.thumbnail = zeros(R, C)
            self.row_cell = torch.arange(T, device=grid.device) * R // max(T, 1)
            self.columns = Columns(S, C, grid.device)

    @torch.no_grad()
    def add(
        self, block: Block, weights: Tensor, logs: Tensor, total: Tensor | None = None, faded: bool = False
    ) -> None:
        """Take in the weights (..., t, s) of a block: exp(`logs`), still to be divided by `total` (..., t, 1) if given.

        `faded`: a window's Gaussian came in between, so that `logs` only tells which keys are hidden (-inf). Both
        tensors are used up.
        """
        weights, logs = weights.detach(), logs.detach()
        if self.received is not None or self.thumbnail is not None:
            self._sum_queries(block, weights, total)
        hidden = [(edge, logs[..., edge] == -torch.inf) for edge in block.edges] if self.top is not None else []
        if self.entropy is not None:
            entropy = torch.special.entr(weights).sum(-1) if faded else _entropy(weights, logs, total)
            cut(self.entropy, block.lead, trailing=1)[..., block.rows] = entropy
        if self.top is not None:
            for edge, where in hidden:
                weights[..., edge].masked_fill_(where, -1.0)
            found = _largest(weights, total, self.observe.top)
            cut(self.top.values, block.lead)[..., block.rows, :] = found.values
            indices = torch.where(found.indices < 0, -1, found.indices + block.cols.start)
            cut(self.top.indices, block.lead)[..., block.rows, :] = indices

    def found(self) -> Mapping[str, Any]:
        """The finished fields of an Attended."""
        thumbnail = self.thumbnail
        if thumbnail is not None:
            in_row = torch.bincount(self.row_cell, minlength=thumbnail.size(-2))
            thumbnail = thumbnail / (in_row[:, None] * self.columns.sizes)
        return {"top": self.top, "entropy": self.entropy, "received": self.received, "thumbnail": thumbnail}

    def _sum_queries(self, block: Block, weights: Tensor, total: Tensor | None) -> None:
        """Sum the weights over the queries of each thumbnail row, by a product with (cells, t): one pass over them."""
        rows = block.rows
        share = torch.ones_like(weights[..., :1]) if total is None else 1 / total
        if self.thumbnail is None:
            first, member = 0, share.mT
        else:
            cell = self.row_cell[rows]
            first = rows.start * self.thumbnail.size(-2) // self.grid.T
            last = (rows.stop - 1) * self.thumbnail.size(-2) // self.grid.T
            place = torch.arange(first, last + 1, device=cell.device)
            member = torch.where(cell == place[:, None], share.mT, 0.0)
        sums = member @ weights  # (..., cells, s)
        if self.received is not None:
            cut(self.received, block.lead, trailing=1)[..., block.cols] += sums.sum(-2)
        if self.thumbnail is not None:
            here = cut(self.thumbnail, block.lead)
            here[..., first : first + sums.size(-2), :] += self.columns.sum(sums, block.cols)


class Columns:
    """Which keys fall into which column of a thumbnail: cell c holds a run of floor(S / C) or one more."""

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


def _entropy(weights: Tensor, logs: Tensor, total: Tensor | None) -> Tensor:
    mean = torch.linalg.vecdot(weights, logs.clamp_(min=NEVER))
    if total is None:
        return -mean
    total = total.squeeze(-1)
    return total.log() - mean / total  # - sum p ln p with p = w / total, ln p = ln w - ln total


def _largest(ranked: Tensor, total: Tensor | None, k: int) -> Top:
    """The k largest of each row, ties lowest index first. `topk` breaks ties as it likes, so it takes one more and
    rows that tie at the edge are sorted whole."""
    values, indices = ranked.topk(min(k + 1, ranked.size(-1)))
    by_index = indices.argsort(-1)
    values, indices = values.gather(-1, by_index), indices.gather(-1, by_index)
    values = values if total is None else values / total
    values, order = values.sort(dim=-1, descending=True, stable=True)
    indices = indices.gather(-1, order)
    if values.size(-1) > k:
        tied = (values[..., k] == values[..., k - 1]) & (values[..., k] >= 0)
        if tied.any():
            rows = ranked[tied] if total is None else ranked[tied] / total.squeeze(-1)[tied].unsqueeze(-1)
            fixed = rows.sort(dim=-1, descending=True, stable=True)
            values[tied], indices[tied] = fixed.values[..., : k + 1], fixed.indices[..., : k + 1]
    return whole_top(values[..., :k], indices[..., :k], k)
