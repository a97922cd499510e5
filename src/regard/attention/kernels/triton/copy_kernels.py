"""Copy log-probability kernels of the dot family: one kernel forward, two backward, without values or a map.

Every query names a token. The keys it sees are hits, which stand for that token, or the rest. Each half gets an online
softmax of its own: a maximum m and a sum l of e^(s - m). A pair belongs to one half, so it still costs one exponential.
With d = m + ln l of the hits less that of the rest,

    ln mass = ln sigmoid(d)              ds_j = g sigmoid(-d) (+ p_j of a hit, - p_j of another key)

where g is the gradient of ln mass and p_j = e^(s_j - m) / l is the weight within its half. So the forward pass saves
two numbers for each query and half: m, the shift of the exponents, and the factor sigmoid(-d) / l. For inputs of 16
bits one number holds both, which frees registers in the backward pass; for huge scores its rounding is too large for
float32.

A program of `compute_dq` owns a block of queries and passes over the keys; one of `compute_dk` owns a block of keys and
passes over the queries that see it. There are no atomic sums, so the same inputs give the same bits.
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
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton.forward import EMPTY_MAX, NEG_INF, key_range

LN2 = tl.constexpr(0.6931471805599453)
# up to this width, float32 products run as three TF32 products on tensor cores; wider vectors leave no registers for it
MAX_TF32X3_WIDTH = tl.constexpr(128)
LENGTHS = ["T", "S", "shift_lo", "shift_hi"]  # specialising on these would recompile


@triton.jit
def _tile(X, start, end, stride, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr, CHECKED: tl.constexpr):
    """Rows `start` and on of one head, (ROWS, BD); 0 past the end. Not CHECKED: none of them is."""
    rows = start + tl.arange(0, ROWS)
    dims = tl.arange(0, BD)
    at = X + rows[:, None] * stride + dims[None, :]
    if CHECKED or D != BD:
        tile = tl.load(at, mask=(rows[:, None] < end) & (dims[None, :] < D), other=0.0)
    else:
        tile = tl.load(at)
    return tile


@triton.jit
def _visible_keys(rows, lo, hi, T, S, BN: tl.constexpr, DOCUMENTS: tl.constexpr):
    """Of a block of queries: the first key that any of them sees, the run that all of them see, one past the last."""
    inside = rows < T
    visible = hi > lo
    first = tl.min(tl.where(visible, lo, S), 0) // BN * BN
    last = tl.maximum(tl.max(tl.where(visible, hi, 0), 0), first)
    # rows past the last query do not count
    all_from = tl.cdiv(tl.max(tl.where(inside, lo, 0), 0), BN) * BN
    all_to = tl.min(tl.where(inside, hi, S), 0) // BN * BN
    if (all_to <= all_from) | DOCUMENTS:
        all_from = last
        all_to = last
    return first, tl.maximum(all_from, first), all_to, last


@triton.jit
def _online_softmax_pair(
    hit_peak, hit_total, rest_peak, rest_total, q, K, IDS, target, KDOC, qdoc, lo, hi, first, last, S, c, stride_kn,
    D: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """Over the keys from `first` to `last`: maximum and sum of exponentials, of the hits and of the rest."""
    for start in range(first, last, BN):
        start = tl.multiple_of(start, BN)
        cols = start + tl.arange(0, BN)
        k = _tile(K, start, S, stride_kn, D, BD, BN, MASKED)
        s = tl.dot(q, tl.trans(k), input_precision="tf32x3" if BD <= MAX_TF32X3_WIDTH else "ieee")
        hit = target[:, None] == tl.load(IDS + cols, mask=cols < S, other=0)[None, :]
        if MASKED:
            seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
            if DOCUMENTS:
                seen = seen & (qdoc[:, None] == tl.load(KDOC + cols, mask=cols < S, other=0)[None, :])
            s = tl.where(seen, s, NEG_INF)
        hit_new = tl.maximum(hit_peak, tl.max(tl.where(hit, s, NEG_INF), 1))
        rest_new = tl.maximum(rest_peak, tl.max(tl.where(hit, NEG_INF, s), 1))
        p = tl.exp2((s - tl.where(hit, hit_new[:, None], rest_new[:, None])) * c)  # 0 of hidden keys
        hit_total = hit_total * tl.exp2((hit_peak - hit_new) * c) + tl.sum(tl.where(hit, p, 0.0), 1)
        rest_total = rest_total * tl.exp2((rest_peak - rest_new) * c) + tl.sum(tl.where(hit, 0.0, p), 1)
        hit_peak = hit_new
        rest_peak = rest_new
    return hit_peak, hit_total, rest_peak, rest_total


@triton.jit(do_not_specialize=LENGTHS)
def log_prob_forward(
    Q, K, IDS, TARGETS, MASS, SAVED, H, GROUP, T, S, c, places,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ib, stride_tb,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, QDOC, KDOC, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ENDS: tl.constexpr, DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """ln mass of one block of queries of one head. c: scale x log2 e, above 0; `places`: B H T."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # under a causal mask the last rows have most to do
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    inside = rows < T
    lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
    target = tl.load(TARGETS + b * stride_tb + rows, mask=inside, other=0)
    qdoc = rows
    if DOCUMENTS:
        qdoc = tl.load(QDOC + b * stride_ab + rows, mask=inside, other=0)
        KDOC += b * stride_sb
    IDS += b * stride_ib
    Q += b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + (block * BM).to(tl.int64) * stride_qm
    K += b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    q = _tile(Q, 0, T - block * BM, stride_qm, D, BD, BM, True)
    first, all_from, all_to, last = _visible_keys(rows, lo, hi, T, S, BN, DOCUMENTS)
    hit_peak = tl.full((BM,), EMPTY_MAX, tl.float32)
    rest_peak = hit_peak
    hit_total = tl.zeros((BM,), tl.float32)
    rest_total = hit_total
    hit_peak, hit_total, rest_peak, rest_total = _online_softmax_pair(
        hit_peak, hit_total, rest_peak, rest_total, q, K, IDS, target, KDOC, qdoc, lo, hi, first, all_from, S, c,
        stride_kn, D, BD, BN, True, DOCUMENTS)  # fmt: skip
    if not DOCUMENTS:
        hit_peak, hit_total, rest_peak, rest_total = _online_softmax_pair(
            hit_peak, hit_total, rest_peak, rest_total, q, K, IDS, target, KDOC, qdoc, lo, hi, all_from, all_to, S,
            c, stride_kn, D, BD, BN, False, False)  # fmt: skip
        hit_peak, hit_total, rest_peak, rest_total = _online_softmax_pair(
            hit_peak, hit_total, rest_peak, rest_total, q, K, IDS, target, KDOC, qdoc, lo, hi, all_to, last, S, c,
            stride_kn, D, BD, BN, True, False)  # fmt: skip

    no_hit = hit_total == 0
    all_hit = rest_total == 0
    hit_safe = tl.where(no_hit, 1.0, hit_total)
    rest_safe = tl.where(all_hit, 1.0, rest_total)
    d = (hit_peak - rest_peak) * c + tl.log2(hit_safe) - tl.log2(rest_safe)
    d = tl.where(no_hit, 0.0, tl.where(all_hit, 200.0, d))  # 2^-200 is 0
    t = tl.exp2(-tl.abs(d))
    # ln (1 + t), as exact for a small t as for a large one
    more = tl.where(t < 1e-3, t * (1.0 - t * (0.5 - t / 3.0)), tl.log2(1.0 + t) * LN2)
    at = bh.to(tl.int64) * T + rows
    tl.store(MASS + at, tl.where(no_hit, float("-inf"), tl.minimum(d, 0.0) * LN2 - more), mask=inside)
    half = tl.cast(places, tl.int64)
    if EXACT:
        others = tl.where(no_hit, 0.0, tl.where(d > 0, t, 1.0) / (1.0 + t))
        tl.store(SAVED + at, tl.where(no_hit, 0.0, hit_peak), mask=inside)
        tl.store(SAVED + half + at, tl.where(all_hit, 0.0, rest_peak), mask=inside)
        tl.store(SAVED + 2 * half + at, others / hit_safe, mask=inside)
        tl.store(SAVED + 3 * half + at, tl.where(all_hit, 0.0, others / rest_safe), mask=inside)
    else:
        others = tl.minimum(-d, 0.0) - tl.log2(1.0 + t)  # as a power of two
        hit_shift = tl.where(no_hit, float("inf"), hit_peak * c + tl.log2(hit_safe) - others)
        rest_shift = tl.where(no_hit | all_hit, float("inf"), rest_peak * c + tl.log2(rest_safe) - others)
        tl.store(SAVED + at, hit_shift, mask=inside)
        tl.store(SAVED + half + at, rest_shift, mask=inside)


