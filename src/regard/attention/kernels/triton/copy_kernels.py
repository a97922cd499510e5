"""The share of one token in the weights of the dot family: one kernel forward, two back, no values and no map.

Every query names a token. The keys it sees fall into those that stand for it and the rest, and each of the two gets an
online softmax of its own: a largest score m and a sum l of e^(s - m). A pair belongs to one of them, so it still costs
one exponential. With d = m + ln l of the own keys less that of the rest,

    ln mass = ln sigmoid(d)              ds_j = g sigmoid(-d) (+ p_j of an own key, - p_j of another)

where g is the gradient of ln mass and p_j = e^(s_j - m) / l is the weight within its half. So the forward pass leaves
two numbers for each query and half: m, where exponents begin, and the factor sigmoid(-d) / l. For inputs of 16 bits one
number holds both, and leaves registers to the way back; where scores are huge it is rounded by more than float32 bears.

`to_queries` owns a block of queries and walks over the keys; `to_keys` owns a block of keys and walks over the queries
that see it. Nothing is added up by atomics, so the same inputs give the same bits.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED, on_device
from regard.attention.kernels.shapes import Tiling, tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton.forward import NEVER, NOTHING, ends

LN2 = tl.constexpr(0.6931471805599453)
# up to this width float32 is split into two numbers that tensor cores take, three products for one; wider ones would
# leave no registers for that
SPLIT = tl.constexpr(128)
LENGTHS = ["T", "S", "shift_lo", "shift_hi"]  # no kernel is compiled again for another one of these


@triton.jit
def _tile(X, start, end, stride, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr, CHECKED: tl.constexpr):
    """Rows `start` and on of one head, (ROWS, BD); 0 past the end. Not CHECKED: none of them is."""
    rows = start + tl.arange(0, ROWS)
    wide = tl.arange(0, BD)
    at = X + rows[:, None] * stride + wide[None, :]
    if CHECKED or D != BD:
        tile = tl.load(at, mask=(rows[:, None] < end) & (wide[None, :] < D), other=0.0)
    else:
        tile = tl.load(at)
    return tile


@triton.jit
def _around(rows, lo, hi, T, S, BN: tl.constexpr, DOCUMENTS: tl.constexpr):
    """Of a block of queries: the first key that any sees, from where to where every one sees all, one past the last."""
    inside = rows < T
    sees = hi > lo
    first = tl.min(tl.where(sees, lo, S), 0) // BN * BN
    last = tl.maximum(tl.max(tl.where(sees, hi, 0), 0), first)
    # what is past the last query may see what it likes
    all_from = tl.cdiv(tl.max(tl.where(inside, lo, 0), 0), BN) * BN
    all_to = tl.min(tl.where(inside, hi, S), 0) // BN * BN
    if (all_to <= all_from) | DOCUMENTS:
        all_from = last
        all_to = last
    return first, tl.maximum(all_from, first), all_to, last


@triton.jit
def _sums(
    own_peak, own_total, rest_peak, rest_total, q, K, IDS, target, ASKED, asking, lo, hi, first, last, S, c, stride_kn,
    D: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """Over the keys from `first` to `last`: largest score and sum of exponentials of the own ones and of the rest."""
    for start in range(first, last, BN):
        start = tl.multiple_of(start, BN)
        cols = start + tl.arange(0, BN)
        k = _tile(K, start, S, stride_kn, D, BD, BN, MASKED)
        s = tl.dot(q, tl.trans(k), input_precision="tf32x3" if BD <= SPLIT else "ieee")
        own = target[:, None] == tl.load(IDS + cols, mask=cols < S, other=0)[None, :]
        if MASKED:
            seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
            if DOCUMENTS:
                seen = seen & (asking[:, None] == tl.load(ASKED + cols, mask=cols < S, other=0)[None, :])
            s = tl.where(seen, s, NEVER)
        own_new = tl.maximum(own_peak, tl.max(tl.where(own, s, NEVER), 1))
        rest_new = tl.maximum(rest_peak, tl.max(tl.where(own, NEVER, s), 1))
        p = tl.exp2((s - tl.where(own, own_new[:, None], rest_new[:, None])) * c)  # 0 of hidden keys
        own_total = own_total * tl.exp2((own_peak - own_new) * c) + tl.sum(tl.where(own, p, 0.0), 1)
        rest_total = rest_total * tl.exp2((rest_peak - rest_new) * c) + tl.sum(tl.where(own, 0.0, p), 1)
        own_peak = own_new
        rest_peak = rest_new
    return own_peak, own_total, rest_peak, rest_total


@triton.jit(do_not_specialize=LENGTHS)
def weigh(
    Q, K, IDS, TARGETS, MASS, LEFT, H, GROUP, T, S, c, places,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ib, stride_tb,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ASKING, ASKED, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TOLD: tl.constexpr, DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """ln mass of one block of queries of one head. c: scale x log2 e, above 0; `places`: B H T."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # under a causal mask the last rows have most to do
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    inside = rows < T
    lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
    target = tl.load(TARGETS + b * stride_tb + rows, mask=inside, other=0)
    asking = rows
    if DOCUMENTS:
        asking = tl.load(ASKING + b * stride_ab + rows, mask=inside, other=0)
        ASKED += b * stride_sb
    IDS += b * stride_ib
    Q += b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + (block * BM).to(tl.int64) * stride_qm
    K += b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    q = _tile(Q, 0, T - block * BM, stride_qm, D, BD, BM, True)
    first, all_from, all_to, last = _around(rows, lo, hi, T, S, BN, DOCUMENTS)
    own_peak = tl.full((BM,), NOTHING, tl.float32)
    rest_peak = own_peak
    own_total = tl.zeros((BM,), tl.float32)
    rest_total = own_total
    own_peak, own_total, rest_peak, rest_total = _sums(
        own_peak, own_total, rest_peak, rest_total, q, K, IDS, target, ASKED, asking, lo, hi, first, all_from, S, c,
        stride_kn, D, BD, BN, True, DOCUMENTS)  # fmt: skip
    if not DOCUMENTS:
        own_peak, own_total, rest_peak, rest_total = _sums(
            own_peak, own_total, rest_peak, rest_total, q, K, IDS, target, ASKED, asking, lo, hi, all_from, all_to, S,
            c, stride_kn, D, BD, BN, False, False)  # fmt: skip
        own_peak, own_total, rest_peak, rest_total = _sums(
            own_peak, own_total, rest_peak, rest_total, q, K, IDS, target, ASKED, asking, lo, hi, all_to, last, S, c,
            stride_kn, D, BD, BN, True, False)  # fmt: skip

    absent = own_total == 0
    alone = rest_total == 0
    own_whole = tl.where(absent, 1.0, own_total)
    rest_whole = tl.where(alone, 1.0, rest_total)
    d = (own_peak - rest_peak) * c + tl.log2(own_whole) - tl.log2(rest_whole)
    d = tl.where(absent, 0.0, tl.where(alone, 200.0, d))  # 2^-200 is 0
    t = tl.exp2(-tl.abs(d))
    # ln (1 + t), as exact for a small t as for a large one
    more = tl.where(t < 1e-3, t * (1.0 - t * (0.5 - t / 3.0)), tl.log2(1.0 + t) * LN2)
    at = bh.to(tl.int64) * T + rows
    tl.store(MASS + at, tl.where(absent, float("-inf"), tl.minimum(d, 0.0) * LN2 - more), mask=inside)
    whole = tl.cast(places, tl.int64)
    if EXACT:
        others = tl.where(absent, 0.0, tl.where(d > 0, t, 1.0) / (1.0 + t))
        tl.store(LEFT + at, tl.where(absent, 0.0, own_peak), mask=inside)
        tl.store(LEFT + whole + at, tl.where(alone, 0.0, rest_peak), mask=inside)
        tl.store(LEFT + 2 * whole + at, others / own_whole, mask=inside)
        tl.store(LEFT + 3 * whole + at, tl.where(alone, 0.0, others / rest_whole), mask=inside)
    else:
        others = tl.minimum(-d, 0.0) - tl.log2(1.0 + t)  # as a power of two
        own_begin = tl.where(absent, float("inf"), own_peak * c + tl.log2(own_whole) - others)
        rest_begin = tl.where(absent | alone, float("inf"), rest_peak * c + tl.log2(rest_whole) - others)
        tl.store(LEFT + at, own_begin, mask=inside)
        tl.store(LEFT + whole + at, rest_begin, mask=inside)


