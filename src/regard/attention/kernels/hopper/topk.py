"""Top-k candidates on Hopper, and sums over a warp, lane by lane, in PTX: the inner parts of the statistics pass.

    record_candidates   each lane buffers strips with a value that reaches its row's threshold
    flush_candidates    now and then all lanes write those values to the rows' lists at once
    acquire_slot, release_slot   a warp's buffer, for as long as the warp runs
    reduce_lanes        eight sums over 32 lanes by nine exchanges instead of forty

kernels/hopper/ptx says which values a lane holds.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

from regard.attention.kernels.hopper.ptx import (
    KEY_BLOCK,
    LANES,
    SCORES,
    STRIP,
    key_offset,
    split_eight,
    split_row_halves,
    strip_maxima_ptx,
)

BUFFER_STRIPS = gl.constexpr(16)  # that a lane can buffer: a tile adds up to half of them
STRIP_BYTES = gl.constexpr(48)  # eight values, their code (row and first key), their threshold


def _record_ptx() -> str:
    """$0: how many strips a lane has buffered, after $1 and those of its values that reach their row's threshold: $5 to
    $36 of one row the threshold $2, $37 to $68 of the row eight further the threshold $3. A strip goes to the warp's
    buffer, the lane's first at $4, with its threshold and its code from $69: the row, and its first key in its block.

    Most lanes have none, which takes two comparisons."""
    strips = []
    for half in range(2):
        for strip in range(SCORES // STRIP):
            v = [f"${5 + half * SCORES + strip * STRIP + i}" for i in range(STRIP)]
            code = half * 8 * KEY_BLOCK.value + key_offset(strip * STRIP)
            strips.append(
                f"setp.ge.f32 p, m{'ab'[half]}{strip}, ${2 + half}; mad.wide.u32 a, $0, {32 * STRIP_BYTES.value}, $4; "
                f"@p st.global.v4.f32 [a], {{{', '.join(v[:4])}}}; @p st.global.v4.f32 [a+16], {{{', '.join(v[4:])}}}; "
                f"add.u32 k, $69, {code}; mov.b32 f, ${2 + half}; @p st.global.v2.b32 [a+32], {{k, f}}; "
                f"@p add.u32 $0, $0, 1;"
            )
    return f"""{{
        .reg .pred p, z; .reg .f32 ma<4>, mb<4>, t<4>, u; .reg .u32 k, f; .reg .u64 a;
        {strip_maxima_ptx(5, "ma")} mov.f32 u, t0;
        {strip_maxima_ptx(5 + SCORES, "mb")}
        mov.u32 $0, $1;
        setp.ge.f32 p, u, $2; setp.ge.f32 z, t0, $3; or.pred p, p, z;
        @!p bra done;
        {" ".join(strips)}
        done:
    }}"""


def _flush_ptx() -> str:
    """$0: 0 if any lane of the program has at least $2 strips, and all were flushed, else $1, the lane's count. The
    values of the eight of a strip at $3, the warp's buffer, that reach its threshold get places in their row's list,
    counted at $4: the lists at $5 have a capacity of $6, as pairs of a key, counted from $7, and its value.

    It takes long until a place is known, so all warps do it at the same time, since they wait for each other anyway,
    and a warp's strips are dealt out to its lanes, two to each at a time."""
    find, take, ask, give = [], [], [], []
    for i, v in enumerate(("va", "vb")):
        halving = " ".join(
            f"add.u32 b, l, {step - 1}; shfl.sync.idx.b32 b, s, b, 31, 0xffffffff; "
            f"setp.le.u32 q, b, t; @q add.u32 l, l, {step};"
            for step in (16, 8, 4, 2, 1)
        )  # the lane that has strip t: the first before whose end it lies
        find.append(
            f"add.u32 t, n, {32 * i}; setp.lt.u32 p{i}, t, all; mov.u32 l, 0; {halving} "
            f"shfl.sync.idx.b32 b, e, l, 31, 0xffffffff; sub.u32 t, t, b; mad.lo.u32 t, t, 32, l; "
            f"mad.wide.u32 a{i}, t, {STRIP_BYTES.value}, $3;"
        )
        take.append(
            f"@p{i} ld.global.v2.b32 {{w{i}, f{i}}}, [a{i}+32]; "
            f"@p{i} ld.global.v4.f32 {{{', '.join(f'{v}{j}' for j in range(4))}}}, [a{i}]; "
            f"@p{i} ld.global.v4.f32 {{{', '.join(f'{v}{j}' for j in range(4, 8))}}}, [a{i}+16];"
        )
        ask.append(
            f"mov.u32 c{i}, 0; mov.b32 g{i}, f{i}; "
            + " ".join(f"setp.ge.and.f32 q, {v}{j}, g{i}, p{i}; @q add.u32 c{i}, c{i}, 1;" for j in range(STRIP))
            + f" shr.u32 r{i}, w{i}, 7; mad.wide.u32 a, r{i}, 4, $4; "
            f"@p{i} atom.global.relaxed.gpu.add.u32 c{i}, [a], c{i};"
        )
        give.append(
            f"and.b32 w{i}, w{i}, {KEY_BLOCK.value - 1}; add.u32 w{i}, w{i}, $7; mul.lo.u32 r{i}, r{i}, $6; "
            + " ".join(
                f"setp.ge.and.f32 q, {v}{j}, g{i}, p{i}; setp.lt.and.u32 z, c{i}, $6, q; add.u32 t, r{i}, c{i}; "
                f"mad.wide.u32 a, t, 8, $5; add.u32 t, w{i}, {key_offset(j)}; mov.b32 b, {v}{j}; "
                f"@z st.global.v2.b32 [a], {{t, b}}; @q add.u32 c{i}, c{i}, 1;"
                for j in range(STRIP)
            )
        )
    ends = " ".join(f"shfl.sync.up.b32 t|q, s, {step}, 0, 0xffffffff; @q add.u32 s, s, t;" for step in (1, 2, 4, 8, 16))
    return f"""{{
        .reg .pred p, q, z, p<2>; .reg .u32 n, t, b, l, s, e, all, w<2>, f<2>, r<2>, c<2>;
        .reg .f32 g<2>, va<8>, vb<8>; .reg .u64 a, a<2>;
        mov.u32 $0, $1;
        setp.ge.u32 p, $1, $2;
        bar.red.or.pred p, 0, p;
        @!p bra.uni done;
        mov.u32 s, $1; {ends} sub.u32 e, s, $1;
        shfl.sync.idx.b32 all, s, 31, 31, 0xffffffff;
        mov.u32 n, %laneid;
        more:
        {" ".join(find)}
        {" ".join(take)}
        {" ".join(ask)}
        {" ".join(give)}
        add.u32 n, n, 64;
        and.b32 t, n, -32; setp.lt.u32 p, t, all;
        @p bra.uni more;
        bar.warp.sync 0xffffffff;
        mov.u32 $0, 0;
        done:
    }}"""


