"""Launch of the statistics pass: the weight each key received, the thumbnail, and the top-k weights with their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton import statistics as general
from regard.attention.kernels.triton.descriptors import (
    KEY_BLOCK,
    LOG2E,
    absent,
    document_strides,
    dot_tiling,
    mask_tensors,
    or_dummy,
    sm_count,
    unread_ints,
)
from regard.attention.kernels.triton.launch import (
    DescriptorPlan,
    Launches,
    Part,
    PlannedLaunch,
    launches_of,
    runs_on_hopper,
)
from regard.attention.kernels.triton.soft_cap import factors

QUERY_BLOCK = 64  # queries of a tile of Hopper's statistics pass
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


@lru_cache(maxsize=256)
def requested(received: bool, rows: int, cols: int, top: int) -> RequestedStatistics:
    """One value for all equal requests."""
    return RequestedStatistics(received, rows, cols, top)


def statistics(
    q: Tensor,
    k: Tensor,
    lse: Tensor,
    class_maxima: Tensor | None,
    spans: KeySpans,
    scale: float,
    wanted: RequestedStatistics,
    cap: float = 0.0,
    launches: Launches | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """received (B, H, S), thumbnail (B, H, R, C), the largest weights (B, H, T, top) and their keys. `launches`: those
    of this signature."""
    B, H, T, _ = q.shape
    S = k.size(2)
    lse = lse.contiguous()
    nothing = absent(q.device)
    received = torch.empty((B, H, S), dtype=torch.float32, device=q.device) if wanted.received else nothing
    cells = (B, H, min(wanted.rows, T), min(wanted.cols, S)) if wanted.rows else (0,)
    values, indices = nothing, absent(q.device, torch.int64)
    if wanted.top:
        values = torch.empty((B, H, T, wanted.top), dtype=torch.float32, device=q.device)
        indices = torch.empty((B, H, T, wanted.top), dtype=torch.int64, device=q.device)
    launch = StatisticsPass(q, k, lse, spans, scale, cap, launches)
    hopper = runs_on_hopper(launch.launches, q, k, spans)
    exclusive = hopper and wanted.rows > 0 and ThumbnailTiling.of(T, S, *cells[2:]).exclusive
    # a tile that nobody looks into is not visited
    empty = torch.empty if exclusive and spans.hides_nothing(T, S) else torch.zeros
    dtype = torch.float32 if exclusive else torch.int64
    sums = empty(cells, dtype=dtype, device=q.device) if wanted.rows else absent(q.device, torch.int64)
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
    spans: KeySpans
    scale: float
    cap: float = 0.0  # 0: none
    planned: Launches | None = None  # of this signature, where they are known already

    @cached_property
    def launches(self) -> Launches:
        """The launches of this signature."""
        if self.planned is not None:
            return self.planned
        return launches_of((self.q, self.k), self.spans, self.scale, self.cap)

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

    def topk_by_scan(self, values: Tensor, indices: Tensor, top: int, count: Tensor | Part | None = None) -> None:
        """The top-k weights by k scans of the keys; with `count`, only of rows that had too many candidates."""

        def planned() -> PlannedLaunch:
            B, H, T, D = self.q.shape
            tile = dot_tiling(D, self.q.dtype)
            numbers = (
                H, H // self.k.size(1), T, self.k.size(2), top, MAX_CANDIDATES, *self._factors(),
                self.spans.shift_lo, self.spans.shift_hi, *self._strides(),
            )  # fmt: skip
            packed = self._packed()
            bits = [packed.pop(name) for name in ("BITS", "words", "lead_b", "lead_h")]
            return PlannedLaunch(
                general.topk_by_scan, (triton.cdiv(T, tile.queries), B * H), (*numbers, *bits), **packed,
                D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, OVERFLOWED=count is not None,
                ENDS=self.spans.has_ends, DOCUMENTS=self.spans.query_docs is not None, CAPPED=self.cap > 0,
                num_warps=tile.warps,
            )  # fmt: skip

        self._planned(("scan", top, count is None), planned)(
            self.q, self.k, self.lse, indices if count is None else count, values, indices,
            *mask_tensors(self.spans, self.lse),
        )  # fmt: skip

    def argmax_indices(self, indices: Tensor) -> None:
        """The key of each row's largest weight, from the few keys that Hopper's forward pass left to choose among."""

        def planned() -> PlannedLaunch:
            B, H, T, D = self.q.shape
            numbers = (
                H, H // self.k.size(1), T, self.k.size(2), self._factors()[1], self.spans.shift_lo,
                self.spans.shift_hi, *self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(),
            )  # fmt: skip
            return PlannedLaunch(
                general.argmax_indices, (triton.cdiv(T, 32), B * H), numbers,
                D=D, BM=32, ENDS=self.spans.has_ends, CAPPED=self.cap > 0, num_warps=4,
            )  # fmt: skip

        lo, hi, *_ = mask_tensors(self.spans, self.lse)
        self._planned("argmax", planned)(self.q, self.k, indices, lo, hi)

    def hopper(
        self,
        received: Tensor,
        sums: Tensor,
        values: Tensor,
        indices: Tensor,
        class_maxima: Tensor | None,
        wanted: RequestedStatistics,
    ) -> None:
        """All statistics by Hopper's kernel, some heads at a time where candidates need memory."""
        if wanted.top and class_maxima is not None and class_maxima.numel():
            name = "top-k", wanted
            plan = self.launches.get(name) or self.launches.setdefault(name, HopperTopK(self, sums, wanted))
            count = plan.run(self, received, sums, values, indices, class_maxima)
            self.topk_by_scan(values, indices, wanted.top, count)
            return
        if wanted.received or wanted.rows:
            name = "sums", wanted
            heads, unread, ints = self.q.size(0) * self.q.size(1), self.lse, unread_ints(self.q.device)
            sums_alone = self.launches.get(name) or self.launches.setdefault(
                name, HopperStatistics(self, sums, 1, 0, heads, wanted, False)
            )
            sums_alone.run(self, (unread, ints, unread, unread, ints), sums, received)
        if wanted.top:
            self.topk_by_scan(values, indices, wanted.top)

    def _planned(self, name: Any, planned: Callable[[], PlannedLaunch]) -> PlannedLaunch:
        """The launch of this name, planned when it is first wanted; one with a packed mask is not kept."""
        if self.spans.bits is not None:
            return planned()
        found: PlannedLaunch = self.launches.get(name) or self.launches.setdefault(name, planned())
        return found

    def _factors(self) -> tuple[float, float]:
        """What multiplies scores after the soft cap, times log2 e, and before it."""
        after, before = factors(self.scale, self.cap)
        return after * LOG2E, before

    def _packed(self) -> dict[str, Any]:
        return self.spans.packed_args() | {"PACKED": self.spans.bits is not None}

    def _strides(self) -> tuple[int, ...]:
        return (*self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(), *document_strides(self.spans))


