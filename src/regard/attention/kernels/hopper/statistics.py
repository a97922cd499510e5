"""The statistics pass for Hopper: received, thumbnail and top-k candidates; the twin of triton/statistics.

A program owns BN keys and passes over all queries, 64 at a time, fetched ahead by the tensor memory accelerator. It has
only four warps, so that several programs share a multiprocessor: while one waits for a product or a sum over lanes,
another computes exponentials. Where cells of the thumbnail are no whole multiples of what a lane holds, their sums are
a product of the weights with a table of zeros and ones, in float16: weights are held times 2^14, so that none
underflows. Sums that several programs share are integers, so that their order does not matter.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]
from triton.experimental.gluon.language.nvidia.hopper import (  # type: ignore[import-untyped]
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.attention.kernels.hopper.ptx import KEY_BLOCK, LANES, cap_scores, mask_scores
from regard.attention.kernels.hopper.thumbnail import store_small_cells
from regard.attention.kernels.hopper.topk import (
    BUFFER_STRIPS,
    STRIP_BYTES,
    acquire_slot,
    flush_candidates,
    record_candidates,
    reduce_lanes,
    release_slot,
    zero_counts,
)

LOG2E = gl.constexpr(1.4426950408889634)
WEIGHT_SHIFT = gl.constexpr(14)  # weights are held times 2^14
UNITS = gl.constexpr(2.0**26)  # and summed in units of 2^-40
FAR = gl.constexpr(1.0e30)
barrier = getattr(gl, "barrier", None) or gl.thread_barrier  # its name until Triton 3.6


@gluon.jit
def _visible_queries(BOUNDS, bh, block, T, S, shift_lo, shift_hi, BLOCKS, BN: gl.constexpr, ENDS: gl.constexpr):
    """Tiles of 64 queries: the first that sees any key of a block, one past the last; the same of those seeing all."""
    start = block * BN
    first = gl.maximum(start - shift_hi + 1, 0) // 64
    last = (gl.minimum(start + BN - shift_lo, T) + 63) // 64
    all_from = (gl.maximum(start + BN - shift_hi, 0) + 63) // 64
    all_to = gl.maximum(gl.minimum(start - shift_lo + 1, T), 0) // 64
    if start + BN > S:
        all_to = all_from
    if ENDS:
        at = BOUNDS + (bh * BLOCKS + block) * 4
        first = gl.maximum(first, gl.load(at))
        last = gl.minimum(last, gl.load(at + 1))
        all_from = gl.maximum(all_from, gl.load(at + 2))
        all_to = gl.minimum(all_to, gl.load(at + 3))
    last = gl.maximum(last, first)
    all_from = gl.minimum(gl.maximum(all_from, first), last)
    return first, last, all_from, gl.minimum(gl.maximum(all_to, all_from), last)


@gluon.jit
def _fetch(Q, b, h, tile, index, end, q_smem, q_ready, STAGES: gl.constexpr):
    """Fetch a tile of queries into its buffer, if it is not past the end."""
    stage = index % STAGES
    wanted = index < end
    mbarrier.expect(q_ready.index(stage), Q.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(Q, [b, h, tile * 64, 0], q_ready.index(stage), q_smem.index(stage), pred=wanted)


@gluon.jit
def _tiles(
    first, last, all_from, all_to, acc, counts, buffers, k, cells, Q, LSE, THRESHOLD, COUNT, CANDIDATES, THUMB, LO, HI,
    b, h, line_base, ends_base, thumb_base, T, S, R, C, height, c, g, shift_lo, shift_hi, start, cell, q_smem, q_ready,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, CELLS: gl.constexpr,
    EVEN: gl.constexpr, EXCLUSIVE: gl.constexpr, HIGH: gl.constexpr, RECEIVED: gl.constexpr, TOP: gl.constexpr,
    CAPACITY: gl.constexpr, ENDS: gl.constexpr, CAPPED: gl.constexpr, SCORES: gl.constexpr,
):  # fmt: skip
    """Tiles of queries from `first` to `last`; those from `all_from` to `all_to` see all keys."""
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    rows = first * 64 + gl.arange(0, 64, layout=ROWS)
    lse_next, threshold_next = _row_values(LSE, THRESHOLD, line_base, rows, T, RECEIVED or CELLS > 0, TOP)
    for at in range(first, last):
        index = at - first
        stage = index % STAGES
        rows = at * 64 + gl.arange(0, 64, layout=ROWS)
        lse = lse_next
        threshold = threshold_next
        lse_next, threshold_next = _row_values(LSE, THRESHOLD, line_base, rows + 64, T, RECEIVED or CELLS > 0, TOP)
        mbarrier.wait(q_ready.index(stage), (index // STAGES) & 1)
        here = gl.zeros([64, BN], gl.float32, SCORES)
        here = warpgroup_mma(q_smem.index(stage).reshape([64, D]), k, here, use_acc=False, is_async=True)
        here = warpgroup_mma_wait(0, deps=(here,))
        barrier()  # all warps are done with this buffer
        _fetch(Q, b, h, at + STAGES, index + STAGES, last - first, q_smem, q_ready, STAGES)
        if CAPPED:
            here = cap_scores(here, g)
        if (at < all_from) | (at >= all_to):
            here = _masked(here, rows, start, T, S, LO, HI, ends_base, shift_lo, shift_hi, ENDS)
        values = here
        if RECEIVED or CELLS > 0:
            base = gl.where(lse == float("-inf"), FAR, lse * LOG2E - WEIGHT_SHIFT)
            p = gl.exp2(gl.fma(here, c, -base[:, None]))
            values = p
            if (EVEN and HIGH == 0) or RECEIVED:
                pairs = gl.sum(p.reshape([4, 2, 8, BN]), axis=1)  # (warp, lane row, key): nothing crosses lanes
            if RECEIVED:
                acc += pairs
            if CELLS > 0:
                FACTOR: gl.constexpr = 2.0**-WEIGHT_SHIFT / (HIGH * (BN // CELLS)) if HIGH > 0 else 0.0
                if (HIGH > 0) & (HIGH <= 8) & (BN // CELLS >= 2) & (BN // CELLS <= 8):
                    store_small_cells(p, at * 64, start, thumb_base, THUMB, T, S, C, FACTOR, HIGH, BN // CELLS)
                elif HIGH > 0:
                    _store_cells(p, at * 64, start, thumb_base, THUMB, T, S, C, FACTOR, HIGH, BN // CELLS)
                elif EVEN:
                    _add_even_thumbnail(pairs, at * 64, cell, thumb_base, THUMB, T, C, height, BN, CELLS, EXCLUSIVE)
                else:
                    _add_thumbnail(p, cells, at * 64, cell, thumb_base, THUMB, T, R, C, CELLS)
        if TOP:
            counts = _record_candidates(values, threshold, counts, at * 64, buffers)
            counts = _flush_candidates(
                counts, BUFFER_STRIPS // 2 + 1, line_base, start, COUNT, CANDIDATES, buffers, CAPACITY)  # fmt: skip
    return acc, counts


@gluon.jit
def _masked(s, rows, start, T, S, LO, HI, ends_base, shift_lo, shift_hi, ENDS: gl.constexpr):
    """Scores, with NEG_INF for hidden keys."""
    inside = rows < T
    lo = gl.maximum(rows + shift_lo, 0)
    hi = gl.minimum(rows + shift_hi, S)
    if ENDS:
        lo = gl.maximum(lo, gl.load(LO + ends_base + rows, mask=inside, other=0))
        hi = gl.minimum(hi, gl.load(HI + ends_base + rows, mask=inside, other=0))
    return mask_scores(s, start, lo, gl.where(inside, gl.maximum(hi - lo, 0), 0))


@gluon.jit
def _row_values(LSE, THRESHOLD, line_base, rows, T, WEIGHTS: gl.constexpr, TOP: gl.constexpr):
    """Log-sum-exp and thresholds of a tile's queries, loaded a tile ahead to hide the latency."""
    lse = gl.full_like(rows, 0.0, dtype=gl.float32)
    threshold = lse
    if WEIGHTS:
        lse = gl.load(LSE + line_base + rows, mask=rows < T, other=float("-inf"))
    if TOP:
        threshold = gl.load(THRESHOLD + line_base + rows, mask=rows < T, other=float("inf"))
    return lse, threshold


