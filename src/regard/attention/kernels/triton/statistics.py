"""Statistics of the dot family from queries, keys and log-sum-exp, on any GPU: the map is recomputed, never held.

    columns   what each key received and the thumbnail, one program for each block of keys
    largest   the k largest weights of each query, one walk over its keys for each of the k
    floors, chosen   the same from what the forward pass and the statistics pass of Hopper leave behind
    located   the place of the largest weight alone, from what Hopper's forward pass leaves behind
    means     the thumbnail from its sums

Sums that several programs share are whole numbers in units of 2^-40, so that their order does not matter.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from regard.attention.kernels.triton.forward import NEVER, ends

LOG2E = tl.constexpr(1.4426950408889634)
UNIT = tl.constexpr(2.0**40)
CLASSES = tl.constexpr(16)  # of keys, whose maxima the forward pass keeps
LARGER = tl.constexpr(14)  # Hopper's statistics pass holds weights times 2^14
MANY = tl.constexpr(1000)  # more candidates than any list has room for
HALF = tl.constexpr(64)  # of a block of keys of Hopper's forward pass: what `located` goes through at most


@triton.jit
def _log2(LSE, at, inside):
    """lse in base 2; so large that every weight is 0 where a query sees nothing."""
    lse = tl.load(LSE + at, mask=inside, other=float("-inf"))
    return tl.where(lse == float("-inf"), 1.0e30, lse * LOG2E)


@triton.jit
def _scores(
    q, K, k_base, cols, rows, lo, hi, asking, ASKED, S, stride_kn,
    D: tl.constexpr, BD: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """A tile of scores before scaling, NEVER where a query does not look."""
    wide = tl.arange(0, BD)
    at = K + k_base + cols[:, None].to(tl.int64) * stride_kn + wide[None, :]
    k = tl.load(at, mask=(cols[:, None] < S) & (wide[None, :] < D), other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
    if DOCUMENTS:
        seen = seen & (asking[:, None] == tl.load(ASKED + cols, mask=cols < S, other=0)[None, :])
    return tl.where(seen, s, NEVER)


@triton.jit
def columns(
    Q, K, LSE, GOT, THUMB, LO, HI, ASKING, ASKED,
    H, GROUP, T, S, R, C, c, shift_lo, shift_hi,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_eb, stride_eh, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    RECEIVED: tl.constexpr, CELLS: tl.constexpr, TOLD: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """BN keys of one head: all queries that can see one of them pass by."""
    start = tl.program_id(0) * BN
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    cols = start + tl.arange(0, BN)
    wide = tl.arange(0, BD)
    q_base = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    k_base = b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    first = tl.maximum(start - shift_hi + 1, 0) // BM * BM
    last = tl.minimum(start + BN - shift_lo, T)
    got = tl.zeros((BN,), tl.float32)
    column = cols.to(tl.int64) * C // S
    for row in range(first, last, BM):
        rows = row + tl.arange(0, BM)
        inside = rows < T
        lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
        asking = rows
        if DOCUMENTS:
            asking = tl.load(ASKING + b * stride_ab + rows, mask=inside, other=0)
        q_at = Q + q_base + rows[:, None].to(tl.int64) * stride_qm + wide[None, :]
        q = tl.load(q_at, mask=inside[:, None] & (wide[None, :] < D), other=0.0)
        s = _scores(q, K, k_base, cols, rows, lo, hi, asking, ASKED + b * stride_sb, S, stride_kn, D, BD, DOCUMENTS)
        p = tl.exp2(s * c - _log2(LSE, bh.to(tl.int64) * T + rows, inside)[:, None])
        if RECEIVED:
            got += tl.sum(p, 0)
        if CELLS:
            line = (rows.to(tl.int64) * R // T).to(tl.int32)
            low = tl.min(tl.where(inside, line, R), 0)
            high = tl.max(tl.where(inside, line, 0), 0)
            for r in range(low, high + 1):
                down = tl.sum(tl.where((line == r)[:, None], p, 0.0), 0)
                at = THUMB + bh.to(tl.int64) * R * C + r * C + column
                tl.atomic_add(at, (down * UNIT).to(tl.int64), mask=(cols < S) & (down > 0), sem="relaxed")
    if RECEIVED:
        tl.store(GOT + bh.to(tl.int64) * S + cols, got, mask=cols < S)


@triton.jit
def largest(
    Q, K, LSE, COUNT, VALUES, PLACES, LO, HI, ASKING, ASKED,
    H, GROUP, T, S, top, room, c, shift_lo, shift_hi,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_eb, stride_eh, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    SOME: tl.constexpr, TOLD: tl.constexpr, DOCUMENTS: tl.constexpr,
):  # fmt: skip
    """The `top` largest weights of BM queries, largest first, equal ones by place: each walk finds the next one.

    SOME: only of queries whose COUNT of candidates is more than there was room for.
    """
    block = tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    line = bh.to(tl.int64) * T + rows
    wanted = rows < T
    if SOME:
        wanted = wanted & (tl.load(COUNT + line, mask=wanted, other=0) > room)
    if tl.max(wanted.to(tl.int32), 0) > 0:
        wide = tl.arange(0, BD)
        lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
        asking = rows
        if DOCUMENTS:
            asking = tl.load(ASKING + b * stride_ab + rows, mask=rows < T, other=0)
        q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + rows[:, None].to(tl.int64) * stride_qm
        q = tl.load(Q + q_at + wide[None, :], mask=(rows[:, None] < T) & (wide[None, :] < D), other=0.0)
        k_base = b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
        sees = (hi > lo) & wanted
        first = tl.min(tl.where(sees, lo, S), 0) // BN * BN
        last = tl.max(tl.where(sees, hi, 0), 0)
        base = _log2(LSE, line, rows < T)
        before = tl.full((BM,), float("inf"), tl.float32)
        place = tl.full((BM,), -1, tl.int32)
        for t in range(top):
            best = tl.full((BM,), NEVER, tl.float32)
            where = tl.full((BM,), -1, tl.int32)
            for start in range(first, last, BN):
                cols = start + tl.arange(0, BN)
                s = _scores(
                    q, K, k_base, cols, rows, lo, hi, asking, ASKED + b * stride_sb, S, stride_kn, D, BD, DOCUMENTS
                )
                later = (s == before[:, None]) & (cols[None, :] > place[:, None])
                s = tl.where((s < before[:, None]) | later, s, NEVER)
                here = tl.max(s, 1)
                spot = tl.min(tl.where(s == here[:, None], cols[None, :], S), 1)
                better = here > best
                best = tl.where(better, here, best)
                where = tl.where(better, spot, where)
            found = best > NEVER
            weight = tl.minimum(tl.exp2(best * c - base), 1.0)
            tl.store(VALUES + line * top + t, tl.where(found, weight, 0.0), mask=wanted)
            tl.store(PLACES + line * top + t, tl.where(found, where, -1).to(tl.int64), mask=wanted)
            before = tl.where(found, best, -float("inf"))
            place = where


@triton.jit
def floors(STRIPS, LSE, FLOOR, COUNT, lines, c, TOP: tl.constexpr, WEIGHTS: tl.constexpr, BM: tl.constexpr):
    """The TOP-th largest of the maxima of a row's classes of keys: at most its TOP-th largest score; and no candidates
    yet. WEIGHTS: what a key of that score weighs, times 2^LARGER; where that is nothing to compare with, since fewer
    keys are seen or it is too small for float32, the row has too many candidates from the outset."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < lines
    at = rows[:, None].to(tl.int64) * CLASSES + tl.arange(0, CLASSES)[None, :]
    ordered = tl.sort(tl.load(STRIPS + at, mask=inside[:, None], other=0.0), dim=1, descending=True)
    floor = tl.sum(tl.where(tl.arange(0, CLASSES)[None, :] == TOP - 1, ordered, 0.0), 1)
    many = tl.zeros((BM,), tl.int32)
    if WEIGHTS:
        lse = tl.load(LSE + rows, mask=inside, other=float("-inf"))
        weight = floor * c + (LARGER - lse * LOG2E)
        usual = (floor > NEVER * 0.5) & (weight > -120.0)
        many = tl.where(usual | (lse == float("-inf")), 0, MANY)
        floor = tl.where(usual, tl.exp2(weight) * (1 - 2.0**-16), float("inf"))
    else:
        floor = tl.maximum(floor, NEVER * 0.5)
    tl.store(FLOOR + rows, floor, mask=inside)
    tl.store(COUNT + rows, many, mask=inside)


