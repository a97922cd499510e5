"""The attention map: T queries by S keys for each leading index; how to cut and index tensors over it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from regard.errors import ShapeError

Lead = tuple[slice, ...]
"""A part of the leading dimensions, one slice for each."""


@dataclass(frozen=True)
class Grid:
    """The shape of a map: leading dimensions, T queries, S keys, and the device."""

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
    depth = x.dim() - trailing
    picks = zip(x.shape[:depth], lead[len(lead) - depth :], strict=True)
    return x[tuple(slice(None) if size == 1 else piece for size, piece in picks)]


def pick(table: Tensor, rows: Tensor, cols: Tensor) -> Tensor:
    """The tile (..., t, s) of a table (..., T, S) in which a dimension of size 1 stands for all."""
    table = table if table.size(-2) == 1 else table[..., rows, :]
    return table if table.size(-1) == 1 else table[..., cols]


def check_table(table: Tensor, grid: Grid, where: str) -> None:
    """Raise ShapeError unless the table broadcasts to (*lead, T, S) without growing it."""
    full = (*grid.lead, grid.T, grid.S)
    sizes = list(zip(reversed(table.shape), reversed(full), strict=False))
    if not 2 <= table.dim() <= len(full) or any(given != 1 and given != size for given, size in sizes):
        raise ShapeError(f"shape {tuple(table.shape)}", f"one that broadcasts to {full}", where=where)


def short_repr(value: Any) -> str:
    """A dataclass as its name and the fields that are present: tensors as shapes, defaults left out, inputs by name."""
    return f"{type(value).__name__}({', '.join(_present(value))})"


def _present(value: Any) -> list[str]:
    found = []
    for field in fields(value):
        if not field.repr:
            continue
        one = getattr(value, field.name)
        if isinstance(one, Tensor):
            dtype = "" if one.dtype == torch.float32 else f" {str(one.dtype).removeprefix('torch.')}"
            found.append(f"{field.name} {tuple(one.shape)}{dtype}")
        elif one is not None and one is not False and not (isinstance(one, int) and one == field.default):
            found.append(field.name if field.name == "prepared" and one is not True else f"{field.name}={one!r}")
    return found
