"""The soft cap of scores (Gemma 2) inside the kernels: cap tanh(s / cap); used by forward, backward, decode and
statistics, while hopper/ptx.py has its own.

NVIDIA's GPUs have tanh as one instruction, off by at most 2^-11 of its value: a capped score is four times as exact as
eager attention in bfloat16 holds it. An exact tanh costs an exponential and a reciprocal for every score, and the
softmax waits for the same unit: forward passes took 1.4 to 3.4 times as long. Elsewhere, and in the interpreter, it is
as exact as float32.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from regard.attention.kernels.devices import INTERPRETED

SMALL = 0.25  # up to here the polynomial's error is below float32's rounding
SERIES = (-1 / 3, 2 / 15, -17 / 315, 62 / 2835)  # tanh y = y (1 - y^2 / 3 + 2 y^4 / 15 - ...)
TO_POWER = -2.8853900817779268  # -2 log2 e: exp2(y times this) is e^(-2 y)
TANH_PTX = tl.constexpr("tanh.approx.f32 $0, $1;")
BY_PTX = tl.constexpr(not INTERPRETED and torch.version.hip is None)
LIMIT, POWER = tl.constexpr(SMALL), tl.constexpr(TO_POWER)
A1, A2, A3, A4 = (tl.constexpr(x) for x in SERIES)


def factors(scale: float, cap: float) -> tuple[float, float]:
    """What multiplies scores after the cap, and what products are multiplied by before it; cap 0: there is none."""
    return (cap, scale / cap) if cap else (scale, 1.0)


@triton.jit
def soft_cap(s, g):
    """tanh(g s): the score that is multiplied by the cap."""
    y = s * g
    if BY_PTX:
        found = tl.inline_asm_elementwise(TANH_PTX, "=f,f", [y], tl.float32, True, 1)
    else:
        u = y * y
        small = y * (1.0 + u * (A1 + u * (A2 + u * (A3 + u * A4))))
        size = tl.abs(y)
        power = tl.exp2(size * POWER)
        large = (1.0 - power) / (1.0 + power)
        found = tl.where(size > LIMIT, tl.where(y < 0, -large, large), small)
    return found
