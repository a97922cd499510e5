"""Attention biases, added to the scores before the softmax, tile by tile.

A bias is any object with `tile(rows, cols)`: for the queries `rows` (t,) and the keys `cols` (s,), index tensors, it
returns what to add, broadcasting to (*lead, t, s). Alibi and Relative live in positions.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from regard.attention.grid import Grid, Lead, check_table, cut, pick, short_repr
from regard.errors import DtypeError, ShapeError


@runtime_checkable
class HasTile(Protocol):
    """The interface of a user's own bias."""

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor: ...


class Bias(ABC):
    """A bias that also knows the positions of the queries, and can be cut to a part of the leading dimensions."""

    finite = False  # True: it never gives -inf, which hides a key

    @abstractmethod
    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        """What to add to the scores of these queries (t,) and keys (s,); broadcasts to (*lead, t, s)."""

    def bind(self, grid: Grid) -> Bias:
        """The same bias for a map of this many queries and keys, on its device; raises where it does not fit."""
        return self

    def cast(self, dtype: torch.dtype) -> Bias:
        """The same bias for scores in this dtype, if it computes its tiles itself."""
        return self

    def part(self, lead: Lead) -> Bias:
        """The same bias for a part of the leading dimensions."""
        return self

    def tensors(self) -> Iterable[Tensor]:
        """The tensors of this bias, which may require gradients."""
        return ()

    def implied_lead(self, grid: Grid) -> tuple[int, ...]:
        """The leading dimensions that its tiles have."""
        return grid.lead


@dataclass(frozen=True, eq=False, repr=False)
class DenseBias(Bias):
    """A float tensor that broadcasts to (*lead, T, S): T5's position bias, or a float attention mask (-inf hides)."""

    table: Tensor

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not isinstance(self.table, Tensor) or not self.table.is_floating_point():
            kind = f"a tensor of {self.table.dtype}" if isinstance(self.table, Tensor) else type(self.table).__name__
            raise DtypeError(
                kind,
                "floats",
                where="DenseBias",
                advice="For booleans, use masks.Dense.",
            )

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        return pick(self.table, rows, cols)

    def bind(self, grid: Grid) -> Bias:
        check_table(self.table, grid, "DenseBias")
        return DenseBias(self.table.to(grid.device))

    def part(self, lead: Lead) -> Bias:
        return DenseBias(cut(self.table, lead))

    def tensors(self) -> Iterable[Tensor]:
        return (self.table,)

    def implied_lead(self, grid: Grid) -> tuple[int, ...]:
        return tuple(self.table.shape[:-2])


@dataclass(frozen=True, eq=False)
class CustomBias(Bias):
    """A user's own bias, of which only `tile` is known; a part of it is cut out of the full tile."""

    source: HasTile
    grid: Grid | None = None
    lead: Lead | None = None

    def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
        tile = self.source.tile(rows, cols)
        if self.grid is not None:
            sizes = Grid(self.grid.lead, len(rows), len(cols), self.grid.device)
            check_table(tile, sizes, f"{type(self.source).__name__}.tile")
        return tile if self.lead is None else cut(tile, self.lead)

    def bind(self, grid: Grid) -> Bias:
        return CustomBias(self.source, grid)

    def part(self, lead: Lead) -> Bias:
        return CustomBias(self.source, self.grid, lead)

    def tensors(self) -> Iterable[Tensor]:
        if isinstance(self.source, nn.Module):
            return self.source.parameters()
        return (value for value in vars(self.source).values() if isinstance(value, Tensor))


def as_bias(bias: object) -> Bias | None:
    """The bias a user passed, as a Bias."""
    if bias is None or isinstance(bias, Bias):
        return bias
    if isinstance(bias, Tensor):
        kind = "masks.Dense(tensor) as mask=" if bias.dtype == torch.bool else "DenseBias(tensor)"
        raise DtypeError("a tensor", "a bias value", where="attend bias", advice=f"Wrap it: {kind}.")
    if isinstance(bias, HasTile):
        return CustomBias(bias)
    raise DtypeError(f"bias={bias!r}", "an object with tile(rows, cols), such as DenseBias or Alibi", where="attend")


def resolve_offset(offset: int | Tensor | None, grid: Grid, where: str) -> int | Tensor:
    """The position of the first query: an int, or (B, 1, ..., 1) for offsets (B,); None means S - T."""
    if offset is None:
        return grid.S - grid.T
    if isinstance(offset, Tensor) and offset.dim():
        if not grid.lead or offset.size(0) != grid.lead[0]:
            raise ShapeError(f"{offset.size(0)} offsets", f"one for each row of the batch {grid.lead}", where=where)
        return grid.by_batch(offset, trailing=2)
    return int(offset)
