"""One part of an additive map, some leading indices or some rows: its workspace, and the kernels launched on it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED


class Tiling(NamedTuple):
    """The size of a tile of pairs, and how its program walks through the units."""

    rows: int
    columns: int
    warps: int = 4
    units: int = 8  # in one turn of the loop, summed by themselves
    registers: int = 168  # the most that a thread of the backward pass has: three programs to a multiprocessor
    width: int = 32  # units in a tile of gradients
    pairs: int = 2  # of rows, in one turn of the loop over those


TILINGS = {
    "square": Tiling(64, 64),
    "square, short turns": Tiling(64, 64, units=4, width=16),
    "small": Tiling(32, 32),
}


def tiling_for(T: int, S: int, name: str) -> Tiling:
    """The tiling of this name; "auto": one in which short lengths leave little padding."""
    if name != "auto":
        return TILINGS[name]
    rows = next(size for size in (16, 32, 64) if size >= min(T, 64))
    return Tiling(rows, 32 if S <= 32 else 64)


class Part(NamedTuple):
    """Some leading indices with all of their rows, or some rows of one leading index."""

    leads: slice
    rows: slice

    def cut(self, x: Tensor) -> Tensor:
        """This part of x (N, T, ...)."""
        return x[self.leads, self.rows]


FREE = 2**22  # numbers: a workspace of this size (16 MB) is small for any GPU, however small the inputs are
THIN = 64  # rows that a part has at least


def parts(a: Tensor, b: Tensor, room: int, *, tables: int, powers: bool = True) -> Iterator[Part]:
    """Parts of the map whose workspace, `tables` of all pairs and the powers e^2a and e^2b, is no larger than `room`.

    powers False: those have a place of their own where a part is made of whole leading indices.
    """
    (N, T, U), S = a.shape, b.size(1)
    room = max(FREE, room)
    most = room // (tables * T * S + (T + S) * U * powers)  # leading indices
    leads = -(-N // -(-N // most)) if most else 1  # in parts of much the same size
    rows = T if most else min(T, max(THIN, (room - S * U) // (U + tables * S) // THIN * THIN))
    for lead in range(0, N, leads):
        for row in range(0, T, rows):
            yield Part(slice(lead, min(lead + leads, N)), slice(row, min(row + rows, T)))


def within(x: Tensor, *shape: int) -> Tensor:
    """Room of this shape in the memory of x, whose numbers nobody needs any more; new room if x is too small."""
    size = prod(shape)
    return x.flatten()[:size].view(shape) if x.is_contiguous() and size <= x.numel() else x.new_empty(shape)


class Tiles(NamedTuple):
    """One part of the map, ready to be computed tile by tile; letters as in additive_kernels."""

    a: Tensor
    b: Tensor
    vector: Tensor  # (padded,)
    lo: Tensor | None
    hi: Tensor | None
    tiling: Tiling
    bounds_a: Tensor  # the largest |a| of each block
    bounds_b: Tensor

    @classmethod
    def of(
        cls, a: Tensor, b: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, part: Part, tiling: str
    ) -> Tiles:
        lo, hi = (None if end is None else part.cut(end).contiguous() for end in (lo, hi))
        a, b = part.cut(a).contiguous(), b[part.leads].contiguous()
        chosen = tiling_for(a.size(1), b.size(1), tiling)
        blocks = (
            x.new_empty(x.size(0), -(-x.size(1) // block)) for x, block in ((a, chosen.rows), (b, chosen.columns))
        )
        return cls(a, b, vector, lo, hi, chosen, *blocks)

    def weights(self, lse: Tensor, entropy: Tensor) -> Tensor:
        """The weights (N, T, S) of this part; lse and entropy (N, T) are written on the way."""
        from regard.attention.kernels.triton import additive_kernels as tiles

        scores = self.table()
        N, T, S = *self.a.shape[:2], self.b.size(1)
        powers = self.a.new_empty(self.powers_of_a()), self.a.new_empty(self.powers_of_b())
        self.grow(*powers, panels=True)
        tiles.write_scores[(self.number(),)](*self.compared(*powers), scores, *self.sizes(), **self.options())
        tiles.soften[(N * T,)](
            scores, self.lo, self.hi, lse, entropy, T, S, scores.stride(0), scores.stride(1),
            SPANS=self.lo is not None, BLOCK=min(2048, max(16, 1 << (S - 1).bit_length())),
        )  # fmt: skip
        return scores[:, :T, :S]

    def table(self) -> Tensor:
        """Room for a number for each pair, (N, T, S) in whole tiles."""
        (N, T, _), S = self.a.shape, self.b.size(1)
        rows, columns = self.tiling.rows, self.tiling.columns
        return self.a.new_empty(N, -(-T // rows) * rows, -(-S // columns) * columns)

    def number(self) -> int:
        """How many tiles there are."""
        (N, T, _), S = self.a.shape, self.b.size(1)
        return N * -(-T // self.tiling.rows) * -(-S // self.tiling.columns)

    def powers_of_a(self) -> tuple[int, int, int, int]:
        """The shape of e^2a in whole blocks; a panel has its last two the other way round."""
        return *self.bounds_a.shape, self.tiling.rows, self.vector.numel()

    def powers_of_b(self) -> tuple[int, int, int, int]:
        return *self.bounds_b.shape, self.tiling.columns, self.vector.numel()

    def compared(self, panels_a: Tensor, panels_b: Tensor) -> tuple[Tensor | None, ...]:
        """What a kernel needs for scores: panels, bounds, a, b, vector, spans."""
        return panels_a, panels_b, self.bounds_a, self.bounds_b, self.a, self.b, self.vector, self.lo, self.hi

    def grow(self, of_a: Tensor | None, of_b: Tensor | None, *, panels: bool) -> None:
        """Writes e^2a and e^2b, or one of them, into room of their shape, and the bounds of their blocks."""
        from regard.attention.kernels.triton import additive_kernels as tiles

        padded = self.vector.numel()
        first = 0 if of_a is None else self.bounds_a.numel()
        then = 0 if of_b is None else self.bounds_b.numel()
        tiles.grow[(first + then,)](
            self.a, self.b, of_b if of_a is None else of_a, of_a if of_b is None else of_b,
            self.bounds_a, self.bounds_b, *self.sizes(), padded, first,
            PANEL=panels, ROWS=self.tiling.rows, COLUMNS=self.tiling.columns,
            WIDTH=min(64, 1 << (padded - 1).bit_length()), num_warps=8,
        )  # fmt: skip

    def sizes(self) -> tuple[int, int, int]:
        return self.a.size(1), self.b.size(1), self.a.size(2)

    def options(self) -> dict[str, Any]:
        """How a kernel that compares is to be compiled."""
        return {
            "ROWS": self.tiling.rows, "COLUMNS": self.tiling.columns, "UNITS": self.tiling.units,
            "PADDED": self.vector.numel(), "SPANS": self.lo is not None, **self.compiled(),
        }  # fmt: skip

    def compiled(self) -> dict[str, Any]:
        """What all kernels with hot loops are compiled with."""
        return {"ASM": not INTERPRETED, "num_warps": self.tiling.warps, "num_stages": 1}

    def limited(self) -> dict[str, int]:
        """For kernels that would take more registers than make them quick."""
        return {} if INTERPRETED else {"maxnreg": self.tiling.registers}


def whole_turns(vector: Tensor) -> Tensor:
    """The vector with zeros at its end, up to a multiple of 16."""
    missing = -vector.numel() % 16
    return torch.nn.functional.pad(vector, (0, missing)) if missing else vector.contiguous()