_flags: dict[torch.device, Tensor] = {}


def _slot_flags(device: torch.device, slots: int) -> Tensor:
    """Zeros that mark free buffers: a kernel leaves them as it found them, so all calls share them. A CUDA graph has
    its own, which it clears at every replay."""
    if torch.cuda.is_current_stream_capturing():
        return torch.zeros(slots, dtype=torch.int32, device=device)
    if device not in _flags:
        _flags[device] = torch.zeros(sm_count(device) * RESIDENT_WARPS, dtype=torch.int32, device=device)
        torch.cuda.current_stream(device).synchronize()  # once: other streams may use them next
    return _flags[device]


class HopperStatistics:
    """Hopper's statistics pass, planned for one signature and request, over some of the heads."""

    def __init__(
        self, of: StatisticsPass, sums: Tensor, slots: int, head: int, heads: int, wanted: RequestedStatistics,
        with_top: bool,
    ) -> None:  # fmt: skip
        from regard.attention.kernels.hopper.statistics import statistics as kernel

        B, H, T, D = of.q.shape
        S, spans = of.k.size(2), of.spans
        R, C = sums.shape[2:] if wanted.rows else (1, 1)
        cells = ThumbnailTiling.of(T, S, R, C) if wanted.rows else ThumbnailTiling()
        blocks = triton.cdiv(S, KEY_BLOCK)
        self.lines = head * T if with_top else 0  # before those of log-sum-exp that the pass is given
        described = DescriptorPlan(of.q, QUERY_BLOCK), DescriptorPlan(of.k, KEY_BLOCK)
        numbers = (
            H, H // of.k.size(1), T, S, R, C, max(T // R, 1), *of._factors(), spans.shift_lo, spans.shift_hi, blocks,
            head, *spans.strides(), self.lines, slots,
        )  # fmt: skip
        self.launch = PlannedLaunch(
            kernel, (blocks, heads), numbers, described,
            D=D, BN=KEY_BLOCK, STAGES=PREFETCHED_TILES, CELLS=cells.columns, EVEN=cells.even,
            EXCLUSIVE=cells.exclusive, HIGH=cells.high, RECEIVED=wanted.received, TOP=with_top,
            CAPACITY=MAX_CANDIDATES, ENDS=spans.has_ends, CAPPED=of.cap > 0, num_warps=4,
            maxnreg=_registers(wanted, with_top, of.cap > 0),
        )  # fmt: skip

    def run(self, of: StatisticsPass, listed: tuple[Any, ...], sums: Tensor, received: Tensor) -> None:
        """`listed`: thresholds, counts, candidates, buffers and flags."""
        B, H, _, _ = of.q.shape
        lse, unread = of.lse, unread_ints(of.q.device)
        lo, hi = or_dummy(of.spans.lo, unread), or_dummy(of.spans.hi, unread)
        bounds = or_dummy(of.spans.key_block_bounds(of.k.size(2), KEY_BLOCK, B, H), unread)
        lse = lse.flatten()[self.lines :] if self.lines else lse
        self.launch(of.q, of.k, lse, *listed, sums, received, lo, hi, bounds)


