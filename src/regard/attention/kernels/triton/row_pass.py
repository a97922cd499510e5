"""The row pass of the dot family on any GPU: what a query's row of the map tells, from scores and a known log-sum-exp.

The largest score; mean and variance of the distance to keys; the weight that goes to each group of keys. A program owns
BM queries and passes over the keys they may see once. Moments of a tile are taken about the tile's first key and merged
(Chan et al. 1979), so that far keys lose no digits. Sums over groups are a product with the table of their members,
weights in two halves of float16, which together have 22 bits.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED, on_device
from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton.descriptors import LOG2E, absent, document_strides, mask_tensors
from regard.attention.kernels.triton.forward import NEG_INF, key_range, packed
from regard.attention.kernels.triton.soft_cap import factors, soft_cap

QUERIES, KEYS = (16, 16) if INTERPRETED else (64, 64)  # of a tile
MAX_GROUPS = 64  # of keys in one pass
LOW_HALF = tl.constexpr(2048.0)  # what is left of a weight after its first half, times this, is the second


def row_pass(
    q: Tensor, k: Tensor, lse: Tensor, spans: KeySpans, scale: float, cap: float, peak: bool, distance: bool,
    members: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The largest score (B, H, T), mean and variance of the distance (B, H, T, 2), and with `members` (groups, S) the
    weight that goes to each group, (B, H, T, groups); what is not requested is empty. lse (B, H, T)."""
    (B, H, T, D), (HK, S) = q.shape, k.shape[1:3]
    nothing = absent(q.device)
    peaks = torch.empty((B, H, T), dtype=torch.float32, device=q.device) if peak else nothing
    moments = torch.empty((B, H, T, 2), dtype=torch.float32, device=q.device) if distance else nothing
    sums = nothing if members is None else torch.empty((B, H, T, len(members)), dtype=torch.float32, device=q.device)
    q, k = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k))
    k = k if k.size(2) * k.stride(2) < 2**31 else k.contiguous()
    after, before = factors(scale, cap)
    tiles, counts = (None, None) if spans.bits is None else spans.tile_lists(QUERIES, KEYS, T, S)
    with on_device(q):
        first = True
        for begin in range(0, 1 if members is None else len(members), MAX_GROUPS):
            part = None if members is None else members[begin : begin + MAX_GROUPS]
            groups = 0 if part is None else len(part)
            width = max(16, triton.next_power_of_2(groups))
            table = nothing if part is None else torch.zeros(S, width, dtype=torch.float16, device=q.device)
            if part is not None:
                table[:, :groups] = part.mT
            row_statistics[(triton.cdiv(T, QUERIES), B * H)](
                q, k, lse.contiguous(), peaks, moments, sums, table, *mask_tensors(spans, lse), tiles, counts,
                H, H // HK, T, S, after * LOG2E, after, before, spans.shift_lo, spans.shift_hi, begin, groups,
                0 if members is None else len(members), *q.stride()[:3], *k.stride()[:3], *spans.strides(),
                *document_strides(spans), **spans.packed_args(),
                D=D, BD=tile_width(D), BM=QUERIES, BN=KEYS, BG=width, PEAK=peak and first, DISTANCE=distance and first,
                GROUPS=part is not None, ENDS=spans.has_ends, DOCUMENTS=spans.query_docs is not None, CAPPED=cap > 0,
                PACKED=spans.bits is not None, num_warps=4,
            )  # fmt: skip
            first = False
    return peaks, moments, sums


