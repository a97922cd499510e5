"""FlashAttention-like forward pass (online softmax) of the dot family on any GPU, with attention sink and soft cap:
output, log-sum-exp, entropy.

A program owns BM queries and passes over the keys they may see, BN at a time, with the online softmax of Milakov &
Gimelshein 2018. Entropy costs one multiply-add a weight: with x_j = score_j - max and l = sum_j e^x_j it is
ln l - (sum_j e^x_j x_j) / l, and the sum is carried along like l. A sink (a logit without a value) joins the sums at
the end. Under a packed mask (KeySpans.bits) a program goes through a list of those blocks of keys that have a bit.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from regard.attention.kernels.triton.soft_cap import soft_cap

NEG_INF = tl.constexpr(-1.0e34)  # the score of a masked key: finite, so that 0 x NEG_INF is not NaN
EMPTY_MAX = tl.constexpr(-1.0e28)  # the initial maximum: far above NEG_INF, so that masked keys weigh 0
LN2 = tl.constexpr(0.6931471805599453)
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS: tl.constexpr):
    """The first key of each of these queries, and one past the last; none for rows past the end."""
    inside = rows < T
    lo = tl.maximum(rows + shift_lo, 0)
    hi = tl.minimum(rows + shift_hi, S)
    if ENDS:
        at = b * stride_eb + h * stride_eh + rows
        lo = tl.maximum(lo, tl.load(LO + at, mask=inside, other=0))
        hi = tl.minimum(hi, tl.load(HI + at, mask=inside, other=0))
    return lo, tl.where(inside, hi, lo)


@triton.jit
def packed(line, words, start, cols, visible, PER_BIT: tl.constexpr):
    """The two words that hold the bits of a tile's keys, at most 64 from `start` on, for each query; and for each key
    whether its bit is in the first of them, and its place there. line: where the words of a query begin."""
    at = start // PER_BIT // 32
    near = tl.load(line + at, mask=visible, other=0)
    far = tl.load(line + at + 1, mask=visible & (at + 1 < words), other=0)
    bit = cols // PER_BIT
    return near, far, bit // 32 == at, bit % 32


@triton.jit
def _online_softmax(
    acc, total, mc, e, q, K, V, KDOC, qdoc, line, words, tiles, lo, hi, first, last, S, c, g, stride_kn, stride_vn,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, ENTROPY: tl.constexpr,
    MASKED: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, PACKED: tl.constexpr, PER_BIT: tl.constexpr,
):  # fmt: skip
    """The online softmax over the keys from `first` to `last`, with its average and its entropy. PACKED: over places
    of a list of blocks of keys."""
    dims = tl.arange(0, BD)
    STEP: tl.constexpr = 1 if PACKED else BN
    for at in range(first, last, STEP):
        if PACKED:
            start = tl.load(tiles + at) * BN
        else:
            start = at
        start = tl.multiple_of(start, BN)
        cols = start + tl.arange(0, BN)
        real = (cols[:, None] < S) & (dims[None, :] < D)
        k_at = K + cols[:, None] * stride_kn + dims[None, :]  # 32 bits reach as far as one head does
        v_at = V + cols[:, None] * stride_vn + dims[None, :]
        if MASKED or D != BD:
            k = tl.load(k_at, mask=real, other=0.0)
        else:
            k = tl.load(k_at)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if CAPPED:
            s = soft_cap(s, g)
        if MASKED:
            seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
            if DOCUMENTS:
                seen = seen & (qdoc[:, None] == tl.load(KDOC + cols, mask=cols < S, other=0)[None, :])
            if PACKED:
                near, far, first_word, place = packed(line, words, start, cols, hi > lo, PER_BIT)
                word = tl.where(first_word[None, :], near[:, None], far[:, None])
                seen = seen & (((word >> place[None, :]) & 1) != 0)
            s = tl.where(seen, s, NEG_INF)
        mc_new = tl.maximum(mc, tl.max(s, 1) * c)
        x = s * c - mc_new[:, None]
        p = tl.exp2(x)
        alpha = tl.exp2(mc - mc_new)
        if ENTROPY:
            e = (e + (mc - mc_new) * total) * alpha + tl.sum(p * x, 1)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        if MASKED or D != BD:
            v = tl.load(v_at, mask=real, other=0.0)
        else:
            v = tl.load(v_at)
        acc = tl.dot(p.to(v.dtype), v, acc, input_precision="ieee")
        mc = mc_new
    return acc, total, mc, e


@triton.jit
def forward(
    Q, K, V, OUT, LSE, ENT, SINK, TAKEN, LO, HI, QDOC, KDOC, TILES, COUNTS,
    H, GROUP, T, S, c, g, shift_lo, shift_hi,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om, stride_eb, stride_eh, stride_ab, stride_sb, stride_zb, stride_zh,
    BITS, words, lead_b, lead_h, PER_BIT: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ENTROPY: tl.constexpr, ENDS: tl.constexpr, DOCUMENTS: tl.constexpr,
    SINKS: tl.constexpr, CAPPED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head. c: scale x log2 e, above 0; CAPPED: cap x log2 e, and g is scale / cap. SINKS:
    TAKEN is what the sink takes of each query."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # under a causal mask the last rows have most to do
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    hk = h // GROUP
    rows = block * BM + tl.arange(0, BM)
    inside = rows < T
    dims = tl.arange(0, BD)
    lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
    qdoc = rows
    if DOCUMENTS:
        qdoc = tl.load(QDOC + b * stride_ab + rows, mask=inside, other=0)
    KDOC = KDOC + b * stride_sb
    Q = Q + b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    K = K + b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    V = V + b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    q_at = Q + rows[:, None].to(tl.int64) * stride_qm + dims[None, :]
    q = tl.load(q_at, mask=inside[:, None] & (dims[None, :] < D), other=0.0)

    visible = hi > lo
    first = tl.min(tl.where(visible, lo, S), 0) // BN * BN
    last = tl.max(tl.where(visible, hi, 0), 0)
    # from `full` to `rest` every query sees all keys; rows past the last query do not count
    full = (tl.max(tl.where(inside, lo, 0), 0) + BN - 1) // BN * BN
    rest = tl.min(tl.where(inside, hi, S), 0) // BN * BN
    full = tl.minimum(tl.maximum(full, first), tl.maximum(last, first))
    rest = tl.maximum(rest, full)

    acc = tl.zeros((BM, BD), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    e = tl.zeros((BM,), tl.float32)
    mc = tl.full((BM,), EMPTY_MAX, tl.float32)
    line = rows
    tiles = rows
    if PACKED:
        lead = (b * lead_b + h * lead_h).to(tl.int64)
        line = BITS + (lead * T + rows) * words
        tiles = TILES + (lead * tl.num_programs(0) + block) * tl.cdiv(S, BN)
        count = tl.load(COUNTS + lead * tl.num_programs(0) + block)
        acc, total, mc, e = _online_softmax(
            acc, total, mc, e, q, K, V, KDOC, qdoc, line, words, tiles, lo, hi, 0, count, S, c, g, stride_kn, stride_vn,
            D, BD, BM, BN, ENTROPY, True, DOCUMENTS, CAPPED, True, PER_BIT)  # fmt: skip
    elif DOCUMENTS:
        acc, total, mc, e = _online_softmax(
            acc, total, mc, e, q, K, V, KDOC, qdoc, line, words, tiles, lo, hi, first, last, S, c, g,
            stride_kn, stride_vn, D, BD, BM, BN, ENTROPY, True, True, CAPPED, False, PER_BIT)  # fmt: skip
    else:
        acc, total, mc, e = _online_softmax(
            acc, total, mc, e, q, K, V, KDOC, qdoc, line, words, tiles, lo, hi, first, full, S, c, g,
            stride_kn, stride_vn, D, BD, BM, BN, ENTROPY, True, False, CAPPED, False, PER_BIT)  # fmt: skip
        acc, total, mc, e = _online_softmax(
            acc, total, mc, e, q, K, V, KDOC, qdoc, line, words, tiles, lo, hi, full, rest, S, c, g,
            stride_kn, stride_vn, D, BD, BM, BN, ENTROPY, False, False, CAPPED, False, PER_BIT)  # fmt: skip
        acc, total, mc, e = _online_softmax(
            acc, total, mc, e, q, K, V, KDOC, qdoc, line, words, tiles, lo, hi, rest, last, S, c, g,
            stride_kn, stride_vn, D, BD, BM, BN, ENTROPY, True, False, CAPPED, False, PER_BIT)  # fmt: skip

    empty = mc <= EMPTY_MAX
    at = bh.to(tl.int64) * T + rows
    whole = tl.where(empty, 1.0, total)  # what weights are divided by, counted from the maximum `most`
    most = mc
    if SINKS:
        sink = tl.load(SINK + b * stride_zb + h * stride_zh).to(tl.float32) * LOG2E
        most = tl.maximum(mc, sink)
        taken = tl.exp2(sink - most)
        whole = tl.where(empty, 1.0, total * tl.exp2(mc - most) + taken)
        tl.store(TAKEN + at, tl.where(empty, 0.0, taken / whole), mask=inside)
    logs = tl.log2(whole)
    tl.store(LSE + at, tl.where(empty, float("-inf"), (most + logs) * LN2), mask=inside)
    share = tl.where(empty, 0.0, 1.0 / whole)
    if SINKS:
        share *= tl.exp2(tl.minimum(mc - most, 0.0))
    if ENTROPY:
        entropy = (total * (most - mc + logs) - e) * share if SINKS else logs - e / whole
        tl.store(ENT + at, tl.where(empty, 0.0, entropy * LN2), mask=inside)
    out = acc * share[:, None]
    OUT = OUT + b.to(tl.int64) * stride_ob + h.to(tl.int64) * stride_oh
    o_at = OUT + rows[:, None].to(tl.int64) * stride_om + dims[None, :]
    tl.store(o_at, out.to(OUT.dtype.element_ty), mask=inside[:, None] & (dims[None, :] < D))
