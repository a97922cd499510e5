"""The backward pass of the dot family (FlashAttention-2): three kernels that recompute the weights from log-sum-exp.

With p_ij = e^(s_ij - lse_i), the weight of key j for query i, and gradients do of the output and dlse of the lse,

    dv_j = sum_i p_ij do_i                 ds_ij = p_ij (do_i . v_j + delta_i)        delta_i = dlse_i - do_i . o_i
    dq_i = scale sum_j ds_ij k_j           dk_j = scale sum_i ds_ij q_i               (Dao 2023, algorithm 2)

With a soft cap, s = cap tanh(u / cap), a product's gradient is ds times 1 - (s / cap)^2; with a sink z, which is in the
lse, dz = sum_i e^(z - lse_i) delta_i.

`preprocess` writes delta and -lse / scale (or -lse / cap) of each query; a program of `compute_dq` owns a block of
queries and passes over the keys; one of `compute_dkdv` owns a block of keys and passes over the queries that see it.
There are no atomic sums, so the same inputs give the same bits. Letters and masks are those of forward.

An lse near 1000 is rounded by 3e-5, and so is every weight made from it: negligible for 16 bits, too much for float32.
There `compute_dq` also sums the weights that it makes, and both kernels divide by that sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor  # type: ignore[import-untyped]

from regard.attention.kernels.devices import on_device
from regard.attention.kernels.shapes import Tiling, tile_width
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton.forward import key_range, packed
from regard.attention.kernels.triton.soft_cap import factors, soft_cap

# mypy: disable-error-code="no-untyped-def"


FAR = tl.constexpr(2**30)  # beyond any query block
LOG2E = tl.constexpr(1.4426950408889634)
LENGTHS = ["T", "S", "shift_lo", "shift_hi", "blocks", "padded"]  # specialising on these would recompile


@triton.jit(do_not_specialize=LENGTHS)
def preprocess(
    DO, OUT, LSE, DLSE, SHIFT, DELTA, BOUNDS, SINK, DSINK, H, T, S, scale, blocks, stride_zb, stride_zh,
    stride_db, stride_dh, stride_dm, stride_ob, stride_oh, stride_om,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, ENDS: tl.constexpr,
):  # fmt: skip
    """SHIFT = -lse / scale, where the scores of BM queries start, and DELTA, (B, H, blocks BM). Queries that see
    nothing and those past the end start at -inf, so that their weights are 0. ENDS: BOUNDS (B H, 4, blocks) of the keys
    that they see, for `compute_dkdv`. DSINK (B H, blocks): these queries' part of the gradient of the SINK (B, H)."""
    block = tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    inside = rows < T
    real = inside[:, None] & (dims[None, :] < D)
    at = b.to(tl.int64) * stride_db + h.to(tl.int64) * stride_dh + rows[:, None].to(tl.int64) * stride_dm
    do = tl.load(DO + at + dims[None, :], mask=real, other=0.0).to(tl.float32)
    at = b.to(tl.int64) * stride_ob + h.to(tl.int64) * stride_oh + rows[:, None].to(tl.int64) * stride_om
    out = tl.load(OUT + at + dims[None, :], mask=real, other=0.0).to(tl.float32)
    delta = -tl.sum(do * out, 1)
    here = bh.to(tl.int64) * T + rows
    if DLSE is not None:
        delta += tl.load(DLSE + here, mask=inside, other=0.0).to(tl.float32)
    lse = tl.load(LSE + here, mask=inside, other=float("-inf"))
    live = lse != float("-inf")
    there = bh.to(tl.int64) * blocks * BM + rows
    if SHIFT is not None:
        tl.store(SHIFT + there, tl.where(live, -lse / scale, float("-inf")))
        tl.store(DELTA + there, tl.where(live, delta, 0.0))
    if SINK is not None:
        sink = tl.load(SINK + b * stride_zb + h * stride_zh).to(tl.float32)
        taken = tl.where(live, tl.exp2((sink - tl.where(live, lse, 0.0)) * LOG2E), 0.0)
        tl.store(DSINK + bh.to(tl.int64) * blocks + block, tl.sum(taken * tl.where(live, delta, 0.0), 0))
    if ENDS:
        lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
        visible = hi > lo
        place = BOUNDS + bh.to(tl.int64) * 4 * blocks + block
        tl.store(place, tl.min(tl.where(visible, lo, S), 0))
        tl.store(place + blocks, tl.max(tl.where(visible, hi, 0), 0))
        tl.store(place + 2 * blocks, tl.max(tl.where(visible, lo, S), 0))
        tl.store(place + 3 * blocks, tl.min(tl.where(visible, hi, 0), 0))