@triton.jit
def _load_run(X, count, SIZE: tl.constexpr, CHECKED: tl.constexpr):
    """The first SIZE numbers at X, of which `count` exist. The pointer is a scalar and the offsets are constants, so a
    lane keeps one address instead of one for each number that it holds."""
    inner = tl.arange(0, SIZE)
    if CHECKED:
        some = tl.load(X + inner, mask=inner < count, other=0)
    else:
        some = tl.load(X + inner)
    return some


@triton.jit
def _query_terms(GRAD, SAVED, count, places, SIZE: tl.constexpr, CHECKED: tl.constexpr, EXACT: tl.constexpr):
    """What each query contributes to every tile: the shift of the exponents and their factor, of the hits and of the
    rest. A query without a hit contributes 0, whatever its gradient."""
    half = tl.cast(places, tl.int64)
    grad = _load_run(GRAD, count, SIZE, CHECKED)
    hit_shift = _load_run(SAVED, count, SIZE, CHECKED)
    rest_shift = _load_run(SAVED + half, count, SIZE, CHECKED)
    if EXACT:
        hit = _load_run(SAVED + 2 * half, count, SIZE, CHECKED)
        rest = _load_run(SAVED + 3 * half, count, SIZE, CHECKED)
        hit_grad = tl.where(hit > 0, grad * hit, 0.0)
        rest_grad = tl.where(rest > 0, -grad * rest, 0.0)
    else:
        hit_grad = tl.where(hit_shift < float("inf"), grad, 0.0)
        rest_grad = -hit_grad
    return hit_shift, hit_grad, rest_shift, rest_grad


