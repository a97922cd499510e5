"""The workspace of additive attention on a GPU: parts of the map, and the kernels launched on each part."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED


class AdditiveTiling(NamedTuple):
    """The size of a tile of pairs, and how its program loops over the units."""

    rows: int
    columns: int
    warps: int = 4
    units: int = 8  # in one iteration of the loop, with a sum of their own
    registers: int = 168  # the most per thread of the backward pass: three programs to a multiprocessor
    width: int = 32  # units in a tile of gradients
    pairs: int = 2  # of rows, in one iteration of the loop over rows


TILINGS = {
    "square": AdditiveTiling(64, 64),
    "square, short turns": AdditiveTiling(64, 64, units=4, width=16),
    "small": AdditiveTiling(32, 32),
}


def additive_tiling(T: int, S: int, name: str) -> AdditiveTiling:
    """The tiling of this name; "auto": one in which short lengths leave little padding."""
    if name != "auto":
        return TILINGS[name]
    rows = next(size for size in (16, 32, 64) if size >= min(T, 64))
    return AdditiveTiling(rows, 32 if S <= 32 else 64)


class MapPart(NamedTuple):
    """Some leading indices with all of their rows, or some rows of one leading index."""

    leads: slice
    rows: slice

    def cut(self, x: Tensor) -> Tensor:
        """This part of x (N, T, ...)."""
        return x[self.leads, self.rows]


MIN_WORKSPACE = 2**22  # numbers: a workspace of this size (16 MB) is small for any GPU, however small the inputs are
MIN_ROWS = 64  # rows that a part has at least


def map_parts(a: Tensor, b: Tensor, workspace: int, *, tables: int, powers: bool = True) -> Iterator[MapPart]:
    """Parts of the map whose memory, `tables` of all pairs and the powers e^2a and e^2b, is at most `workspace`.

    powers False: the powers lie elsewhere, where a part is made of whole leading indices.
    """
    (N, T, U), S = a.shape, b.size(1)
    workspace = max(MIN_WORKSPACE, workspace)
    max_leads = workspace // (tables * T * S + (T + S) * U * powers)  # leading indices
    leads = -(-N // -(-N // max_leads)) if max_leads else 1  # in parts of nearly equal size
    rows = T if max_leads else min(T, max(MIN_ROWS, (workspace - S * U) // (U + tables * S) // MIN_ROWS * MIN_ROWS))
    for lead in range(0, N, leads):
        for row in range(0, T, rows):
            yield MapPart(slice(lead, min(lead + leads, N)), slice(row, min(row + rows, T)))


def reuse_memory(x: Tensor, *shape: int) -> Tensor:
    """A tensor of this shape in the memory of x, whose contents are no longer needed; new memory if x is too small."""
    size = prod(shape)
    return x.flatten()[:size].view(shape) if x.is_contiguous() and size <= x.numel() else x.new_empty(shape)


class Tiles(NamedTuple):
    """One part of the map, ready to be computed tile by tile; letters as in additive_kernels."""

    a: Tensor
    b: Tensor
    vector: Tensor  # (padded,)
    lo: Tensor | None
    hi: Tensor | None
    tiling: AdditiveTiling
    bounds_a: Tensor  # the largest |a| of each block
    bounds_b: Tensor

    @classmethod
    def of(
        cls, a: Tensor, b: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, part: MapPart, tiling: str
    ) -> Tiles:
        lo, hi = (None if end is None else part.cut(end).contiguous() for end in (lo, hi))
        a, b = part.cut(a).contiguous(), b[part.leads].contiguous()
        chosen = additive_tiling(a.size(1), b.size(1), tiling)
        blocks = (
            x.new_empty(x.size(0), -(-x.size(1) // block)) for x, block in ((a, chosen.rows), (b, chosen.columns))
        )
        return cls(a, b, vector, lo, hi, chosen, *blocks)

    def weights(self, lse: Tensor, entropy: Tensor) -> Tensor:
        """The weights (N, T, S) of this part; lse and entropy (N, T) are written too."""
        from regard.attention.kernels.triton import additive_kernels as tiles

        scores = self.table()
        N, T, S = *self.a.shape[:2], self.b.size(1)
        powers = self.a.new_empty(self.powers_shape_a()), self.a.new_empty(self.powers_shape_b())
        self.write_powers(*powers, panels=True)
        tiles.write_scores[(self.tile_count(),)](*self.score_args(*powers), scores, *self.sizes(), **self.options())
        tiles.softmax_rows[(N * T,)](
            scores, self.lo, self.hi, lse, entropy, T, S, scores.stride(0), scores.stride(1),
            SPANS=self.lo is not None, BLOCK=min(2048, max(16, 1 << (S - 1).bit_length())),
        )  # fmt: skip
        return scores[:, :T, :S]

    def table(self) -> Tensor:
        """Uninitialised memory of one number for each pair, (N, T, S) in whole tiles."""
        (N, T, _), S = self.a.shape, self.b.size(1)
        rows, columns = self.tiling.rows, self.tiling.columns
        return self.a.new_empty(N, -(-T // rows) * rows, -(-S // columns) * columns)

    def tile_count(self) -> int:
        """The number of tiles."""
        (N, T, _), S = self.a.shape, self.b.size(1)
        return N * -(-T // self.tiling.rows) * -(-S // self.tiling.columns)

    def powers_shape_a(self) -> tuple[int, int, int, int]:
        """The shape of e^2a in whole blocks; a panel has its last two dimensions swapped."""
        return *self.bounds_a.shape, self.tiling.rows, self.vector.numel()

    def powers_shape_b(self) -> tuple[int, int, int, int]:
        return *self.bounds_b.shape, self.tiling.columns, self.vector.numel()

    def score_args(self, panels_a: Tensor, panels_b: Tensor) -> tuple[Tensor | None, ...]:
        """The kernel arguments that scores are computed from: panels, bounds, a, b, vector, spans."""
        return panels_a, panels_b, self.bounds_a, self.bounds_b, self.a, self.b, self.vector, self.lo, self.hi

    def write_powers(self, powers_a: Tensor | None, powers_b: Tensor | None, *, panels: bool) -> None:
        """Write e^2a and e^2b, or one of them, into these tensors, and the bounds of their blocks."""
        from regard.attention.kernels.triton import additive_kernels as tiles

        padded = self.vector.numel()
        first = 0 if powers_a is None else self.bounds_a.numel()
        then = 0 if powers_b is None else self.bounds_b.numel()
        tiles.write_powers[(first + then,)](
            self.a, self.b, powers_b if powers_a is None else powers_a, powers_a if powers_b is None else powers_b,
            self.bounds_a, self.bounds_b, *self.sizes(), padded, first,
            PANEL=panels, ROWS=self.tiling.rows, COLUMNS=self.tiling.columns,
            WIDTH=min(64, 1 << (padded - 1).bit_length()), num_warps=8,
        )  # fmt: skip

    def sizes(self) -> tuple[int, int, int]:
        return self.a.size(1), self.b.size(1), self.a.size(2)

    def options(self) -> dict[str, Any]:
        """The compile-time options of kernels that compute scores."""
        return {
            "ROWS": self.tiling.rows, "COLUMNS": self.tiling.columns, "UNITS": self.tiling.units,
            "PADDED": self.vector.numel(), "SPANS": self.lo is not None, **self.hot_loop_options(),
        }  # fmt: skip

    def hot_loop_options(self) -> dict[str, Any]:
        """The compile-time options of all kernels with hot loops."""
        return {"ASM": not INTERPRETED, "num_warps": self.tiling.warps, "num_stages": 1}

    def register_limit(self) -> dict[str, int]:
        """A limit for kernels that would otherwise take too many registers to be fast."""
        return {} if INTERPRETED else {"maxnreg": self.tiling.registers}


def pad_vector(vector: Tensor) -> Tensor:
    """The vector, zero-padded to a multiple of 16."""
    missing = -vector.numel() % 16
    return torch.nn.functional.pad(vector, (0, missing)) if missing else vector.contiguous()