@triton.jit
def row_statistics(
    Q, K, LSE, PEAK_OUT, DISTANCE_OUT, SUMS, TABLE, LO, HI, QDOC, KDOC, TILES, COUNTS,
    H, GROUP, T, S, c, scale, g, shift_lo, shift_hi, begin, groups, all_groups,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_eb, stride_eh, stride_ab, stride_sb,
    BITS, words, lead_b, lead_h, PER_BIT: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BG: tl.constexpr,
    PEAK: tl.constexpr, DISTANCE: tl.constexpr, GROUPS: tl.constexpr, ENDS: tl.constexpr, DOCUMENTS: tl.constexpr,
    CAPPED: tl.constexpr, PACKED: tl.constexpr,
):  # fmt: skip
    """One block of queries of one head. c: scale x log2 e; CAPPED: cap x log2 e, scale is the cap and g scale / cap."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    bh = tl.program_id(1)
    b = bh // H
    h = bh % H
    hk = h // GROUP
    rows = block * BM + tl.arange(0, BM)
    inside = rows < T
    dims = tl.arange(0, BD)
    lo, hi = key_range(rows, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
    visible = hi > lo
    qdoc = rows
    if DOCUMENTS:
        qdoc = tl.load(QDOC + b * stride_ab + rows, mask=inside, other=0)
    KDOC = KDOC + b * stride_sb
    K = K + b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    q_at = Q + b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + rows[:, None].to(tl.int64) * stride_qm
    q = tl.load(q_at + dims[None, :], mask=inside[:, None] & (dims[None, :] < D), other=0.0)
    at_row = bh.to(tl.int64) * T + rows
    lse = tl.load(LSE + at_row, mask=inside, other=0.0)
    lse = tl.where(lse == float("-inf"), 0.0, lse) * 1.4426950408889634

    first = tl.min(tl.where(visible, lo, S), 0) // BN * BN
    last = tl.max(tl.where(visible, hi, 0), 0)
    line = rows
    tiles = rows
    if PACKED:
        lead = (b * lead_b + h * lead_h).to(tl.int64)
        line = BITS + (lead * T + rows) * words
        tiles = TILES + (lead * tl.num_programs(0) + block) * tl.cdiv(S, BN)
        first = 0
        last = tl.load(COUNTS + lead * tl.num_programs(0) + block)
    STEP: tl.constexpr = 1 if PACKED else BN

    peak = tl.full((BM,), NEG_INF, tl.float32)
    mass = tl.zeros((BM,), tl.float32)
    mean = tl.zeros((BM,), tl.float32)
    spread = tl.zeros((BM,), tl.float32)
    high = tl.zeros((BM, BG), tl.float32)
    low = tl.zeros((BM, BG), tl.float32)
    inner = tl.arange(0, BG)
    for at in range(first, last, STEP):
        start = at
        if PACKED:
            start = tl.load(tiles + at) * BN
        cols = start + tl.arange(0, BN)
        k_at = K + cols[:, None] * stride_kn + dims[None, :]
        k = tl.load(k_at, mask=(cols[:, None] < S) & (dims[None, :] < D), other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if CAPPED:
            s = soft_cap(s, g)
        seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
        if DOCUMENTS:
            seen = seen & (qdoc[:, None] == tl.load(KDOC + cols, mask=cols < S, other=0)[None, :])
        if PACKED:
            near, far, first_word, place = packed(line, words, start, cols, visible, PER_BIT)
            word = tl.where(first_word[None, :], near[:, None], far[:, None])
            seen = seen & (((word >> place[None, :]) & 1) != 0)
        s = tl.where(seen, s, NEG_INF)
        if PEAK:
            peak = tl.maximum(peak, tl.max(s, 1))
        if DISTANCE or GROUPS:
            p = tl.where(seen, tl.minimum(tl.exp2(s * c - lse[:, None]), 1.0), 0.0)
        if DISTANCE:
            here = rows + (S - T)
            origin = tl.abs(here - start).to(tl.float32)
            x = tl.abs(here[:, None] - cols[None, :]).to(tl.float32) - origin[:, None]
            more = tl.sum(p, 1)
            some = tl.where(more > 0, more, 1.0)
            shift = tl.sum(p * x, 1) / some
            inside_tile = tl.sum(p * (x - shift[:, None]) * (x - shift[:, None]), 1)
            whole = tl.where(mass + more > 0, mass + more, 1.0)
            apart = origin + shift - mean
            apart = tl.where(more > 0, apart, 0.0)
            mean = tl.where(mass > 0, mean + apart * (more / whole), tl.where(more > 0, origin + shift, 0.0))
            spread += inside_tile + tl.where(mass > 0, apart * apart * (mass * (more / whole)), 0.0)
            mass += more
        if GROUPS:
            table = tl.load(TABLE + cols[:, None] * BG + inner[None, :], mask=cols[:, None] < S, other=0.0)
            half = p.to(tl.float16)
            rest = ((p - half.to(tl.float32)) * LOW_HALF).to(tl.float16)
            high = tl.dot(half, table, high)
            low = tl.dot(rest, table, low)

    if PEAK:
        tl.store(PEAK_OUT + at_row, tl.where(peak > NEG_INF, peak * scale, float("-inf")), mask=inside)
    if DISTANCE:
        some = tl.where(mass > 0, mass, 1.0)
        tl.store(DISTANCE_OUT + at_row * 2, tl.where(mass > 0, mean, 0.0), mask=inside)
        tl.store(DISTANCE_OUT + at_row * 2 + 1, tl.where(mass > 0, spread / some, 0.0), mask=inside)
    if GROUPS:
        sums_at = SUMS + at_row[:, None] * all_groups + begin + inner[None, :]
        tl.store(sums_at, high + low * (1 / LOW_HALF), mask=inside[:, None] & (inner[None, :] < groups))