@triton.jit
def _score_gradients(s, hit, hit_shift, hit_grad, rest_shift, rest_grad, c, EXACT: tl.constexpr):
    """The gradients of a tile of scores; the terms of the queries are broadcast along its rows or columns."""
    shift = tl.where(hit, hit_shift, rest_shift)
    if EXACT:
        p = tl.exp2((s - shift) * c)
    else:
        p = tl.exp2(s * c - shift)
    return p * tl.where(hit, hit_grad, rest_grad)


@triton.jit
def _accumulate_dq(
    dq, q, K, IDS, target, KDOC, qdoc, hit_shift, hit_grad, rest_shift, rest_grad, lo, hi, first, last, S, c,
    stride_kn,
    D: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr, DOCUMENTS: tl.constexpr,
    EXACT: tl.constexpr,
):  # fmt: skip
    """dq / scale, (BM, BD), with the keys from `first` to `last` added."""
    for start in range(first, last, BN):
        start = tl.multiple_of(start, BN)
        cols = start + tl.arange(0, BN)
        k = _tile(K, start, S, stride_kn, D, BD, BN, MASKED)
        s = tl.dot(q, tl.trans(k), input_precision="tf32x3" if BD <= MAX_TF32X3_WIDTH else "ieee")
        hit = target[:, None] == tl.load(IDS + cols, mask=cols < S, other=0)[None, :]
        ds = _score_gradients(
            s, hit, hit_shift[:, None], hit_grad[:, None], rest_shift[:, None], rest_grad[:, None], c, EXACT
        )
        if MASKED:
            seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
            if DOCUMENTS:
                seen = seen & (qdoc[:, None] == tl.load(KDOC + cols, mask=cols < S, other=0)[None, :])
            ds = tl.where(seen, ds, 0.0)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="tf32x3" if BD <= MAX_TF32X3_WIDTH else "ieee")
    return dq