@triton.jit
def _some(X, count, SIZE: tl.constexpr, CHECKED: tl.constexpr):
    """The first SIZE numbers at X, of which `count` are there. The pointer is one number and the places are known when
    it is compiled, so that a lane keeps one address, not one for each number that it holds."""
    inner = tl.arange(0, SIZE)
    if CHECKED:
        some = tl.load(X + inner, mask=inner < count, other=0)
    else:
        some = tl.load(X + inner)
    return some


@triton.jit
def _brought(GRAD, LEFT, count, places, SIZE: tl.constexpr, CHECKED: tl.constexpr, EXACT: tl.constexpr):
    """What queries bring to every tile: where exponents begin and by what they are multiplied, of the own keys and of
    the rest. A target that is nowhere brings nothing, whatever gradient comes in."""
    whole = tl.cast(places, tl.int64)
    grad = _some(GRAD, count, SIZE, CHECKED)
    own_begin = _some(LEFT, count, SIZE, CHECKED)
    rest_begin = _some(LEFT + whole, count, SIZE, CHECKED)
    if EXACT:
        own = _some(LEFT + 2 * whole, count, SIZE, CHECKED)
        rest = _some(LEFT + 3 * whole, count, SIZE, CHECKED)
        own_slope = tl.where(own > 0, grad * own, 0.0)
        rest_slope = tl.where(rest > 0, -grad * rest, 0.0)
    else:
        own_slope = tl.where(own_begin < float("inf"), grad, 0.0)
        rest_slope = -own_slope
    return own_begin, own_slope, rest_begin, rest_slope