@triton.jit
def chosen(
    FOUND, COUNT, LSE, VALUES, PLACES, lines, c,
    TOP: tl.constexpr, ROOM: tl.constexpr, WEIGHTS: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """The TOP largest of a row's list of candidates, each a key and above it the bits of its score, or weight times
    2^LARGER. One lane a row: every candidate goes down the line of the largest so far and takes the place of a lesser
    one, which goes on. As whole numbers of 64 bits they are in order, equal ones by place."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < lines
    many = tl.load(COUNT + rows, mask=inside, other=0)
    fits = inside & (many <= ROOM)  # the others are gone through again, see `largest`
    line = FOUND + rows.to(tl.int64) * ROOM
    NOTHING: tl.constexpr = -(2**63)
    none = tl.full((BM,), NOTHING, tl.int64)
    v0, v1, v2, v3, v4, v5, v6, v7 = none, none, none, none, none, none, none, none
    for t in range(tl.max(tl.where(fits, many, 0), 0)):
        there = fits & (t < many)
        pair = tl.load(line + t, mask=there, other=0)
        bits = pair >> 32
        bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # in the order of the numbers, also of those below zero
        new = tl.where(there, (bits << 32) | (0xFFFFFFFF - (pair & 0xFFFFFFFF)), NOTHING)
        v0, new = _placed(v0, new)
        v1, new = _placed(v1, new)
        v2, new = _placed(v2, new)
        v3, new = _placed(v3, new)
        v4, new = _placed(v4, new)
        v5, new = _placed(v5, new)
        v6, new = _placed(v6, new)
        v7, new = _placed(v7, new)
    low = tl.join(tl.join(v0, v4), tl.join(v2, v6))
    high = tl.join(tl.join(v1, v5), tl.join(v3, v7))
    ordered = tl.reshape(tl.join(low, high), (BM, 8))
    real = ordered != NOTHING
    bits = ordered >> 32
    s = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int32).to(tl.float32, bitcast=True)
    if WEIGHTS:
        weight = tl.minimum(s * 2.0**-LARGER, 1.0)
    else:
        weight = tl.minimum(tl.exp2(s * c - _log2(LSE, rows, inside)[:, None]), 1.0)
    slot = tl.arange(0, 8)
    at = rows[:, None].to(tl.int64) * TOP + slot[None, :]
    mine = fits[:, None] & (slot < TOP)[None, :]
    tl.store(VALUES + at, tl.where(real, weight, 0.0), mask=mine)
    tl.store(PLACES + at, tl.where(real, 0xFFFFFFFF - (ordered & 0xFFFFFFFF), -1), mask=mine)


@triton.jit
def _placed(old, new):
    """The larger, and the one that goes on."""
    return tl.maximum(old, new), tl.minimum(old, new)


@triton.jit
def located(
    Q, K, PLACES, LO, HI, H, GROUP, T, S, shift_lo, shift_hi,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_eb, stride_eh,
    D: tl.constexpr, BM: tl.constexpr, TOLD: tl.constexpr,
):  # fmt: skip
    """The first key with the largest score of BM rows. PLACES holds -1 of a row that sees nothing; else twice the first
    of the four keys among which it is, two next to each other and two after 32; or one more than twice the first of
    HALF neighbours."""
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < T
    line = PLACES + bh.to(tl.int64) * T + rows
    lead = tl.load(line, mask=inside, other=-1).to(tl.int32)
    seen = lead >= 0
    all_of_half = seen & (lead % 2 == 1)
    lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
    wide = tl.arange(0, D)
    q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + rows.to(tl.int64) * stride_qm
    q = tl.load(Q + q_at[:, None] + wide[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
    K += b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    best = tl.full((BM,), NEVER, tl.float32)
    key = tl.full((BM,), -1, tl.int32)
    for start in range(0, tl.where(tl.max(all_of_half.to(tl.int32), 0) > 0, HALF, 4), 4):
        for i in tl.static_range(4):  # on their way together
            at = lead // 2 + tl.where(all_of_half, start + i, i // 2 * 32 + i % 2)
            good = seen & (at >= lo) & (at < hi) & (all_of_half | (start == 0))
            k = tl.load(K + (at.to(tl.int64) * stride_kn)[:, None] + wide[None, :], mask=good[:, None], other=0.0)
            s = tl.sum(q * k.to(tl.float32), 1)
            better = good & ((s > best) | (key < 0))
            best = tl.where(better, s, best)
            key = tl.where(better, at, key)
    tl.store(line, key.to(tl.int64), mask=inside)


@triton.jit
def means(COUNTED, MEANS, T, S, R, C, cells, BLOCK: tl.constexpr):
    """Means of the thumbnail's cells from their sums; place i of T is in row floor(i R / T) of R."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    r = at // C % R
    c = at % C
    high = ((r + 1) * T + R - 1) // R - (r * T + R - 1) // R
    wide = ((c + 1) * S + C - 1) // C - (c * S + C - 1) // C
    total = tl.load(COUNTED + at, mask=at < cells, other=0)
    tl.store(MEANS + at, total.to(tl.float32) / UNIT / (high * wide).to(tl.float32), mask=at < cells)