@gluon.jit
def _record_candidates(values, threshold, counts, row, buffers):
    """Record weights or scores that reach their rows' thresholds."""
    LANE: gl.constexpr = counts.type.layout
    warp = gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, LANE)))
    line = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, LANE)))
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, LANE)))
    rows = row + (warp * 16)[:, None, None] + line[None, :, None] + (lane * 0)[None, None, :]
    mine = buffers + (line * (LANES * STRIP_BYTES))[None, :, None] + (lane * STRIP_BYTES)[None, None, :]
    return record_candidates(values, counts, threshold, mine, rows * KEY_BLOCK + (lane * 2)[None, None, :])


@gluon.jit
def _flush_candidates(
    counts, LEAST: gl.constexpr, line_base, start, COUNT, CANDIDATES, buffers, CAPACITY: gl.constexpr
):  # fmt: skip
    none = gl.zeros_like(counts)
    base = line_base.to(gl.int64)
    return flush_candidates(
        counts, none + LEAST, buffers, (COUNT + base).to(gl.int64) + none,
        (CANDIDATES + base * CAPACITY).to(gl.int64) + none, none + CAPACITY, none + start)  # fmt: skip


@gluon.jit
def _add_even_thumbnail(
    pairs, row, cell, thumb_base, THUMB, T, C, height, BN: gl.constexpr, CELLS: gl.constexpr, EXCLUSIVE: gl.constexpr,
):  # fmt: skip
    """Cells that are whole multiples of 16 queries and of 8 keys: sums of what a lane holds, then over the lanes."""
    across = pairs.reshape([4, 8, CELLS, BN // CELLS // 8, LANES, 2])
    mine = gl.sum(gl.sum(across, axis=5), axis=3)  # (warp, lane row, cell, lane)
    if CELLS == 16:
        left, right = gl.split(mine.reshape([4, 8, 2, 8, LANES]).permute((0, 1, 3, 4, 2)))
        _add_eight_cells(left, row, cell, thumb_base, THUMB, T, C, height, BN // CELLS, EXCLUSIVE)
        _add_eight_cells(right, row, cell + 8, thumb_base, THUMB, T, C, height, BN // CELLS, EXCLUSIVE)
    elif CELLS == 8:
        _add_eight_cells(mine, row, cell, thumb_base, THUMB, T, C, height, BN // CELLS, EXCLUSIVE)
    else:
        cell_sum = gl.sum(gl.sum(mine, axis=3), axis=1)  # (warp, cell)
        which = row + 16 * gl.arange(0, 4, layout=gl.SliceLayout(1, cell_sum.type.layout))
        col = cell + gl.arange(0, CELLS, layout=gl.SliceLayout(0, cell_sum.type.layout))
        at = thumb_base + (which // height)[:, None] * C + col[None, :]
        _add_cells(THUMB, at, cell_sum, (which < T)[:, None] & (col < C)[None, :], BN // CELLS, EXCLUSIVE)


@gluon.jit
def _store_cells(p, row, start, thumb_base, THUMB, T, S, C, factor, HIGH: gl.constexpr, WIDE: gl.constexpr):
    """The means of cells of HIGH queries and WIDE keys that all lie within a tile, of any other size."""
    BN: gl.constexpr = p.shape[1]
    cells = gl.sum(gl.sum(p.reshape([64 // HIGH, HIGH, BN // WIDE, WIDE]), axis=3), axis=1)
    LAY: gl.constexpr = cells.type.layout
    line = row // HIGH + gl.arange(0, 64 // HIGH, layout=gl.SliceLayout(1, LAY))
    col = start // WIDE + gl.arange(0, BN // WIDE, layout=gl.SliceLayout(0, LAY))
    real = (line * HIGH < T)[:, None] & (col * WIDE < S)[None, :]
    gl.store(THUMB + thumb_base + line[:, None] * C + col[None, :], cells * factor, mask=real)


@gluon.jit
def _add_eight_cells(mine, row, cell, thumb_base, THUMB, T, C, height, WIDE: gl.constexpr, EXCLUSIVE: gl.constexpr):
    """Eight cells of each warp's 16 queries."""
    cell_sum = reduce_lanes(mine)  # (warp, cell, lane), alike in the last
    LAY: gl.constexpr = cell_sum.type.layout
    which = row + 16 * gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, LAY)))
    col = cell + gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, LAY)))
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, LAY)))
    line = which // 16 if EXCLUSIVE else which // height
    at = thumb_base + (line * C)[:, None, None] + col[None, :, None] + (lane * 0)[None, None, :]
    real = (which < T)[:, None, None] & (col < C)[None, :, None] & (lane == 0)[None, None, :]
    _add_cells(THUMB, at, cell_sum, real, WIDE, EXCLUSIVE)


@gluon.jit
def _add_cells(THUMB, at, cell_sum, real, WIDE: gl.constexpr, EXCLUSIVE: gl.constexpr):
    """EXCLUSIVE: a cell is 16 queries of one warp and keys of this program alone, so its mean is written directly."""
    if EXCLUSIVE:
        gl.store(THUMB + at, cell_sum * (2.0**-WEIGHT_SHIFT / (16 * WIDE)), mask=real)
    else:
        gl.atomic_add(THUMB + at, (cell_sum * UNITS).to(gl.int64), mask=real & (cell_sum > 0), sem="relaxed")


@gluon.jit
def _add_thumbnail(p, cells, row, cell, thumb_base, THUMB, T, R, C, CELLS: gl.constexpr):
    """Cells of any size: sums over columns by a product with zeros and ones, over rows one cell after the other."""
    SMALL: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, CELLS, 16])
    half = gl.convert_layout(p.to(gl.float16), gl.DotOperandLayout(0, SMALL, 2))
    sums = warpgroup_mma(half, cells, gl.zeros([64, CELLS], gl.float32, SMALL), use_acc=False, is_async=True)
    sums, half = warpgroup_mma_wait(0, deps=(sums, half))
    rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, SMALL))
    mine = rows.to(gl.int64) * R // T
    last = gl.minimum(row + 63, T - 1).to(gl.int64) * R // T
    first = row.to(gl.int64) * R // T
    for r in range(first.to(gl.int32), last.to(gl.int32) + 1):
        cell_sum = gl.sum(gl.where((mine == r)[:, None], sums, 0.0), axis=0)
        col = cell + gl.arange(0, CELLS, layout=gl.SliceLayout(0, SMALL))
        gl.atomic_add(
            THUMB + thumb_base + r * C + col,
            (cell_sum * UNITS).to(gl.int64),
            mask=(col < C) & (cell_sum > 0),
            sem="relaxed",
        )


