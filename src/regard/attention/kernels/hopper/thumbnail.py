"""Thumbnail cells on Hopper that are smaller than what a warp holds: sums over some lanes, each written once.

A lane holds two rows, eight apart, and two neighbouring keys of every eight. Where many sums are taken over the same
lanes, a step need not give every lane all of them: each keeps one half, gives the other half away and gets its own, so
that n sums take n - 1 exchanges instead of n for each of the lanes' bits.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

from regard.attention.kernels.hopper.ptx import LANES


def _exchange_ptx(bit: int) -> str:
    """$0: of two sums the first, $1, where $3 is 0, else the second, $2: over this lane and the one whose number
    differs in `bit`."""
    return f"""{{
        .reg .pred p; .reg .f32 t, u;
        setp.ne.u32 p, $3, 0;
        selp.f32 t, $1, $2, p; selp.f32 u, $2, $1, p;
        shfl.sync.bfly.b32 t, t, {bit}, 31, 0xffffffff;
        add.f32 $0, u, t;
    }}"""


PTX_1, PTX_2, PTX_4, PTX_8, PTX_16 = (gl.constexpr(_exchange_ptx(bit)) for bit in (1, 2, 4, 8, 16))


@gluon.jit
def _exchange(x, which, lanes, BIT: gl.constexpr, PTX: gl.constexpr):
    """Half as many sums (4, 8, LANES, n / 2), over the lanes that differ in BIT: of each two, one where the bit is 0
    and the other where it is 1. `which`: the number of each sum; `lanes`: of each lane."""
    HALF: gl.constexpr = x.shape[3] // 2
    low, high = gl.split(x.reshape([4, 8, LANES, HALF, 2]))
    first, second = gl.split(which.reshape([4, 8, LANES, HALF, 2]))
    lanes, same = gl.split(lanes.reshape([4, 8, LANES, HALF, 2]))
    bit = lanes & BIT
    x = gl.inline_asm_elementwise(PTX, "=f,f,f,r", [low, high, bit], gl.float32, True, 1)
    return x, gl.where(bit != 0, second, first), lanes


@gluon.jit
def store_small_cells(p, row, start, thumb_base, THUMB, T, S, C, factor, HIGH: gl.constexpr, WIDE: gl.constexpr):
    """The means of cells of HIGH queries (1 to 8) and WIDE keys (2 to 8), powers of two, that all lie within a tile p
    (64, 128) of weights; `factor` makes a mean of a sum."""
    pairs = gl.sum(p.reshape([4, 2, 8, 16, LANES, 2]), axis=5)  # (warp, half, row, eight keys, lane): in a lane
    x = pairs.permute((0, 2, 4, 1, 3)).reshape([4, 8, LANES, 32])
    ALL: gl.constexpr = x.type.layout
    zeros = gl.zeros_like(x).to(gl.int32)
    warp = gl.arange(0, 4, layout=gl.SliceLayout(1, gl.SliceLayout(2, gl.SliceLayout(3, ALL))))[:, None, None, None]
    line = gl.arange(0, 8, layout=gl.SliceLayout(0, gl.SliceLayout(2, gl.SliceLayout(3, ALL))))[None, :, None, None]
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(3, ALL))))[None, None, :, None]
    sums = gl.arange(0, 32, layout=gl.SliceLayout(0, gl.SliceLayout(1, gl.SliceLayout(2, ALL))))[None, None, None, :]
    lanes = zeros + 32 * warp + 4 * line + lane
    which = zeros + sums
    if WIDE >= 4:
        x, which, lanes = _exchange(x, which, lanes, 1, PTX_1)
    if WIDE >= 8:
        x, which, lanes = _exchange(x, which, lanes, 2, PTX_2)
    if HIGH >= 2:
        x, which, lanes = _exchange(x, which, lanes, 4, PTX_4)
    if HIGH >= 4:
        x, which, lanes = _exchange(x, which, lanes, 8, PTX_8)
    if HIGH >= 8:
        x, which, lanes = _exchange(x, which, lanes, 16, PTX_16)
    query = row + lanes // 32 * 16 + which // 16 * 8 + lanes // 4 % 8
    key = start + which % 16 * 8 + lanes % 4 * 2
    at = thumb_base + (query // HIGH).to(gl.int64) * C + key // WIDE
    gl.store(THUMB + at, x * factor, mask=(query < T) & (key < S))
