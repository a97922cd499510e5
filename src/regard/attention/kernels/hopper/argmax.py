"""Where the largest weight of a row lies, as far as Hopper's forward pass finds it out.

To look for the place whenever a maximum is new costs a branch in every block of keys. So the pass keeps two things that
cost next to nothing: the largest score of each class of keys (see `of_classes`), and for each lane the half of a block
in which its largest score was last reached. Together they name four keys. Which of them it is, a small kernel tells
that scores them once more: `located` of kernels/triton/statistics.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

from regard.attention.kernels.hopper.ptx import KEYS, LANES, NEVER

SUBS = gl.constexpr(4)  # with LANES: classes of keys whose maxima are kept apart
HALF = gl.constexpr(KEYS.value // 2)


@gluon.jit
def of_classes(s):
    """The largest score of each row and class of keys (64, SUBS, LANES): each class has two of any 32 neighbouring
    keys, which one lane holds."""
    return gl.max(gl.max(s.reshape([64, s.shape[1] // SUBS // 8, SUBS, LANES, 2]), axis=4), axis=1)


@gluon.jit
def in_halves(s):
    """A block of scores, taken apart."""
    return gl.split(s.reshape([64, 2, HALF]).permute((0, 2, 1)))


@gluon.jit
def reached(here, maxima, halves, start):
    """The maxima of all classes; of each row and lane the half of a block that reached the largest of its own, told by
    its first key; and the largest in this half. Halves come from the last to the first: of equal maxima the later one
    counts, which has the earlier keys."""
    mine = gl.max(here, axis=1)
    return gl.maximum(maxima, here), gl.where(mine >= gl.max(maxima, axis=1), start, halves), mine


@gluon.jit
def lead(maxima, halves):
    """The largest score of each row, and twice the first key of its class and half; one more and the half's first key
    where several classes hold the same maximum; -1 where a row sees nothing."""
    ALL: gl.constexpr = maxima.type.layout
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, ALL)))
    sub = gl.arange(0, SUBS, layout=gl.SliceLayout(0, gl.SliceLayout(2, ALL)))
    most = gl.max(gl.max(maxima, axis=2), axis=1)
    holds = maxima == most[:, None, None]
    half = gl.where(holds, gl.convert_layout(halves, gl.SliceLayout(1, ALL), assert_trivial=True)[:, None, :], 2**30)
    nearest = gl.min(gl.min(half, axis=2), axis=1)
    one = gl.where(half == nearest[:, None, None], (8 * sub)[None, :, None] + (2 * lane)[None, None, :], 2**30)
    several = gl.sum(gl.sum(holds.to(gl.int32), axis=2), axis=1) > 1
    found = gl.where(several, 2 * nearest + 1, 2 * (nearest + gl.min(gl.min(one, axis=2), axis=1)))
    return most, gl.where(most > NEVER * 0.5, found, -1)
