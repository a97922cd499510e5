"""Masks, biases and windows of a record, in forms whose size grows with the length, not with its square.

Nearly every mask lets a query see a contiguous span of keys, and nearly every bias depends on the distance, or on the
key alone. Any other is stored whole where it is small; where it is large, `NotReconstructible` says so, and the record
has statistics only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import AttentionInputs
from regard.attention.biases import Bias

MAX_TABLE = 2**22  # numbers: a table of this size may be stored whole
BLOCK_ROWS = 64  # rows of a map that are examined together


class NotReconstructible(Exception):
    """The reason why a map cannot be recomputed from a file; caught where the record is built, which reports it."""


@dataclass(frozen=True, eq=False)
class MaskSpans:
    """Query i sees the keys from first[i] up to, not with, last[i], (1 or H, T) of int32; of those, where there is a
    `table` (1 or H, T, S) of booleans, the ones that it allows."""

    first: Tensor
    last: Tensor
    table: Tensor | None = None

    @classmethod
    def encode(cls, prepared: AttentionInputs) -> MaskSpans:
        """The mask of one row of a batch."""
        mask, grid = prepared.mask, prepared.grid
        if mask.contiguous:
            first, last = torch.broadcast_tensors(*mask.span(grid))
            return cls(*(_by_head(end.expand(*end.shape[:-1], grid.T)) for end in (first, last)))
        firsts, lasts, contiguous = [], [], True
        cols = torch.arange(grid.S, device=grid.device)
        for rows in _row_blocks(grid.T, grid.device):
            allowed = mask.allowed(rows, cols, grid)
            allowed = allowed.expand(*allowed.shape[:-2], len(rows), grid.S)
            first, last = _allowed_span(allowed)
            contiguous = contiguous and bool((allowed.sum(-1) == last - first).all())
            firsts.append(first)
            lasts.append(last)
        spans = cls(_by_head(torch.cat(firsts, -1)), _by_head(torch.cat(lasts, -1)))
        if contiguous:
            return spans
        if spans.first.size(0) * grid.T * grid.S > MAX_TABLE:
            raise NotReconstructible(f"its mask has gaps, and {grid.T} x {grid.S} of it are too many to store")
        whole = mask.allowed(torch.arange(grid.T, device=grid.device), cols, grid)
        whole = whole.expand(*whole.shape[:-2], grid.T, grid.S)
        return cls(spans.first, spans.last, whole.reshape(-1, grid.T, grid.S).cpu())

    def covers(self, head: int, rows: Tensor, cols: Tensor) -> bool:
        """Whether these queries see all of these keys."""
        if self.table is not None or not len(rows) or not len(cols):
            return False
        first, last = (_head_row(end, head)[rows] for end in (self.first, self.last))
        return bool(first.max() <= cols.min()) and bool(last.min() > cols.max())

    def key_range(self, head: int, rows: Tensor) -> tuple[int, int]:
        """The first key, and one past the last, that any of these queries sees."""
        first, last = (_head_row(end, head)[rows] for end in (self.first, self.last))
        some = last > first
        return (int(first[some].min()), int(last[some].max())) if bool(some.any()) else (0, 0)

    def allowed(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(t, s) of booleans."""
        first, last = (_head_row(end, head)[rows].unsqueeze(-1) for end in (self.first, self.last))
        inside = (cols >= first) & (cols < last)
        return inside if self.table is None else inside & _head_row(self.table, head)[rows][:, cols]