@triton.jit
def _slopes(s, own, own_begin, own_slope, rest_begin, rest_slope, c, EXACT: tl.constexpr):
    """The slopes of a tile of scores; what belongs to queries has the shape of a row or of a column of it."""
    begin = tl.where(own, own_begin, rest_begin)
    if EXACT:
        p = tl.exp2((s - begin) * c)
    else:
        p = tl.exp2(s * c - begin)
    return p * tl.where(own, own_slope, rest_slope)


@triton.jit
def _gather_queries(
    dq, q, K, IDS, target, ASKED, asking, own_begin, own_slope, rest_begin, rest_slope, lo, hi, first, last, S, c,
    stride_kn,
    D: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr, DOCUMENTS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """dq / scale, (BM, BD), with the keys from `first` to `last` added."""
    for start in range(first, last, BN):
        start = tl.multiple_of(start, BN)
        cols = start + tl.arange(0, BN)
        k = _tile(K, start, S, stride_kn, D, BD, BN, MASKED)
        s = tl.dot(q, tl.trans(k), input_precision="tf32x3" if BD <= SPLIT else "ieee")
        own = target[:, None] == tl.load(IDS + cols, mask=cols < S, other=0)[None, :]
        ds = _slopes(s, own, own_begin[:, None], own_slope[:, None], rest_begin[:, None], rest_slope[:, None], c, EXACT)
        if MASKED:
            seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
            if DOCUMENTS:
                seen = seen & (asking[:, None] == tl.load(ASKED + cols, mask=cols < S, other=0)[None, :])
            ds = tl.where(seen, ds, 0.0)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="tf32x3" if BD <= SPLIT else "ieee")
    return dq