def _acquire_ptx() -> str:
    """$0: a slot that no other warp has, of $2; a 1 at $1 marks a taken one. The search begins where a warp of this
    multiprocessor, of 16, is likely to have left one."""
    return """{
        .reg .pred p, z; .reg .u32 lane, old; .reg .u64 a;
        mov.u32 lane, %laneid; setp.eq.u32 z, lane, 0;
        mov.u32 $0, %smid; mov.u32 old, %warpid; mad.lo.u32 $0, $0, 16, old; rem.u32 $0, $0, $2;
        shfl.sync.idx.b32 $0, $0, 0, 31, 0xffffffff;
        again:
        mad.wide.u32 a, $0, 4, $1;
        @z atom.global.acquire.gpu.cas.b32 old, [a], 0, 1;
        shfl.sync.idx.b32 old, old, 0, 31, 0xffffffff;
        setp.eq.u32 p, old, 0;
        @p bra.uni found;
        add.u32 $0, $0, 1; setp.ge.u32 p, $0, $2; @p mov.u32 $0, 0;
        bra.uni again;
        found:
    }"""


# $0: 0. Release slot $2, after all memory operations of the warp.
RELEASE_PTX = gl.constexpr(
    """{
        .reg .pred z; .reg .u32 lane; .reg .u64 a;
        bar.warp.sync 0xffffffff;
        mov.u32 lane, %laneid; setp.eq.u32 z, lane, 0;
        mad.wide.u32 a, $2, 4, $1; mov.u32 $0, 0;
        @z st.global.release.gpu.b32 [a], $0;
    }"""
)


