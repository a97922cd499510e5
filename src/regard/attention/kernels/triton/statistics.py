"""Statistics kernels of the dot family on any GPU, from queries, keys and log-sum-exp: received, thumbnail and top-k.

The map is recomputed, never held.

    column_sums       the weight each key received, and the thumbnail; one program for each block of keys
    topk_by_scan      the k largest weights of each query, by k scans of its keys
    topk_thresholds, topk_select   the same from what Hopper's forward pass and statistics pass write
    argmax_indices    the key of the largest weight alone, from what Hopper's forward pass writes
    thumbnail_means   the thumbnail from its sums

Sums that several programs share are whole numbers in units of 2^-40, so that their order does not matter.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from regard.attention.kernels.triton.forward import NEG_INF, key_range, packed
from regard.attention.kernels.triton.soft_cap import soft_cap

LOG2E = tl.constexpr(1.4426950408889634)
UNIT = tl.constexpr(2.0**40)
CLASSES = tl.constexpr(16)  # of keys, whose maxima the forward pass writes
WEIGHT_SHIFT = tl.constexpr(14)  # Hopper's statistics pass holds weights times 2^14
OVERFLOW = tl.constexpr(1000)  # more candidates than any list can hold
HALF = tl.constexpr(64)  # half a block of keys of Hopper's forward pass: the most that `argmax_indices` compares


@triton.jit
def _log2(LSE, at, inside):
    """lse in base 2; where a query sees nothing, so large that every weight is 0."""
    lse = tl.load(LSE + at, mask=inside, other=float("-inf"))
    return tl.where(lse == float("-inf"), 1.0e30, lse * LOG2E)


@triton.jit
def _scores(
    q, K, k_base, start, cols, line, words, lo, hi, qdoc, KDOC, S, g, stride_kn,
    D: tl.constexpr, BD: tl.constexpr, DOCUMENTS: tl.constexpr, CAPPED: tl.constexpr, PACKED: tl.constexpr,
    PER_BIT: tl.constexpr,
):  # fmt: skip
    """A tile of scores before the last factor, NEG_INF where a key is hidden. line: where the bits of a query begin."""
    dims = tl.arange(0, BD)
    at = K + k_base + cols[:, None].to(tl.int64) * stride_kn + dims[None, :]
    k = tl.load(at, mask=(cols[:, None] < S) & (dims[None, :] < D), other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    if CAPPED:
        s = soft_cap(s, g)
    seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
    if DOCUMENTS:
        seen = seen & (qdoc[:, None] == tl.load(KDOC + cols, mask=cols < S, other=0)[None, :])
    if PACKED:
        near, far, first_word, place = packed(line, words, start, cols, hi > lo, PER_BIT)
        word = tl.where(first_word[None, :], near[:, None], far[:, None])
        seen = seen & (((word >> place[None, :]) & 1) != 0)
    return tl.where(seen, s, NEG_INF)


@triton.jit
def column_sums(
    Q, K, LSE, COLUMN_SUM, THUMB, LO, HI, QDOC, KDOC,
    H, GROUP, T, S, R, C, c, g, shift_lo, shift_hi,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_eb, stride_eh, stride_ab, stride_sb,
    BITS, words, lead_b, lead_h, PER_BIT: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RECEIVED: tl.constexpr, CELLS: tl.constexpr, ENDS: tl.constexpr, DOCUMENTS: tl.constexpr,
    CAPPED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """The sums of BN keys of one head over all queries that can see one of them."""
    start = tl.program_id(0) * BN
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    cols = start + tl.arange(0, BN)
    dims = tl.arange(0, BD)
    q_base = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    k_base = b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    first = tl.maximum(start - shift_hi + 1, 0) // BM * BM
    last = tl.minimum(start + BN - shift_lo, T)
    column_sum = tl.zeros((BN,), tl.float32)
    column = cols.to(tl.int64) * C // S
    for row in range(first, last, BM):
        rows = row + tl.arange(0, BM)
        inside = rows < T
        lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
        qdoc = rows
        if DOCUMENTS:
            qdoc = tl.load(QDOC + b * stride_ab + rows, mask=inside, other=0)
        q_at = Q + q_base + rows[:, None].to(tl.int64) * stride_qm + dims[None, :]
        q = tl.load(q_at, mask=inside[:, None] & (dims[None, :] < D), other=0.0)
        line = rows
        if PACKED:
            line = BITS + ((b * lead_b + h * lead_h).to(tl.int64) * T + rows) * words
        s = _scores(
            q, K, k_base, start, cols, line, words, lo, hi, qdoc, KDOC + b * stride_sb, S, g, stride_kn,
            D, BD, DOCUMENTS, CAPPED, PACKED, PER_BIT)  # fmt: skip
        p = tl.exp2(s * c - _log2(LSE, bh.to(tl.int64) * T + rows, inside)[:, None])
        if RECEIVED:
            column_sum += tl.sum(p, 0)
        if CELLS:
            line = (rows.to(tl.int64) * R // T).to(tl.int32)
            low = tl.min(tl.where(inside, line, R), 0)
            cell_height = tl.max(tl.where(inside, line, 0), 0)
            for r in range(low, cell_height + 1):
                cell_sum = tl.sum(tl.where((line == r)[:, None], p, 0.0), 0)
                at = THUMB + bh.to(tl.int64) * R * C + r * C + column
                tl.atomic_add(at, (cell_sum * UNIT).to(tl.int64), mask=(cols < S) & (cell_sum > 0), sem="relaxed")
    if RECEIVED:
        tl.store(COLUMN_SUM + bh.to(tl.int64) * S + cols, column_sum, mask=cols < S)


@triton.jit
def topk_by_scan(
    Q, K, LSE, COUNT, VALUES, INDICES, LO, HI, QDOC, KDOC,
    H, GROUP, T, S, top, capacity, c, g, shift_lo, shift_hi,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_eb, stride_eh, stride_ab, stride_sb,
    BITS, words, lead_b, lead_h, PER_BIT: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    OVERFLOWED: tl.constexpr, ENDS: tl.constexpr, DOCUMENTS: tl.constexpr,
    CAPPED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """The `top` largest weights of BM queries, largest first, ties by key: each scan finds the next one.

    OVERFLOWED: only of queries whose COUNT of candidates exceeds `capacity`.
    """
    block = tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    line = bh.to(tl.int64) * T + rows
    wanted = rows < T
    if OVERFLOWED:
        wanted = wanted & (tl.load(COUNT + line, mask=wanted, other=0) > capacity)
    if tl.max(wanted.to(tl.int32), 0) > 0:
        dims = tl.arange(0, BD)
        lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
        qdoc = rows
        if DOCUMENTS:
            qdoc = tl.load(QDOC + b * stride_ab + rows, mask=rows < T, other=0)
        q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + rows[:, None].to(tl.int64) * stride_qm
        q = tl.load(Q + q_at + dims[None, :], mask=(rows[:, None] < T) & (dims[None, :] < D), other=0.0)
        k_base = b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
        visible = (hi > lo) & wanted
        first = tl.min(tl.where(visible, lo, S), 0) // BN * BN
        last = tl.max(tl.where(visible, hi, 0), 0)
        base = _log2(LSE, line, rows < T)
        bits = rows
        if PACKED:
            bits = BITS + ((b * lead_b + h * lead_h).to(tl.int64) * T + rows) * words
        before = tl.full((BM,), float("inf"), tl.float32)
        place = tl.full((BM,), -1, tl.int32)
        for t in range(top):
            best = tl.full((BM,), NEG_INF, tl.float32)
            where = tl.full((BM,), -1, tl.int32)
            for start in range(first, last, BN):
                cols = start + tl.arange(0, BN)
                s = _scores(
                    q, K, k_base, start, cols, bits, words, lo, hi, qdoc, KDOC + b * stride_sb, S, g, stride_kn,
                    D, BD, DOCUMENTS, CAPPED, PACKED, PER_BIT)  # fmt: skip
                later = (s == before[:, None]) & (cols[None, :] > place[:, None])
                s = tl.where((s < before[:, None]) | later, s, NEG_INF)
                here = tl.max(s, 1)
                spot = tl.min(tl.where(s == here[:, None], cols[None, :], S), 1)
                better = here > best
                best = tl.where(better, here, best)
                where = tl.where(better, spot, where)
            found = best > NEG_INF
            weight = tl.minimum(tl.exp2(best * c - base), 1.0)
            tl.store(VALUES + line * top + t, tl.where(found, weight, 0.0), mask=wanted)
            tl.store(INDICES + line * top + t, tl.where(found, where, -1).to(tl.int64), mask=wanted)
            before = tl.where(found, best, -float("inf"))
            place = where


@triton.jit
def topk_thresholds(
    MAXIMA, LSE, THRESHOLD, COUNT, lines, c,
    FEW: tl.constexpr, TOP: tl.constexpr, WEIGHTS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """The threshold of each row: the TOP-th largest of the maxima of its classes of keys, which is at most its TOP-th
    largest score; and a COUNT of 0 candidates. WEIGHTS: the weight of that score instead, times 2^WEIGHT_SHIFT; where
    there is none, since the weight is too small for float32 or the row sees fewer keys, COUNT is OVERFLOW. FEW: a row
    of fewer keys takes all of them, two of each class at most; `topk_select` sees whether all were found."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < lines
    at = rows[:, None].to(tl.int64) * CLASSES + tl.arange(0, CLASSES)[None, :]
    ordered = tl.sort(tl.load(MAXIMA + at, mask=inside[:, None], other=0.0), dim=1, descending=True)
    threshold = tl.sum(tl.where(tl.arange(0, CLASSES)[None, :] == TOP - 1, ordered, 0.0), 1)
    count = tl.zeros((BM,), tl.int32)
    if WEIGHTS:
        lse = tl.load(LSE + rows, mask=inside, other=float("-inf"))
        weight = threshold * c + (WEIGHT_SHIFT - lse * LOG2E)
        usual = (threshold > NEG_INF * 0.5) & (weight > -120.0)
        known = usual | (lse == float("-inf"))
        other = tl.full((BM,), float("inf"), tl.float32)
        if FEW:
            few = threshold <= NEG_INF * 0.5
            known = known | few
            other = tl.where(few & (lse != float("-inf")), 2.0**-100, other)
        count = tl.where(known, 0, OVERFLOW)
        threshold = tl.where(usual, tl.exp2(weight) * (1 - 2.0**-16), other)
    else:
        threshold = tl.maximum(threshold, NEG_INF * 0.5)
    tl.store(THRESHOLD + rows, threshold, mask=inside)
    tl.store(COUNT + rows, count, mask=inside)