@triton.jit(do_not_specialize=LENGTHS)
def to_queries(
    Q, K, DQ, IDS, TARGETS, GRAD, LEFT, H, GROUP, T, S, c, scale, places,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ib, stride_tb,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ASKING, ASKED, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TOLD: tl.constexpr, DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dq of one block of queries."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    wide = tl.arange(0, BD)
    inside = rows < T
    lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
    target = tl.load(TARGETS + b * stride_tb + rows, mask=inside, other=0)
    asking = rows
    if DOCUMENTS:
        asking = tl.load(ASKING + b * stride_ab + rows, mask=inside, other=0)
        ASKED += b * stride_sb
    IDS += b * stride_ib
    Q += b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + (block * BM).to(tl.int64) * stride_qm
    K += b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    q = _tile(Q, 0, T - block * BM, stride_qm, D, BD, BM, True)
    at = bh.to(tl.int64) * T + block * BM
    own_begin, own_slope, rest_begin, rest_slope = _brought(
        GRAD + at, LEFT + at, T - block * BM, places, BM, True, EXACT)  # fmt: skip
    first, all_from, all_to, last = _around(rows, lo, hi, T, S, BN, DOCUMENTS)
    dq = tl.zeros((BM, BD), tl.float32)
    dq = _gather_queries(
        dq, q, K, IDS, target, ASKED, asking, own_begin, own_slope, rest_begin, rest_slope, lo, hi, first, all_from, S,
        c, stride_kn, D, BD, BN, True, DOCUMENTS, EXACT)  # fmt: skip
    if not DOCUMENTS:
        dq = _gather_queries(
            dq, q, K, IDS, target, ASKED, asking, own_begin, own_slope, rest_begin, rest_slope, lo, hi, all_from,
            all_to, S, c, stride_kn, D, BD, BN, False, False, EXACT)  # fmt: skip
        dq = _gather_queries(
            dq, q, K, IDS, target, ASKED, asking, own_begin, own_slope, rest_begin, rest_slope, lo, hi, all_to, last, S,
            c, stride_kn, D, BD, BN, True, False, EXACT)  # fmt: skip
    out = (bh.to(tl.int64) * T + rows[:, None]) * D + wide[None, :]
    tl.store(DQ + out, (dq * scale).to(DQ.dtype.element_ty), mask=inside[:, None] & (wide[None, :] < D))


@triton.jit
def _seeing(ASKERS, start, stop, T, shift_lo, shift_hi, BM: tl.constexpr, TOLD: tl.constexpr):
    """Of the keys from `start` to `stop`: the queries that see any of them, and within these a run of blocks of which
    every query sees all of the keys. Told in queries, multiples of BM."""
    # query i sees key j if j - shift_hi < i <= j - shift_lo
    some_from = tl.maximum(start - shift_hi + 1, 0) // BM
    some_to = tl.cdiv(tl.maximum(tl.minimum(stop - shift_lo, T), 0), BM)
    all_from = tl.cdiv(tl.maximum(stop - shift_hi, 0), BM)
    all_to = tl.maximum(tl.minimum(start - shift_lo + 1, T), 0) // BM
    if TOLD:  # in tiles of 64 queries
        some_from = tl.maximum(some_from, tl.load(ASKERS) * 64 // BM)
        some_to = tl.minimum(some_to, tl.cdiv(tl.load(ASKERS + 1) * 64, BM))
        all_from = tl.maximum(all_from, tl.cdiv(tl.load(ASKERS + 2) * 64, BM))
        all_to = tl.minimum(all_to, tl.load(ASKERS + 3) * 64 // BM)
    some_to = tl.maximum(some_to, some_from)
    all_from = tl.maximum(all_from, some_from)
    all_to = tl.minimum(all_to, some_to)
    if all_to <= all_from:
        all_from = some_to
        all_to = some_to
    return some_from * BM, some_to * BM, all_from * BM, all_to * BM


@triton.jit
def _gather_keys(
    dk, k, Q, ids, TARGETS, asked, ASKING, GRAD, LEFT, cols, first, last, b, h, base, T, S, c, places, stride_qm,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, MASKED: tl.constexpr, TOLD: tl.constexpr,
    DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dk / scale, (BN, BD), with the queries from `first` to `last` of one head added; tiles are (keys, queries)."""
    for start in range(first, last, BM):
        start = tl.multiple_of(start, BM)
        q = _tile(Q + start * tl.cast(stride_qm, tl.int64), 0, T - start, stride_qm, D, BD, BM, MASKED)
        own_begin, own_slope, rest_begin, rest_slope = _brought(
            GRAD + base + start, LEFT + base + start, T - start, places, BM, MASKED, EXACT)  # fmt: skip
        own = ids[:, None] == _some(TARGETS + start, T - start, BM, MASKED)[None, :]
        s = tl.dot(k, tl.trans(q), input_precision="tf32x3" if BD <= SPLIT else "ieee")
        ds = _slopes(s, own, own_begin[None, :], own_slope[None, :], rest_begin[None, :], rest_slope[None, :], c, EXACT)
        if MASKED:
            rows = start + tl.arange(0, BM)
            lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
            seen = (cols[:, None] >= lo[None, :]) & (cols[:, None] < hi[None, :])
            if DOCUMENTS:
                seen = seen & (asked[:, None] == _some(ASKING + start, T - start, BM, True)[None, :])
            ds = tl.where(seen, ds, 0.0)
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="tf32x3" if BD <= SPLIT else "ieee")
    return dk


@triton.jit(do_not_specialize=LENGTHS)
def to_keys(
    Q, K, DK, ASKERS, IDS, TARGETS, GRAD, LEFT, H, GROUP, T, S, c, scale, places,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ib, stride_tb,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ASKING, ASKED, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TOLD: tl.constexpr, DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dk of one block of keys, from all GROUP query heads that read them."""
    start = tl.program_id(0) * BN
    b = tl.program_id(1) // (H // GROUP)
    hk = tl.program_id(1) % (H // GROUP)
    cols = start + tl.arange(0, BN)
    wide = tl.arange(0, BD)
    stop = tl.minimum(start + BN, S)
    K += b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    k = _tile(K, start, S, stride_kn, D, BD, BN, True)
    ids = tl.load(IDS + b * stride_ib + cols, mask=cols < S, other=0)
    TARGETS += b * stride_tb
    asked = cols
    if DOCUMENTS:
        asked = tl.load(ASKED + b * stride_sb + cols, mask=cols < S, other=0)
        ASKING += b * stride_ab
    dk = tl.zeros((BN, BD), tl.float32)
    for member in range(GROUP):
        h = hk * GROUP + member
        bh = (b * H + h).to(tl.int64)
        askers = ASKERS
        if TOLD:
            askers += (bh * tl.num_programs(0) + tl.program_id(0)) * 4
        some_from, some_to, all_from, all_to = _seeing(askers, start, stop, T, shift_lo, shift_hi, BM, TOLD)
        if DOCUMENTS:
            all_from = some_to
            all_to = some_to
        q_at = Q + b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
        dk = _gather_keys(
            dk, k, q_at, ids, TARGETS, asked, ASKING, GRAD, LEFT, cols, some_from, all_from, b, h, bh * T, T, S, c,
            places, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
            D, BD, BM, True, TOLD, DOCUMENTS, EXACT)  # fmt: skip
        if not DOCUMENTS:
            dk = _gather_keys(
                dk, k, q_at, ids, TARGETS, asked, ASKING, GRAD, LEFT, cols, all_from, all_to, b, h, bh * T, T, S, c,
                places, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                D, BD, BM, False, TOLD, False, EXACT)  # fmt: skip
            dk = _gather_keys(
                dk, k, q_at, ids, TARGETS, asked, ASKING, GRAD, LEFT, cols, all_to, some_to, b, h, bh * T, T, S, c,
                places, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                D, BD, BM, True, TOLD, False, EXACT)  # fmt: skip
    at = (tl.program_id(1).to(tl.int64) * S + cols[:, None]) * D + wide[None, :]
    real = (cols[:, None] < S) & (wide[None, :] < D)
    tl.store(DK + at, (dk * scale).to(DK.dtype.element_ty), mask=real)


LOG2E = 1.4426950408889634


class Tilings(NamedTuple):
    """One for each kernel."""

    forward: Tiling
    to_queries: Tiling
    to_keys: Tiling


# by the width of a head, up to the next power of two; tuned at 128
TILINGS = {
    16: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    32: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    64: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    128: Tilings(Tiling(64, 64, 4, 3), Tiling(64, 64, 4, 3), Tiling(32, 64, 4, 3)),
    256: Tilings(Tiling(64, 64, 4, 2), Tiling(64, 32, 4, 2), Tiling(32, 64, 8, 2)),
}
# float32, by three products of tensor cores each up to a width of 128; tuned at 64 and 128
EXACT = {
    16: Tilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(32, 32, 4, 1)),
    32: Tilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(64, 16, 8, 1)),
    64: Tilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(32, 32, 4, 1)),
    128: Tilings(Tiling(128, 64, 8, 2), Tiling(128, 64, 8, 1), Tiling(64, 32, 8, 1)),
    256: Tilings(Tiling(32, 16, 8, 1), Tiling(32, 16, 8, 1), Tiling(64, 16, 8, 1)),
}
SMALL = Tilings(Tiling(32, 16, 4, 1), Tiling(16, 32, 4, 1), Tiling(64, 16, 4, 1))  # for the interpreter


def tilings_for(q: Tensor) -> Tilings:
    """By width and precision."""
    if INTERPRETED:
        return SMALL
    return (EXACT if q.dtype == torch.float32 else TILINGS)[tile_width(q.size(-1))]


def forward(
    q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, reach: Spans, scale: float, tilings: Tilings | None = None
) -> tuple[Tensor, Tensor]:
    """ln mass (B, H, T), and what is left for the way back. q (B, H, T, D), k (B, H / GROUP, S, D), ids (B or 1, S),
    targets (B or 1, T); scale: above 0."""
    (B, H, T, _), S = q.shape, k.size(2)
    tiling, k = (tilings or tilings_for(q)).forward, _reached(k)
    mass = torch.empty(B, H, T, dtype=torch.float32, device=q.device)
    left = torch.empty(left_shape(q), dtype=torch.float32, device=q.device)
    with on_device(q):
        weigh[(triton.cdiv(T, tiling.queries), B * H)](
            q, k, ids, targets, mass, left, H, H // k.size(1), T, S, scale * LOG2E, B * H * T,
            *q.stride()[:3], *k.stride()[:3], *_rows_apart(ids, targets), **_told(reach), **_options(tiling, q),
        )  # fmt: skip
    return mass, left


def left_shape(q: Tensor) -> tuple[int, ...]:
    """Of what the forward pass leaves: one number for each half, or two."""
    return (4 if q.dtype == torch.float32 else 2, *q.shape[:3])


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, left: Tensor, reach: Spans, scale: float,
    tilings: Tilings | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dq and dk, from the gradient (B, H, T) of ln mass and what the forward pass `left`."""
    (B, H, T, _), (HK, S) = q.shape, k.shape[1:3]
    chosen, k = tilings or tilings_for(q), _reached(k)
    dq, dk = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))
    askers = reach.askers(S, chosen.to_keys.keys, B, H)
    given = (ids, targets, grad.float().contiguous(), left, H, H // HK, T, S, scale * LOG2E, scale, B * H * T)
    strides = (*q.stride()[:3], *k.stride()[:3], *_rows_apart(ids, targets))
    with on_device(q):
        to_queries[(triton.cdiv(T, chosen.to_queries.queries), B * H)](
            q, k, dq, *given, *strides, **_told(reach), **_options(chosen.to_queries, q)
        )
        to_keys[(triton.cdiv(S, chosen.to_keys.keys), B * HK)](
            q, k, dk, askers, *given, *strides, **_told(reach), **_options(chosen.to_keys, q)
        )
    return dq, dk


def _told(reach: Spans) -> dict[str, Any]:
    return reach.ends() | reach.documents() | reach.kinds()


def _options(tiling: Tiling, q: Tensor) -> dict[str, int]:
    sizes = {"D": q.size(-1), "BD": tile_width(q.size(-1)), "BM": tiling.queries, "BN": tiling.keys}
    return sizes | {"EXACT": q.dtype == torch.float32} | {"num_warps": tiling.warps, "num_stages": tiling.stages}


def _rows_apart(ids: Tensor, targets: Tensor) -> tuple[int, int]:
    """How far apart the tokens of two batch rows lie, of keys and of queries; 0 where all share them."""
    by_key, by_query = (x.stride(0) if x.size(0) > 1 else 0 for x in (ids, targets))
    return by_key, by_query


def _reached(k: Tensor) -> Tensor:
    """The kernels count places within a head in 32 bits."""
    return k if k.size(2) * k.stride(2) < 2**31 else k.contiguous()
