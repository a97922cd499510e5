"""Who sees whom and what is added to the scores, in forms whose size grows with the length, not with its square.

Nearly every mask lets a query see a run of keys, and nearly every bias depends on the distance, or on the key alone.
What does not is kept whole where it is small; where it is large, `Unkept` says so, and the record has statistics only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.attention import Prepared
from regard.attention.biases import Bias

WHOLE = 2**22  # numbers: a table of this size may be kept as it is
ROWS = 64  # of a map that are looked at together

Where = slice | Tensor


class Unkept(Exception):
    """Says why no part of this map can come back; caught by whoever makes the record, which tells it to the reader."""


@dataclass(frozen=True, eq=False)
class Sight:
    """Query i sees the keys from first[i] up to, not with, last[i], (1 or H, T) of int32; of those, where there is a
    `table` (1 or H, T, S) of booleans, the ones that it allows."""

    first: Tensor
    last: Tensor
    table: Tensor | None = None

    @classmethod
    def of(cls, prepared: Prepared) -> Sight:
        """The mask of one row of a batch."""
        mask, grid = prepared.mask, prepared.grid
        if mask.solid:
            first, last = torch.broadcast_tensors(*mask.span(grid))
            return cls(*(_by_head(end.expand(*end.shape[:-1], grid.T)) for end in (first, last)))
        firsts, lasts, runs = [], [], True
        cols = torch.arange(grid.S, device=grid.device)
        for rows in _blocks(grid.T, grid.device):
            allowed = mask.allowed(rows, cols, grid)
            allowed = allowed.expand(*allowed.shape[:-2], len(rows), grid.S)
            first, last = _ends(allowed)
            runs = runs and bool((allowed.sum(-1) == last - first).all())
            firsts.append(first)
            lasts.append(last)
        sight = cls(_by_head(torch.cat(firsts, -1)), _by_head(torch.cat(lasts, -1)))
        if runs:
            return sight
        if sight.first.size(0) * grid.T * grid.S > WHOLE:
            raise Unkept(f"its mask has gaps, and {grid.T} x {grid.S} of it are too many to keep")
        whole = mask.allowed(torch.arange(grid.T, device=grid.device), cols, grid)
        whole = whole.expand(*whole.shape[:-2], grid.T, grid.S)
        return cls(sight.first, sight.last, whole.reshape(-1, grid.T, grid.S).cpu())

    def all_of(self, head: int, rows: Tensor, cols: Tensor) -> bool:
        """Whether these queries see all of these keys."""
        if self.table is not None or not len(rows) or not len(cols):
            return False
        first, last = (_of_head(end, head)[rows] for end in (self.first, self.last))
        return bool(first.max() <= cols.min()) and bool(last.min() > cols.max())

    def reach(self, head: int, rows: Tensor) -> tuple[int, int]:
        """The first key, and one past the last, that any of these queries sees."""
        first, last = (_of_head(end, head)[rows] for end in (self.first, self.last))
        some = last > first
        return (int(first[some].min()), int(last[some].max())) if bool(some.any()) else (0, 0)

    def allowed(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(t, s) of booleans."""
        first, last = (_of_head(end, head)[rows].unsqueeze(-1) for end in (self.first, self.last))
        inside = (cols >= first) & (cols < last)
        return inside if self.table is None else inside & _of_head(self.table, head)[rows][:, cols]


@dataclass(frozen=True, eq=False)
class Added:
    """What a bias adds. kind "distance": table (1 or H, T + S - 1) by j - i + T - 1; "key": (1 or H, S); "pair":
    (1 or H, T, S)."""

    kind: str
    table: Tensor
    queries: int

    @classmethod
    def of(cls, prepared: Prepared) -> Added | None:
        bias, grid = prepared.bias, prepared.grid
        if bias is None:
            return None
        T, S = grid.T, grid.S
        rows, cols = torch.arange(T, device=grid.device), torch.arange(S, device=grid.device)
        if not T or not S:
            return None
        top = _spread(bias, rows[:1], cols)[:, 0]  # (h, S): distances 0 .. S - 1
        left = _spread(bias, rows, cols[:1])[:, :, 0]  # (h, T): distances 0 .. -(T - 1)
        distance = torch.cat((left.flip(-1)[:, :-1], top), -1)
        by_distance = by_key = True
        for some in _blocks(T, grid.device):
            tile = _spread(bias, some, cols)
            by_key = by_key and torch.equal(tile, top.unsqueeze(1).expand_as(tile))
            at = cols - some.unsqueeze(-1) + T - 1
            by_distance = by_distance and torch.equal(tile, distance[:, at])
            if not by_key and not by_distance:
                break
        if by_key or by_distance:
            return cls("key", top.cpu(), T) if by_key else cls("distance", distance.cpu(), T)
        if top.size(0) * T * S > WHOLE:
            raise Unkept(f"its bias depends on each pair, and {T} x {S} of it are too many to keep")
        return cls("pair", _spread(bias, rows, cols).cpu(), T)

    def tile(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(t, s), or (1, s) where it is the same for every query."""
        table = _of_head(self.table, head)
        if self.kind == "key":
            return table[cols].unsqueeze(0)
        if self.kind == "distance":
            return table[cols - rows.unsqueeze(-1) + self.queries - 1]
        return table[rows][:, cols]


@dataclass(frozen=True, eq=False)
class Local:
    """Luong's predicted window: keys within `half_width` of centre[i], (H, T), faded by a Gaussian around it."""

    centre: Tensor
    half_width: int

    @classmethod
    def of(cls, prepared: Prepared) -> Local | None:
        if prepared.window is None:
            return None
        grid = prepared.grid
        centre = torch.cat([prepared.centre(rows) for rows in _blocks(grid.T, grid.device)], -2)
        return cls(centre.reshape(-1, grid.T).float().cpu(), prepared.window.half_width)

    def inside(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        return (cols - _of_head(self.centre, head)[rows].unsqueeze(-1)).abs() <= self.half_width

    def gain(self, head: int, rows: Tensor, cols: Tensor) -> Tensor:
        away = cols - _of_head(self.centre, head)[rows].unsqueeze(-1)
        return torch.exp(-(away**2) / (2 * (self.half_width / 2) ** 2))


def _of_head(table: Tensor, head: int) -> Tensor:
    return table[head if table.size(0) > 1 else 0]


def _by_head(ends: Tensor) -> Tensor:
    """(*lead, T) of one row of a batch as (1 or H, T) of int32; alike for all heads, one stands for them."""
    flat = ends.reshape(-1, ends.size(-1)).to(torch.int32).cpu()
    return flat[:1] if bool((flat == flat[:1]).all()) else flat


def _spread(bias: Bias, rows: Tensor, cols: Tensor) -> Tensor:
    """(1 or H, t, s) of a bias for one row of a batch."""
    tile = bias.tile(rows, cols).float()
    tile = tile.expand(*tile.shape[:-2], len(rows), len(cols))
    return tile.reshape(-1, len(rows), len(cols))


def _ends(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """First, and one past the last, that is allowed (..., t, s) to each query; 0 and 0 where nothing is."""
    S = allowed.size(-1)
    some = allowed.any(-1)
    if not S:
        return some.long(), some.long()
    first = allowed.byte().argmax(-1)
    last = S - allowed.flip(-1).byte().argmax(-1)
    return first.where(some, 0), last.where(some, 0)


def _blocks(count: int, device: torch.device) -> Iterator[Tensor]:
    yield from torch.arange(count, device=device).split(ROWS) if count else ()
