"""Argmax on Hopper: the forward pass narrows each row's largest weight down to four keys.

To search for the key whenever the maximum rises costs a branch in every block of keys. So the forward pass keeps two
cheap things: the largest score of each class of keys (`class_maxima`), and for each lane the half of a block in which
its largest score was last reached. Together they leave four keys. A small kernel scores those again to choose among
them: `argmax_indices` of kernels/triton/statistics.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from triton.experimental import gluon  # type: ignore[import-untyped]
from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

from regard.attention.kernels.hopper.ptx import KEY_BLOCK, LANES, NEG_INF

SUBCLASSES = gl.constexpr(4)  # with LANES: the classes of keys, each with a maximum of its own
HALF = gl.constexpr(KEY_BLOCK.value // 2)


@gluon.jit
def class_maxima(s):
    """The largest score of each row and class of keys (64, SUBCLASSES, LANES): each class has two of any 32
    neighbouring keys, and one lane holds them."""
    return gl.max(gl.max(s.reshape([64, s.shape[1] // SUBCLASSES // 8, SUBCLASSES, LANES, 2]), axis=4), axis=1)


@gluon.jit
def split_halves(s):
    """A block of scores in two halves."""
    return gl.split(s.reshape([64, 2, HALF]).permute((0, 2, 1)))


@gluon.jit
def update_maxima(here, maxima, halves, start):
    """The maxima of all classes; for each row and lane the first key of the half block that reached the lane's maximum;
    and the largest score in this half. Halves come from the last to the first: of equal maxima the later one counts,
    which has the earlier keys."""
    mine = gl.max(here, axis=1)
    return gl.maximum(maxima, here), gl.where(mine >= gl.max(maxima, axis=1), start, halves), mine


@gluon.jit
def candidate_keys(maxima, halves):
    """The largest score of each row, and twice the first key of its class and half; one more and the half's first key
    where several classes hold the same maximum; -1 where a row sees nothing."""
    ALL: gl.constexpr = maxima.type.layout
    lane = gl.arange(0, LANES, layout=gl.SliceLayout(0, gl.SliceLayout(1, ALL)))
    sub = gl.arange(0, SUBCLASSES, layout=gl.SliceLayout(0, gl.SliceLayout(2, ALL)))
    largest = gl.max(gl.max(maxima, axis=2), axis=1)
    holds = maxima == largest[:, None, None]
    half = gl.where(holds, gl.convert_layout(halves, gl.SliceLayout(1, ALL), assert_trivial=True)[:, None, :], 2**30)
    nearest = gl.min(gl.min(half, axis=2), axis=1)
    one = gl.where(half == nearest[:, None, None], (8 * sub)[None, :, None] + (2 * lane)[None, None, :], 2**30)
    several = gl.sum(gl.sum(holds.to(gl.int32), axis=2), axis=1) > 1
    found = gl.where(several, 2 * nearest + 1, 2 * (nearest + gl.min(gl.min(one, axis=2), axis=1)))
    return largest, gl.where(largest > NEG_INF * 0.5, found, -1)
