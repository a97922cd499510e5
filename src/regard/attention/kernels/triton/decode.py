"""Decoding on a GPU: a few queries against a long KV cache (split-K, as FlashDecoding), in two kernels.

The keys are split into parts, and the averages of the parts are combined. All query heads that read one key head are
rows of one product, so every key and value is read once. A program passes over its part of the keys with the online
softmax and writes its maximum, sum and average. It can write the scores too: for a few queries they are small beside
the cache, and with the log-sum-exp every statistic follows from them by definition. Letters and masks are those of
forward.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import on_device
from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton.forward import key_range
from regard.attention.kernels.triton.soft_cap import factors, soft_cap
from regard.errors import ShapeError

LOG2E = 1.4426950408889634
MAX_ROWS = 64  # rows of one product: queries times the heads that share keys
DEFAULT_SM_COUNT = 132  # multiprocessors, assumed where there is no device to ask
LENGTHS = ["S", "first", "last", "part", "shift_lo", "shift_hi"]  # not specialised on: a cache grows at every step
NEG_INF = tl.constexpr(-1.0e38)  # stands for -inf: finite, so that NEG_INF - NEG_INF is not NaN


class DecodeTiling(NamedTuple):
    """The keys of a tile, the warps of its program, and the tiles fetched ahead."""

    keys: int
    warps: int
    stages: int


# by the bytes of a key, up to the next power of two
DECODE_TILINGS = {
    32: DecodeTiling(128, 4, 3),
    64: DecodeTiling(128, 4, 3),
    128: DecodeTiling(128, 4, 3),
    256: DecodeTiling(64, 4, 3),
    512: DecodeTiling(32, 4, 3),
    1024: DecodeTiling(16, 4, 3),
}


def decode(
    q: Tensor, k: Tensor, v: Tensor, spans: KeySpans, scale: float, wants_scores: bool,
    tiling: DecodeTiling | None = None, splits: int | None = None, cap: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """output (B, H, T, D), lse (B, H, T), and with `wants_scores` the scaled scores (B, H, T, S), -inf where hidden.

    q (B, H, T, D), k and v (B, H / GROUP, S, D) with GROUP x T at most MOST; scale above 0; cap 0: none.
    """
    (B, H, T, D), (HK, S) = q.shape, k.shape[1:3]
    rows = H // HK * T
    if rows > MAX_ROWS:
        raise ShapeError(f"{T} queries of {H // HK} heads that share keys", f"at most {MAX_ROWS} rows", where="decode")
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    dims = tile_width(D)
    tiling = tiling or DECODE_TILINGS[dims * k.element_size()]
    first, last = _visible_range(spans, T, S, tiling.keys)
    tiles = triton.cdiv(last - first, tiling.keys)
    splits = min(splits or triton.cdiv(2 * _sm_count(q), B * HK), max(tiles, 1))
    peaks, totals, sums = (_empty_float32(q, B * HK, splits, rows, *more) for more in ((), (), (D,)))
    (after, before), scores = factors(scale, cap), None
    if wants_scores:  # keys outside the parts are hidden from every query
        scores = _empty_float32(q, B, H, T, S)
        scores[..., :first] = -torch.inf
        scores[..., last:] = -torch.inf
    out, lse = torch.empty(q.shape, dtype=v.dtype, device=v.device), _empty_float32(q, B, H, T)
    with on_device(q):
        attend_part[(splits, B * HK)](
            q, k, v, scores, peaks, totals, sums, H, H // HK, T, S, after * LOG2E, after, before, first, last,
            triton.cdiv(tiles, splits) * tiling.keys, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            **spans.end_args(), **spans.document_args(), **spans.flags(),
            D=D, BD=dims, BM=max(16, triton.next_power_of_2(rows)), BN=tiling.keys, CAPPED=cap > 0,
            num_warps=tiling.warps, num_stages=tiling.stages,
        )  # fmt: skip
        combine_parts[(rows, B * HK)](
            peaks, totals, sums, out, lse, rows, splits,
            D=D, BD=dims, BS=triton.next_power_of_2(splits), CHUNK=max(4, 8192 // dims), num_warps=4,
        )  # fmt: skip
    return out, lse, scores


def _visible_range(spans: KeySpans, T: int, S: int, keys: int) -> tuple[int, int]:
    """The first key, rounded down to a tile, and one past the last, that any query sees by the shifts alone."""
    first = min(max(spans.shift_lo, 0), S) // keys * keys
    return first, max(min(T - 1 + spans.shift_hi, S), first)


def _empty_float32(x: Tensor, *shape: int) -> Tensor:
    """Uninitialised float32 memory on the device of x."""
    return torch.empty(shape, dtype=torch.float32, device=x.device)


def _sm_count(x: Tensor) -> int:
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count) if x.is_cuda else DEFAULT_SM_COUNT


@triton.jit(do_not_specialize=LENGTHS)
def attend_part(
    Q, K, V, SCORES, PEAKS, TOTALS, SUMS, H, GROUP, T, S, c, scale, g, first, last, part,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, QDOC, KDOC, stride_ab, stride_sb,
    ENDS: tl.constexpr, DOCUMENTS: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr,
):  # fmt: skip
    """GROUP x T rows against `part` keys: maximum (x log2 e), sum and unnormalised average of each row."""
    split = tl.program_id(0)
    bhk = tl.program_id(1)
    b = bhk // (H // GROUP)
    hk = bhk % (H // GROUP)
    row = tl.arange(0, BM)
    real = row < GROUP * T
    dims = tl.arange(0, BD)
    inner = tl.arange(0, BN)
    h = hk * GROUP + row // T
    t = tl.where(real, row % T, T)  # a row past the end is a query past the end, which sees nothing
    lo, hi = key_range(t, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ENDS)
    qdoc = t
    if DOCUMENTS:
        qdoc = tl.load(QDOC + b * stride_ab + t, mask=real, other=0)
        KDOC += b * stride_sb
    q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + t.to(tl.int64) * stride_qm
    q = tl.load(Q + q_at[:, None] + dims[None, :], mask=real[:, None] & (dims[None, :] < D), other=0.0)
    K += b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    V += b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    line = (((b * H + h) * T).to(tl.int64) + t) * S

    begin = first + split * part
    stop = tl.minimum(begin + part, last)
    seen_from = begin
    seen_to = stop
    if ENDS:
        visible = hi > lo
        seen_from = tl.maximum(begin, tl.min(tl.where(visible, lo, S), 0) // BN * BN)
        seen_to = tl.minimum(stop, tl.max(tl.where(visible, hi, 0), 0))
        if SCORES is not None:
            _hide(SCORES, line, real, begin, tl.minimum(seen_from, stop), stop, BN)
            _hide(SCORES, line, real, tl.maximum(tl.cdiv(seen_to, BN) * BN, seen_from), stop, stop, BN)

    peak = tl.full((BM,), NEG_INF, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BD), tl.float32)
    for start in range(seen_from, seen_to, BN):
        start = tl.multiple_of(start, BN)
        cols = start + inner
        there = (cols[:, None] < S) & (dims[None, :] < D)
        k_at = K + start * tl.cast(stride_kn, tl.int64) + inner[:, None] * stride_kn + dims[None, :]
        v_at = V + start * tl.cast(stride_vn, tl.int64) + inner[:, None] * stride_vn + dims[None, :]
        k = tl.load(k_at, mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        if CAPPED:
            s = soft_cap(s, g)
        seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
        if DOCUMENTS:
            seen = seen & (qdoc[:, None] == tl.load(KDOC + cols, mask=cols < S, other=0)[None, :])
        if SCORES is not None:
            visible_scores = tl.where(seen, s * scale, float("-inf"))
            within = real[:, None] & (cols[None, :] < stop)
            tl.store(SCORES + line[:, None] + cols[None, :], visible_scores, mask=within)
        x = tl.where(seen, s * c, NEG_INF)
        new_peak = tl.maximum(peak, tl.max(x, 1))
        p = tl.where(seen, tl.exp2(x - new_peak[:, None]), 0.0)
        rescale = tl.exp2(peak - new_peak)
        total = total * rescale + tl.sum(p, 1)
        v = tl.load(v_at, mask=there, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        peak = new_peak

    at = (bhk.to(tl.int64) * tl.num_programs(0) + split) * GROUP * T + row
    tl.store(PEAKS + at, peak, mask=real)
    tl.store(TOTALS + at, total, mask=real)
    tl.store(SUMS + at[:, None] * D + dims[None, :], acc, mask=real[:, None] & (dims[None, :] < D))


@triton.jit
def _hide(SCORES, line, real, first, last, stop, BN: tl.constexpr):
    """-inf for all rows from key `first` to `last`."""
    for start in range(first, last, BN):
        cols = start + tl.arange(0, BN)
        hidden = real[:, None] & (cols[None, :] < stop)
        tl.store(SCORES + line[:, None] + cols[None, :], float("-inf"), mask=hidden)


@triton.jit(do_not_specialize=["splits"])
def combine_parts(
    PEAKS, TOTALS, SUMS, OUT, LSE, rows, splits,
    D: tl.constexpr, BD: tl.constexpr, BS: tl.constexpr, CHUNK: tl.constexpr,
    LN2: tl.constexpr = 0.6931471805599453,
):  # fmt: skip
    """Output and lse of one row from all parts; (B, H / GROUP, rows) is the same as (B, H, T)."""
    row = tl.program_id(0)
    bhk = tl.program_id(1)
    base = bhk.to(tl.int64) * splits * rows + row
    every = tl.arange(0, BS)
    peaks = tl.load(PEAKS + base + every * rows, mask=every < splits, other=NEG_INF)
    totals = tl.load(TOTALS + base + every * rows, mask=every < splits, other=0.0)
    peak = tl.max(peaks, 0)
    total = tl.sum(totals * tl.exp2(peaks - peak), 0)
    dims = tl.arange(0, BD)
    acc = tl.zeros((BD,), tl.float32)
    for start in range(0, splits, CHUNK):
        split = start + tl.arange(0, CHUNK)
        at = base + split * rows
        share = tl.exp2(tl.load(PEAKS + at, mask=split < splits, other=NEG_INF) - peak)
        there = (split[:, None] < splits) & (dims[None, :] < D)
        acc += tl.sum(tl.load(SUMS + at[:, None] * D + dims[None, :], mask=there, other=0.0) * share[:, None], 0)
    live = total > 0
    safe_total = tl.where(live, total, 1.0)
    place = bhk.to(tl.int64) * rows + row
    tl.store(LSE + place, tl.where(live, (peak + tl.log2(safe_total)) * LN2, float("-inf")))
    out = tl.where(live, acc / safe_total, 0.0)
    tl.store(OUT + place * D + dims, out.to(OUT.dtype.element_ty), mask=dims < D)