@dataclass(frozen=True, eq=False)
class BiasTerm:
    """A bias on the scores. kind "distance": table (1 or H, T + S - 1) by j - i + T - 1; "key": (1 or H, S); "pair":
    (1 or H, T, S); "block": (1 or H, P, B), where query i has row i mod P, and its keys are counted from starts[i], the
    first key of its block."""

    kind: str
    table: Tensor
    queries: int
    starts: Tensor | None = None  # (T,) of int32

    @classmethod
    def encode(cls, prepared: AttentionInputs) -> BiasTerm | None:
        bias, grid = prepared.bias, prepared.grid
        if bias is None:
            return None
        T, S = grid.T, grid.S
        rows, cols = torch.arange(T, device=grid.device), torch.arange(S, device=grid.device)
        if not T or not S:
            return None
        top = _bias_tile(bias, rows[:1], cols)[:, 0]  # (h, S): distances 0 .. S - 1
        left = _bias_tile(bias, rows, cols[:1])[:, :, 0]  # (h, T): distances 0 .. -(T - 1)
        distance = torch.cat((left.flip(-1)[:, :-1], top), -1)
        by_distance = by_key = True
        for some in _row_blocks(T, grid.device):
            tile = _bias_tile(bias, some, cols)
            by_key = by_key and torch.equal(tile, top.unsqueeze(1).expand_as(tile))
            at = cols - some.unsqueeze(-1) + T - 1
            by_distance = by_distance and torch.equal(tile, distance[:, at])
            if not by_key and not by_distance:
                break
        if by_key or by_distance:
            return cls("key", top.cpu(), T) if by_key else cls("distance", distance.cpu(), T)
        if top.size(0) * T * S > MAX_TABLE:
            raise NotReconstructible(f"its bias depends on each pair, and {T} x {S} of it are too many to store")
        return cls("pair", _bias_tile(bias, rows, cols).cpu(), T)

    def tile(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(t, s), or (1, s) where it is the same for every query."""
        table = _head_row(self.table, head)
        if self.kind == "key":
            return table[cols].unsqueeze(0)
        if self.kind == "distance":
            return table[cols - rows.unsqueeze(-1) + self.queries - 1]
        if self.starts is not None:
            at = cols - self.starts[rows].unsqueeze(-1)
            inside = (at >= 0) & (at < table.size(-1))
            found = table[rows % table.size(0)].gather(1, at.clamp(0, table.size(-1) - 1))
            return found.where(inside, 0.0)
        return table[rows][:, cols]


@dataclass(frozen=True, eq=False)
class GaussianWindow:
    """Luong's local-p window: keys within `half_width` of centre[i], (H, T), weighted by a Gaussian around it."""

    centre: Tensor
    half_width: int

    @classmethod
    def encode(cls, prepared: AttentionInputs) -> GaussianWindow | None:
        if prepared.window is None:
            return None
        grid = prepared.grid
        centre = torch.cat([prepared.centre(rows) for rows in _row_blocks(grid.T, grid.device)], -2)
        return cls(centre.reshape(-1, grid.T).float().cpu(), prepared.window.half_width)

    def inside(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        return (cols - _head_row(self.centre, head)[rows].unsqueeze(-1)).abs() <= self.half_width

    def factor(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        """The Gaussian that each weight is multiplied by, (t, s)."""
        distance = cols - _head_row(self.centre, head)[rows].unsqueeze(-1)
        return torch.exp(-(distance**2) / (2 * (self.half_width / 2) ** 2))


def _head_row(table: Tensor, head: int) -> Tensor:
    return table[head if table.size(0) > 1 else 0]


def _by_head(ends: Tensor) -> Tensor:
    """(*lead, T) of one row of a batch as (1 or H, T) of int32; one row for all heads where they are equal."""
    flat = ends.reshape(-1, ends.size(-1)).to(torch.int32).cpu()
    return flat[:1] if bool((flat == flat[:1]).all()) else flat


def _bias_tile(bias: Bias, rows: Tensor, cols: Tensor) -> Tensor:
    """(1 or H, t, s) of a bias for one row of a batch."""
    tile = bias.tile(rows, cols).float()
    tile = tile.expand(*tile.shape[:-2], len(rows), len(cols))
    return tile.reshape(-1, len(rows), len(cols))


def _allowed_span(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The first allowed key of each query (..., t, s), and one past the last; 0 and 0 where none is allowed."""
    S = allowed.size(-1)
    some = allowed.any(-1)
    if not S:
        return some.long(), some.long()
    first = allowed.byte().argmax(-1)
    last = S - allowed.flip(-1).byte().argmax(-1)
    return first.where(some, 0), last.where(some, 0)


def _row_blocks(count: int, device: torch.device) -> Iterator[Tensor]:
    yield from torch.arange(count, device=device).split(BLOCK_ROWS) if count else ()
