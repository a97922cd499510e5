"""What Hopper's kernels do lane by lane, in PTX: tiles know no branch of one lane, and no sums that halve over lanes.

    unless_hidden      what a row does not see is set aside
    note, hand_over    strips with a value that reaches its row's floor: noted by each lane for itself; now and then
                       what reaches it is put on lists, by all lanes at once
    claim, give_back   a place for a warp's notes, for as long as it runs
    first              where a row's new maximum lies, looked for only by lanes that hold it
    gather             eight sums over 32 lanes by nine exchanges instead of forty
    packed, as_halves  numbers of half the size, two in a register, also from one turn of a loop to the next
    once_known         nothing is waited for before this is there

A lane holds 2 neighbouring scores of every 8 of a row: of a block of 128 keys 32, in four strips of eight.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from struct import pack

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

NEVER = gl.constexpr(-1.0e34)  # a score that nobody sees: finite, so that 0 x NEVER is not NaN
NEVER_BITS = pack(">f", -1.0e34).hex()
LANES = gl.constexpr(4)  # that share a row of a tile
SCORES, STRIP = 32, 8
KEYS = gl.constexpr(128)  # of a block
NOTES = gl.constexpr(16)  # that there is room for, of each lane: a tile adds up to half of them
NOTE_BYTES = gl.constexpr(48)  # eight values, what they are called, their floor


def _offset(score: int) -> int:
    """Where a lane's score of a row lies, counted from the lane's first."""
    return score // 2 * 8 + score % 2


def _note() -> str:
    """$0: how many strips a lane has noted, after $1 and those of its values that reach their row's floor: $5 to $36 of
    one row the floor $2, $37 to $68 of the row eight further the floor $3. A strip goes to the warp's notes, the lane's
    first at $4, as it is, with its floor and what $69 calls it: the row, and its first key in its block.

    Most lanes have none, which takes two comparisons."""
    strips = []
    for half in range(2):
        for strip in range(SCORES // STRIP):
            v = [f"${5 + half * SCORES + strip * STRIP + i}" for i in range(STRIP)]
            code = half * 8 * KEYS.value + _offset(strip * STRIP)
            strips.append(
                f"setp.ge.f32 p, m{'ab'[half]}{strip}, ${2 + half}; mad.wide.u32 a, $0, {32 * NOTE_BYTES.value}, $4; "
                f"@p st.global.v4.f32 [a], {{{', '.join(v[:4])}}}; @p st.global.v4.f32 [a+16], {{{', '.join(v[4:])}}}; "
                f"add.u32 k, $69, {code}; mov.b32 f, ${2 + half}; @p st.global.v2.b32 [a+32], {{k, f}}; "
                f"@p add.u32 $0, $0, 1;"
            )
    return f"""{{
        .reg .pred p, z; .reg .f32 ma<4>, mb<4>, t<4>, u; .reg .u32 k, f; .reg .u64 a;
        {_maxima(5, "ma")} mov.f32 u, t0;
        {_maxima(5 + SCORES, "mb")}
        mov.u32 $0, $1;
        setp.ge.f32 p, u, $2; setp.ge.f32 z, t0, $3; or.pred p, p, z;
        @!p bra done;
        {" ".join(strips)}
        done:
    }}"""


def _hand_over() -> str:
    """$0: 0 if any lane of the program has at least $2 notes, and all were handed over, else $1, the lane's. Those of
    a note's eight values at $3, the warp's first note, that reach its floor get places in their row's list, counted at
    $4: the lists at $5 have room for $6, as pairs of a key, counted from $7, and its value.

    It takes long until a place is known, so all warps do it at the same time, since they wait for each other anyway,
    and a warp's notes are dealt out to its lanes, two to each at a time."""
    find, take, ask, give = [], [], [], []
    for i, v in enumerate(("va", "vb")):
        halving = " ".join(
            f"add.u32 b, l, {step - 1}; shfl.sync.idx.b32 b, s, b, 31, 0xffffffff; "
            f"setp.le.u32 q, b, t; @q add.u32 l, l, {step};"
            for step in (16, 8, 4, 2, 1)
        )  # the lane that has note t: the first before whose end it lies
        find.append(
            f"add.u32 t, n, {32 * i}; setp.lt.u32 p{i}, t, all; mov.u32 l, 0; {halving} "
            f"shfl.sync.idx.b32 b, e, l, 31, 0xffffffff; sub.u32 t, t, b; mad.lo.u32 t, t, 32, l; "
            f"mad.wide.u32 a{i}, t, {NOTE_BYTES.value}, $3;"
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
            f"and.b32 w{i}, w{i}, {KEYS.value - 1}; add.u32 w{i}, w{i}, $7; mul.lo.u32 r{i}, r{i}, $6; "
            + " ".join(
                f"setp.ge.and.f32 q, {v}{j}, g{i}, p{i}; setp.lt.and.u32 z, c{i}, $6, q; add.u32 t, r{i}, c{i}; "
                f"mad.wide.u32 a, t, 8, $5; add.u32 t, w{i}, {_offset(j)}; mov.b32 b, {v}{j}; "
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


def _claim() -> str:
    """$0: a place that no other warp has, of $2; a 1 at $1 says that one is taken. The search begins where a warp of
    this multiprocessor, of 16, is likely to have left one."""
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


# $0: 0. The place $2 is free again, after all that is known to the warp.
GIVE_BACK = gl.constexpr(
    """{
        .reg .pred z; .reg .u32 lane; .reg .u64 a;
        bar.warp.sync 0xffffffff;
        mov.u32 lane, %laneid; setp.eq.u32 z, lane, 0;
        mad.wide.u32 a, $2, 4, $1; mov.u32 $0, 0;
        @z st.global.release.gpu.b32 [a], $0;
    }"""
)


def _first() -> str:
    """$0: the lane's largest score of a row. $1, $2: the largest so far and its key, from those before ($3, $4), the
    factor of scores ($5), the row's scaled maximum before ($6), the lane's first key ($7) and its scores ($8 on).
    Blocks come from the last to the first, so of equal ones the later block's wins, and in it the first."""
    strips = []
    for strip in reversed(range(SCORES // STRIP)):
        mine = reversed(range(strip * STRIP, (strip + 1) * STRIP))
        each = " ".join(f"setp.eq.f32 p, ${8 + i}, $0; @p add.u32 $2, $7, {_offset(i)};" for i in mine)
        strips.append(f"setp.eq.f32 p, m{strip}, $0; @!p bra next{strip}; {each} next{strip}:")
    return f"""{{
        .reg .pred p; .reg .f32 m<4>, t<4>;
        {_maxima(8, "m")}
        mov.f32 $0, t0; mov.f32 $1, $3; mov.u32 $2, $4;
        mul.f32 t1, t0, $5;
        setp.ge.f32 p, t1, $6;
        setp.ge.and.f32 p, t0, $3, p;
        @!p bra done;
        mov.f32 $1, t0;
        {" ".join(strips)}
        done:
    }}"""


def _maxima(at: int, name: str) -> str:
    """The largest of each strip of the scores from `at` on, named so and with numbers; t0: of all."""
    lines = []
    for strip in range(SCORES // STRIP):
        v = [f"${at + strip * STRIP + i}" for i in range(STRIP)]
        lines += [f"max.f32 t{i}, {v[2 * i]}, {v[2 * i + 1]};" for i in range(4)]
        lines += [f"max.f32 t0, t0, t1; max.f32 t2, t2, t3; max.f32 {name}{strip}, t0, t2;"]
    return " ".join([*lines, f"max.f32 t0, {name}0, {name}1; max.f32 t1, {name}2, {name}3; max.f32 t0, t0, t1;"])


def _hide() -> str:
    """$0 to $31: the scores from $34 on whose keys are fewer than $33 after the first that is seen; the lane's first
    key is $32 after it."""
    each = [
        f"add.u32 t, $32, {_offset(i)}; setp.lt.u32 p, t, $33; selp.f32 ${i}, ${34 + i}, 0f{NEVER_BITS}, p;"
        for i in range(SCORES)
    ]
    return f"{{ .reg .pred p; .reg .u32 t; {' '.join(each)} }}"


def _gather() -> str:
    """$0: the sum over all 32 lanes of $1..$8, of the one that the lane's bits 2 to 4 name."""
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


# a branch that is never taken, and too long to be computed in vain
KNOWN = gl.constexpr(
    "{ .reg .pred p; mov.f32 $0, $1; setp.lt.f32 p, $1, 0f00000000; @!p bra go_on; "
    + "mul.f32 $0, $0, $0; add.f32 $0, $0, $1; " * 12
    + "go_on: }"
)
HIDE, NOTE, HAND_OVER, CLAIM, FIRST, GATHER = (
    gl.constexpr(text) for text in (_hide(), _note(), _hand_over(), _claim(), _first(), _gather())
)
HIDE_KINDS = gl.constexpr("=&f," * SCORES + "r,r" + ",f" * SCORES)
NOTE_KINDS = gl.constexpr("=&r,r,f,f,l" + ",f" * 2 * SCORES + ",r")
HAND_OVER_KINDS = gl.constexpr("=&r,r,r,l,l,l,r,r")
FIRST_KINDS = gl.constexpr("=&f,=&f,=&r,f,r,f,f,r" + ",f" * SCORES)
GATHER_KINDS = gl.constexpr("=&f" + ",f" * 8)


@gluon.jit
def _eight(x):
    """The last three axes of (..., 2, 2, 2) taken apart."""
    a, b = gl.split(x)
    a, c = gl.split(a)
    b, d = gl.split(b)
    v0, v4 = gl.split(a)
    v1, v5 = gl.split(b)
    v2, v6 = gl.split(c)
    v3, v7 = gl.split(d)
    return v0, v1, v2, v3, v4, v5, v6, v7


@gluon.jit
def apart(s):
    """Scores (64, 128) as 32 tensors (64, LANES), each score in the lane that it was in: four strips of eight."""
    wide = s.reshape([64, 2, 2, 2, 2, LANES, 2]).permute((0, 5, 3, 4, 6, 2, 1))  # (row, lane, the strip's, strip)
    low, high = gl.split(wide)
    a, b = gl.split(low)
    c, d = gl.split(high)
    return _eight(a), _eight(b), _eight(c), _eight(d)


@gluon.jit
def _halves(s):
    """Scores (64, 128) of the upper and the lower eight rows of each warp: (warp, row, lane, the strip's, strip)."""
    return gl.split(s.reshape([4, 2, 8, 2, 2, 2, 2, LANES, 2]).permute((0, 2, 7, 5, 6, 8, 4, 3, 1)))


@gluon.jit
def none_noted(SCORES: gl.constexpr):
    """How many notes each lane begins with; SCORES is the layout of the scores."""
    one, two = _halves(gl.zeros([64, 128], gl.int32, SCORES))
    a, b = gl.split(one)
    c, d = gl.split(a)
    return _eight(c)[0]


@gluon.jit
def note(s, many, floor, notes, code):
    """Note strips of the values (64, 128) with one that reaches its row's floor (64): how many are noted now. One
    number of each lane: how many it has noted so far, where, and what its first value's row and key are called."""
    one, two = _halves(s)
    a, b = gl.split(one)
    c, d = gl.split(two)
    e, f = gl.split(a)
    g, h = gl.split(b)
    x, y, z, w = _eight(e), _eight(f), _eight(g), _eight(h)
    e, f = gl.split(c)
    g, h = gl.split(d)
    i, j, k, m = _eight(e), _eight(f), _eight(g), _eight(h)
    LANE: gl.constexpr = many.type.layout
    low, high = gl.split(floor.reshape([4, 2, 8]).permute((0, 2, 1)))
    low = gl.convert_layout(low, gl.SliceLayout(2, LANE))[:, :, None] + gl.zeros([4, 8, LANES], gl.float32, LANE)
    high = gl.convert_layout(high, gl.SliceLayout(2, LANE))[:, :, None] + gl.zeros([4, 8, LANES], gl.float32, LANE)
    return gl.inline_asm_elementwise(
        NOTE, NOTE_KINDS, [
            many, low, high, notes,
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7],
            z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
            i[0], i[1], i[2], i[3], i[4], i[5], i[6], i[7], j[0], j[1], j[2], j[3], j[4], j[5], j[6], j[7],
            k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7], m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], code,
        ], gl.int32, False, 1)  # fmt: skip


@gluon.jit
def hand_over(many, least, notes, counter, lists, room, start):
    """If a lane has at least so many notes, candidates among all notes go to their rows' lists, and all begin anew."""
    return gl.inline_asm_elementwise(
        HAND_OVER, HAND_OVER_KINDS, [many, least, notes, counter, lists, room, start], gl.int32, False, 1
    )


@gluon.jit
def claim(flags, places):
    """A place for each warp that no other has, of so many, and a 1 at the flag that says so."""
    return gl.inline_asm_elementwise(CLAIM, "=&r,l,r", [flags, places], gl.int32, False, 1)


@gluon.jit
def give_back(flags, place):
    gl.inline_asm_elementwise(GIVE_BACK, "=&r,l,r", [flags, place], gl.int32, False, 1)


@gluon.jit
def first(v, best, key, factor, limit, start):
    """The largest of the scores v, from `apart`, that a lane has of each row; the largest so far, and its key."""
    x, y, z, w = v
    return gl.inline_asm_elementwise(
        FIRST, FIRST_KINDS, [
            best, key, factor, limit, start,
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7],
            z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
        ], (gl.float32, gl.float32, gl.int32), True, 1)  # fmt: skip


@gluon.jit
def unless_hidden(s, start, lo, many):
    """Scores (64, 128) of keys from `start` on that their row sees, `many` from `lo` on, and NEVER else. Compared where
    they are used: the compiler would do it in advance, and run out of places to keep the answers."""
    v = apart(s)
    x, y, z, w = v
    TWO: gl.constexpr = x[0].type.layout
    lane = 2 * gl.arange(0, LANES, layout=gl.SliceLayout(0, TWO))
    low = gl.convert_layout(lo, gl.SliceLayout(1, TWO), assert_trivial=True)
    count = gl.convert_layout(many, gl.SliceLayout(1, TWO), assert_trivial=True)
    after = start + lane[None, :] - low[:, None]
    v = gl.inline_asm_elementwise(
        HIDE, HIDE_KINDS, [
            after, count[:, None] + gl.zeros_like(after),
            x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7],
            z[0], z[1], z[2], z[3], z[4], z[5], z[6], z[7], w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7],
        ], (
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
            gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32, gl.float32,
        ), True, 1)  # fmt: skip
    a = _one(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7])
    b = _one(v[8], v[9], v[10], v[11], v[12], v[13], v[14], v[15])
    c = _one(v[16], v[17], v[18], v[19], v[20], v[21], v[22], v[23])
    d = _one(v[24], v[25], v[26], v[27], v[28], v[29], v[30], v[31])
    wide = gl.join(gl.join(a, b), gl.join(c, d))  # (row, lane, the strip's, strip), see `apart`
    return gl.convert_layout(wide.permute((0, 6, 5, 2, 3, 1, 4)).reshape([64, 128]), s.type.layout, assert_trivial=True)


