"""triton/statistics again for Hopper alone: what each key received, the thumbnail, and candidates for the
largest weights, from queries, keys and the log-sum-exp.

A program owns BN keys and sees all queries pass by, 64 at a time, fetched ahead by the tensor memory accelerator. It is
four warps small, so that several share a multiprocessor: while one waits, for a product or a sum over lanes, another
takes exponentials. Cells of the thumbnail that are no whole multiples of what a lane holds are a product of the
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

from regard.attention.kernels.hopper.ptx import KEYS, LANES, unless_hidden
from regard.attention.kernels.hopper.topk import (
    NOTE_BYTES,
    NOTES,
    claim,
    gather,
    give_back,
    hand_over,
    none_noted,
    note,
)

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
    first, last, all_from, all_to, acc, many, notes, k, cells, Q, LSE, FLOOR, COUNT, FOUND, THUMB, LO, HI,
    b, h, line_base, told_base, thumb_base, T, S, R, C, high, c, shift_lo, shift_hi, start, cell, q_room, q_ready,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, CELLS: gl.constexpr,
    EVEN: gl.constexpr, ALONE: gl.constexpr, RECEIVED: gl.constexpr, TOP: gl.constexpr, ROOM: gl.constexpr,
    TOLD: gl.constexpr, SCORES: gl.constexpr,
):  # fmt: skip
    """Tiles of queries from `first` to `last`; those from `all_from` to `all_to` see all keys."""
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    rows = first * 64 + gl.arange(0, 64, layout=ROWS)
    lse_next, floor_next = _of_rows(LSE, FLOOR, line_base, rows, T, RECEIVED or CELLS > 0, TOP)
    for at in range(first, last):
        index = at - first
        stage = index % STAGES
        rows = at * 64 + gl.arange(0, 64, layout=ROWS)
        lse = lse_next
        floor = floor_next
        lse_next, floor_next = _of_rows(LSE, FLOOR, line_base, rows + 64, T, RECEIVED or CELLS > 0, TOP)
        mbarrier.wait(q_ready.index(stage), (index // STAGES) & 1)
        here = gl.zeros([64, BN], gl.float32, SCORES)
        here = warpgroup_mma(q_room.index(stage).reshape([64, D]), k, here, use_acc=False, is_async=True)
        here = warpgroup_mma_wait(0, deps=(here,))
        together()  # all warps are done with this place
        _fetch(Q, b, h, at + STAGES, index + STAGES, last - first, q_room, q_ready, STAGES)
        if (at < all_from) | (at >= all_to):
            here = _hidden(here, rows, start, T, S, LO, HI, told_base, shift_lo, shift_hi, TOLD)
        values = here
        if RECEIVED or CELLS > 0:
            base = gl.where(lse == float("-inf"), FAR, lse * LOG2E - LARGER)
            p = gl.exp2(gl.fma(here, c, -base[:, None]))
            values = p
            if EVEN or RECEIVED:
                pairs = gl.sum(p.reshape([4, 2, 8, BN]), axis=1)  # (warp, lane row, key): nothing crosses lanes
            if RECEIVED:
                acc += pairs
            if CELLS > 0:
                if EVEN:
                    _shrink_even(pairs, at * 64, cell, thumb_base, THUMB, T, C, high, BN, CELLS, ALONE)
                else:
                    _shrink(p, cells, at * 64, cell, thumb_base, THUMB, T, R, C, CELLS)
        if TOP:
            many = _note(values, floor, many, at * 64, notes)
            many = _hand_over(many, NOTES // 2 + 1, line_base, start, COUNT, FOUND, notes, ROOM)
    return acc, many


@gluon.jit
def _hidden(s, rows, start, T, S, LO, HI, told_base, shift_lo, shift_hi, TOLD: gl.constexpr):
    """Scores, without those that a query does not look at."""
    inside = rows < T
    lo = gl.maximum(rows + shift_lo, 0)
    hi = gl.minimum(rows + shift_hi, S)
    if TOLD:
        lo = gl.maximum(lo, gl.load(LO + told_base + rows, mask=inside, other=0))
        hi = gl.minimum(hi, gl.load(HI + told_base + rows, mask=inside, other=0))
    return unless_hidden(s, start, lo, gl.where(inside, gl.maximum(hi - lo, 0), 0))


@gluon.jit
def _of_rows(LSE, FLOOR, line_base, rows, T, WEIGHTS: gl.constexpr, TOP: gl.constexpr):
    """Log-sum-exp and floors of a tile's queries; asked for a tile ahead, since they are long on their way."""
    lse = gl.full_like(rows, 0.0, dtype=gl.float32)
    floor = lse
    if WEIGHTS:
        lse = gl.load(LSE + line_base + rows, mask=rows < T, other=float("-inf"))
    if TOP:
        floor = gl.load(FLOOR + line_base + rows, mask=rows < T, other=float("inf"))
    return lse, floor


@gluon.jit
def _note(values, floor, many, row, notes):
    """Weights or scores that reach their rows' floors are noted."""
    LANE: gl.constexpr = many.type.layout
    warp = gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, LANE)))
    line = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, LANE)))
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, LANE)))
    rows = row + (warp * 16)[:, None, None] + line[None, :, None] + (lane * 0)[None, None, :]
    mine = notes + (line * (LANES * NOTE_BYTES))[None, :, None] + (lane * NOTE_BYTES)[None, None, :]
    return note(values, many, floor, mine, rows * KEYS + (lane * 2)[None, None, :])


