"""Jobs of Hopper's forward pass: which queries they are, what those see, who takes them, and the warp that fetches.

A job is one block of queries of one head, GROUPS x 64 of them. A program goes on from one to another: every so manyth,
or with SHARED the next that nobody has taken, which the warp that fetches asks for and tells the groups.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma  # type: ignore[import-untyped]

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # as Triton 3.6 called it


@gluon.jit
def job(w, BLOCKS, CHUNK):
    """Job w of all: which head of which batch row, and which block of its queries. Heads go together in chunks that the
    second-level cache holds, and within one the last queries come first: under a causal mask they have most to do."""
    chunk = w // (BLOCKS * CHUNK)
    inside = w % (BLOCKS * CHUNK)
    return chunk * CHUNK + inside % CHUNK, BLOCKS - 1 - inside // CHUNK


@gluon.jit
def following(w, TAKEN, jobs, SHARED: gl.constexpr):
    """The job after w: one that nobody has taken if SHARED, else the next of one's own."""
    if SHARED:
        w = jobs
        if jobs > gl.num_programs(0):
            w = gl.num_programs(0) + gl.atomic_add(TAKEN, 1, sem="relaxed")
        return w
    else:  # noqa: RET505 (one of the two is compiled)
        return w + gl.num_programs(0)


@gluon.jit
def tell(which, turn, w):
    """The groups are to know which job has begun."""
    which.index(turn % 2).store(gl.full([1], w, gl.int32, gl.BlockedLayout([1], [32], [1], [0])))
    barrier()


@gluon.jit
def told(which, turn):
    return gl.max(which.index(turn % 2).load(gl.BlockedLayout([1], [32], [4], [0])), axis=0)


@gluon.jit
def reach(BOUNDS, bh, block, row, rows, T, S, shift_lo, shift_hi, BLOCKS, TOLD: gl.constexpr):
    """Of `rows` queries from `row` on: first key that any sees, one past the last; the same of what all of them see."""
    final = gl.minimum(row + rows, T) - 1
    first = gl.minimum(gl.maximum(row + shift_lo, 0), S)
    last = gl.maximum(gl.minimum(final + shift_hi, S), 0)
    all_from = gl.minimum(gl.maximum(final + shift_lo, 0), S)
    all_to = gl.maximum(gl.minimum(row + shift_hi, S), 0)
    if TOLD:
        at = BOUNDS + (bh * BLOCKS + block) * 4
        first = gl.maximum(first, gl.load(at))
        last = gl.minimum(last, gl.load(at + 1))
        all_from = gl.maximum(all_from, gl.load(at + 2))
        all_to = gl.minimum(all_to, gl.load(at + 3))
    last = gl.where(final < row, first, last)
    return first, gl.maximum(last, first), all_from, all_to


@gluon.jit
def fetch(
    Q, K, V, TAKEN, BOUNDS, H, GROUP, T, S, shift_lo, shift_hi, BLOCKS, CHUNK, jobs,
    q_room, k_room, v_room, which, q_ready, q_free, k_ready, k_free, v_ready, v_free,
    BN: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, TOLD: gl.constexpr, SHARED: gl.constexpr,
):  # fmt: skip
    """The warp that brings queries, and their blocks of keys and values from the last to the first."""
    n = 0
    turn = 0
    w = gl.program_id(0)
    while w < jobs:
        bh, block = job(w, BLOCKS, CHUNK)
        b = bh // H
        h = bh % H
        hk = h // GROUP
        row = block * GROUPS * 64
        first, last, all_from, all_to = reach(
            BOUNDS, bh, block, row, GROUPS * 64, T, S, shift_lo, shift_hi, BLOCKS, TOLD
        )
        last_block = (last + BN - 1) // BN - 1
        blocks = gl.where(last > first, last_block + 1 - first // BN, 0)
        asks = gl.minimum(STAGES - 1, blocks - 1)  # for the next job, when there is no room to fetch more anyway
        two = turn % 2
        mbarrier.wait(q_free.index(two), ((turn // 2) & 1) ^ 1)
        if SHARED:
            tell(which, turn, w)
        mbarrier.expect(q_ready.index(two), GROUPS * Q.block_type.nbytes)
        for group in gl.static_range(GROUPS):
            here = q_room.index(two * GROUPS + group)
            tma.async_copy_global_to_shared(Q, [b, h, row + group * 64, 0], q_ready.index(two), here)
        for i in range(blocks):
            stage = (n + i) % STAGES
            phase = (((n + i) // STAGES) & 1) ^ 1
            start = (last_block - i) * BN
            mbarrier.wait(k_free.index(stage), phase)
            mbarrier.expect(k_ready.index(stage), K.block_type.nbytes)
            tma.async_copy_global_to_shared(K, [b, hk, start, 0], k_ready.index(stage), k_room.index(stage))
            mbarrier.wait(v_free.index(stage), phase)
            mbarrier.expect(v_ready.index(stage), V.block_type.nbytes)
            tma.async_copy_global_to_shared(V, [b, hk, start, 0], v_ready.index(stage), v_room.index(stage))
            if SHARED:  # noqa: SIM102 (what is not shared is not compiled)
                if i == asks:
                    w = following(w, TAKEN, jobs, SHARED)
        if (not SHARED) | (blocks == 0):
            w = following(w, TAKEN, jobs, SHARED)
        n += blocks
        turn += 1
    if SHARED:
        mbarrier.wait(q_free.index(turn % 2), ((turn // 2) & 1) ^ 1)
        tell(which, turn, jobs)
        mbarrier.arrive(q_ready.index(turn % 2), count=1)