class HopperTopK:
    """Hopper's statistics pass with top-k, planned for one signature and request: thresholds from the class maxima,
    candidates, and the largest of these, some heads at a time."""

    def __init__(self, of: StatisticsPass, sums: Tensor, wanted: RequestedStatistics) -> None:
        (B, H, T, _), S = of.q.shape, of.k.size(2)
        device, all_lines = of.q.device, B * H * T
        inputs = 2 * (of.q.numel() + 2 * of.k.numel())
        max_rows = max(inputs, 2**26) * 3 // 4 // (MAX_CANDIDATES * 8)  # of candidates of 8 bytes each
        step = max(1, min(B * H, max_rows // T))
        self.top, self.lines = wanted.top, all_lines
        self.slots = min(step * triton.cdiv(S, KEY_BLOCK) * 4, sm_count(device) * RESIDENT_WARPS)
        sizes = (all_lines * 4, all_lines * 4, step * T * MAX_CANDIDATES * 8, self.slots * WARP_BUFFER_BYTES)
        self.starts = [0]
        for size in sizes:
            self.starts.append(self.starts[-1] + -(-size // 256) * 256)
        settings: dict[str, Any] = {"FEW": not of.spans.has_ends, "TOP": wanted.top, "WEIGHTS": _needs_weights(wanted)}
        factor = of._factors()[0]
        self.thresholds = PlannedLaunch(
            general.topk_thresholds, (triton.cdiv(all_lines, 64),), (all_lines, factor), **settings, BM=64, num_warps=4
        )
        self.steps = []
        for head in range(0, B * H, step):
            heads = min(step, B * H - head)
            lines = heads * T
            numbers = lines, T, S, of.spans.shift_lo, of.spans.shift_hi, factor
            select = PlannedLaunch(
                general.topk_select, (triton.cdiv(lines, 32),), numbers, **settings, CAPACITY=MAX_CANDIDATES, BM=32,
                num_warps=1,
            )  # fmt: skip
            found = HopperStatistics(of, sums, self.slots, head, heads, wanted, True)
            self.steps.append((head * T, lines, found, select))

    def run(
        self, of: StatisticsPass, received: Tensor, sums: Tensor, values: Tensor, indices: Tensor, class_maxima: Tensor
    ) -> Part:
        """Fill in what was requested; how many candidates each row had."""
        device = of.q.device
        scratch = torch.empty(self.starts[-1], dtype=torch.uint8, device=device)
        count = Part(scratch, 0, self.lines, torch.int32)
        threshold = Part(scratch, self.starts[1], self.lines, torch.float32)
        candidates = Part(scratch, self.starts[2], (self.starts[3] - self.starts[2]) // 8, torch.int64)
        buffers = Part(scratch, self.starts[3], (self.starts[4] - self.starts[3]) // 8, torch.int64)
        flags = _slot_flags(device, self.slots)
        self.thresholds(class_maxima, of.lse, threshold, count)
        for at, lines, found, select in self.steps:
            counts, floor, lse, largest, keys = count, threshold, of.lse, values, indices
            if at:
                counts = Part(scratch, 4 * at, lines, torch.int32)
                floor = Part(scratch, self.starts[1] + 4 * at, lines, torch.float32)
                lse = lse.flatten()[at:]
                largest, keys = (x.flatten()[at * self.top :] for x in (largest, keys))
            found.run(of, (floor, counts, candidates, buffers, flags), sums, received)
            select(candidates, counts, lse, largest, keys)
        return count


def _registers(wanted: RequestedStatistics, with_top: bool, capped: bool) -> int:
    """Registers of a lane in the statistics pass: the fewer, the more programs share a multiprocessor. A soft cap
    needs as many again as the scores that it takes at a time."""
    return (168 if with_top and _needs_weights(wanted) else 128) + (56 if capped else 0)


def _needs_weights(wanted: RequestedStatistics) -> bool:
    """Whether the statistics pass needs weights, not scores alone."""
    return wanted.received or wanted.rows > 0


class ThumbnailTiling(NamedTuple):
    """How the statistics pass sums the cells of a thumbnail.

    columns    how many columns of cells a block of keys may touch; 0: there is no thumbnail
    even       whether cells are whole multiples of what a lane holds
    exclusive  whether each cell lies in one program's tile, which writes its mean; else programs add up sums
    high       the queries of a cell, of which several fit in a tile side by side; 0: cells of 16 queries or more
    """

    columns: int = 0
    even: bool = False
    exclusive: bool = False
    high: int = 0

    @classmethod
    def of(cls, T: int, S: int, R: int, C: int) -> ThumbnailTiling:
        high, wide = T // R, S // C
        if T % R == 0 and S % C == 0:
            if high % 16 == 0 and wide % 8 == 0 and (KEY_BLOCK % wide == 0 or wide % KEY_BLOCK == 0):
                return cls(max(1, KEY_BLOCK // wide), True, high == 16 and wide <= KEY_BLOCK)
            if QUERY_BLOCK % high == 0 and KEY_BLOCK % wide == 0:
                return cls(KEY_BLOCK // wide, True, True, high)
        touched = KEY_BLOCK * C // S if KEY_BLOCK * C % S == 0 else min(-(-KEY_BLOCK * C // S) + 1, KEY_BLOCK)
        return cls(max(8, triton.next_power_of_2(touched)))


def _thumbnail_means(sums: Tensor, T: int, S: int) -> Tensor:
    """Means of the thumbnail's cells from their sums in units of 2^-40."""
    means = absent(sums.device)
    if cells := sums.numel():
        means = torch.empty_like(sums, dtype=torch.float32)
        R, C = sums.shape[2:]
        general.thumbnail_means[(triton.cdiv(cells, 1024),)](sums, means, T, S, R, C, cells, BLOCK=1024, num_warps=4)
    return means