@triton.jit
def topk_select(
    CANDIDATES, COUNT, LSE, VALUES, INDICES, lines, T, S, shift_lo, shift_hi, c,
    FEW: tl.constexpr, TOP: tl.constexpr, CAPACITY: tl.constexpr, WEIGHTS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """The TOP largest of a row's list of candidates. A candidate is 64 bits: its score, or weight times 2^WEIGHT_SHIFT,
    above its key, so that integers of 64 bits are in the order of the scores, ties by key. One lane a row: an insertion
    sort of the largest so far."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < lines
    count = tl.load(COUNT + rows, mask=inside, other=0)
    if FEW:  # weights too small for a candidate were left out of a row of few keys: it is gone through again
        place = rows % T
        visible = tl.minimum(place + shift_hi, S) - tl.maximum(place + shift_lo, 0)
        lacks = inside & (count < tl.minimum(visible, TOP))
        count = tl.where(lacks, OVERFLOW, count)
        tl.store(COUNT + rows, count, mask=lacks)
    fits = inside & (count <= CAPACITY)  # the others are left to `topk_by_scan`
    line = CANDIDATES + rows.to(tl.int64) * CAPACITY
    LOWEST: tl.constexpr = -(2**63)
    none = tl.full((BM,), LOWEST, tl.int64)
    v0, v1, v2, v3, v4, v5, v6, v7 = none, none, none, none, none, none, none, none
    for t in range(tl.max(tl.where(fits, count, 0), 0)):
        there = fits & (t < count)
        pair = tl.load(line + t, mask=there, other=0)
        bits = pair >> 32
        bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # integers in the order of the floats, negative ones too
        new = tl.where(there, (bits << 32) | (0xFFFFFFFF - (pair & 0xFFFFFFFF)), LOWEST)
        v0, new = _insert(v0, new)
        v1, new = _insert(v1, new)
        v2, new = _insert(v2, new)
        v3, new = _insert(v3, new)
        v4, new = _insert(v4, new)
        v5, new = _insert(v5, new)
        v6, new = _insert(v6, new)
        v7, new = _insert(v7, new)
    low = tl.join(tl.join(v0, v4), tl.join(v2, v6))
    cell_height = tl.join(tl.join(v1, v5), tl.join(v3, v7))
    ordered = tl.reshape(tl.join(low, cell_height), (BM, 8))
    real = ordered != LOWEST
    bits = ordered >> 32
    s = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int32).to(tl.float32, bitcast=True)
    if WEIGHTS:
        weight = tl.minimum(s * 2.0**-WEIGHT_SHIFT, 1.0)
    else:
        weight = tl.minimum(tl.exp2(s * c - _log2(LSE, rows, inside)[:, None]), 1.0)
    slot = tl.arange(0, 8)
    at = rows[:, None].to(tl.int64) * TOP + slot[None, :]
    mine = fits[:, None] & (slot < TOP)[None, :]
    tl.store(VALUES + at, tl.where(real, weight, 0.0), mask=mine)
    tl.store(INDICES + at, tl.where(real, 0xFFFFFFFF - (ordered & 0xFFFFFFFF), -1), mask=mine)


@triton.jit
def _insert(old, new):
    """The larger of the two stays, the smaller goes on."""
    return tl.maximum(old, new), tl.minimum(old, new)


@triton.jit
def argmax_indices(
    Q, K, INDICES, LO, HI, H, GROUP, T, S, g, shift_lo, shift_hi,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_eb, stride_eh,
    D: tl.constexpr, BM: tl.constexpr, ENDS: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """The first key with the largest score of each of BM rows. INDICES holds -1 for a row that sees nothing; else twice
    the first of four keys, two neighbours and the two 32 after them, of which one is the largest; or one more than
    twice the first of HALF neighbours."""
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < T
    line = INDICES + bh.to(tl.int64) * T + rows
    code = tl.load(line, mask=inside, other=-1).to(tl.int32)
    seen = code >= 0
    all_of_half = seen & (code % 2 == 1)
    lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
    dims = tl.arange(0, D)
    q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + rows.to(tl.int64) * stride_qm
    q = tl.load(Q + q_at[:, None] + dims[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
    K += b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    best = tl.full((BM,), NEG_INF, tl.float32)
    key = tl.full((BM,), -1, tl.int32)
    for start in range(0, tl.where(tl.max(all_of_half.to(tl.int32), 0) > 0, HALF, 4), 4):
        for i in tl.static_range(4):  # loads in flight together
            at = code // 2 + tl.where(all_of_half, start + i, i // 2 * 32 + i % 2)
            good = seen & (at >= lo) & (at < hi) & (all_of_half | (start == 0))
            k = tl.load(K + (at.to(tl.int64) * stride_kn)[:, None] + dims[None, :], mask=good[:, None], other=0.0)
            s = tl.sum(q * k.to(tl.float32), 1)
            if CAPPED:
                s = soft_cap(s, g)
            better = good & ((s > best) | (key < 0))
            best = tl.where(better, s, best)
            key = tl.where(better, at, key)
    tl.store(line, key.to(tl.int64), mask=inside)


@triton.jit
def thumbnail_means(SUMS, MEANS, T, S, R, C, cells, BLOCK: tl.constexpr):
    """Means of the thumbnail's cells from their sums; place i of T is in row floor(i R / T) of R."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    r = at // C % R
    c = at % C
    cell_height = ((r + 1) * T + R - 1) // R - (r * T + R - 1) // R
    dims = ((c + 1) * S + C - 1) // C - (c * S + C - 1) // C
    total = tl.load(SUMS + at, mask=at < cells, other=0)
    tl.store(MEANS + at, total.to(tl.float32) / UNIT / (cell_height * dims).to(tl.float32), mask=at < cells)