@triton.jit(do_not_specialize=LENGTHS)
def compute_dq(
    Q, K, DQ, IDS, TARGETS, GRAD, SAVED, H, GROUP, T, S, c, scale, places,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ib, stride_tb,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, QDOC, KDOC, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ENDS: tl.constexpr, DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dq of one block of queries."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    inside = rows < T
    lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
    target = tl.load(TARGETS + b * stride_tb + rows, mask=inside, other=0)
    qdoc = rows
    if DOCUMENTS:
        qdoc = tl.load(QDOC + b * stride_ab + rows, mask=inside, other=0)
        KDOC += b * stride_sb
    IDS += b * stride_ib
    Q += b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + (block * BM).to(tl.int64) * stride_qm
    K += b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    q = _tile(Q, 0, T - block * BM, stride_qm, D, BD, BM, True)
    at = bh.to(tl.int64) * T + block * BM
    hit_shift, hit_grad, rest_shift, rest_grad = _query_terms(
        GRAD + at, SAVED + at, T - block * BM, places, BM, True, EXACT)  # fmt: skip
    first, all_from, all_to, last = _visible_keys(rows, lo, hi, T, S, BN, DOCUMENTS)
    dq = tl.zeros((BM, BD), tl.float32)
    dq = _accumulate_dq(
        dq, q, K, IDS, target, KDOC, qdoc, hit_shift, hit_grad, rest_shift, rest_grad, lo, hi, first, all_from, S,
        c, stride_kn, D, BD, BN, True, DOCUMENTS, EXACT)  # fmt: skip
    if not DOCUMENTS:
        dq = _accumulate_dq(
            dq, q, K, IDS, target, KDOC, qdoc, hit_shift, hit_grad, rest_shift, rest_grad, lo, hi, all_from,
            all_to, S, c, stride_kn, D, BD, BN, False, False, EXACT)  # fmt: skip
        dq = _accumulate_dq(
            dq, q, K, IDS, target, KDOC, qdoc, hit_shift, hit_grad, rest_shift, rest_grad, lo, hi, all_to, last, S,
            c, stride_kn, D, BD, BN, True, False, EXACT)  # fmt: skip
    out = (bh.to(tl.int64) * T + rows[:, None]) * D + dims[None, :]
    tl.store(DQ + out, (dq * scale).to(DQ.dtype.element_ty), mask=inside[:, None] & (dims[None, :] < D))


@triton.jit
def _visible_queries(QUERY_TILES, start, stop, T, shift_lo, shift_hi, BM: tl.constexpr, ENDS: tl.constexpr):
    """Of the keys from `start` to `stop`: the queries that see any of them, and within these a run of blocks in which
    every query sees all of them. In queries, multiples of BM."""
    # query i sees key j if j - shift_hi < i <= j - shift_lo
    some_from = tl.maximum(start - shift_hi + 1, 0) // BM
    some_to = tl.cdiv(tl.maximum(tl.minimum(stop - shift_lo, T), 0), BM)
    all_from = tl.cdiv(tl.maximum(stop - shift_hi, 0), BM)
    all_to = tl.maximum(tl.minimum(start - shift_lo + 1, T), 0) // BM
    if ENDS:  # in tiles of 64 queries
        some_from = tl.maximum(some_from, tl.load(QUERY_TILES) * 64 // BM)
        some_to = tl.minimum(some_to, tl.cdiv(tl.load(QUERY_TILES + 1) * 64, BM))
        all_from = tl.maximum(all_from, tl.cdiv(tl.load(QUERY_TILES + 2) * 64, BM))
        all_to = tl.minimum(all_to, tl.load(QUERY_TILES + 3) * 64 // BM)
    some_to = tl.maximum(some_to, some_from)
    all_from = tl.maximum(all_from, some_from)
    all_to = tl.minimum(all_to, some_to)
    if all_to <= all_from:
        all_from = some_to
        all_to = some_to
    return some_from * BM, some_to * BM, all_from * BM, all_to * BM


@triton.jit
def _accumulate_dk(
    dk, k, Q, ids, TARGETS, kdoc, QDOC, GRAD, SAVED, cols, first, last, b, h, base, T, S, c, places, stride_qm,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, MASKED: tl.constexpr, ENDS: tl.constexpr,
    DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dk / scale, (BN, BD), with the queries from `first` to `last` of one head added; tiles are (keys, queries)."""
    for start in range(first, last, BM):
        start = tl.multiple_of(start, BM)
        q = _tile(Q + start * tl.cast(stride_qm, tl.int64), 0, T - start, stride_qm, D, BD, BM, MASKED)
        hit_shift, hit_grad, rest_shift, rest_grad = _query_terms(
            GRAD + base + start, SAVED + base + start, T - start, places, BM, MASKED, EXACT)  # fmt: skip
        hit = ids[:, None] == _load_run(TARGETS + start, T - start, BM, MASKED)[None, :]
        s = tl.dot(k, tl.trans(q), input_precision="tf32x3" if BD <= MAX_TF32X3_WIDTH else "ieee")
        ds = _score_gradients(
            s, hit, hit_shift[None, :], hit_grad[None, :], rest_shift[None, :], rest_grad[None, :], c, EXACT
        )
        if MASKED:
            rows = start + tl.arange(0, BM)
            lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
            seen = (cols[:, None] >= lo[None, :]) & (cols[:, None] < hi[None, :])
            if DOCUMENTS:
                seen = seen & (kdoc[:, None] == _load_run(QDOC + start, T - start, BM, True)[None, :])
            ds = tl.where(seen, ds, 0.0)
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="tf32x3" if BD <= MAX_TF32X3_WIDTH else "ieee")
    return dk


@triton.jit(do_not_specialize=LENGTHS)
def compute_dk(
    Q, K, DK, QUERY_TILES, IDS, TARGETS, GRAD, SAVED, H, GROUP, T, S, c, scale, places,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_ib, stride_tb,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, QDOC, KDOC, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ENDS: tl.constexpr, DOCUMENTS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """dk of one block of keys, from all GROUP query heads that read them."""
    start = tl.program_id(0) * BN
    b = tl.program_id(1) // (H // GROUP)
    hk = tl.program_id(1) % (H // GROUP)
    cols = start + tl.arange(0, BN)
    dims = tl.arange(0, BD)
    stop = tl.minimum(start + BN, S)
    K += b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    k = _tile(K, start, S, stride_kn, D, BD, BN, True)
    ids = tl.load(IDS + b * stride_ib + cols, mask=cols < S, other=0)
    TARGETS += b * stride_tb
    kdoc = cols
    if DOCUMENTS:
        kdoc = tl.load(KDOC + b * stride_sb + cols, mask=cols < S, other=0)
        QDOC += b * stride_ab
    dk = tl.zeros((BN, BD), tl.float32)
    for member in range(GROUP):
        h = hk * GROUP + member
        bh = (b * H + h).to(tl.int64)
        query_tiles = QUERY_TILES
        if ENDS:
            query_tiles += (bh * tl.num_programs(0) + tl.program_id(0)) * 4
        some_from, some_to, all_from, all_to = _visible_queries(
            query_tiles, start, stop, T, shift_lo, shift_hi, BM, ENDS)  # fmt: skip
        if DOCUMENTS:
            all_from = some_to
            all_to = some_to
        q_at = Q + b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
        dk = _accumulate_dk(
            dk, k, q_at, ids, TARGETS, kdoc, QDOC, GRAD, SAVED, cols, some_from, all_from, b, h, bh * T, T, S, c,
            places, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
            D, BD, BM, True, ENDS, DOCUMENTS, EXACT)  # fmt: skip
        if not DOCUMENTS:
            dk = _accumulate_dk(
                dk, k, q_at, ids, TARGETS, kdoc, QDOC, GRAD, SAVED, cols, all_from, all_to, b, h, bh * T, T, S, c,
                places, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                D, BD, BM, False, ENDS, False, EXACT)  # fmt: skip
            dk = _accumulate_dk(
                dk, k, q_at, ids, TARGETS, kdoc, QDOC, GRAD, SAVED, cols, all_to, some_to, b, h, bh * T, T, S, c,
                places, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                D, BD, BM, True, ENDS, False, EXACT)  # fmt: skip
    at = (tl.program_id(1).to(tl.int64) * S + cols[:, None]) * D + dims[None, :]
    real = (cols[:, None] < S) & (dims[None, :] < D)
    tl.store(DK + at, (dk * scale).to(DK.dtype.element_ty), mask=real)


LOG2E = 1.4426950408889634


class CopyTilings(NamedTuple):
    """The tilings of the three kernels."""

    forward: Tiling
    compute_dq: Tiling
    compute_dk: Tiling


# by the width of a head, up to the next power of two; tuned at 128
TILINGS = {
    16: CopyTilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    32: CopyTilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    64: CopyTilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    128: CopyTilings(Tiling(64, 64, 4, 3), Tiling(64, 64, 4, 3), Tiling(32, 64, 4, 3)),
    256: CopyTilings(Tiling(64, 64, 4, 2), Tiling(64, 32, 4, 2), Tiling(32, 64, 8, 2)),
}
# float32, by three products of tensor cores each up to a width of 128; tuned at 64 and 128
FLOAT32_TILINGS = {
    16: CopyTilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(32, 32, 4, 1)),
    32: CopyTilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(64, 16, 8, 1)),
    64: CopyTilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(32, 32, 4, 1)),
    128: CopyTilings(Tiling(128, 64, 8, 2), Tiling(128, 64, 8, 1), Tiling(64, 32, 8, 1)),
    256: CopyTilings(Tiling(32, 16, 8, 1), Tiling(32, 16, 8, 1), Tiling(64, 16, 8, 1)),
}
INTERPRETER_TILINGS = CopyTilings(
    Tiling(32, 16, 4, 1), Tiling(16, 32, 4, 1), Tiling(64, 16, 4, 1)
)  # for the interpreter


def copy_tilings(q: Tensor) -> CopyTilings:
    """By width and precision."""
    if INTERPRETED:
        return INTERPRETER_TILINGS
    return (FLOAT32_TILINGS if q.dtype == torch.float32 else TILINGS)[tile_width(q.size(-1))]


def forward(
    q: Tensor,
    k: Tensor,
    ids: Tensor,
    targets: Tensor,
    spans: KeySpans,
    scale: float,
    tilings: CopyTilings | None = None,
) -> tuple[Tensor, Tensor]:
    """ln mass (B, H, T), and what is saved for the backward pass. q (B, H, T, D), k (B, H / GROUP, S, D), ids
    (B or 1, S), targets (B or 1, T); scale: above 0."""
    (B, H, T, _), S = q.shape, k.size(2)
    tiling, k = (tilings or copy_tilings(q)).forward, _within_32_bits(k)
    mass = torch.empty(B, H, T, dtype=torch.float32, device=q.device)
    saved = torch.empty(saved_shape(q), dtype=torch.float32, device=q.device)
    with on_device(q):
        log_prob_forward[(triton.cdiv(T, tiling.queries), B * H)](
            q, k, ids, targets, mass, saved, H, H // k.size(1), T, S, scale * LOG2E, B * H * T,
            *q.stride()[:3], *k.stride()[:3], *_row_strides(ids, targets), **_mask_args(spans), **_options(tiling, q),
        )  # fmt: skip
    return mass, saved


def saved_shape(q: Tensor) -> tuple[int, ...]:
    """The shape of what the forward pass saves: one number for each half, or two."""
    return (4 if q.dtype == torch.float32 else 2, *q.shape[:3])


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, saved: Tensor, spans: KeySpans, scale: float,
    tilings: CopyTilings | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dq and dk, from the gradient (B, H, T) of ln mass and what the forward pass `saved`."""
    (B, H, T, _), (HK, S) = q.shape, k.shape[1:3]
    chosen, k = tilings or copy_tilings(q), _within_32_bits(k)
    dq, dk = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))
    query_tiles = spans.key_block_bounds(S, chosen.compute_dk.keys, B, H)
    shared_args = (ids, targets, grad.float().contiguous(), saved, H, H // HK, T, S, scale * LOG2E, scale, B * H * T)
    strides = (*q.stride()[:3], *k.stride()[:3], *_row_strides(ids, targets))
    with on_device(q):
        compute_dq[(triton.cdiv(T, chosen.compute_dq.queries), B * H)](
            q, k, dq, *shared_args, *strides, **_mask_args(spans), **_options(chosen.compute_dq, q)
        )
        compute_dk[(triton.cdiv(S, chosen.compute_dk.keys), B * HK)](
            q, k, dk, query_tiles, *shared_args, *strides, **_mask_args(spans), **_options(chosen.compute_dk, q)
        )
    return dq, dk


def _mask_args(spans: KeySpans) -> dict[str, Any]:
    return spans.end_args() | spans.document_args() | spans.flags()


def _options(tiling: Tiling, q: Tensor) -> dict[str, int]:
    sizes = {"D": q.size(-1), "BD": tile_width(q.size(-1)), "BM": tiling.queries, "BN": tiling.keys}
    return sizes | {"EXACT": q.dtype == torch.float32} | {"num_warps": tiling.warps, "num_stages": tiling.stages}


def _row_strides(ids: Tensor, targets: Tensor) -> tuple[int, int]:
    """The batch strides of the tokens of keys and of queries; 0 where all rows share them."""
    by_key, by_query = (x.stride(0) if x.size(0) > 1 else 0 for x in (ids, targets))
    return by_key, by_query


def _within_32_bits(k: Tensor) -> Tensor:
    """The kernels index within a head in 32 bits."""
    return k if k.size(2) * k.stride(2) < 2**31 else k.contiguous()
