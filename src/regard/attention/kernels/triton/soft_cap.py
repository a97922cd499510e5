"""The soft cap of scores (Gemma 2) inside the kernels: cap tanh(s / cap), as exact as float32.

A small number has a polynomial, and a large one an exponential and a reciprocal, from which a small one would be
rounded too coarsely. On NVIDIA's GPUs a lane looks at eight scores at a time and needs the exponential only if one of
them is large: scores seldom come near their cap, and the exponential's unit is what the softmax waits for.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from struct import pack

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from regard.attention.kernels.devices import INTERPRETED

SMALL = 0.25  # up to here the polynomial's error is below float32's rounding
SERIES = (-1 / 3, 2 / 15, -17 / 315, 62 / 2835)  # tanh y = y (1 - y^2 / 3 + 2 y^4 / 15 - ...)
TO_POWER = -2.8853900817779268  # -2 log2 e: exp2(y times this) is e^(-2 y)
EIGHT = 8  # scores that a lane looks at together


def factors(scale: float, cap: float) -> tuple[float, float]:
    """What multiplies scores after the cap, and what products are multiplied by before it; cap 0: there is none."""
    return (cap, scale / cap) if cap else (scale, 1.0)


def _hex(x: float) -> str:
    return "0f" + pack(">f", x).hex()


def tanh_ptx() -> str:
    """$0 to $7: tanh of $8 to $15."""
    ins, outs = [f"${EIGHT + i}" for i in range(EIGHT)], [f"${i}" for i in range(EIGHT)]
    first, *rest = reversed(SERIES)
    series = f"mul.f32 u, %s, %s; mov.f32 w, {_hex(first)}; " + " ".join(
        f"fma.rn.f32 w, u, w, {_hex(x)};" for x in (*rest, 1.0)
    )
    most = " ".join(f"abs.f32 a, {x}; max.f32 m, m, a;" for x in ins)
    small = " ".join(f"{series % (x, x)} mul.f32 {out}, {x}, w;" for x, out in zip(ins, outs, strict=True))
    large = " ".join(
        f"abs.f32 a, {x}; mul.f32 w, a, {_hex(TO_POWER)}; ex2.approx.ftz.f32 w, w; "
        f"sub.f32 u, {_hex(1.0)}, w; add.f32 w, {_hex(1.0)}, w; rcp.approx.ftz.f32 w, w; mul.f32 u, u, w; "
        f"copysign.f32 u, {x}, u; setp.gt.f32 q, a, {_hex(SMALL)}; @q mov.f32 {out}, u;"
        for x, out in zip(ins, outs, strict=True)
    )
    return f"""{{
        .reg .pred p, q; .reg .f32 m, a, u, w;
        mov.f32 m, {_hex(0.0)}; {most}
        {small}
        setp.gt.f32 p, m, {_hex(SMALL)};
        @!p bra done;
        {large}
        done:
    }}"""


TANH_PTX, TANH_CONSTRAINTS = tl.constexpr(tanh_ptx()), tl.constexpr("=&f," * EIGHT + ",".join("f" * EIGHT))
BY_PTX = tl.constexpr(not INTERPRETED and torch.version.hip is None)
LIMIT, POWER = tl.constexpr(SMALL), tl.constexpr(TO_POWER)
A1, A2, A3, A4 = (tl.constexpr(x) for x in SERIES)


@triton.jit
def soft_cap(s, g):
    """tanh(g s): the score that is multiplied by the cap."""
    y = s * g
    if BY_PTX:
        found = tl.inline_asm_elementwise(TANH_PTX, TANH_CONSTRAINTS, [y], tl.float32, True, 8)
    else:
        u = y * y
        small = y * (1.0 + u * (A1 + u * (A2 + u * (A3 + u * A4))))
        size = tl.abs(y)
        power = tl.exp2(size * POWER)
        large = (1.0 - power) / (1.0 + power)
        found = tl.where(size > LIMIT, tl.where(y < 0, -large, large), small)
    return found
