"""How the statistics pass is started: what each key received, the thumbnail, the largest weights and their keys."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton import statistics as general
from regard.attention.kernels.triton.descriptors import (
    KEYS,
    LOG2E,
    described,
    of_documents,
    or_any,
    processors,
    suits_hopper,
    tile_of,
    told,
)

ROOM = 32  # candidates for its largest that are kept of a row: 10.6 on average, of random rows
NOTED = 32 * 16 * 48  # bytes of what a warp of the statistics pass notes before it puts candidates on lists
RESIDENT = 16  # of its warps may run on a multiprocessor at a time and need room for notes
AHEAD = 2  # tiles of queries that it has under way


@dataclass(frozen=True)
class Wanted:
    """What the statistics pass is asked for; 0 rows: no thumbnail."""

    received: bool
    rows: int
    cols: int
    top: int


def statistics(
    q: Tensor, k: Tensor, lse: Tensor, strips: Tensor, spans: Spans, scale: float, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """received (B, H, S), thumbnail (B, H, R, C), the largest weights (B, H, T, top) and their keys."""
    B, H, T, _ = q.shape
    S = k.size(2)
    lse = lse.contiguous()
    received = lse.new_empty((B, H, S) if wanted.received else (0,))
    cells = (B, H, min(wanted.rows, T), min(wanted.cols, S)) if wanted.rows else (0,)
    most = (B, H, T, wanted.top) if wanted.top else (0,)
    values, places = lse.new_empty(most), lse.new_empty(most, dtype=torch.int64)
    pass_by = Pass(q, k, lse, spans, scale)
    hopper = suits_hopper(q, k, spans)
    alone = hopper and wanted.rows > 0 and _cells(T, S, *cells[2:])[2]
    counted = torch.zeros(cells, dtype=torch.float32 if alone else torch.int64, device=q.device)
    if hopper:
        pass_by.hopper(received, counted, values, places, strips, wanted)
    else:
        if wanted.received or wanted.rows:
            pass_by.columns(received, counted, wanted)
        if wanted.top:
            pass_by.largest(values, places, wanted.top)
    return received, counted if alone else _means(counted, T, S), values, places


@dataclass(frozen=True, eq=False)
class Pass:
    """What every kernel of the statistics pass is given."""

    q: Tensor
    k: Tensor
    lse: Tensor
    spans: Spans
    scale: float

    def columns(self, received: Tensor, counted: Tensor, wanted: Wanted) -> None:
        """What each key received, and the thumbnail's sums."""
        B, H, T, D = self.q.shape
        S, tile = self.k.size(2), tile_of(D, self.q.dtype)
        R, C = counted.shape[2:] if wanted.rows else (1, 1)
        general.columns[(triton.cdiv(S, tile.keys), B * H)](
            self.q, self.k, self.lse, received, counted, *told(self.spans, self.lse),
            H, H // self.k.size(1), T, S, R, C, self.scale * LOG2E, self.spans.shift_lo, self.spans.shift_hi,
            *self._strides(), D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, RECEIVED=wanted.received,
            CELLS=wanted.rows > 0, TOLD=self.spans.told, DOCUMENTS=self.spans.asking is not None, num_warps=tile.warps,
        )  # fmt: skip

    def largest(self, values: Tensor, places: Tensor, top: int, count: Tensor | None = None) -> None:
        """The largest weights by one walk for each; with `count`, only of rows that had too many candidates."""
        B, H, T, D = self.q.shape
        tile = tile_of(D, self.q.dtype)
        general.largest[(triton.cdiv(T, tile.queries), B * H)](
            self.q, self.k, self.lse, places if count is None else count, values, places, *told(self.spans, self.lse),
            H, H // self.k.size(1), T, self.k.size(2), top, ROOM, self.scale * LOG2E,
            self.spans.shift_lo, self.spans.shift_hi, *self._strides(),
            D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, SOME=count is not None,
            TOLD=self.spans.told, DOCUMENTS=self.spans.asking is not None, num_warps=tile.warps,
        )  # fmt: skip

    def located(self, places: Tensor) -> None:
        """The place of the largest weight of each row, from what Hopper's forward pass left of it."""
        B, H, T, D = self.q.shape
        lo, hi, *_ = told(self.spans, self.lse)
        general.located[(triton.cdiv(T, 32), B * H)](
            self.q, self.k, places, lo, hi, H, H // self.k.size(1), T, self.k.size(2),
            self.spans.shift_lo, self.spans.shift_hi, *self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(),
            D=D, BM=32, TOLD=self.spans.told, num_warps=4,
        )  # fmt: skip

    def hopper(
        self, received: Tensor, counted: Tensor, values: Tensor, places: Tensor, strips: Tensor, wanted: Wanted
    ) -> None:
        """The same by Hopper's kernel, some heads at a time where candidates need room."""
        if wanted.top and strips.numel():
            lines = self.lse.numel()
            count = torch.empty(lines, dtype=torch.int32, device=self.q.device)
            floor = torch.empty_like(self.lse)
            general.floors[(triton.cdiv(lines, 64),)](
                strips, self.lse, floor, count, lines, self.scale * LOG2E,
                TOP=wanted.top, WEIGHTS=_weighs(wanted), BM=64, num_warps=4,
            )  # fmt: skip
            self._collected(received, counted, values, places, floor, count, wanted)
            self.largest(values, places, wanted.top, count)
            return
        if wanted.received or wanted.rows:
            heads, unread = self.q.size(0) * self.q.size(1), self.lse
            whole = unread.view(torch.int32)
            self._hopper(received, counted, unread, unread, unread, whole, whole, 0, heads, wanted, False)
        if wanted.top:
            self.largest(values, places, wanted.top)

    def _collected(
        self,
        received: Tensor,
        counted: Tensor,
        values: Tensor,
        places: Tensor,
        floor: Tensor,
        count: Tensor,
        wanted: Wanted,
    ) -> None:
        B, H, T, _ = self.q.shape
        inputs = 2 * (self.q.numel() + 2 * self.k.numel())
        most = max(inputs, 2**26) * 3 // 4 // (ROOM * 8)  # rows whose candidates there is room for, at 8 bytes each
        step = max(1, min(B * H, most // T))
        found = torch.empty(step * T * ROOM, dtype=torch.int64, device=self.q.device)
        taken = torch.zeros(
            min(step * triton.cdiv(self.k.size(2), KEYS) * 4, processors(self.q.device) * RESIDENT),
            dtype=torch.int32, device=self.q.device,
        )  # fmt: skip
        noted = found.new_empty(taken.numel() * NOTED // 8)
        for head in range(0, B * H, step):
            heads = min(step, B * H - head)
            lines, at = heads * T, head * T
            part = count[at : at + lines]
            self._hopper(received, counted, floor.flatten()[at:], found, noted, taken, part, head, heads, wanted, True)
            general.chosen[(triton.cdiv(lines, 32),)](
                found, part, self.lse.flatten()[at:], values.flatten()[at * wanted.top :],
                places.flatten()[at * wanted.top :], lines, self.scale * LOG2E,
                TOP=wanted.top, ROOM=ROOM, WEIGHTS=_weighs(wanted), BM=32, num_warps=1,
            )  # fmt: skip

    def _hopper(
        self, received: Tensor, counted: Tensor, floor: Tensor, found: Tensor, noted: Tensor, taken: Tensor,
        count: Tensor, head: int, heads: int, wanted: Wanted, collect: bool,
    ) -> None:  # fmt: skip
        from regard.attention.kernels.hopper.statistics import statistics as kernel

        B, H, T, D = self.q.shape
        S, whole = self.k.size(2), self.lse.view(torch.int32)
        R, C = counted.shape[2:] if wanted.rows else (1, 1)
        cells, even, alone = _cells(T, S, R, C) if wanted.rows else (0, False, False)
        lo, hi = (or_any(end, whole) for end in (self.spans.lo, self.spans.hi))
        bounds = or_any(self.spans.askers(S, KEYS, B, H), whole)
        blocks = triton.cdiv(S, KEYS)
        lse = self.lse.flatten()[head * T :] if collect else self.lse
        kernel[(blocks, heads)](
            described(self.q, 64), described(self.k, KEYS), lse, floor, count, found, noted, taken, counted, received,
            lo, hi, bounds,
            H, H // self.k.size(1), T, S, R, C, max(T // R, 1), self.scale * LOG2E,
            self.spans.shift_lo, self.spans.shift_hi, blocks, head, *self.spans.strides(), head * T if collect else 0,
            taken.numel(),
            D=D, BN=KEYS, STAGES=AHEAD, CELLS=cells, EVEN=even, ALONE=alone, RECEIVED=wanted.received, TOP=collect,
            ROOM=ROOM, TOLD=self.spans.told, num_warps=4, maxnreg=_registers(wanted, collect),
        )  # fmt: skip

    def _strides(self) -> tuple[int, ...]:
        return (*self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(), *of_documents(self.spans))


def _registers(wanted: Wanted, collects: bool) -> int:
    """Of a lane in the statistics pass: the fewer, the more programs share a multiprocessor."""
    return 168 if collects and _weighs(wanted) else 128


def _weighs(wanted: Wanted) -> bool:
    """Whether the statistics pass needs weights, not scores alone."""
    return wanted.received or wanted.rows > 0


def _cells(T: int, S: int, R: int, C: int) -> tuple[int, bool, bool]:
    """How many columns of cells a block of keys may touch; whether cells are whole multiples of what a lane holds; and
    whether a cell is no more than 16 queries of one warp and keys of one block."""
    wide = S // C
    if S % C == 0 and T % R == 0 and (T // R) % 16 == 0 and wide % 8 == 0 and (KEYS % wide == 0 or wide % KEYS == 0):
        return max(1, KEYS // wide), True, T // R == 16 and wide <= KEYS
    most = KEYS * C // S if KEYS * C % S == 0 else min(-(-KEYS * C // S) + 1, KEYS)
    return max(8, triton.next_power_of_2(most)), False, False


def _means(counted: Tensor, T: int, S: int) -> Tensor:
    """Means of the thumbnail's cells from their sums in units of 2^-40."""
    found = torch.empty_like(counted, dtype=torch.float32)
    if cells := counted.numel():
        R, C = counted.shape[2:]
        general.means[(triton.cdiv(cells, 1024),)](counted, found, T, S, R, C, cells, BLOCK=1024, num_warps=4)
    return found