SIZES = (
    "H GROUP T S R C height shift_lo shift_hi BLOCKS head stride_eb stride_eh line_from SLOTS".split()
)  # not specialised on, so that another length compiles nothing


@gluon.jit(do_not_specialize=SIZES)
def statistics(
    Q, K, LSE, THRESHOLD, COUNT, CANDIDATES, BUFFERS, SLOT_FLAGS, THUMB, COLUMN_SUM, LO, HI, BOUNDS,
    H, GROUP, T, S, R, C, height, c, g, shift_lo, shift_hi, BLOCKS, head, stride_eb, stride_eh, line_from, SLOTS,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, CELLS: gl.constexpr, EVEN: gl.constexpr,
    EXCLUSIVE: gl.constexpr, HIGH: gl.constexpr, RECEIVED: gl.constexpr, TOP: gl.constexpr, CAPACITY: gl.constexpr,
    ENDS: gl.constexpr, CAPPED: gl.constexpr,
):  # fmt: skip
    """The statistics of BN keys of one head, counted from `head` on. Q, K are descriptors of (B, H, length, D)."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    q_smem = gl.allocate_shared_memory(K.dtype, [STAGES, 1, 1, 64, D], Q.layout)
    k_smem = gl.allocate_shared_memory(K.dtype, [1, 1, BN, D], K.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(k_ready, count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(q_ready.index(stage), count=1)
    block = gl.program_id(0)
    bh = head + gl.program_id(1)
    b = bh // H
    h = bh % H
    start = block * BN
    first, last, all_from, all_to = _visible_queries(BOUNDS, bh, block, T, S, shift_lo, shift_hi, BLOCKS, BN, ENDS)
    mbarrier.expect(k_ready, K.block_type.nbytes)
    tma.async_copy_global_to_shared(K, [b, h // GROUP, start, 0], k_ready, k_smem)
    for stage in gl.static_range(STAGES):
        _fetch(Q, b, h, first + stage, stage, last - first, q_smem, q_ready, STAGES)
    line_base = bh * T - line_from
    ends_base = b * stride_eb + h * stride_eh
    thumb_base = bh.to(gl.int64) * R * C
    cell = (start.to(gl.int64) * C // S).to(gl.int32)
    cells = k_smem
    if CELLS > 0 and not EVEN:
        TABLE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CELLS, BN], gl.float16)
        table = gl.allocate_shared_memory(gl.float16, [CELLS, BN], TABLE)
        FLAT: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
        keys = start + gl.arange(0, BN, layout=gl.SliceLayout(0, FLAT))
        mine = (keys.to(gl.int64) * C // S).to(gl.int32) - cell
        col = gl.arange(0, CELLS, layout=gl.SliceLayout(1, FLAT))
        table.store(((mine[None, :] == col[:, None]) & (keys < S)[None, :]).to(gl.float16))
        fence_async_shared()
        barrier()
        cells = table.permute((1, 0))
    acc = gl.sum(gl.zeros([64, BN], gl.float32, SCORES).reshape([4, 2, 8, BN]), axis=1)
    counts = zero_counts(SCORES)
    buffers = counts.to(gl.int64)
    place = counts
    slot_flags = counts.to(gl.int64)
    if TOP:
        slot_flags = SLOT_FLAGS.to(gl.int64) + counts
        place = acquire_slot(slot_flags, SLOTS + counts)
        buffers = BUFFERS.to(gl.int64) + place.to(gl.int64) * (BUFFER_STRIPS * 32 * STRIP_BYTES)
    mbarrier.wait(k_ready, 0)
    k = k_smem.reshape([BN, D]).permute((1, 0))
    acc, counts = _tiles(
        first, last, all_from, all_to, acc, counts, buffers, k, cells, Q, LSE, THRESHOLD, COUNT, CANDIDATES, THUMB, LO,
        HI, b, h, line_base, ends_base, thumb_base, T, S, R, C, height, c, g, shift_lo, shift_hi, start, cell,
        q_smem, q_ready, D, BN, STAGES, CELLS, EVEN, EXCLUSIVE, HIGH, RECEIVED, TOP, CAPACITY, ENDS, CAPPED,
        SCORES)  # fmt: skip
    if TOP:
        _flush_candidates(counts, 1, line_base, start, COUNT, CANDIDATES, buffers, CAPACITY)
        release_slot(slot_flags, place)
    if RECEIVED:
        column_sum = gl.sum(gl.sum(acc, axis=0), axis=0) * (2.0**-WEIGHT_SHIFT)
        cols = start + gl.arange(0, BN, layout=column_sum.type.layout)
        gl.store(COLUMN_SUM + bh.to(gl.int64) * S + cols, column_sum, mask=cols < S)