@gluon.jit
def _hand_over(many, LEAST: gl.constexpr, line_base, start, COUNT, FOUND, notes, ROOM: gl.constexpr):
    none = gl.zeros_like(many)
    base = line_base.to(gl.int64)
    return hand_over(
        many, none + LEAST, notes, (COUNT + base).to(gl.int64) + none, (FOUND + base * ROOM).to(gl.int64) + none,
        none + ROOM, none + start)  # fmt: skip


@gluon.jit
def _shrink_even(
    pairs, row, cell, thumb_base, THUMB, T, C, high, BN: gl.constexpr, CELLS: gl.constexpr, ALONE: gl.constexpr,
):  # fmt: skip
    """Cells that are whole multiples of 16 queries and of 8 keys: sums of what a lane holds, then over the lanes."""
    across = pairs.reshape([4, 8, CELLS, BN // CELLS // 8, LANES, 2])
    mine = gl.sum(gl.sum(across, axis=5), axis=3)  # (warp, lane row, cell, lane)
    if CELLS == 16:
        left, right = gl.split(mine.reshape([4, 8, 2, 8, LANES]).permute((0, 1, 3, 4, 2)))
        _add_eight(left, row, cell, thumb_base, THUMB, T, C, high, BN // CELLS, ALONE)
        _add_eight(right, row, cell + 8, thumb_base, THUMB, T, C, high, BN // CELLS, ALONE)
    elif CELLS == 8:
        _add_eight(mine, row, cell, thumb_base, THUMB, T, C, high, BN // CELLS, ALONE)
    else:
        down = gl.sum(gl.sum(mine, axis=3), axis=1)  # (warp, cell)
        which = row + 16 * gl.arange(0, 4, layout=gl.SliceLayout(1, down.type.layout))
        col = cell + gl.arange(0, CELLS, layout=gl.SliceLayout(0, down.type.layout))
        at = thumb_base + (which // high)[:, None] * C + col[None, :]
        _add(THUMB, at, down, (which < T)[:, None] & (col < C)[None, :], BN // CELLS, ALONE)


@gluon.jit
def _add_eight(mine, row, cell, thumb_base, THUMB, T, C, high, WIDE: gl.constexpr, ALONE: gl.constexpr):
    """Eight cells of each warp's 16 queries."""
    down = gather(mine)  # (warp, cell, lane), alike in the last
    LAY: gl.constexpr = down.type.layout
    which = row + 16 * gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, LAY)))
    col = cell + gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, LAY)))
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, LAY)))
    line = which // 16 if ALONE else which // high
    at = thumb_base + (line * C)[:, None, None] + col[None, :, None] + (lane * 0)[None, None, :]
    real = (which < T)[:, None, None] & (col < C)[None, :, None] & (lane == 0)[None, None, :]
    _add(THUMB, at, down, real, WIDE, ALONE)


@gluon.jit
def _add(THUMB, at, down, real, WIDE: gl.constexpr, ALONE: gl.constexpr):
    """ALONE: a cell is 16 queries of one warp and this program's keys: its mean is written, nobody adds to it."""
    if ALONE:
        gl.store(THUMB + at, down * (2.0**-LARGER / (16 * WIDE)), mask=real)
    else:
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
    "H GROUP T S R C high shift_lo shift_hi BLOCKS head stride_eb stride_eh line_from PLACES".split()
)  # one kernel serves all of them: nothing is compiled again for another length


@gluon.jit(do_not_specialize=SIZES)
def statistics(
    Q, K, LSE, FLOOR, COUNT, FOUND, NOTED, FLAGS, THUMB, GOT, LO, HI, BOUNDS,
    H, GROUP, T, S, R, C, high, c, shift_lo, shift_hi, BLOCKS, head, stride_eb, stride_eh, line_from, PLACES,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, CELLS: gl.constexpr, EVEN: gl.constexpr,
    ALONE: gl.constexpr, RECEIVED: gl.constexpr, TOP: gl.constexpr, ROOM: gl.constexpr, TOLD: gl.constexpr,
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
    many = none_noted(SCORES)
    notes = many.to(gl.int64)
    place = many
    flags = many.to(gl.int64)
    if TOP:
        flags = FLAGS.to(gl.int64) + many
        place = claim(flags, PLACES + many)
        notes = NOTED.to(gl.int64) + place.to(gl.int64) * (NOTES * 32 * NOTE_BYTES)
    mbarrier.wait(k_ready, 0)
    k = k_room.reshape([BN, D]).permute((1, 0))
    acc, many = _tiles(
        first, last, all_from, all_to, acc, many, notes, k, cells, Q, LSE, FLOOR, COUNT, FOUND, THUMB, LO, HI,
        b, h, line_base, told_base, thumb_base, T, S, R, C, high, c, shift_lo, shift_hi, start, cell, q_room, q_ready,
        D, BN, STAGES, CELLS, EVEN, ALONE, RECEIVED, TOP, ROOM, TOLD, SCORES)  # fmt: skip
    if TOP:
        _hand_over(many, 1, line_base, start, COUNT, FOUND, notes, ROOM)
        give_back(flags, place)
    if RECEIVED:
        got = gl.sum(gl.sum(acc, axis=0), axis=0) * (2.0**-LARGER)
        cols = start + gl.arange(0, BN, layout=got.type.layout)
        gl.store(GOT + bh.to(gl.int64) * S + cols, got, mask=cols < S)
