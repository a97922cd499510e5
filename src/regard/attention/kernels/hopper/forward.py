"""The FlashAttention-3-like forward pass for Hopper, in Gluon: triton/forward with warp specialisation and TMA copies.

One warp fetches queries, keys and values through the tensor memory accelerator; groups of four warps, 64 queries each,
work on them. A group starts the product q k' of the next block and the average p v of this one, and computes the
softmax while both run (Shah et al. 2024, algorithm 2). A program is persistent: it goes on from one block of queries, a
job, to the next, whose inputs are fetched while this one's output is written.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]
from triton.experimental.gluon.language.nvidia.hopper import (  # type: ignore[import-untyped]
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from regard.attention.kernels.hopper.argmax import (
    HALF,
    SUBCLASSES,
    candidate_keys,
    class_maxima,
    split_halves,
    update_maxima,
)
from regard.attention.kernels.hopper.ptx import (
    LANES,
    NEG_INF,
    cap_scores,
    mask_scores,
    pack_half,
    split_strips,
    unpack_half,
    update_argmax,
    wait_until_known,
)
from regard.attention.kernels.hopper.scheduler import fetch, job_of, read_job, visible_keys

EMPTY_MAX = gl.constexpr(-1.0e28)  # the initial maximum: far above NEG_INF, so that masked keys weigh 0
FAR = gl.constexpr(1.0e30)  # the log-sum-exp of a query that sees nothing: all its weights are 0
LN2 = gl.constexpr(0.6931471805599453)
LOG2E = gl.constexpr(1.4426950408889634)


@gluon.jit
def _softmax(
    s, mc, total, e, maxima, argmax, lo, hi, start, c, g,
    BN: gl.constexpr, ENTROPY: gl.constexpr, TOP: gl.constexpr, DEFER: gl.constexpr, CAPPED: gl.constexpr,
    MASKED: gl.constexpr, SCORES: gl.constexpr,
):  # fmt: skip
    """One block of scores (64, BN): unnormalised weights, the new state, and the factor that rescales the old one."""
    if CAPPED:
        s = cap_scores(s, g)
    if MASKED:
        s = mask_scores(s, start, lo, hi - lo)
    if DEFER:
        low, cell_height = split_halves(s)
        maxima, argmax, largest = update_maxima(class_maxima(cell_height), maxima, argmax, start + HALF)
        maxima, argmax, lower = update_maxima(class_maxima(low), maxima, argmax, start)
        largest = gl.convert_layout(gl.max(gl.maximum(largest, lower), axis=1), gl.SliceLayout(1, SCORES))
    elif TOP == 1:
        TWO: gl.constexpr = maxima.type.layout
        limit = gl.convert_layout(mc, gl.SliceLayout(1, TWO))[:, None] + gl.zeros([64, LANES], gl.float32, TWO)
        lane = start + 2 * gl.arange(0, LANES, layout=gl.SliceLayout(0, TWO))[None, :] + gl.zeros_like(argmax)
        here, maxima, argmax = update_argmax(split_strips(s), maxima, argmax, c + gl.zeros_like(limit), limit, lane)
        largest = gl.convert_layout(gl.max(here, axis=1), gl.SliceLayout(1, SCORES))
    elif TOP > 1:
        here = class_maxima(s)
        maxima = gl.maximum(maxima, here)
        largest = gl.convert_layout(gl.max(gl.max(here, axis=1), axis=1), gl.SliceLayout(1, SCORES))
    else:
        largest = gl.max(s, axis=1)
    mc_new = gl.maximum(mc, largest * c)
    x = gl.fma(s, c, -mc_new[:, None])
    p = gl.exp2(x)
    alpha = gl.exp2(mc - mc_new)
    if ENTROPY:
        e = (e + (mc - mc_new) * total) * alpha + gl.sum(p * x, axis=1)
    total = total * alpha + gl.sum(p, axis=1)
    return p, mc_new, total, e, maxima, argmax, alpha


@gluon.jit
def _key_blocks(
    i, until, n, acc, p, mc, total, e, maxima, argmax, q, lo, hi, last_block, c, g,
    k_smem, v_smem, k_ready, k_free, v_ready, v_free,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, ENTROPY: gl.constexpr, TOP: gl.constexpr,
    DEFER: gl.constexpr, CAPPED: gl.constexpr, MASKED: gl.constexpr, SCORES: gl.constexpr, OUTPUT: gl.constexpr,
    WEIGHTS: gl.constexpr,
):  # fmt: skip
    """Blocks i to `until`: q k' of block i and p v of the one before run while the softmax is computed."""
    for at in range(i, until):
        stage = (n + at) % STAGES
        before = (n + at - 1) % STAGES
        mbarrier.wait(k_ready.index(stage), ((n + at) // STAGES) & 1)
        s = warpgroup_mma(
            q, k_smem.index(stage).reshape([BN, D]).permute((1, 0)), gl.zeros([64, BN], gl.float32, SCORES),
            use_acc=False, is_async=True)  # fmt: skip
        mbarrier.wait(v_ready.index(before), ((n + at - 1) // STAGES) & 1)
        weights = unpack_half(p, v_smem.dtype, WEIGHTS)
        acc = warpgroup_mma(weights, v_smem.index(before).reshape([BN, D]), acc, is_async=True)
        s = warpgroup_mma_wait(1, deps=(s,))
        mbarrier.arrive(k_free.index(stage), count=1)
        fresh, mc, total, e, maxima, argmax, alpha = _softmax(
            s, mc, total, e, maxima, argmax, lo, hi, (last_block - at) * BN, c, g,
            BN, ENTROPY, TOP, DEFER, CAPPED, MASKED, SCORES)  # fmt: skip
        if not ENTROPY:  # the softmax overlaps with the product; with entropy it takes too long for that
            total = wait_until_known(total)
        acc, weights, fresh = warpgroup_mma_wait(0, deps=(acc, weights, fresh))
        mbarrier.arrive(v_free.index(before), count=1)
        acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, OUTPUT))[:, None]
        p = pack_half(gl.convert_layout(fresh, WEIGHTS), v_smem.dtype)
    return acc, p, mc, total, e, maxima, argmax


@gluon.jit
def _lane_sums(x):
    """The sum of what each lane holds of a row (64, BN): (64, LANES)."""
    SMALL: gl.constexpr = x.shape[1] // (8 * SUBCLASSES)
    return gl.sum(gl.sum(gl.sum(x.reshape([64, SMALL, SUBCLASSES, LANES, 2]), axis=4), axis=2), axis=1)


@gluon.jit
def _score_blocks(
    i, until, n, base, mc, total, e, maxima, argmax, q, lo, hi, last_block, c, g, k_smem, k_ready, k_free,
    D: gl.constexpr, BN: gl.constexpr, STAGES: gl.constexpr, ENTROPY: gl.constexpr, TOP: gl.constexpr,
    CAPPED: gl.constexpr, MASKED: gl.constexpr, SCORES: gl.constexpr,
):  # fmt: skip
    """Blocks i to `until` where another kernel averages the values, and its log-sum-exp is known, `base` in powers of
    two: weights come out final, and a block waits for no other. While a group computes them, the tensor cores work for
    the others. `total` and `e`: sums of the weights and of their w log2 w, still by lanes."""
    for at in range(i, until):
        stage = (n + at) % STAGES
        mbarrier.wait(k_ready.index(stage), ((n + at) // STAGES) & 1)
        s = warpgroup_mma(
            q, k_smem.index(stage).reshape([BN, D]).permute((1, 0)), gl.zeros([64, BN], gl.float32, SCORES),
            use_acc=False, is_async=True)  # fmt: skip
        s = warpgroup_mma_wait(0, deps=(s,))
        mbarrier.arrive(k_free.index(stage), count=1)
        if CAPPED:
            s = cap_scores(s, g)
        if MASKED:
            s = mask_scores(s, (last_block - at) * BN, lo, hi - lo)
        if TOP == 1:
            TWO: gl.constexpr = maxima.type.layout
            limit = gl.convert_layout(mc, gl.SliceLayout(1, TWO))[:, None] + gl.zeros([64, LANES], gl.float32, TWO)
            lane = 2 * gl.arange(0, LANES, layout=gl.SliceLayout(0, TWO))[None, :] + gl.zeros_like(argmax)
            start = (last_block - at) * BN + lane
            here, maxima, argmax = update_argmax(
                split_strips(s), maxima, argmax, c + gl.zeros_like(limit), limit, start
            )
            mc = gl.maximum(mc, gl.convert_layout(gl.max(here, axis=1), gl.SliceLayout(1, SCORES)) * c)
        if TOP > 1:
            maxima = gl.maximum(maxima, class_maxima(s))
        if ENTROPY:
            x = gl.fma(s, c, -base[:, None])
            p = gl.exp2(x)
            total += _lane_sums(p)
            e += _lane_sums(p * x)
    return mc, total, e, maxima, argmax


@gluon.jit
def _skip_blocks(i, until, n, k_ready, k_free, v_ready, v_free, STAGES: gl.constexpr, AVERAGE: gl.constexpr):
    """Release blocks that other groups need and this one does not."""
    for at in range(i, until):
        stage = (n + at) % STAGES
        phase = ((n + at) // STAGES) & 1
        mbarrier.wait(k_ready.index(stage), phase)
        mbarrier.arrive(k_free.index(stage), count=1)
        if AVERAGE:
            mbarrier.wait(v_ready.index(stage), phase)
            mbarrier.arrive(v_free.index(stage), count=1)


@gluon.jit
def _attend(
    group: gl.constexpr,
    OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi, BLOCKS, CHUNK, jobs,
    stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
    q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
    D: gl.constexpr, BN: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr,
    ENTROPY: gl.constexpr, TOP: gl.constexpr, DEFER: gl.constexpr, ENDS: gl.constexpr, SHARED: gl.constexpr,
    SINKS: gl.constexpr, CAPPED: gl.constexpr, AVERAGE: gl.constexpr,
):  # fmt: skip
    """One group of warps: 64 queries of each job against all blocks that they see."""
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, OUTPUT, 2)
    ROWS: gl.constexpr = gl.SliceLayout(1, SCORES)
    n = 0
    turn = 0
    w = gl.program_id(0)
    if SHARED:
        mbarrier.wait(q_ready.index(0), 0)
    while w < jobs:
        bh, block = job_of(w, BLOCKS, CHUNK)
        b = bh // H
        h = bh % H
        row = block * GROUPS * 64
        first, last, all_from, all_to = visible_keys(
            BOUNDS, bh, block, row, GROUPS * 64, T, S, shift_lo, shift_hi, BLOCKS, ENDS
        )
        last_block = (last + BN - 1) // BN - 1
        blocks = gl.where(last > first, last_block + 1 - first // BN, 0)
        # the same for this group's queries, counted from the right end: it works on blocks `skip` to `stop`, and every
        # query sees all keys of blocks `right` to `left`
        row += group * 64
        first, last, all_from, all_to = visible_keys(BOUNDS, bh, block, row, 64, T, S, shift_lo, shift_hi, BLOCKS, ENDS)
        skip = gl.minimum(last_block + 1 - (last + BN - 1) // BN, blocks)
        stop = gl.where(last > first, gl.minimum(last_block + 1 - first // BN, blocks), skip)
        right = gl.minimum(gl.maximum(last_block + 1 - all_to // BN, skip + 1), stop)
        left = gl.minimum(gl.maximum(last_block + 1 - (all_from + BN - 1) // BN, right), stop)

        rows = row + gl.arange(0, 64, layout=ROWS)
        inside = rows < T
        lo = gl.maximum(rows + shift_lo, 0)
        hi = gl.minimum(rows + shift_hi, S)
        if ENDS:
            at = b * stride_eb + h * stride_eh + rows
            lo = gl.maximum(lo, gl.load(LO + at, mask=inside, other=0))
            hi = gl.minimum(hi, gl.load(HI + at, mask=inside, other=0))
        hi = gl.where(inside, gl.maximum(hi, lo), lo)

        acc = gl.zeros([64, D], gl.float32, OUTPUT)
        total = gl.zeros([64], gl.float32, ROWS)
        e = gl.zeros([64], gl.float32, ROWS)
        mc = gl.full([64], EMPTY_MAX, gl.float32, ROWS)
        nothing = gl.full([64, BN], NEG_INF, gl.float32, SCORES)
        if DEFER:
            maxima = class_maxima(split_halves(nothing)[0])
            argmax = gl.full_like(gl.max(maxima, axis=1), 0, dtype=gl.int32)
        else:
            maxima = split_strips(nothing)[0][0] if TOP == 1 else class_maxima(nothing)
            argmax = gl.full_like(maxima, -1, dtype=gl.int32)
        buffer = turn % 2
        q = q_smem.index(buffer * GROUPS + group).reshape([64, D])
        if not SHARED:
            mbarrier.wait(q_ready.index(buffer), (turn // 2) & 1)
        _skip_blocks(0, skip, n, k_ready, k_free, v_ready, v_free, STAGES, AVERAGE)
        if not AVERAGE:
            seen = gl.load(LSE + bh.to(gl.int64) * T + rows, mask=inside, other=float("-inf"))
            base = gl.where(seen == float("-inf"), FAR, seen * LOG2E)
            by_lanes = _lane_sums(gl.zeros([64, BN], gl.float32, SCORES))
            e_by_lanes = by_lanes
            mc, by_lanes, e_by_lanes, maxima, argmax = _score_blocks(
                skip, right, n, base, mc, by_lanes, e_by_lanes, maxima, argmax, q, lo, hi, last_block, c, g, k_smem,
                k_ready, k_free, D, BN, STAGES, ENTROPY, TOP, CAPPED, True, SCORES)  # fmt: skip
            mc, by_lanes, e_by_lanes, maxima, argmax = _score_blocks(
                right, left, n, base, mc, by_lanes, e_by_lanes, maxima, argmax, q, lo, hi, last_block, c, g, k_smem,
                k_ready, k_free, D, BN, STAGES, ENTROPY, TOP, CAPPED, False, SCORES)  # fmt: skip
            mc, by_lanes, e_by_lanes, maxima, argmax = _score_blocks(
                left, stop, n, base, mc, by_lanes, e_by_lanes, maxima, argmax, q, lo, hi, last_block, c, g, k_smem,
                k_ready, k_free, D, BN, STAGES, ENTROPY, TOP, CAPPED, True, SCORES)  # fmt: skip
            total = gl.convert_layout(gl.sum(by_lanes, axis=1), ROWS)
            e = gl.convert_layout(gl.sum(e_by_lanes, axis=1), ROWS)
        elif stop > skip:
            stage = (n + skip) % STAGES
            mbarrier.wait(k_ready.index(stage), ((n + skip) // STAGES) & 1)
            s = warpgroup_mma(
                q, k_smem.index(stage).reshape([BN, D]).permute((1, 0)), gl.zeros([64, BN], gl.float32, SCORES),
                use_acc=False, is_async=True)  # fmt: skip
            s = warpgroup_mma_wait(0, deps=(s,))
            mbarrier.arrive(k_free.index(stage), count=1)
            weights, mc, total, e, maxima, argmax, alpha = _softmax(
                s, mc, total, e, maxima, argmax, lo, hi, (last_block - skip) * BN, c, g, BN, ENTROPY, TOP, DEFER,
                CAPPED, True, SCORES)  # fmt: skip
            p = pack_half(gl.convert_layout(weights, WEIGHTS), v_smem.dtype)
            acc, p, mc, total, e, maxima, argmax = _key_blocks(
                skip + 1, right, n, acc, p, mc, total, e, maxima, argmax, q, lo, hi, last_block, c, g, k_smem,
                v_smem, k_ready, k_free, v_ready, v_free, D, BN, STAGES, ENTROPY, TOP, DEFER, CAPPED, True, SCORES,
                OUTPUT, WEIGHTS)  # fmt: skip
            acc, p, mc, total, e, maxima, argmax = _key_blocks(
                right, left, n, acc, p, mc, total, e, maxima, argmax, q, lo, hi, last_block, c, g, k_smem,
                v_smem, k_ready, k_free, v_ready, v_free, D, BN, STAGES, ENTROPY, TOP, DEFER, CAPPED, False, SCORES,
                OUTPUT, WEIGHTS)  # fmt: skip
            acc, p, mc, total, e, maxima, argmax = _key_blocks(
                left, stop, n, acc, p, mc, total, e, maxima, argmax, q, lo, hi, last_block, c, g, k_smem,
                v_smem, k_ready, k_free, v_ready, v_free, D, BN, STAGES, ENTROPY, TOP, DEFER, CAPPED, True, SCORES,
                OUTPUT, WEIGHTS)  # fmt: skip
            stage = (n + stop - 1) % STAGES
            mbarrier.wait(v_ready.index(stage), ((n + stop - 1) // STAGES) & 1)
            weights = unpack_half(p, v_smem.dtype, WEIGHTS)
            acc = warpgroup_mma(weights, v_smem.index(stage).reshape([BN, D]), acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=(acc,))
            mbarrier.arrive(v_free.index(stage), count=1)
        mbarrier.arrive(q_free.index(buffer), count=1)
        _skip_blocks(stop, blocks, n, k_ready, k_free, v_ready, v_free, STAGES, AVERAGE)
        n += blocks

        empty = mc <= EMPTY_MAX
        peak = mc
        if not AVERAGE:
            empty = base >= FAR
            peak = base  # the weights that were summed are final, but for the rounding of the log-sum-exp
        at = bh.to(gl.int64) * T + rows
        whole = gl.where(empty, 1.0, total)  # what weights are divided by, counted from the maximum `peak`
        if not ENTROPY and not AVERAGE:
            whole = gl.where(empty, 1.0, 1.0)
        if SINKS:
            sink = gl.load(SINK + b * stride_zb + h * stride_zh).to(gl.float32) * LOG2E
            peak = gl.maximum(mc, sink)
            taken = gl.exp2(sink - peak)
            whole = gl.where(empty, 1.0, total * gl.exp2(mc - peak) + taken)
            gl.store(TAKEN + at, gl.where(empty, 0.0, taken / whole), mask=inside)
        logs = gl.log2(whole)
        if AVERAGE:
            gl.store(LSE + at, gl.where(empty, float("-inf"), (peak + logs) * LN2), mask=inside)
        part = gl.where(empty, 0.0, 1.0 / whole)
        if SINKS:
            part = part * gl.exp2(mc - peak)
        if ENTROPY:
            if SINKS:
                entropy = (total * (peak - mc + logs) - e) * part
            else:
                entropy = logs - e / whole
            gl.store(ENT + at, gl.where(empty, 0.0, entropy * LN2), mask=inside)
        if TOP > 1:
            lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, maxima.type.layout)))
            sub = gl.arange(0, SUBCLASSES, layout=gl.SliceLayout(0, gl.SliceLayout(2, maxima.type.layout)))
            line = row + gl.arange(0, 64, layout=gl.SliceLayout(1, gl.SliceLayout(2, maxima.type.layout)))
            place = (bh.to(gl.int64) * T + line)[:, None, None] * (SUBCLASSES * LANES)
            place = place + (sub * LANES)[None, :, None] + lane[None, None, :]
            gl.store(MAXIMA + place, maxima, mask=(line < T)[:, None, None])
        if TOP == 1:
            if DEFER:
                most, found = candidate_keys(maxima, argmax)
            else:
                most = gl.max(maxima, axis=1)
                found = gl.min(gl.where((maxima == most[:, None]) & (argmax >= 0), argmax, 2147483647), axis=1)
                found = gl.where(most > NEG_INF * 0.5, found, -1)
            line = row + gl.arange(0, 64, layout=most.type.layout)
            place = bh.to(gl.int64) * T + line
            weight = gl.minimum(gl.exp2(most * c - gl.convert_layout(peak + logs, most.type.layout)), 1.0)
            gl.store(MAXIMA + place, gl.where(found >= 0, weight, 0.0), mask=line < T)
            gl.store(ARGMAX + place, found.to(gl.int64), mask=line < T)
        if AVERAGE:
            share = gl.convert_layout(part, gl.SliceLayout(1, OUTPUT))
            line = row + gl.arange(0, 64, layout=gl.SliceLayout(1, OUTPUT))
            dims = gl.arange(0, D, layout=gl.SliceLayout(0, OUTPUT))
            base = OUT + b.to(gl.int64) * stride_ob + h.to(gl.int64) * stride_oh
            spot = line.to(gl.int64)[:, None] * stride_om + dims[None, :]
            gl.store(base + spot, (acc * share[:, None]).to(OUT.dtype.element_ty), mask=(line < T)[:, None])
        turn += 1
        if SHARED:
            mbarrier.wait(q_ready.index(turn % 2), (turn // 2) & 1)
            w = read_job(job_smem, turn)
        else:
            w += gl.num_programs(0)


SIZES = (
    "H GROUP T S shift_lo shift_hi BLOCKS CHUNK jobs stride_ob stride_oh stride_om stride_eb stride_eh "
    "stride_zb stride_zh".split()
)  # not specialised on, so that another length compiles nothing


@gluon.jit(do_not_specialize=SIZES)
def forward(
    Q, K, V, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, NEXT_JOB, LO, HI, BOUNDS,
    H, GROUP, T, S, c, g, shift_lo, shift_hi, BLOCKS, CHUNK, jobs,
    stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
    D: gl.constexpr, BN: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr,
    ENTROPY: gl.constexpr, TOP: gl.constexpr, DEFER: gl.constexpr, ENDS: gl.constexpr, SHARED: gl.constexpr,
    SINKS: gl.constexpr, CAPPED: gl.constexpr, AVERAGE: gl.constexpr,
):  # fmt: skip
    """All jobs, GROUPS x 64 queries of one head each. Q, K, V describe (B, H, length, D); c = scale x log2 e > 0;
    CAPPED: cap x log2 e, and g is scale / cap. SINKS: TAKEN is what the sink takes of each query.
    TOP 1: the largest weight of each row and its key, with DEFER the code of `candidate_keys` for it; more: the maxima
    of classes of keys. SHARED: a program takes the next job that no other has, counted by NEXT_JOB. AVERAGE: whether
    there is an output; without, values are not read, and LSE is known."""
    dtype: gl.constexpr = K.dtype
    q_smem = gl.allocate_shared_memory(dtype, [2 * GROUPS, 1, 1, 64, D], Q.layout)
    k_smem = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BN, D], K.layout)
    v_smem = k_smem
    if AVERAGE:
        v_smem = gl.allocate_shared_memory(dtype, [STAGES, 1, 1, BN, D], V.layout)
    job_smem = gl.allocate_shared_memory(gl.int32, [2, 1], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    q_ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for buffer in gl.static_range(2):
        mbarrier.init(q_ready.index(buffer), count=1)
        mbarrier.init(q_free.index(buffer), count=GROUPS)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(stage), count=1)
        mbarrier.init(v_ready.index(stage), count=1)
        mbarrier.init(k_free.index(stage), count=GROUPS)
        mbarrier.init(v_free.index(stage), count=GROUPS)
    if GROUPS == 2:
        gl.warp_specialize([
            (_attend, (
                0, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (_attend, (
                1, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (fetch, (
                Q, K, V, NEXT_JOB, BOUNDS, H, GROUP, T, S, shift_lo, shift_hi, BLOCKS, CHUNK, jobs,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free, BN, GROUPS,
                STAGES, ENDS, SHARED, AVERAGE)),
        ], [4, 1], [240, 24])  # fmt: skip
    elif GROUPS == 3:
        gl.warp_specialize([
            (_attend, (
                0, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (_attend, (
                1, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (_attend, (
                2, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (fetch, (
                Q, K, V, NEXT_JOB, BOUNDS, H, GROUP, T, S, shift_lo, shift_hi, BLOCKS, CHUNK, jobs,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free, BN, GROUPS,
                STAGES, ENDS, SHARED, AVERAGE)),
        ], [4, 4, 1], [160, 160, 32])  # fmt: skip
    else:  # without an average there is room for a fourth
        gl.warp_specialize([
            (_attend, (
                0, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (_attend, (
                1, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (_attend, (
                2, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (_attend, (
                3, OUT, LSE, ENT, MAXIMA, ARGMAX, SINK, TAKEN, LO, HI, BOUNDS, H, T, S, c, g, shift_lo, shift_hi,
                BLOCKS, CHUNK, jobs, stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_zb, stride_zh,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
                D, BN, GROUPS, STAGES, ENTROPY, TOP, DEFER, ENDS, SHARED, SINKS, CAPPED, AVERAGE)),
            (fetch, (
                Q, K, V, NEXT_JOB, BOUNDS, H, GROUP, T, S, shift_lo, shift_hi, BLOCKS, CHUNK, jobs,
                q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free, BN, GROUPS,
                STAGES, ENDS, SHARED, AVERAGE)),
        ], [4, 4, 4, 1], [120, 120, 120, 24])  # fmt: skip
