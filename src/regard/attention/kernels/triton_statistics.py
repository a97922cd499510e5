"""Statistics of the dot family from queries, keys and log-sum-exp, on any GPU: the map is recomputed, never held.

    columns   what each key received and the thumbnail, one program for each block of keys
    largest   the k largest weights of each query, one walk over its keys for each of the k
    floors, chosen, first   the same from what the forward pass and the statistics pass of Hopper leave behind

Sums that several programs share are whole numbers in units of 2^-40, so that their order does not matter.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from regard.attention.kernels.triton_forward import NEVER, ends

LOG2E = tl.constexpr(1.4426950408889634)
UNIT = tl.constexpr(2.0**40)
CLASSES = tl.constexpr(16)  # of keys, whose maxima the forward pass keeps


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
def floors(STRIPS, FLOOR, lines, TOP: tl.constexpr, BM: tl.constexpr):
    """The TOP-th largest of the maxima of a row's classes of keys: at most its TOP-th largest score."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < lines
    at = rows[:, None].to(tl.int64) * CLASSES + tl.arange(0, CLASSES)[None, :]
    ordered = tl.sort(tl.load(STRIPS + at, mask=inside[:, None], other=0.0), dim=1, descending=True)
    floor = tl.sum(tl.where(tl.arange(0, CLASSES)[None, :] == TOP - 1, ordered, 0.0), 1)
    tl.store(FLOOR + rows, floor, mask=inside)


@triton.jit
def chosen(
    FOUND, WHERE, COUNT, LSE, VALUES, PLACES, lines, top, c,
    ROOM: tl.constexpr, STRIP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """The `top` largest of the candidates that were collected: strips of STRIP scores and the key each begins at."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < lines
    count = tl.load(COUNT + rows, mask=inside, other=0)
    slot = tl.arange(0, ROOM)
    inner = tl.arange(0, STRIP)
    real = (slot[None, :] < count[:, None]) & inside[:, None]
    strip = rows[:, None].to(tl.int64) * ROOM + slot[None, :]
    s = tl.load(FOUND + strip[:, :, None] * STRIP + inner[None, None, :], mask=real[:, :, None], other=NEVER)
    start = tl.load(WHERE + strip, mask=real, other=0)
    key = start[:, :, None] + (inner // 2 * 8 + inner % 2)[None, None, :]
    base = _log2(LSE, rows, inside)
    fits = inside & (count <= ROOM)  # the others are gone through again, see `largest`
    best = tl.max(s, 2)  # of each strip: a row's next one is looked for among those
    for t in range(top):
        most = tl.max(best, 1)
        here = s == most[:, None, None]
        place = tl.min(tl.min(tl.where(here, key, 2147483647), 2), 1)
        found = most > NEVER * 0.5
        weight = tl.minimum(tl.exp2(most * c - base), 1.0)
        tl.store(VALUES + rows.to(tl.int64) * top + t, tl.where(found, weight, 0.0), mask=fits)
        tl.store(PLACES + rows.to(tl.int64) * top + t, tl.where(found, place, -1).to(tl.int64), mask=fits)
        s = tl.where(here & (key == place[:, None, None]), NEVER, s)
        best = tl.max(s, 2)


@triton.jit
def first(
    Q, K, STRIPS, BEST, LSE, VALUES, PLACES, H, GROUP, T, S, c, shift_lo, shift_hi, LO, HI, stride_eb, stride_eh,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn,
    D: tl.constexpr, SUBS: tl.constexpr, LANES: tl.constexpr, STRIP: tl.constexpr, BM: tl.constexpr, TOLD: tl.constexpr,
):  # fmt: skip
    """The largest weight of each query: its class of keys and block are known, so its few keys are scored once more."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    inside = rows < T
    line = bh.to(tl.int64) * T + rows
    each = tl.arange(0, SUBS * LANES)
    at = line[:, None] * (SUBS * LANES) + each[None, :]
    strips = tl.load(STRIPS + at, mask=inside[:, None], other=NEVER)
    start = tl.load(BEST + at, mask=inside[:, None], other=0) + (each // LANES * (STRIP * LANES))[None, :]
    most = tl.max(strips, 1)
    is_most = strips == most[:, None]
    begin = tl.min(tl.where(is_most, start, 2147483647), 1)  # of equal ones that which begins first
    here = is_most & (start == begin[:, None])
    lane = tl.min(tl.where(here, each % LANES, LANES)[:, :], 1)
    several = tl.sum(here.to(tl.int32), 1) > 1
    wide = tl.arange(0, D)
    q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + rows[:, None].to(tl.int64) * stride_qm
    q = tl.load(Q + q_at + wide[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
    k_base = K + b.to(tl.int64) * stride_kb + (h // GROUP).to(tl.int64) * stride_kh
    lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
    best = tl.full((BM,), NEVER, tl.float32)
    place = tl.full((BM,), -1, tl.int32)
    if tl.max((several & inside).to(tl.int32), 0) > 0:
        for j in range(STRIP * LANES):
            key = begin + j
            mine = (several | (j % 8 // 2 == lane)) & inside & (key >= lo) & (key < hi)
            k = tl.load(k_base + key[:, None].to(tl.int64) * stride_kn + wide[None, :], mask=mine[:, None], other=0.0)
            s = tl.where(mine, tl.sum(q * k.to(tl.float32), 1), NEVER)
            place = tl.where(s > best, key, place)
            best = tl.maximum(s, best)
    else:
        for j in range(STRIP):
            key = begin + j // 2 * 8 + lane * 2 + j % 2
            mine = inside & (key >= lo) & (key < hi)
            k = tl.load(k_base + key[:, None].to(tl.int64) * stride_kn + wide[None, :], mask=mine[:, None], other=0.0)
            s = tl.where(mine, tl.sum(q * k.to(tl.float32), 1), NEVER)
            place = tl.where(s > best, key, place)
            best = tl.maximum(s, best)
    found = most > NEVER * 0.5
    weight = tl.minimum(tl.exp2(most * c - _log2(LSE, line, inside)), 1.0)
    tl.store(VALUES + line, tl.where(found, weight, 0.0), mask=inside)
    tl.store(PLACES + line, tl.where(found, place, -1).to(tl.int64), mask=inside)
