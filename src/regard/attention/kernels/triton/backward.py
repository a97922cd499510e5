"""The gradients of the dot family: three kernels that compute the weights again from the log-sum-exp, tile by tile.

With p_ij = e^(s_ij - lse_i), the weight of key j for query i, and gradients do of the output and dlse of the lse,

    dv_j = sum_i p_ij do_i                 ds_ij = p_ij (do_i . v_j + delta_i)        delta_i = dlse_i - do_i . o_i
    dq_i = scale sum_j ds_ij k_j           dk_j = scale sum_i ds_ij q_i               (Dao 2023, algorithm 2)

`remember` writes what each query brings to every tile, delta and -lse / scale; `to_queries` owns a block of queries and
walks over the keys; `to_keys` owns a block of keys and walks over the queries that see it. Nothing is added up by
atomics, so the same inputs give the same bits. Letters and masks are those of forward.

An lse near 1000 is rounded by 3e-5, and so is every weight made from it: nothing beside what 16 bits lose, too much for
float32. There `to_queries` also sums the weights that it makes, and both kernels divide by that sum.
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
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton.forward import ends

# mypy: disable-error-code="no-untyped-def"


FAR = tl.constexpr(2**30)  # later than any query block
LENGTHS = ["T", "S", "shift_lo", "shift_hi", "blocks", "padded"]  # no kernel is compiled again for another one of these


@triton.jit(do_not_specialize=LENGTHS)
def remember(
    DO, OUT, LSE, DLSE, START, DELTA, BOUNDS, H, T, S, scale, blocks,
    stride_db, stride_dh, stride_dm, stride_ob, stride_oh, stride_om,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, TOLD: tl.constexpr,
):  # fmt: skip
    """Where the products of BM queries start, START = -lse / scale and DELTA, (B, H, blocks BM). Those that see nothing
    and those past the end start at -inf, so that every weight of theirs is 0. TOLD: BOUNDS (B H, 4, blocks) of what
    they see, for `to_keys`."""
    block = tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    rows = block * BM + tl.arange(0, BM)
    wide = tl.arange(0, BD)
    inside = rows < T
    real = inside[:, None] & (wide[None, :] < D)
    at = b.to(tl.int64) * stride_db + h.to(tl.int64) * stride_dh + rows[:, None].to(tl.int64) * stride_dm
    do = tl.load(DO + at + wide[None, :], mask=real, other=0.0).to(tl.float32)
    at = b.to(tl.int64) * stride_ob + h.to(tl.int64) * stride_oh + rows[:, None].to(tl.int64) * stride_om
    out = tl.load(OUT + at + wide[None, :], mask=real, other=0.0).to(tl.float32)
    delta = -tl.sum(do * out, 1)
    here = bh.to(tl.int64) * T + rows
    if DLSE is not None:
        delta += tl.load(DLSE + here, mask=inside, other=0.0).to(tl.float32)
    lse = tl.load(LSE + here, mask=inside, other=float("-inf"))
    looks = lse != float("-inf")
    there = bh.to(tl.int64) * blocks * BM + rows
    tl.store(START + there, tl.where(looks, -lse / scale, float("-inf")))
    tl.store(DELTA + there, tl.where(looks, delta, 0.0))
    if TOLD:
        lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
        sees = hi > lo
        place = BOUNDS + bh.to(tl.int64) * 4 * blocks + block
        tl.store(place, tl.min(tl.where(sees, lo, S), 0))
        tl.store(place + blocks, tl.max(tl.where(sees, hi, 0), 0))
        tl.store(place + 2 * blocks, tl.max(tl.where(sees, lo, S), 0))
        tl.store(place + 3 * blocks, tl.min(tl.where(sees, hi, 0), 0))


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
        wide = tl.arange(0, BD)
        at = X + base + start * tl.cast(stride, tl.int64) + inner[:, None] * stride + wide[None, :]
        if CHECKED or D != BD:
            tile = tl.load(at, mask=(start + inner[:, None] < end) & (wide[None, :] < D), other=0.0)
        else:
            tile = tl.load(at)
    return tile


@triton.jit
def _seeing(
    BOUNDS, start, stop, T, S, shift_lo, shift_hi, blocks,
    BM: tl.constexpr, TOLD: tl.constexpr, CHUNK: tl.constexpr = 128,
):  # fmt: skip
    """Of the keys from `start` to `stop`: the queries that see any of them, and within these a run of blocks of which
    every query sees all of the keys. Told in queries, multiples of BM."""
    if TOLD:
        some_from, some_to, all_from, all_to = blocks, 0, FAR, FAR
        for at in range(0, blocks, CHUNK):
            block = at + tl.arange(0, CHUNK)
            known = block < blocks
            some = (tl.load(BOUNDS + block, mask=known, other=S) < stop) & (
                tl.load(BOUNDS + blocks + block, mask=known, other=0) > start
            )
            whole = (tl.load(BOUNDS + 2 * blocks + block, mask=known, other=S) <= start) & (
                tl.load(BOUNDS + 3 * blocks + block, mask=known, other=0) >= stop
            )
            some_from = tl.minimum(some_from, tl.min(tl.where(some, block, blocks), 0))
            some_to = tl.maximum(some_to, tl.max(tl.where(some, block + 1, 0), 0))
            all_from = tl.minimum(all_from, tl.min(tl.where(whole, block, FAR), 0))
            all_to = tl.minimum(all_to, tl.min(tl.where((block > all_from) & (whole == 0), block, FAR), 0))
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
def _gather_keys(
    dk, dv, k, v, DO, Q, START, DELTA, SHARE, ASKING, asked, cols, first, last, b, h, do_base, q_base,
    T, S, c, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, MASKED: tl.constexpr,
    TOLD: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """dk / scale and dv, (BN, BD), with the queries from `first` to `last` of one head added.

    Tiles are (keys, queries): weights and slopes then leave one product in the registers in which the next one wants
    them. What belongs to a query is where its products start, since beside them there are no registers for it.
    """
    inner = tl.arange(0, BM)
    for start in range(first, last, BM):
        start = tl.multiple_of(start, BM)
        rows = start + inner
        q = _tile(Q, q_base, b, h, start, T, stride_qm, D, BD, BM, MASKED, TMA)
        begin = tl.broadcast_to(tl.load(START + rows)[None, :], (BN, BM))
        if SHARE is None:
            p = tl.exp2(tl.dot(k, tl.trans(q), begin) * c)
        else:
            s = tl.dot(k, tl.trans(q), input_precision="ieee") + begin
            p = tl.exp2(s * c) * tl.load(SHARE + rows)[None, :]
        if MASKED:
            lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
            seen = (cols[:, None] >= lo[None, :]) & (cols[:, None] < hi[None, :])
            if DOCUMENTS:
                seen = seen & (asked[:, None] == tl.load(ASKING + rows, mask=rows < T, other=0)[None, :])
            p = tl.where(seen, p, 0.0)
        do = _tile(DO, do_base, b, h, start, T, stride_dm, D, BD, BM, MASKED, TMA)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        delta = tl.broadcast_to(tl.load(DELTA + rows)[None, :], (BN, BM))
        ds = p * tl.dot(v, tl.trans(do), delta, input_precision="ieee")
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    return dk, dv


@triton.jit(do_not_specialize=LENGTHS)
def to_keys(
    DO, Q, K, V, DK, DV, BOUNDS, START, DELTA, SHARE, H, GROUP, T, S, c, scale, blocks,
    stride_db, stride_dh, stride_dm, stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ASKING, ASKED, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TOLD: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """dk and dv of one block of keys, from all GROUP query heads that read them. c: scale x log2 e."""
    start = tl.program_id(0) * BN
    b = tl.program_id(1) // (H // GROUP)
    hk = tl.program_id(1) % (H // GROUP)
    cols = start + tl.arange(0, BN)
    wide = tl.arange(0, BD)
    stop = tl.minimum(start + BN, S)
    k_base = b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    v_base = b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    k = _tile(K, k_base, b, hk, start, S, stride_kn, D, BD, BN, True, TMA)
    v = _tile(V, v_base, b, hk, start, S, stride_vn, D, BD, BN, True, TMA)
    asked = cols
    if DOCUMENTS:
        asked = tl.load(ASKED + b * stride_sb + cols, mask=cols < S, other=0)
        ASKING += b * stride_ab
    dk = tl.zeros((BN, BD), tl.float32)
    dv = tl.zeros((BN, BD), tl.float32)
    for member in range(GROUP):
        h = hk * GROUP + member
        bh = (b * H + h).to(tl.int64)
        bounds = BOUNDS
        if TOLD:
            bounds += bh * 4 * blocks
        some_from, some_to, all_from, all_to = _seeing(
            bounds, start, stop, T, S, shift_lo, shift_hi, blocks, BM, TOLD)  # fmt: skip
        if DOCUMENTS:
            all_from = some_to
            all_to = some_to
        do_base = b.to(tl.int64) * stride_db + h.to(tl.int64) * stride_dh
        q_base = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
        begin = START + bh * blocks * BM
        delta = DELTA + bh * blocks * BM
        share = SHARE + bh * blocks * BM if SHARE is not None else None
        dk, dv = _gather_keys(
            dk, dv, k, v, DO, Q, begin, delta, share, ASKING, asked, cols, some_from, all_from, b, h,
            do_base, q_base, T, S, c, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
            D, BD, BM, BN, True, TOLD, DOCUMENTS, TMA)  # fmt: skip
        if not DOCUMENTS:
            dk, dv = _gather_keys(
                dk, dv, k, v, DO, Q, begin, delta, share, ASKING, asked, cols, all_from, all_to, b, h,
                do_base, q_base, T, S, c, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                D, BD, BM, BN, False, TOLD, False, TMA)  # fmt: skip
            dk, dv = _gather_keys(
                dk, dv, k, v, DO, Q, begin, delta, share, ASKING, asked, cols, all_to, some_to, b, h,
                do_base, q_base, T, S, c, stride_dm, stride_qm, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi,
                D, BD, BM, BN, True, TOLD, False, TMA)  # fmt: skip
    at = (tl.program_id(1).to(tl.int64) * S + cols[:, None]) * D + wide[None, :]
    real = (cols[:, None] < S) & (wide[None, :] < D)
    tl.store(DK + at, (dk * scale).to(DK.dtype.element_ty), mask=real)
    tl.store(DV + at, dv.to(DV.dtype.element_ty), mask=real)


@triton.jit
def _gather_queries(
    dq, total, do, q, begin, delta, K, V, ASKED, asking, lo, hi, first, last, b, hk, k_base, v_base,
    S, c, stride_kn, stride_vn,
    D: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr,
    MASKED: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr, SUMMED: tl.constexpr,
):  # fmt: skip
    """dq / scale, (BM, BD), with the keys from `first` to `last` added; and, if SUMMED, the weights they have."""
    inner = tl.arange(0, BN)
    for start in range(first, last, BN):
        start = tl.multiple_of(start, BN)
        cols = start + inner
        k = _tile(K, k_base, b, hk, start, S, stride_kn, D, BD, BN, MASKED, TMA)
        v = _tile(V, v_base, b, hk, start, S, stride_vn, D, BD, BN, MASKED, TMA)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        dp = tl.dot(do, tl.trans(v), input_precision="ieee")
        # SUMMED: to the last bit as in `to_keys`, which takes over the sum
        p = tl.exp2((s + begin[:, None]) * c) if SUMMED else tl.exp2(s * c + (begin * c)[:, None])
        if MASKED:
            seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
            if DOCUMENTS:
                seen = seen & (asking[:, None] == tl.load(ASKED + cols, mask=cols < S, other=0)[None, :])
            p = tl.where(seen, p, 0.0)
        if SUMMED:
            total += tl.sum(p, 1)
        ds = p * (dp + delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    return dq, total


@triton.jit(do_not_specialize=LENGTHS)
def to_queries(
    DO, Q, K, V, DQ, START, DELTA, SHARE, H, GROUP, T, S, c, scale, padded,
    stride_db, stride_dh, stride_dm, stride_qb, stride_qh, stride_qm,
    stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ASKING, ASKED, stride_ab, stride_sb,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    TOLD: tl.constexpr, DOCUMENTS: tl.constexpr, TMA: tl.constexpr,
):  # fmt: skip
    """dq of one block of queries. START, DELTA and SHARE, if there is one, are (B, H, padded); c: scale x log2 e."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # under a causal mask the last rows have most to do
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    hk = h // GROUP
    rows = block * BM + tl.arange(0, BM)
    wide = tl.arange(0, BD)
    inside = rows < T
    lo, hi = ends(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
    asking = rows
    if DOCUMENTS:
        asking = tl.load(ASKING + b * stride_ab + rows, mask=inside, other=0)
        ASKED += b * stride_sb
    do_base = b.to(tl.int64) * stride_db + h.to(tl.int64) * stride_dh
    q_base = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    k_base = b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    v_base = b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    do = _tile(DO, do_base, b, h, block * BM, T, stride_dm, D, BD, BM, True, TMA)
    q = _tile(Q, q_base, b, h, block * BM, T, stride_qm, D, BD, BM, True, TMA)
    at = bh.to(tl.int64) * padded + rows
    begin = tl.load(START + at, mask=inside, other=float("-inf"))
    delta = tl.load(DELTA + at, mask=inside, other=0.0)

    sees = hi > lo
    first = tl.min(tl.where(sees, lo, S), 0) // BN * BN
    last = tl.max(tl.where(sees, hi, 0), 0)
    # every row sees all keys from all_from to all_to; rows past the end have no weights, whatever they see
    all_from = tl.cdiv(tl.max(tl.where(inside, lo, 0), 0), BN) * BN
    all_to = tl.min(tl.where(inside, hi, S), 0) // BN * BN
    if (all_to <= all_from) | DOCUMENTS:
        all_from = tl.maximum(last, first)
        all_to = all_from

    dq = tl.zeros((BM, BD), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    dq, total = _gather_queries(
        dq, total, do, q, begin, delta, K, V, ASKED, asking, lo, hi, first, tl.minimum(all_from, last), b, hk,
        k_base, v_base, S, c, stride_kn, stride_vn, D, BD, BN, True, DOCUMENTS, TMA, SHARE is not None)  # fmt: skip
    if not DOCUMENTS:
        dq, total = _gather_queries(
            dq, total, do, q, begin, delta, K, V, ASKED, asking, lo, hi, all_from, all_to, b, hk,
            k_base, v_base, S, c, stride_kn, stride_vn, D, BD, BN, False, False, TMA,
            SHARE is not None)  # fmt: skip
        dq, total = _gather_queries(
            dq, total, do, q, begin, delta, K, V, ASKED, asking, lo, hi, all_to, last, b, hk,
            k_base, v_base, S, c, stride_kn, stride_vn, D, BD, BN, True, False, TMA,
            SHARE is not None)  # fmt: skip
    if SHARE is not None:
        share = tl.where(total > 0, 1.0 / total, 0.0)
        tl.store(SHARE + at, share, mask=inside)
        dq *= share[:, None]
    out = (bh.to(tl.int64) * T + rows[:, None]) * D + wide[None, :]
    tl.store(DQ + out, (dq * scale).to(DQ.dtype.element_ty), mask=inside[:, None] & (wide[None, :] < D))


LOG2E = 1.4426950408889634


class Tilings(NamedTuple):
    """One for each of the two kernels that walk."""

    to_keys: Tiling
    to_queries: Tiling


# by the width of a head, up to the next power of two
TILINGS = {
    16: Tilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    32: Tilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    64: Tilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    128: Tilings(Tiling(64, 64, 4, 2), Tiling(64, 64, 4, 2)),
    256: Tilings(Tiling(32, 64, 8, 2), Tiling(128, 32, 8, 2)),
}
# float32 has no tensor cores that are exact: its products are sums in registers
EXACT = {
    16: Tilings(Tiling(32, 64, 4, 1), Tiling(64, 32, 4, 1)),
    32: Tilings(Tiling(32, 64, 4, 1), Tiling(64, 32, 4, 1)),
    64: Tilings(Tiling(32, 32, 4, 1), Tiling(32, 32, 4, 1)),
    128: Tilings(Tiling(32, 32, 8, 1), Tiling(32, 32, 8, 1)),
    256: Tilings(Tiling(16, 32, 8, 1), Tiling(32, 16, 8, 1)),
}


def gradients(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dlse: Tensor | None, reach: Spans,
    scale: float, tilings: Tilings | None = None, descriptors: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq (B, H, T, D), dk and dv (B, H / GROUP, S, D), from do and out (B, H, T, D), lse and dlse (B, H, T).

    scale: above 0. descriptors: whether tiles are fetched by the tensor memory accelerator; None: if it can and helps.
    """
    (B, H, T, D), (S, HK) = q.shape, (k.size(2), k.size(1))
    do, q, k, v, out = (x if x.stride(-1) == 1 else x.contiguous() for x in (do, q, k, v, out))
    wide = tile_width(D)
    by_keys, by_queries = tilings or (EXACT if q.dtype == torch.float32 else TILINGS)[wide]
    if descriptors is None:
        descriptors = q.is_cuda and q.dtype != torch.float32 and all(_describable(x) for x in (do, q, k, v))
    blocks = triton.cdiv(T, by_keys.queries)
    start, delta = (torch.empty(B, H, blocks * by_keys.queries, dtype=torch.float32, device=q.device) for _ in range(2))
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    limits, told = reach.ends(), reach.kinds()
    bounds = torch.empty(B * H, 4, blocks, dtype=torch.int32, device=q.device) if told["TOLD"] else None
    shape = {"D": D, "BD": wide}
    with on_device(q):
        remember[(blocks, B * H)](
            do, out, lse.contiguous(), None if dlse is None else dlse.contiguous(), start, delta, bounds,
            H, T, S, scale, blocks, *do.stride()[:3], *out.stride()[:3], **limits,
            **shape, BM=by_keys.queries, TOLD=told["TOLD"], num_warps=4,
        )  # fmt: skip
        share = torch.zeros_like(delta) if q.dtype == torch.float32 else None
        brought = (start, delta, share, H, H // HK, T, S, scale * LOG2E, scale)
        strides = [n for x in (do, q, k, v) for n in x.stride()[:3]]

        def tiles(tiling: Tiling) -> list[Any]:
            rows = (tiling.queries, tiling.queries, tiling.keys, tiling.keys)
            if not descriptors:
                return [do, q, k, v]
            return [TensorDescriptor.from_tensor(x, [1, 1, n, wide]) for x, n in zip((do, q, k, v), rows, strict=True)]

        to_queries[(triton.cdiv(T, by_queries.queries), B * H)](
            *tiles(by_queries), dq, *brought, blocks * by_keys.queries, *strides, **limits, **reach.documents(),
            **shape, **told, **_options(by_queries), TMA=descriptors,
        )  # fmt: skip
        to_keys[(triton.cdiv(S, by_keys.keys), B * HK)](
            *tiles(by_keys), dk, dv, bounds, *brought, blocks, *strides, **limits, **reach.documents(),
            **shape, **told, **_options(by_keys), TMA=descriptors,
        )  # fmt: skip
    return dq, dk, dv


def _options(tiling: Tiling) -> dict[str, int]:
    names = {"BM": tiling.queries, "BN": tiling.keys}
    return names | {"num_warps": tiling.warps, "num_stages": tiling.stages}


def _describable(x: Tensor) -> bool:
    """Whether the tensor memory accelerator can fetch tiles of it: all but single numbers start at 16 bytes."""
    starts = [stride * x.element_size() for stride in x.stride()[:-1]] + [x.data_ptr()]
    return all(start % 16 == 0 for start in starts) and min(x.stride()) > 0
