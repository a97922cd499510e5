"""The map of all pairs, T queries by S keys for each leading index, and how to take a part of what is laid over it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import ShapeError

Lead = tuple[slice, ...]
"""A part of the leading dimensions, one slice for each."""


@dataclass(frozen=True)
class Grid:
    """The map a mask is asked about: leading dimensions, T queries, S keys, and the device it lies on."""

    lead: tuple[int, ...]
    T: int
    S: int
    device: torch.device

    def by_batch(self, values: Tensor, *, trailing: int) -> Tensor:
        """Values (B, ...) of the first leading dimension, shaped to broadcast against (*lead, ...trailing dims)."""
        values = values.to(self.device)
        ones = (1,) * (len(self.lead) - 1 + trailing - (values.dim() - 1))
        return values.reshape(values.size(0), *ones, *values.shape[1:])


def cut(x: Tensor, lead: Lead, *, trailing: int = 2) -> Tensor:
    """The part of x (*any that broadcasts to lead, *trailing dims) that belongs to these leading slices."""
    own = x.dim() - trailing
    picks = zip(x.shape[:own], lead[len(lead) - own :], strict=True)
    return x[tuple(slice(None) if size == 1 else piece for size, piece in picks)]


def pick(table: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """The tile (..., t, s) of a table (..., T, S) in which a dimension of size 1 stands for all."""
    table = table if table.size(-2) == 1 else table[..., rows, :]
    return table if table.size(-1) == 1 else table[..., cols]


def check_table(table: Tensor, grid: Grid, where: str) -> None:
    """Raise ShapeError unless the table broadcasts to (*lead, T, S) without growing it."""
    full = (*grid.lead, grid.T, grid.S)
    sizes = list(zip(reversed(table.shape), reversed(full), strict=False))
    if not 2 <= table.dim() <= len(full) or any(own not in (1, size) for own, size in sizes):
        raise ShapeError(f"shape {tuple(table.shape)}", f"one that broadcasts to {full}", where=where)
