"""The persistent scheduler of Hopper's forward pass: jobs, the keys that they need, and the producer warp.

A job is one block of queries of one head, GROUPS x 64 of them. A program goes from one job to the next: every n-th of n
programs, or with SHARED the next that no program has taken. The producer warp asks for it and publishes it to the
groups.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma  # type: ignore[import-untyped]

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # its name until Triton 3.6


@gluon.jit
def job_of(w, BLOCKS, CHUNK):
    """Job w: which head of which batch row, and which block of its queries. Heads go together in chunks that fit the
    second-level cache, and within a chunk the last queries come first: under a causal mask they have most to do."""
    chunk = w // (BLOCKS * CHUNK)
    inside = w % (BLOCKS * CHUNK)
    return chunk * CHUNK + inside % CHUNK, BLOCKS - 1 - inside // CHUNK


@gluon.jit
def next_job(w, NEXT_JOB, jobs, SHARED: gl.constexpr):
    """The job after w: with SHARED one that no program has taken, else the next of this program's own."""
    if SHARED:
        w = jobs
        if jobs > gl.num_programs(0):
            w = gl.num_programs(0) + gl.atomic_add(NEXT_JOB, 1, sem="relaxed")
        return w
    else:  # noqa: RET505 (one of the two is compiled)
        return w + gl.num_programs(0)


@gluon.jit
def publish_job(job_smem, turn, w):
    """Publish to the groups which job has begun."""
    job_smem.index(turn % 2).store(gl.full([1], w, gl.int32, gl.BlockedLayout([1], [32], [1], [0])))
    barrier()


@gluon.jit
def read_job(job_smem, turn):
    """The job that was published for this turn."""
    return gl.max(job_smem.index(turn % 2).load(gl.BlockedLayout([1], [32], [4], [0])), axis=0)


@gluon.jit
def visible_keys(BOUNDS, bh, block, row, rows, T, S, shift_lo, shift_hi, BLOCKS, ENDS: gl.constexpr):
    """Of `rows` queries from `row` on: the first key that any of them sees, one past the last; the same of the keys
    that all of them see."""
    final = gl.minimum(row + rows, T) - 1
    first = gl.minimum(gl.maximum(row + shift_lo, 0), S)
    last = gl.maximum(gl.minimum(final + shift_hi, S), 0)
    all_from = gl.minimum(gl.maximum(final + shift_lo, 0), S)
    all_to = gl.maximum(gl.minimum(row + shift_hi, S), 0)
    if ENDS:
        at = BOUNDS + (bh * BLOCKS + block) * 4
        first = gl.maximum(first, gl.load(at))
        last = gl.minimum(last, gl.load(at + 1))
        all_from = gl.maximum(all_from, gl.load(at + 2))
        all_to = gl.minimum(all_to, gl.load(at + 3))
    last = gl.where(final < row, first, last)
    return first, gl.maximum(last, first), all_from, all_to


@gluon.jit
def fetch(
    Q, K, V, NEXT_JOB, BOUNDS, H, GROUP, T, S, shift_lo, shift_hi, BLOCKS, CHUNK, jobs,
    q_smem, k_smem, v_smem, job_smem, q_ready, q_free, k_ready, k_free, v_ready, v_free,
    BN: gl.constexpr, GROUPS: gl.constexpr, STAGES: gl.constexpr, ENDS: gl.constexpr, SHARED: gl.constexpr,
    AVERAGE: gl.constexpr,
):  # fmt: skip
    """The producer warp: it fetches queries, and their blocks of keys and values from the last to the first."""
    n = 0
    turn = 0
    w = gl.program_id(0)
    while w < jobs:
        bh, block = job_of(w, BLOCKS, CHUNK)
        b = bh // H
        h = bh % H
        hk = h // GROUP
        row = block * GROUPS * 64
        first, last, all_from, all_to = visible_keys(
            BOUNDS, bh, block, row, GROUPS * 64, T, S, shift_lo, shift_hi, BLOCKS, ENDS
        )
        last_block = (last + BN - 1) // BN - 1
        blocks = gl.where(last > first, last_block + 1 - first // BN, 0)
        asks = gl.minimum(STAGES - 1, blocks - 1)  # when to ask for the next job: when no buffer is free to fetch more
        buffer = turn % 2
        mbarrier.wait(q_free.index(buffer), ((turn // 2) & 1) ^ 1)
        if SHARED:
            publish_job(job_smem, turn, w)
        mbarrier.expect(q_ready.index(buffer), GROUPS * Q.block_type.nbytes)
        for group in gl.static_range(GROUPS):
            here = q_smem.index(buffer * GROUPS + group)
            tma.async_copy_global_to_shared(Q, [b, h, row + group * 64, 0], q_ready.index(buffer), here)
        for i in range(blocks):
            stage = (n + i) % STAGES
            phase = (((n + i) // STAGES) & 1) ^ 1
            start = (last_block - i) * BN
            mbarrier.wait(k_free.index(stage), phase)
            mbarrier.expect(k_ready.index(stage), K.block_type.nbytes)
            tma.async_copy_global_to_shared(K, [b, hk, start, 0], k_ready.index(stage), k_smem.index(stage))
            if AVERAGE:
                mbarrier.wait(v_free.index(stage), phase)
                mbarrier.expect(v_ready.index(stage), V.block_type.nbytes)
                tma.async_copy_global_to_shared(V, [b, hk, start, 0], v_ready.index(stage), v_smem.index(stage))
            if SHARED:  # noqa: SIM102 (what is not shared is not compiled)
                if i == asks:
                    w = next_job(w, NEXT_JOB, jobs, SHARED)
        if (not SHARED) | (blocks == 0):
            w = next_job(w, NEXT_JOB, jobs, SHARED)
        n += blocks
        turn += 1
    if SHARED:
        mbarrier.wait(q_free.index(turn % 2), ((turn // 2) & 1) ^ 1)
        publish_job(job_smem, turn, jobs)
        mbarrier.arrive(q_ready.index(turn % 2), count=1)
