"""Launch of the statistics pass: the weight each key received, the thumbnail, and the top-k weights with their keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton import statistics as general
from regard.attention.kernels.triton.descriptors import (
    KEY_BLOCK,
    LOG2E,
    document_strides,
    dot_tiling,
    is_hopper_supported,
    mask_tensors,
    or_dummy,
    sm_count,
    tma_descriptor,
)
from regard.attention.kernels.triton.soft_cap import factors

MAX_CANDIDATES = 32  # top-k candidates kept of a row: 10.6 on average, of random rows
WARP_BUFFER_BYTES = 32 * 16 * 48  # what a warp buffers before it writes candidates to the rows' lists
RESIDENT_WARPS = 16  # that may run on a multiprocessor at a time, each with a buffer of its own
PREFETCHED_TILES = 2  # tiles of queries fetched ahead


@dataclass(frozen=True)
class RequestedStatistics:
    """Which statistics the pass computes; 0 rows: no thumbnail."""

    received: bool
    rows: int
    cols: int
    top: int


def statistics(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    class_maxima: Tensor,
    spans: Spans,
    scale: float,
    wanted: RequestedStatistics,
    cap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """received (B, H, S), thumbnail (B, H, R, C), the largest weights (B, H, T, top) and their keys."""
    B, H, T, _ = q.shape
    S = k.size(2)
    lse = lse.contiguous()
    received = lse.new_empty((B, H, S) if wanted.received else (0,))
    cells = (B, H, min(wanted.rows, T), min(wanted.cols, S)) if wanted.rows else (0,)
    shape_top = (B, H, T, wanted.top) if wanted.top else (0,)
    values, indices = lse.new_empty(shape_top), lse.new_empty(shape_top, dtype=torch.int64)
    launch = StatisticsPass(q, k, lse, spans, scale, cap)
    hopper = is_hopper_supported(q, k, spans)
    exclusive = hopper and wanted.rows > 0 and _thumbnail_cells(T, S, *cells[2:])[2]
    sums = torch.zeros(cells, dtype=torch.float32 if exclusive else torch.int64, device=q.device)
    if hopper:
        launch.hopper(received, sums, values, indices, class_maxima, wanted)
    else:
        if wanted.received or wanted.rows:
            launch.column_sums(received, sums, wanted)
        if wanted.top:
            launch.topk_by_scan(values, indices, wanted.top)
    return received, sums if exclusive else _thumbnail_means(sums, T, S), values, indices


@dataclass(frozen=True, eq=False)
class StatisticsPass:
    """The inputs of every kernel of the statistics pass, and the launch of each kernel."""

    q: Tensor
    k: Tensor
    lse: Tensor
    spans: Spans
    scale: float
    cap: float = 0.0  # 0: none

    def column_sums(self, received: Tensor, sums: Tensor, wanted: RequestedStatistics) -> None:
        """The weight each key received, and the thumbnail's sums."""
        B, H, T, D = self.q.shape
        S, tile = self.k.size(2), dot_tiling(D, self.q.dtype)
        R, C = sums.shape[2:] if wanted.rows else (1, 1)
        general.column_sums[(triton.cdiv(S, tile.keys), B * H)](
            self.q, self.k, self.lse, received, sums, *mask_tensors(self.spans, self.lse),
            H, H // self.k.size(1), T, S, R, C, *self._factors(), self.spans.shift_lo, self.spans.shift_hi,
            *self._strides(), **self._packed(), D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys,
            RECEIVED=wanted.received, CELLS=wanted.rows > 0, ENDS=self.spans.has_ends,
            DOCUMENTS=self.spans.query_docs is not None, CAPPED=self.cap > 0, num_warps=tile.warps,
        )  # fmt: skip

    def topk_by_scan(self, values: Tensor, indices: Tensor, top: int, count: Tensor | None = None) -> None:
        """The top-k weights by k scans of the keys; with `count`, only of rows that had too many candidates."""
        B, H, T, D = self.q.shape
        tile = dot_tiling(D, self.q.dtype)
        general.topk_by_scan[(triton.cdiv(T, tile.queries), B * H)](
            self.q, self.k, self.lse, indices if count is None else count, values, indices,
            *mask_tensors(self.spans, self.lse),
            H, H // self.k.size(1), T, self.k.size(2), top, MAX_CANDIDATES, *self._factors(),
            self.spans.shift_lo, self.spans.shift_hi, *self._strides(), **self._packed(),
            D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, OVERFLOWED=count is not None,
            ENDS=self.spans.has_ends, DOCUMENTS=self.spans.query_docs is not None, CAPPED=self.cap > 0,
            num_warps=tile.warps,
        )  # fmt: skip

    def argmax_indices(self, indices: Tensor) -> None:
        """The key of each row's largest weight, from the few keys that Hopper's forward pass left to choose among."""
        B, H, T, D = self.q.shape
        lo, hi, *_ = mask_tensors(self.spans, self.lse)
        general.argmax_indices[(triton.cdiv(T, 32), B * H)](
            self.q, self.k, indices, lo, hi, H, H // self.k.size(1), T, self.k.size(2), self._factors()[1],
            self.spans.shift_lo, self.spans.shift_hi, *self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(),
            D=D, BM=32, ENDS=self.spans.has_ends, CAPPED=self.cap > 0, num_warps=4,
        )  # fmt: skip

    def hopper(
        self,
        received: Tensor,
        sums: Tensor,
        values: Tensor,
        indices: Tensor,
        class_maxima: Tensor,
        wanted: RequestedStatistics,
    ) -> None:
        """All statistics by Hopper's kernel, some heads at a time where candidates need memory."""
        if wanted.top and class_maxima.numel():
            lines = self.lse.numel()
            count = torch.empty(lines, dtype=torch.int32, device=self.q.device)
            threshold = torch.empty_like(self.lse)
            general.topk_thresholds[(triton.cdiv(lines, 64),)](
                class_maxima, self.lse, threshold, count, lines, self._factors()[0],
                TOP=wanted.top, WEIGHTS=_needs_weights(wanted), BM=64, num_warps=4,
            )  # fmt: skip
            self._top_k_hopper(received, sums, values, indices, threshold, count, wanted)
            self.topk_by_scan(values, indices, wanted.top, count)
            return
        if wanted.received or wanted.rows:
            heads, unread = self.q.size(0) * self.q.size(1), self.lse
            unread_ints = unread.view(torch.int32)
            self._hopper(received, sums, unread, unread, unread, unread_ints, unread_ints, 0, heads, wanted, False)
        if wanted.top:
            self.topk_by_scan(values, indices, wanted.top)

    def _top_k_hopper(
        self,
        received: Tensor,
        sums: Tensor,
        values: Tensor,
        indices: Tensor,
        threshold: Tensor,
        count: Tensor,
        wanted: RequestedStatistics,
    ) -> None:
        B, H, T, _ = self.q.shape
        inputs = 2 * (self.q.numel() + 2 * self.k.numel())
        max_rows = max(inputs, 2**26) * 3 // 4 // (MAX_CANDIDATES * 8)  # of candidates of 8 bytes each
        step = max(1, min(B * H, max_rows // T))
        candidates = torch.empty(step * T * MAX_CANDIDATES, dtype=torch.int64, device=self.q.device)
        slot_flags = torch.zeros(
            min(step * triton.cdiv(self.k.size(2), KEY_BLOCK) * 4, sm_count(self.q.device) * RESIDENT_WARPS),
            dtype=torch.int32, device=self.q.device,
        )  # fmt: skip
        buffers = candidates.new_empty(slot_flags.numel() * WARP_BUFFER_BYTES // 8)
        for head in range(0, B * H, step):
            heads = min(step, B * H - head)
            lines, at = heads * T, head * T
            part = count[at : at + lines]
            floor = threshold.flatten()[at:]
            self._hopper(received, sums, floor, candidates, buffers, slot_flags, part, head, heads, wanted, True)
            general.topk_select[(triton.cdiv(lines, 32),)](
                candidates, part, self.lse.flatten()[at:], values.flatten()[at * wanted.top :],
                indices.flatten()[at * wanted.top :], lines, self._factors()[0],
                TOP=wanted.top, CAPACITY=MAX_CANDIDATES, WEIGHTS=_needs_weights(wanted), BM=32, num_warps=1,
            )  # fmt: skip

    def _hopper(
        self, received: Tensor, sums: Tensor, threshold: Tensor, candidates: Tensor, buffers: Tensor,
        slot_flags: Tensor, count: Tensor, head: int, heads: int, wanted: RequestedStatistics, with_top: bool,
    ) -> None:  # fmt: skip
        from regard.attention.kernels.hopper.statistics import statistics as kernel

        B, H, T, D = self.q.shape
        S, unread_ints = self.k.size(2), self.lse.view(torch.int32)
        R, C = sums.shape[2:] if wanted.rows else (1, 1)
        cells, even, exclusive = _thumbnail_cells(T, S, R, C) if wanted.rows else (0, False, False)
        lo, hi = (or_dummy(end, unread_ints) for end in (self.spans.lo, self.spans.hi))
        bounds = or_dummy(self.spans.key_block_bounds(S, KEY_BLOCK, B, H), unread_ints)
        blocks = triton.cdiv(S, KEY_BLOCK)
        lse = self.lse.flatten()[head * T :] if with_top else self.lse
        kernel[(blocks, heads)](
            tma_descriptor(self.q, 64), tma_descriptor(self.k, KEY_BLOCK), lse, threshold, count, candidates, buffers,
            slot_flags, sums, received, lo, hi, bounds,
            H, H // self.k.size(1), T, S, R, C, max(T // R, 1), *self._factors(),
            self.spans.shift_lo, self.spans.shift_hi, blocks, head, *self.spans.strides(), head * T if with_top else 0,
            slot_flags.numel(),
            D=D, BN=KEY_BLOCK, STAGES=PREFETCHED_TILES, CELLS=cells, EVEN=even, EXCLUSIVE=exclusive,
            RECEIVED=wanted.received, TOP=with_top, CAPACITY=MAX_CANDIDATES, ENDS=self.spans.has_ends,
            CAPPED=self.cap > 0, num_warps=4, maxnreg=_registers(wanted, with_top, self.cap > 0),
        )  # fmt: skip

    def _factors(self) -> tuple[float, float]:
        """What multiplies scores after the soft cap, times log2 e, and before it."""
        after, before = factors(self.scale, self.cap)
        return after * LOG2E, before

    def _packed(self) -> dict[str, Any]:
        return self.spans.packed_args() | {"PACKED": self.spans.bits is not None}

    def _strides(self) -> tuple[int, ...]:
        return (*self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(), *document_strides(self.spans))


def _registers(wanted: RequestedStatistics, with_top: bool, capped: bool) -> int:
    """Registers of a lane in the statistics pass: the fewer, the more programs share a multiprocessor. A soft cap
    needs as many again as the scores that it takes at a time."""
    return (168 if with_top and _needs_weights(wanted) else 128) + (56 if capped else 0)


def _needs_weights(wanted: RequestedStatistics) -> bool:
    """Whether the statistics pass needs weights, not scores alone."""
    return wanted.received or wanted.rows > 0


def _thumbnail_cells(T: int, S: int, R: int, C: int) -> tuple[int, bool, bool]:
    """How many columns of cells a block of keys may touch; whether cells are whole multiples of what a lane holds; and
    whether a cell is no more than 16 queries of one warp and keys of one block."""
    cell_width = S // C
    if (
        S % C == 0
        and T % R == 0
        and (T // R) % 16 == 0
        and cell_width % 8 == 0
        and (KEY_BLOCK % cell_width == 0 or cell_width % KEY_BLOCK == 0)
    ):
        return max(1, KEY_BLOCK // cell_width), True, T // R == 16 and cell_width <= KEY_BLOCK
    touched = KEY_BLOCK * C // S if KEY_BLOCK * C % S == 0 else min(-(-KEY_BLOCK * C // S) + 1, KEY_BLOCK)
    return max(8, triton.next_power_of_2(touched)), False, False


def _thumbnail_means(sums: Tensor, T: int, S: int) -> Tensor:
    """Means of the thumbnail's cells from their sums in units of 2^-40."""
    means = torch.empty_like(sums, dtype=torch.float32)
    if cells := sums.numel():
        R, C = sums.shape[2:]
        general.thumbnail_means[(triton.cdiv(cells, 1024),)](sums, means, T, S, R, C, cells, BLOCK=1024, num_warps=4)
    return means
