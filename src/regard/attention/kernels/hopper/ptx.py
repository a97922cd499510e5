"""Inline PTX of Hopper's kernels: per-lane work with branches, which tile operations cannot express.

    mask_scores           masked scores become NEG_INF
    update_argmax         the key of a row's new maximum, searched only by lanes that hold it
    pack_half, unpack_half   16-bit numbers, two in a register, kept from one iteration of a loop to the next
    cap_scores            the soft cap of scores
    wait_until_known      a scheduling barrier: nothing after it starts before a value is known

A lane holds 2 neighbouring scores of every 8 of a row: of a block of 128 keys 32, in four strips of eight.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from struct import pack

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

NEG_INF = gl.constexpr(-1.0e34)  # the score of a masked key: finite, so that 0 x NEG_INF is not NaN
NEG_INF_BITS = pack(">f", -1.0e34).hex()
LANES = gl.constexpr(4)  # that hold a row of a tile together
SCORES, STRIP = 32, 8
KEY_BLOCK = gl.constexpr(128)  # keys in a block


def key_offset(score: int) -> int:
    """The key of a lane's score in a row, counted from the lane's first key."""
    return score // 2 * 8 + score % 2


def _argmax_ptx() -> str:
    """$0: the lane's largest score of a row. $1, $2: the largest so far and its key, from those before ($3, $4), the
    factor of scores ($5), the row's scaled maximum before ($6), the lane's first key ($7) and its scores ($8 on).
    Blocks come from the last to the first, so of equal ones the later block's wins, and in it the first."""
    strips = []
    for strip in reversed(range(SCORES // STRIP)):
        mine = reversed(range(strip * STRIP, (strip + 1) * STRIP))
        each = " ".join(f"setp.eq.f32 p, ${8 + i}, $0; @p add.u32 $2, $7, {key_offset(i)};" for i in mine)
        strips.append(f"setp.eq.f32 p, m{strip}, $0; @!p bra next{strip}; {each} next{strip}:")
    return f"""{{
        .reg .pred p; .reg .f32 m<4>, t<4>;
        {strip_maxima_ptx(8, "m")}
        mov.f32 $0, t0; mov.f32 $1, $3; mov.u32 $2, $4;
        mul.f32 t1, t0, $5;
        setp.ge.f32 p, t1, $6;
        setp.ge.and.f32 p, t0, $3, p;
        @!p bra done;
        mov.f32 $1, t0;
        {" ".join(strips)}
        done:
    }}"""


def strip_maxima_ptx(at: int, name: str) -> str:
    """The maximum of each strip of the scores from `at` on, as `name` with numbers; t0: the maximum of all."""
    lines = []
    for strip in range(SCORES // STRIP):
        v = [f"${at + strip * STRIP + i}" for i in range(STRIP)]
        lines += [f"max.f32 t{i}, {v[2 * i]}, {v[2 * i + 1]};" for i in range(4)]
        lines += [f"max.f32 t0, t0, t1; max.f32 t2, t2, t3; max.f32 {name}{strip}, t0, t2;"]
    return " ".join([*lines, f"max.f32 t0, {name}0, {name}1; max.f32 t1, {name}2, {name}3; max.f32 t0, t0, t1;"])


def _mask_ptx() -> str:
    """$0 to $31: the scores from $34 on whose keys are fewer than $33 after the first visible one, else NEG_INF; the
    lane's first key is $32 after it."""
    each = [
        f"add.u32 t, $32, {key_offset(i)}; setp.lt.u32 p, t, $33; selp.f32 ${i}, ${34 + i}, 0f{NEG_INF_BITS}, p;"
        for i in range(SCORES)
    ]
    return f"{{ .reg .pred p; .reg .u32 t; {' '.join(each)} }}"


# a branch that is never taken, too long for the compiler to predicate
KNOWN_PTX = gl.constexpr(
    "{ .reg .pred p; mov.f32 $0, $1; setp.lt.f32 p, $1, 0f00000000; @!p bra go_on; "
    + "mul.f32 $0, $0, $0; add.f32 $0, $0, $1; " * 12
    + "go_on: }"
)
MASK_PTX, ARGMAX_PTX = gl.constexpr(_mask_ptx()), gl.constexpr(_argmax_ptx())
TANH_PTX = gl.constexpr("tanh.approx.f32 $0, $1;")  # see `triton.soft_cap`
MASK_CONSTRAINTS = gl.constexpr("=&f," * SCORES + "r,r" + ",f" * SCORES)
ARGMAX_CONSTRAINTS = gl.constexpr("=&f,=&f,=&r,f,r,f,f,r" + ",f" * SCORES)


@gluon.jit
def split_eight(x):
    """The last three axes of (..., 2, 2, 2) as eight tensors."""
    a, b = gl.split(x)
    a, c = gl.split(a)
    b, d = gl.split(b)
    v0, v4 = gl.split(a)
    v1, v5 = gl.split(b)
    v2, v6 = gl.split(c)
    v3, v7 = gl.split(d)
    return v0, v1, v2, v3, v4, v5, v6, v7


@gluon.jit
def split_strips(s):
    """Scores (64, 128) as 32 tensors (64, LANES), each score in the lane that held it: four strips of eight."""
    wide = s.reshape([64, 2, 2, 2, 2, LANES, 2]).permute((0, 5, 3, 4, 6, 2, 1))  # (row, lane, the strip's, strip)
    low, high = gl.split(wide)
    a, b = gl.split(low)
    c, d = gl.split(high)
    return split_eight(a), split_eight(b), split_eight(c), split_eight(d)


@gluon.jit
def split_row_halves(s):
    """Scores (64, 128) of the upper and the lower eight rows of each warp: (warp, row, lane, the strip's, strip)."""
    return gl.split(s.reshape([4, 2, 8, 2, 2, 2, 2, LANES, 2]).permute((0, 2, 7, 5, 6, 8, 4, 3, 1)))


@gluon.jit
def update_argmax(v, best, key, factor, limit, start):
    """The largest of the scores v, from `split_strips`, in each row of a lane; the largest so far, and its key."""
    x, y, z, w = v
    return gl.inline_asm_elementwise(
        ARGMAX_PTX, ARGMAX_CONSTRAINTS, [
            best, key, factor, limit, start,
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7],
            z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
        ], (gl.float32, gl.float32, gl.int32), True, 1)  # fmt: skip


@gluon.jit
def mask_scores(s, start, lo, count_visible):
    """Scores (64, 128) of keys from `start` on that their row sees, `count_visible` from `lo` on, and NEG_INF else. The
    comparison is made where it is used: the compiler would hoist it and run out of predicate registers."""
    v = split_strips(s)
    x, y, z, w = v
    TWO: gl.constexpr = x[0].type.layout
    lane = 2 * gl.arange(0, LANES, layout=gl.SliceLayout(0, TWO))
    low = gl.convert_layout(lo, gl.SliceLayout(1, TWO), assert_trivial=True)
    count = gl.convert_layout(count_visible, gl.SliceLayout(1, TWO), assert_trivial=True)
    after = start + lane[None, :] - low[:, None]
    v = gl.inline_asm_elementwise(
        MASK_PTX, MASK_CONSTRAINTS, [
            after, count[:, None] + gl.zeros_like(after),
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7],
            z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
        ], (
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
        ), True, 1)  # fmt: skip
    a = _join_eight(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
    b = _join_eight(v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15])
    c = _join_eight(v[16], v[17], v[18], v[19], v[20], v[21], v[22], v[23])
    d = _join_eight(v[24], v[25], v[26], v[27], v[28], v[29], v[30], v[31])
    wide = gl.join(gl.join(a, b), gl.join(c, d))  # (row, lane, the strip's, strip), see `split_strips`
    return gl.convert_layout(wide.permute((0, 6, 5, 2, 3, 1, 4)).reshape([64, 128]), s.type.layout, assert_trivial=True)


@gluon.jit
def cap_scores(s, g):
    """tanh(g s): scores that are multiplied by their soft cap later."""
    return gl.inline_asm_elementwise(TANH_PTX, "=f,f", [s * g], gl.float32, True, 1)


@gluon.jit
def _join_eight(v0, v1, v2, v3, v4, v5, v6, v7):
    """The inverse of `split_eight`."""
    a = gl.join(v0, v4)
    b = gl.join(v1, v5)
    c = gl.join(v2, v6)
    d = gl.join(v3, v7)
    return gl.join(gl.join(a, c), gl.join(b, d))


@gluon.jit
def wait_until_known(x):
    """x, which is not negative. Nothing after it starts before x is known: the assembler waits for products as early
    as it can, even where there is other work to overlap, but it moves nothing past a branch."""
    return gl.inline_asm_elementwise(KNOWN_PTX, "=f,f", [x], gl.float32, False, 1)


@gluon.jit
def pack_half(x, HALF: gl.constexpr):
    """x (64, n) as n / 2 registers, each with two neighbours of dtype HALF."""
    low, high = gl.split(x.reshape([64, x.shape[1] // 2, 2]))
    if gl.bfloat16 == HALF:
        return gl.inline_asm_elementwise("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], gl.int32, True, 1)
    else:  # noqa: RET505 (one of the two is compiled)
        return gl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], gl.int32, True, 1)


@gluon.jit
def unpack_half(x, HALF: gl.constexpr, LAYOUT: gl.constexpr):
    """What `pack_half` packed, as a tensor again."""
    both = gl.join(x, x).reshape([64, 2 * x.shape[1]])
    both = gl.convert_layout(both, LAYOUT, assert_trivial=True)
    if gl.bfloat16 == HALF:
        return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [both], gl.bfloat16, True, 2)
    else:  # noqa: RET505 (one of the two is compiled)
        return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [both], gl.float16, True, 2)