def _reduce_ptx() -> str:
    """$0: the sum over all 32 lanes of the one of $1..$8 that the lane's bits 2 to 4 select."""
    lines, names = [], [f"${1 + i}" for i in range(8)]
    for bit in (16, 8, 4):
        half, kept = len(names) // 2, []
        lines.append(f"and.b32 l, lane, {bit}; setp.ne.u32 p, l, 0;")
        for i in range(half):
            low, high, new = names[i], names[i + half], f"s{bit}_{i}"
            lines.append(f".reg .f32 {new}; selp.f32 t, {low}, {high}, p; selp.f32 {new}, {high}, {low}, p;")
            lines.append(f"shfl.sync.bfly.b32 t, t, {bit}, 31, 0xffffffff; add.f32 {new}, {new}, t;")
            kept.append(new)
        names = kept
    for bit in (2, 1):
        lines.append(f"shfl.sync.bfly.b32 t, {names[0]}, {bit}, 31, 0xffffffff; add.f32 {names[0]}, {names[0]}, t;")
    return f"""{{
        .reg .pred p; .reg .u32 lane, l; .reg .f32 t;
        mov.u32 lane, %laneid;
        {" ".join(lines)}
        mov.f32 $0, {names[0]};
    }}"""


RECORD_PTX, FLUSH_PTX, ACQUIRE_PTX, REDUCE_PTX = (
    gl.constexpr(text) for text in (_record_ptx(), _flush_ptx(), _acquire_ptx(), _reduce_ptx())
)
RECORD_CONSTRAINTS = gl.constexpr("=&r,r,f,f,l" + ",f" * 2 * SCORES + ",r")
FLUSH_CONSTRAINTS = gl.constexpr("=&r,r,r,l,l,l,r,r")
REDUCE_CONSTRAINTS = gl.constexpr("=&f" + ",f" * 8)


@gluon.jit
def zero_counts(SCORES: gl.constexpr):
    """The initial number of strips in each lane's buffer; SCORES is the layout of the scores."""
    one, two = split_row_halves(gl.zeros([64, 128], gl.int32, SCORES))
    a, b = gl.split(one)
    c, d = gl.split(a)
    return split_eight(c)[0]


@gluon.jit
def record_candidates(s, counts, threshold, buffers, code):
    """Buffer strips of the values (64, 128) with one that reaches its row's threshold (64): the new counts. One number
    for each lane: how many it has buffered so far, where, and the code of its first value's row and key."""
    one, two = split_row_halves(s)
    a, b = gl.split(one)
    c, d = gl.split(two)
    e, f = gl.split(a)
    g, h = gl.split(b)
    x, y, z, w = split_eight(e), split_eight(f), split_eight(g), split_eight(h)
    e, f = gl.split(c)
    g, h = gl.split(d)
    i, j, k, m = split_eight(e), split_eight(f), split_eight(g), split_eight(h)
    LANE: gl.constexpr = counts.type.layout
    low, high = gl.split(threshold.reshape([4, 2, 8]).permute((0, 2, 1)))
    low = gl.convert_layout(low, gl.SliceLayout(2, LANE))[:, :, None] + gl.zeros([4, 8, LANES], gl.float32, LANE)
    high = gl.convert_layout(high, gl.SliceLayout(2, LANE))[:, :, None] + gl.zeros([4, 8, LANES], gl.float32, LANE)
    return gl.inline_asm_elementwise(
        RECORD_PTX, RECORD_CONSTRAINTS, [
            counts, low, high, buffers,
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7],
            z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
            i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], j[0], j[1], j[2], j[3], j[4], j[5], j[6], j[7],
            k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7], m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], code,
        ], gl.int32, False, 1)  # fmt: skip


@gluon.jit
def flush_candidates(counts, min_count, buffers, counter, candidates, capacity, start):
    """If a lane has at least `min_count` strips, all candidates go to their rows' lists, and buffers are emptied."""
    return gl.inline_asm_elementwise(
        FLUSH_PTX,
        FLUSH_CONSTRAINTS,
        [counts, min_count, buffers, counter, candidates, capacity, start],
        gl.int32,
        False,
        1,
    )


@gluon.jit
def acquire_slot(slot_flags, slots):
    """A free one of `slots` slots for each warp, marked as taken by a 1 among the flags."""
    return gl.inline_asm_elementwise(ACQUIRE_PTX, "=&r,l,r", [slot_flags, slots], gl.int32, False, 1)


@gluon.jit
def release_slot(slot_flags, slot):
    gl.inline_asm_elementwise(RELEASE_PTX, "=&r,l,r", [slot_flags, slot], gl.int32, False, 1)


@gluon.jit
def reduce_lanes(x):
    """Sums over all lanes of (4, 8, 8, 4), a warp's lanes being axes 1 and 3: (4, 8, 4), the same in the last axis."""
    v = split_eight(x.reshape([4, 8, 2, 2, 2, LANES]).permute((0, 1, 5, 2, 3, 4)))
    return gl.inline_asm_elementwise(
        REDUCE_PTX, REDUCE_CONSTRAINTS, [v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]], gl.float32, False, 1
    )