@triton.jit
def _tile(
    X, base, b, h, start, end, stride,
    D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr, CHECKED: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """Rows `start` and on of one head, (ROWS, BD); 0 past the end. Not CHECKED: none of them is."""
    if TMA:
        tile = tl.reshape(X.load([b, h, start, 0]), (ROWS, BD))
    else:
        inner = tl.arange(0, ROWS)
        dims = tl.arange(0, BD)
        at = X + base + start * tl.cast(stride, tl.int64) + inner[:, None] * stride + dims[None, :]
        if CHECKED or D != BD:
            tile = tl.load(at, mask=(start + inner[:, None] < end) & (dims[None, :] < D), other=0.0)
        else:
            tile = tl.load(at)
    return tile


@triton.jit
def _visible_queries(
    BOUNDS, start, stop, T, S, shift_lo, shift_hi, blocks,
    BM: tl.constexpr, ENDS: tl.constexpr, CHUNK: tl.constexpr = 128,
):  # fmt: skip
    """Of the keys from `start` to `stop`: the queries that see any of them, and within these a run of blocks in which
    every query sees all of them. In queries, multiples of BM."""
    if ENDS:
        some_from, some_to, all_from, all_to = blocks, 0, FAR, FAR
        for at in range(0, blocks, CHUNK):
            block = at + tl.arange(0, CHUNK)
            known = block < blocks
            any_visible = (tl.load(BOUNDS + block, mask=known, other=S) < stop) & (
                tl.load(BOUNDS + blocks + block, mask=known, other=0) > start
            )
            all_visible = (tl.load(BOUNDS + 2 * blocks + block, mask=known, other=S) <= start) & (
                tl.load(BOUNDS + 3 * blocks + block, mask=known, other=0) >= stop
            )
            some_from = tl.minimum(some_from, tl.min(tl.where(any_visible, block, blocks), 0))
            some_to = tl.maximum(some_to, tl.max(tl.where(any_visible, block + 1, 0), 0))
            all_from = tl.minimum(all_from, tl.min(tl.where(all_visible, block, FAR), 0))
            all_to = tl.minimum(all_to, tl.min(tl.where((block > all_from) & (all_visible == 0), block, FAR), 0))
        all_to = tl.minimum(all_to, some_to)
    else:
        # query i sees key j if j - shift_hi < i <= j - shift_lo
        some_from = tl.maximum(start - shift_hi + 1, 0) // BM
        some_to = tl.cdiv(tl.maximum(tl.minimum(stop - shift_lo, T), 0), BM)
        all_from = tl.cdiv(tl.maximum(stop - shift_hi, 0), BM)
        all_to = tl.maximum(tl.minimum(start - shift_lo + 1, T), 0) // BM
    some_to = tl.maximum(some_to, some_from)
    if all_to <= all_from:
        all_from = some_to
        all_to = some_to
    return some_from * BM, some_to * BM, all_from * BM, all_to * BM


@triton.jit
def _accumulate_dkdv(
    dk, dv, k, v, DO, Q, SHIFT, DELTA, SHARE, QDOC, kdoc, key_start, cols, first, last, b, h, do_base, q_base,
    T, S, c, g, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, bits, words, tiles,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr,
    ENDS: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr, CAPPED: tl.constexpr, PACKED: tl.constexpr,
    PER_BIT: tl.constexpr,
):  # fmt: skip
    """dk / scale and dv, (BN, BD), with the queries from `first` to `last` of one head added; PACKED: with those at
    places `first` to `last` of a list of blocks, whose bits begin at `bits`.

    Tiles are (keys, queries): weights and gradients then leave one product in the registers in which the next one needs
    them. The shift of a query is the initial value of its products, since there are no registers to hold it besides.
    """
    inner = tl.arange(0, BM)
    STEP: tl.constexpr = 1 if PACKED else BM
    for at in range(first, last, STEP):
        if PACKED:
            start = tl.load(tiles + at) * BM
        else:
            start = at
        start = tl.multiple_of(start, BM)
        rows = start + inner
        q = _tile(Q, q_base, b, h, start, T, stride_qm, D, BD, BM, MASKED, TMA)
        shift = tl.broadcast_to(tl.load(SHIFT + rows)[None, :], (BN, BM))
        if CAPPED:
            t = soft_cap(tl.dot(k, tl.trans(q), input_precision="ieee"), g)
            p = tl.exp2((t + shift) * c)
        elif SHARE is None:
            p = tl.exp2(tl.dot(k, tl.trans(q), shift) * c)
        else:
            s = tl.dot(k, tl.trans(q), input_precision="ieee") + shift
            p = tl.exp2(s * c)
        if SHARE is not None:
            p = p * tl.load(SHARE + rows)[None, :]
        if MASKED:
            lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
            seen = (cols[:, None] >= lo[None, :]) & (cols[:, None] < hi[None, :])
            if DOCUMENTS:
                seen = seen & (kdoc[:, None] == tl.load(QDOC + rows, mask=rows < T, other=0)[None, :])
            if PACKED:
                line = bits + rows.to(tl.int64) * words
                near, far, first_word, place = packed(line, words, key_start, cols, hi > lo, PER_BIT)
                word = tl.where(first_word[:, None], near[None, :], far[None, :])
                seen = seen & (((word >> place[:, None]) & 1) != 0)
            p = tl.where(seen, p, 0.0)
        do = _tile(DO, do_base, b, h, start, T, stride_dm, D, BD, BM, MASKED, TMA)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        delta = tl.broadcast_to(tl.load(DELTA + rows)[None, :], (BN, BM))
        ds = p * tl.dot(v, tl.trans(do), delta, input_precision="ieee")
        if CAPPED:
            ds = ds * (1.0 - t * t)
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv


@triton.jit(do_not_specialize=LENGTHS)
def compute_dkdv(
    DO, Q, K, V, DK, DV, BOUNDS, SHIFT, DELTA, SHARE, TILES, COUNTS, H, GROUP, T, S, c, g, scale, blocks,
    stride_db, stride_dh, stride_dm, stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, QDOC, KDOC, stride_ab, stride_sb,
    BITS, words, lead_b, lead_h, PER_BIT: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ENDS: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr, CAPPED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """dk and dv of one block of keys, from all GROUP query heads that read them. c: scale x log2 e, or with a soft
    cap cap x log2 e, and then g is scale / cap."""
    start = tl.program_id(0) * BN
    b = tl.program_id(1) // (H // GROUP)
    hk = tl.program_id(1) % (H // GROUP)
    cols = start + tl.arange(0, BN)
    dims = tl.arange(0, BD)
    stop = tl.minimum(start + BN, S)
    k_base = b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    v_base = b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    k = _tile(K, k_base, b, hk, start, S, stride_kn, D, BD, BN, True, TMA)
    v = _tile(V, v_base, b, hk, start, S, stride_vn, D, BD, BN, True, TMA)
    kdoc = cols
    if DOCUMENTS:
        kdoc = tl.load(KDOC + b * stride_sb + cols, mask=cols < S, other=0)
        QDOC += b * stride_ab
    dk = tl.zeros((BN, BD), tl.float32)
    dv = tl.zeros((BN, BD), tl.float32)
    for member in range(GROUP):
        h = hk * GROUP + member
        bh = (b * H + h).to(tl.int64)
        bounds = BOUNDS
        if ENDS:
            bounds += bh * 4 * blocks
        bits = BITS
        tiles = TILES
        if PACKED:
            lead = (b * lead_b + h * lead_h).to(tl.int64)
            place = lead * tl.num_programs(0) + tl.program_id(0)
            bits += lead * T * words
            tiles += place * blocks
            some_from, some_to, all_from, all_to = 0, tl.load(COUNTS + place), 0, 0
        else:
            some_from, some_to, all_from, all_to = _visible_queries(
                bounds, start, stop, T, S, shift_lo, shift_hi, blocks, BM, ENDS)  # fmt: skip
        if DOCUMENTS or PACKED:
            all_from = some_to
            all_to = some_to
        do_base = b.to(tl.int64) * stride_db + h.to(tl.int64) * stride_dh
        q_base = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
        shift = SHIFT + bh * blocks * BM
        delta = DELTA + bh * blocks * BM
        share = SHARE + bh * blocks * BM if SHARE is not None else None
        dk, dv = _accumulate_dkdv(
            dk, dv, k, v, DO, Q, shift, delta, share, QDOC, kdoc, start, cols, some_from, all_from, b, h,
            do_base, q_base, T, S, c, g, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
            bits, words, tiles, D, BD, BM, BN, True, ENDS, DOCUMENTS, TMA, CAPPED, PACKED, PER_BIT)  # fmt: skip
        if not (DOCUMENTS or PACKED):
            dk, dv = _accumulate_dkdv(
                dk, dv, k, v, DO, Q, shift, delta, share, QDOC, kdoc, start, cols, all_from, all_to, b, h,
                do_base, q_base, T, S, c, g, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                bits, words, tiles, D, BD, BM, BN, False, ENDS, False, TMA, CAPPED, False, PER_BIT)  # fmt: skip
            dk, dv = _accumulate_dkdv(
                dk, dv, k, v, DO, Q, shift, delta, share, QDOC, kdoc, start, cols, all_to, some_to, b, h,
                do_base, q_base, T, S, c, g, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                bits, words, tiles, D, BD, BM, BN, True, ENDS, False, TMA, CAPPED, False, PER_BIT)  # fmt: skip
    at = (tl.program_id(1).to(tl.int64) * S + cols[:, None]) * D + dims[None, :]
    real = (cols[:, None] < S) & (dims[None, :] < D)
    tl.store(DK + at, (dk * scale).to(DK.dtype.element_ty), mask=real)
    tl.store(DV + at, dv.to(DV.dtype.element_ty), mask=real)


@triton.jit
def _accumulate_dq(
    dq, total, do, q, shift, delta, K, V, KDOC, qdoc, lo, hi, first, last, b, hk, k_base, v_base,
    S, c, g, stride_kn, stride_vn, line, words, tiles,
    D: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr,
    MASKED: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr, SUMMED: tl.constexpr,
    CAPPED: tl.constexpr, PACKED: tl.constexpr, PER_BIT: tl.constexpr,
):  # fmt: skip
    """dq / scale, (BM, BD), with the keys from `first` to `last` added; if SUMMED, the sum of their weights too.
    PACKED: keys at places `first` to `last` of a list of blocks, and the bits of a query begin at `line`."""
    inner = tl.arange(0, BN)
    STEP: tl.constexpr = 1 if PACKED else BN
    for at in range(first, last, STEP):
        if PACKED:
            start = tl.load(tiles + at) * BN
        else:
            start = at
        start = tl.multiple_of(start, BN)
        cols = start + inner
        k = _tile(K, k_base, b, hk, start, S, stride_kn, D, BD, BN, MASKED, TMA)
        v = _tile(V, v_base, b, hk, start, S, stride_vn, D, BD, BN, MASKED, TMA)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        if CAPPED:
            s = soft_cap(s, g)
        # SUMMED: to the last bit as in `compute_dkdv`, which divides by the same sum
        p = tl.exp2((s + shift[:, None]) * c) if SUMMED or CAPPED else tl.exp2(s * c + (shift * c)[:, None])
        if MASKED:
            seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
            if DOCUMENTS:
                seen = seen & (qdoc[:, None] == tl.load(KDOC + cols, mask=cols < S, other=0)[None, :])
            if PACKED:
                near, far, first_word, place = packed(line, words, start, cols, hi > lo, PER_BIT)
                word = tl.where(first_word[None, :], near[:, None], far[:, None])
                seen = seen & (((word >> place[None, :]) & 1) != 0)
            p = tl.where(seen, p, 0.0)
        if SUMMED:
            total += tl.sum(p, 1)
        ds = p * (dp + delta[:, None])
        if CAPPED:
            ds = ds * (1.0 - s * s)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq, total


@triton.jit(do_not_specialize=LENGTHS)
def compute_dq(
    DO, Q, K, V, DQ, SHIFT, DELTA, SHARE, TILES, COUNTS, H, GROUP, T, S, c, g, scale, padded,
    stride_db, stride_dh, stride_dm, stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, QDOC, KDOC, stride_ab, stride_sb,
    BITS, words, lead_b, lead_h, PER_BIT: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ENDS: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr, CAPPED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """dq of one block of queries. SHIFT, DELTA and SHARE, if there is one, are (B, H, padded); c: scale x log2 e."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # under a causal mask the last rows have most to do
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    hk = h // GROUP
    rows = block * BM + tl.arange(0, BM)
    dims = tl.arange(0, BD)
    inside = rows < T
    lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
    qdoc = rows
    if DOCUMENTS:
        qdoc = tl.load(QDOC + b * stride_ab + rows, mask=inside, other=0)
        KDOC += b * stride_sb
    do_base = b.to(tl.int64) * stride_db + h.to(tl.int64) * stride_dh
    q_base = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    k_base = b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    v_base = b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    do = _tile(DO, do_base, b, h, block * BM, T, stride_dm, D, BD, BM, True, TMA)
    q = _tile(Q, q_base, b, h, block * BM, T, stride_qm, D, BD, BM, True, TMA)
    at = bh.to(tl.int64) * padded + rows
    shift = tl.load(SHIFT + at, mask=inside, other=float("-inf"))
    delta = tl.load(DELTA + at, mask=inside, other=0.0)

    visible = hi > lo
    first = tl.min(tl.where(visible, lo, S), 0) // BN * BN
    last = tl.max(tl.where(visible, hi, 0), 0)
    # every row sees all keys from all_from to all_to; rows past the end have no weights
    all_from = tl.cdiv(tl.max(tl.where(inside, lo, 0), 0), BN) * BN
    all_to = tl.min(tl.where(inside, hi, S), 0) // BN * BN
    line = rows
    tiles = rows
    if PACKED:
        lead = (b * lead_b + h * lead_h).to(tl.int64)
        line = BITS + (lead * T + rows) * words
        tiles = TILES + (lead * tl.num_programs(0) + block) * tl.cdiv(S, BN)
        first = 0
        last = tl.load(COUNTS + lead * tl.num_programs(0) + block)
    if (all_to <= all_from) | DOCUMENTS | PACKED:
        all_from = tl.maximum(last, first)
        all_to = all_from

    dq = tl.zeros((BM, BD), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    dq, total = _accumulate_dq(
        dq, total, do, q, shift, delta, K, V, KDOC, qdoc, lo, hi, first, tl.minimum(all_from, last), b, hk,
        k_base, v_base, S, c, g, stride_kn, stride_vn, line, words, tiles,
        D, BD, BN, True, DOCUMENTS, TMA, SHARE is not None, CAPPED, PACKED, PER_BIT)  # fmt: skip
    if not (DOCUMENTS or PACKED):
        dq, total = _accumulate_dq(
            dq, total, do, q, shift, delta, K, V, KDOC, qdoc, lo, hi, all_from, all_to, b, hk,
            k_base, v_base, S, c, g, stride_kn, stride_vn, line, words, tiles,
            D, BD, BN, False, False, TMA, SHARE is not None, CAPPED, False, PER_BIT)  # fmt: skip
        dq, total = _accumulate_dq(
            dq, total, do, q, shift, delta, K, V, KDOC, qdoc, lo, hi, all_to, last, b, hk,
            k_base, v_base, S, c, g, stride_kn, stride_vn, line, words, tiles,
            D, BD, BN, True, False, TMA, SHARE is not None, CAPPED, False, PER_BIT)  # fmt: skip
    if SHARE is not None:
        share = tl.where(total > 0, 1.0 / total, 0.0)
        tl.store(SHARE + at, share, mask=inside)
        dq *= share[:, None]
    out = (bh.to(tl.int64) * T + rows[:, None]) * D + dims[None, :]
    tl.store(DQ + out, (dq * scale).to(DQ.dtype.element_ty), mask=inside[:, None] & (dims[None, :] < D))


class BackwardTilings(NamedTuple):
    """The tilings of the two kernels that loop."""

    compute_dkdv: Tiling
    compute_dq: Tiling


CAPPED_TILINGS = dict.fromkeys((16, 32, 64), Tiling(64, 64, 4, 2))  # of `compute_dkdv` with a soft cap
SINK_ROWS = 64  # queries of a program that sums a sink's gradient

# by the width of a head, up to the next power of two
TILINGS = {
    16: BackwardTilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    32: BackwardTilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    64: BackwardTilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    128: BackwardTilings(Tiling(64, 64, 4, 2), Tiling(64, 64, 4, 2)),
    256: BackwardTilings(Tiling(32, 64, 8, 2), Tiling(128, 32, 8, 2)),
}
# float32 has no tensor cores that are exact: its products are sums in registers
FLOAT32_TILINGS = {
    16: BackwardTilings(Tiling(32, 64, 4, 1), Tiling(64, 32, 4, 1)),
    32: BackwardTilings(Tiling(32, 64, 4, 1), Tiling(64, 32, 4, 1)),
    64: BackwardTilings(Tiling(32, 32, 4, 1), Tiling(32, 32, 4, 1)),
    128: BackwardTilings(Tiling(32, 32, 8, 1), Tiling(32, 32, 8, 1)),
    256: BackwardTilings(Tiling(16, 32, 8, 1), Tiling(32, 16, 8, 1)),
}


def gradients(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dlse: Tensor | None, spans: KeySpans,
    scale: float, tilings: BackwardTilings | None = None, descriptors: bool | None = None, *,
    cap: float = 0.0, sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """dq (B, H, T, D), dk and dv (B, H / GROUP, S, D), from do and out (B, H, T, D), lse and dlse (B, H, T); and the
    gradient of the sink (B, H), empty without one.

    scale: above 0. cap: of the scores, 0 for none. sink: logits (B, H), which are in the lse. descriptors: whether the
    tensor memory accelerator fetches tiles; None: where it can and it helps.
    """
    (B, H, T, D), (S, HK) = q.shape, (k.size(2), k.size(1))
    do, q, k, v, out = (x if x.stride(-1) == 1 else x.contiguous() for x in (do, q, k, v, out))
    dims = tile_width(D)
    dkdv_tiling, dq_tiling = tilings or (FLOAT32_TILINGS if q.dtype == torch.float32 else TILINGS)[dims]
    if cap and tilings is None:  # the capped scores are kept until the gradient of the weights is known
        dkdv_tiling = CAPPED_TILINGS.get(dims, dkdv_tiling)
    if descriptors is None:
        descriptors = q.is_cuda and q.dtype != torch.float32 and all(_is_tma_compatible(x) for x in (do, q, k, v))
    blocks = triton.cdiv(T, dkdv_tiling.queries)
    padded = blocks * dkdv_tiling.queries
    start, delta = (torch.empty(B, H, padded, dtype=torch.float32, device=q.device) for _ in range(2))
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    end_args, flags = spans.end_args(), spans.flags()
    after, before = factors(scale, cap)
    packed_bits = spans.bits is not None
    dsink = None if sink is None else torch.empty(B * H, blocks, dtype=torch.float32, device=q.device)
    bounds = torch.empty(B * H, 4, blocks, dtype=torch.int32, device=q.device) if flags["ENDS"] else None
    shape = {"D": D, "BD": dims}
    with on_device(q):
        preprocess[(blocks, B * H)](
            do, out, lse.contiguous(), None if dlse is None else dlse.contiguous(), start, delta, bounds, sink, dsink,
            H, T, S, after, blocks, *sink_strides(sink), *do.stride()[:3], *out.stride()[:3], **end_args,
            **shape, BM=dkdv_tiling.queries, ENDS=flags["ENDS"], num_warps=4,
        )  # fmt: skip
        # with a sink the weights of a query sum to less than 1
        share = torch.zeros_like(delta) if q.dtype == torch.float32 and sink is None else None
        terms = (H, H // HK, T, S, after * LOG2E.value, before, scale)
        strides = [n for x in (do, q, k, v) for n in x.stride()[:3]]

        def tiles(tiling: Tiling) -> list[Any]:
            rows = (tiling.queries, tiling.queries, tiling.keys, tiling.keys)
            if not descriptors:
                return [do, q, k, v]
            return [TensorDescriptor.from_tensor(x, [1, 1, n, dims]) for x, n in zip((do, q, k, v), rows, strict=True)]

        def lists(tiling: Tiling, by_keys: bool) -> tuple[Tensor | None, Tensor | None]:
            if not packed_bits:
                return None, None
            return spans.tile_lists(tiling.queries, tiling.keys, T, S, by_keys=by_keys)

        flags |= {"CAPPED": cap > 0, "PACKED": packed_bits}
        more = end_args | spans.document_args() | spans.packed_args() | shape | flags
        compute_dq[(triton.cdiv(T, dq_tiling.queries), B * H)](
            *tiles(dq_tiling), dq, start, delta, share, *lists(dq_tiling, False), *terms, padded, *strides,
            **more, **_options(dq_tiling), TMA=descriptors,
        )  # fmt: skip
        compute_dkdv[(triton.cdiv(S, dkdv_tiling.keys), B * HK)](
            *tiles(dkdv_tiling), dk, dv, bounds, start, delta, share, *lists(dkdv_tiling, True), *terms, blocks,
            *strides, **more, **_options(dkdv_tiling), TMA=descriptors,
        )  # fmt: skip
    return dq, dk, dv, lse.new_empty(0) if dsink is None else dsink.sum(-1).reshape(B, H)


def sink_gradient(do: Tensor, out: Tensor, lse: Tensor, sink: Tensor) -> Tensor:
    """The gradient of a sink (B, H) alone."""
    B, H, T, D = out.shape
    do, out = (x if x.stride(-1) == 1 else x.contiguous() for x in (do, out))
    blocks = triton.cdiv(T, SINK_ROWS)
    dsink = torch.empty(B * H, blocks, dtype=torch.float32, device=out.device)
    with on_device(out):
        preprocess[(blocks, B * H)](
            do, out, lse.contiguous(), None, None, None, None, sink, dsink, H, T, 0, 1.0, blocks, *sink_strides(sink),
            *do.stride()[:3], *out.stride()[:3], **KeySpans().end_args(), D=D, BD=tile_width(D), BM=SINK_ROWS,
            ENDS=False, num_warps=4,
        )  # fmt: skip
    return dsink.sum(-1).reshape(B, H)


def sink_strides(sink: Tensor | None) -> tuple[int, int]:
    return (0, 0) if sink is None else (sink.stride(0), sink.stride(1))


def _options(tiling: Tiling) -> dict[str, int]:
    names = {"BM": tiling.queries, "BN": tiling.keys}
    return names | {"num_warps": tiling.warps, "num_stages": tiling.stages}


def _is_tma_compatible(x: Tensor) -> bool:
    """Whether the tensor memory accelerator can fetch tiles of it: all rows start at multiples of 16 bytes."""
    starts = [stride * x.element_size() for stride in x.stride()[:-1]] + [x.data_ptr()]
    return all(start % 16 == 0 for start in starts) and min(x.stride()) > 0
