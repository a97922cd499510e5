"""triton_statistics.py again for Hopper alone, in Gluon: what each key received, the thumbnail, and candidates for the
largest weights, from queries, keys and the log-sum-exp.

A program owns BN keys and sees all queries pass by, 64 at a time, fetched ahead by the tensor memory accelerator. It is
four warps small, so that several share a multiprocessor: while one waits, for a product, a claim, a sum over lanes,
another takes exponentials. Cells of the thumbnail that are no whole multiples of what a lane holds are a product of the
weights with a table of zeros and ones, in float16: weights are kept 2^14 times too large, so that none is too small for
it. Sums that several programs share are whole numbers, so that their order does not matter.
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

NEVER = gl.constexpr(-1.0e34)
SUBS = gl.constexpr(4)
LANES = gl.constexpr(4)
LOG2E = gl.constexpr(1.4426950408889634)
LARGER = gl.constexpr(14)  # weights are held times 2^14
WHOLE = gl.constexpr(2.0**26)  # and counted in units of 2^-40
FAR = gl.constexpr(1.0e30)
together = getattr(gl, "barrier", None) or gl.thread_barrier  # its name until Triton 3.6


@gluon.jit
def _askers(BOUNDS, bh, block, T, S, shift_lo, shift_hi, BLOCKS, BN: gl.constexpr, TOLD: gl.constexpr):
    """Tiles of 64 queries: the first that sees any key of a block, one past the last; the same of what sees all."""
    start = block * BN
    first = gl.maximum(start - shift_hi + 1, 0) // 64
    last = (gl.minimum(start + BN - shift_lo, T) + 63) // 64
    all_from = (gl.maximum(start + BN - shift_hi, 0) + 63) // 64
    all_to = gl.maximum(gl.minimum(start - shift_lo + 1, T), 0) // 64
    if start + BN > S:
        all_to = all_from
    if TOLD:
        at = BOUNDS + (bh * BLOCKS + block) * 4
        first = gl.maximum(first, gl.load(at))
        last = gl.minimum(last, gl.load(at + 1))
        all_from = gl.maximum(all_from, gl.load(at + 2))
        all_to = gl.minimum(all_to, gl.load(at + 3))
    last = gl.maximum(last, first)
    all_from = gl.minimum(gl.maximum(all_from, first), last)
    return first, last, all_from, gl.minimum(gl.maximum(all_to, all_from), last)


@gluon.jit
def _fetch(Q, b, h, tile, index, end, q_room, q_ready, STAGES: gl.constexpr):
    """Bring a tile of queries to its place, if it is not past the end."""
    stage = index % STAGES
    wanted = index < end
    mbarrier.expect(q_ready.index(stage), Q.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(Q, [b, h, tile * 64, 0], q_ready.index(stage), q_room.index(stage), pred=wanted)


@gluon.jit
def _tiles(
    tile, until, first, last, acc, k, cells, Q, LSE, FLOOR, COUNT, FOUND, WHERE, THUMB, LO, HI,
    b, h, line_base, told_base, thumb_base, T, S, R, C, high, c, shift_lo, shift_hi, start, cell, q_room, q_ready,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, CELLS: gl.constexpr,
    EVEN: gl.constexpr, RECEIVED: gl.constexpr, TOP: gl.constexpr, ROOM: gl.constexpr, TOLD: gl.constexpr,
    MASKED: gl.constexpr, SCORES: gl.constexpr,
):  # fmt: skip
    """Tiles of queries from `tile` to `until`."""
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    for at in range(tile, until):
        index = at - first
        stage = index % STAGES
        rows = at * 64 + gl.arange(0, 64, layout=ROWS)
        inside = rows < T
        if RECEIVED or CELLS > 0:
            lse = gl.load(LSE + line_base + rows, mask=inside, other=float("-inf"))
        if MASKED:
            lo = gl.maximum(rows + shift_lo, 0)
            hi = gl.minimum(rows + shift_hi, S)
            if TOLD:
                lo = gl.maximum(lo, gl.load(LO + told_base + rows, mask=inside, other=0))
                hi = gl.minimum(hi, gl.load(HI + told_base + rows, mask=inside, other=0))
            count = gl.where(inside, gl.maximum(hi - lo, 0), 0).to(gl.uint32, bitcast=True)
        mbarrier.wait(q_ready.index(stage), (index // STAGES) & 1)
        nothing = gl.zeros([64, BN], gl.float32, SCORES)
        here = warpgroup_mma(q_room.index(stage).reshape([64, D]), k, nothing, use_acc=False, is_async=True)
        here = warpgroup_mma_wait(0, deps=(here,))
        together()  # all warps are done with this place
        _fetch(Q, b, h, at + STAGES, index + STAGES, last - first, q_room, q_ready, STAGES)
        if MASKED:
            cols = start + gl.arange(0, BN, layout=gl.SliceLayout(0, SCORES))
            seen = (cols[None, :] - lo[:, None]).to(gl.uint32, bitcast=True) < count[:, None]
            here = gl.where(seen, here, NEVER)
        if TOP:
            slot, hit = _claim(here, at * 64, line_base, T, FLOOR, COUNT, BN)
        if RECEIVED or CELLS > 0:
            base = gl.where(lse == float("-inf"), FAR, lse * LOG2E - LARGER)
            p = gl.exp2(gl.fma(here, c, -base[:, None]))
            if EVEN or RECEIVED:
                pairs = gl.sum(p.reshape([4, 2, 8, BN]), axis=1)  # (warp, lane row, key): nothing crosses lanes
            if RECEIVED:
                acc += pairs
            if CELLS > 0:
                if EVEN:
                    _shrink_even(pairs, at * 64, cell, thumb_base, THUMB, T, C, high, BN, CELLS)
                else:
                    _shrink(p, cells, at * 64, cell, thumb_base, THUMB, T, R, C, CELLS)
        if TOP:  # after the exponentials: by now the claims have been answered
            _keep(here, slot, hit, at * 64, line_base, start, FOUND, WHERE, BN, ROOM)
    return acc


@gluon.jit
def _claim(s, row, line_base, T, FLOOR, COUNT, BN: gl.constexpr):
    """Strips of the keys of one lane, whose maximum reaches the row's floor: each is given a place of its row's."""
    here = gl.max(gl.max(s.reshape([64, SUBS, BN // SUBS // 8, LANES, 2]), axis=4), axis=2)
    THREE: gl.constexpr = here.type.layout
    rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, gl.SliceLayout(2, THREE)))
    floor = gl.load(FLOOR + line_base + rows, mask=rows < T, other=float("inf"))
    hit = (here >= floor[:, None, None]) & (here > NEVER * 0.5)
    line = (line_base + rows)[:, None, None] + gl.zeros([64, SUBS, LANES], gl.int32, THREE)
    one = gl.full([64, SUBS, LANES], 1, gl.int32, THREE)
    return gl.atomic_add(COUNT + line, one, mask=hit, sem="relaxed"), hit


@gluon.jit
def _keep(s, slot, hit, row, line_base, start, FOUND, WHERE, BN: gl.constexpr, ROOM: gl.constexpr):
    """The claimed strips, whole, and where each begins."""
    parts = s.reshape([64, SUBS, BN // SUBS // 8, LANES, 2])
    THREE: gl.constexpr = slot.type.layout
    FIVE: gl.constexpr = parts.type.layout
    WIDE: gl.constexpr = gl.SliceLayout(2, gl.SliceLayout(4, FIVE))
    rows = row + gl.arange(0, 64, layout=gl.SliceLayout(1, gl.SliceLayout(2, THREE)))
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, THREE)))
    sub = gl.arange(0, SUBS, layout=gl.SliceLayout(0, gl.SliceLayout(2, THREE)))
    kept = hit & (slot < ROOM)
    place = (line_base + rows)[:, None, None] * ROOM + slot
    key = start + (sub * (BN // SUBS))[None, :, None] + (lane * 2)[None, None, :] + gl.zeros_like(slot)
    gl.store(WHERE + place, key, mask=kept)
    base = gl.convert_layout(place * (BN // SUBS // LANES), WIDE, assert_trivial=True).expand_dims(2).expand_dims(4)
    keep = gl.convert_layout(kept, WIDE, assert_trivial=True).expand_dims(2).expand_dims(4)
    STEP: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, gl.SliceLayout(4, FIVE))))
    PAIR: gl.constexpr = gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, FIVE))))
    step = gl.arange(0, BN // SUBS // 8, layout=STEP)
    pair = gl.arange(0, 2, layout=PAIR)
    gl.store(FOUND + base + (step * 2)[None, None, :, None, None] + pair[None, None, None, None, :], parts, mask=keep)


@gluon.jit
def _shrink_even(
    pairs, row, cell, thumb_base, THUMB, T, C, high, BN: gl.constexpr, CELLS: gl.constexpr,
):  # fmt: skip
    """Cells that are whole multiples of 16 queries and of 8 keys: sums of what a lane holds, then over the lanes."""
    across = pairs.reshape([4, 8, CELLS, BN // CELLS // 8, LANES, 2])
    mine = gl.sum(gl.sum(across, axis=5), axis=3)  # (warp, lane row, cell, lane)
    down = gl.sum(gl.sum(mine, axis=3), axis=1)  # (warp, cell)
    which = row + 16 * gl.arange(0, 4, layout=gl.SliceLayout(1, down.type.layout))
    col = cell + gl.arange(0, CELLS, layout=gl.SliceLayout(0, down.type.layout))
    at = thumb_base + (which // high)[:, None] * C + col[None, :]
    real = (which < T)[:, None] & (col < C)[None, :]
    gl.atomic_add(THUMB + at, (down * WHOLE).to(gl.int64), mask=real & (down > 0), sem="relaxed")


@gluon.jit
def _shrink(p, cells, row, cell, thumb_base, THUMB, T, R, C, CELLS: gl.constexpr):
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
        down = gl.sum(gl.where((mine == r)[:, None], sums, 0.0), axis=0)
        col = cell + gl.arange(0, CELLS, layout=gl.SliceLayout(0, SMALL))
        gl.atomic_add(
            THUMB + thumb_base + r * C + col, (down * WHOLE).to(gl.int64), mask=(col < C) & (down > 0), sem="relaxed"
        )


SIZES = (
    "H GROUP T S R C high shift_lo shift_hi BLOCKS head stride_eb stride_eh line_from".split()
)  # one kernel serves all of them: nothing is compiled again for another length


@gluon.jit(do_not_specialize=SIZES)
def statistics(
    Q, K, LSE, FLOOR, COUNT, FOUND, WHERE, THUMB, GOT, LO, HI, BOUNDS,
    H, GROUP, T, S, R, C, high, c, shift_lo, shift_hi, BLOCKS, head, stride_eb, stride_eh, line_from,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, CELLS: gl.constexpr, EVEN: gl.constexpr,
    RECEIVED: gl.constexpr, TOP: gl.constexpr, ROOM: gl.constexpr, TOLD: gl.constexpr,
):  # fmt: skip
    """BN keys of one head, counted from `head` on. Q, K are descriptors of (B, H, length, D)."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    q_room = gl.allocate_shared_memory(K.dtype, [STAGES, 1, 1, 64, D], Q.layout)
    k_room = gl.allocate_shared_memory(K.dtype, [1, 1, BN, D], K.layout)
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
    first, last, all_from, all_to = _askers(BOUNDS, bh, block, T, S, shift_lo, shift_hi, BLOCKS, BN, TOLD)
    mbarrier.expect(k_ready, K.block_type.nbytes)
    tma.async_copy_global_to_shared(K, [b, h // GROUP, start, 0], k_ready, k_room)
    for stage in gl.static_range(STAGES):
        _fetch(Q, b, h, first + stage, stage, last - first, q_room, q_ready, STAGES)
    line_base = bh * T - line_from
    told_base = b * stride_eb + h * stride_eh
    thumb_base = bh.to(gl.int64) * R * C
    cell = (start.to(gl.int64) * C // S).to(gl.int32)
    cells = k_room
    if CELLS > 0 and not EVEN:
        TABLE: gl.constexpr = gl.NVMMASharedLayout.get_default_for([CELLS, BN], gl.float16)
        table = gl.allocate_shared_memory(gl.float16, [CELLS, BN], TABLE)
        FLAT: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [4, 1], [1, 0])
        keys = start + gl.arange(0, BN, layout=gl.SliceLayout(0, FLAT))
        mine = (keys.to(gl.int64) * C // S).to(gl.int32) - cell
        col = gl.arange(0, CELLS, layout=gl.SliceLayout(1, FLAT))
        table.store(((mine[None, :] == col[:, None]) & (keys < S)[None, :]).to(gl.float16))
        fence_async_shared()
        together()
        cells = table.permute((1, 0))
    acc = gl.sum(gl.zeros([64, BN], gl.float32, SCORES).reshape([4, 2, 8, BN]), axis=1)
    mbarrier.wait(k_ready, 0)
    k = k_room.reshape([BN, D]).permute((1, 0))
    acc = _tiles(
        first, all_from, first, last, acc, k, cells, Q, LSE, FLOOR, COUNT, FOUND, WHERE, THUMB, LO, HI,
        b, h, line_base, told_base, thumb_base, T, S, R, C, high, c, shift_lo, shift_hi, start, cell, q_room, q_ready,
        D, BN, STAGES, CELLS, EVEN, RECEIVED, TOP, ROOM, TOLD, True, SCORES)  # fmt: skip
    acc = _tiles(
        all_from, all_to, first, last, acc, k, cells, Q, LSE, FLOOR, COUNT, FOUND, WHERE, THUMB, LO, HI,
        b, h, line_base, told_base, thumb_base, T, S, R, C, high, c, shift_lo, shift_hi, start, cell, q_room, q_ready,
        D, BN, STAGES, CELLS, EVEN, RECEIVED, TOP, ROOM, TOLD, False, SCORES)  # fmt: skip
    acc = _tiles(
        all_to, last, first, last, acc, k, cells, Q, LSE, FLOOR, COUNT, FOUND, WHERE, THUMB, LO, HI,
        b, h, line_base, told_base, thumb_base, T, S, R, C, high, c, shift_lo, shift_hi, start, cell, q_room, q_ready,
        D, BN, STAGES, CELLS, EVEN, RECEIVED, TOP, ROOM, TOLD, True, SCORES)  # fmt: skip
    if RECEIVED:
        got = gl.sum(gl.sum(acc, axis=0), axis=0) * (2.0**-LARGER)
        cols = start + gl.arange(0, BN, layout=got.type.layout)
        gl.store(GOT + bh.to(gl.int64) * S + cols, got, mask=cols < S)