@gluon.jit
def _one(v0, v1, v2, v3, v4, v5, v6, v7):
    """What `_eight` takes apart."""
    a = gl.join(v0, v4)
    b = gl.join(v1, v5)
    c = gl.join(v2, v6)
    d = gl.join(v3, v7)
    return gl.join(gl.join(a, c), gl.join(b, d))


@gluon.jit
def once_known(x):
    """x, which is not negative. What follows is not begun before it is known: the assembler waits for products as early
    as it can, also where there is something else to do meanwhile, but it moves nothing past a branch."""
    return gl.inline_asm_elementwise(KNOWN, "=f,f", [x], gl.float32, False, 1)


@gluon.jit
def packed(x, HALF: gl.constexpr):
    """x (64, n) as n / 2 registers, each with two neighbours of dtype HALF."""
    low, high = gl.split(x.reshape([64, x.shape[1] // 2, 2]))
    if gl.bfloat16 == HALF:
        return gl.inline_asm_elementwise("cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], gl.int32, True, 1)
    else:  # noqa: RET505 (one of the two is compiled)
        return gl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], gl.int32, True, 1)


@gluon.jit
def as_halves(x, HALF: gl.constexpr, LAYOUT: gl.constexpr):
    """What `packed` made, as a tensor again."""
    both = gl.join(x, x).reshape([64, 2 * x.shape[1]])
    both = gl.convert_layout(both, LAYOUT, assert_trivial=True)
    if gl.bfloat16 == HALF:
        return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [both], gl.bfloat16, True, 2)
    else:  # noqa: RET505 (one of the two is compiled)
        return gl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r,r", [both], gl.float16, True, 2)


@gluon.jit
def gather(x):
    """Sums over all lanes of (4, 8, 8, 4), a warp's lanes being axes 1 and 3: (4, 8, 4), the same in the last axis."""
    v = _eight(x.reshape([4, 8, 2, 2, 2, LANES]).permute((0, 1, 5, 2, 3, 4)))
    return gl.inline_asm_elementwise(
        GATHER, GATHER_KINDS, [v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]], gl.float32, False, 1
    )
