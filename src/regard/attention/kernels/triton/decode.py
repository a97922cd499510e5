"""A few queries against a long cache, in two kernels: the keys are cut into parts, and the parts' averages are joined.

All query heads that read one key head are rows of one product, so that every key and value is read once. A program
walks over its part of the keys with the online softmax and leaves its maximum, sum and average; on the way it can write
the scores themselves: for a few queries they are no more than a small share of the cache, and with the log-sum-exp
every statistic follows from them by its definition. Letters and masks are those of forward.
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
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton.forward import ends
from regard.errors import ShapeError

LOG2E = 1.4426950408889634
MOST = 64  # rows of one product: queries times the heads that share keys
HOPPER = 132  # multiprocessors, where no device says how many it has
LENGTHS = ["S", "first", "last", "part", "shift_lo", "shift_hi"]  # a cache grows: no kernel is compiled again for that
NEVER = tl.constexpr(-1.0e38)  # stands for -inf: finite, so that NEVER - NEVER is not NaN


class Walk(NamedTuple):
    """How many keys a tile has, the warps of its program, and how many tiles are fetched ahead."""

    keys: int
    warps: int
    stages: int


# by the bytes of a key, up to the next power of two
WALKS = {
    32: Walk(128, 4, 3),
    64: Walk(128, 4, 3),
    128: Walk(128, 4, 3),
    256: Walk(64, 4, 3),
    512: Walk(32, 4, 3),
    1024: Walk(16, 4, 3),
}


def decode(
    q: Tensor, k: Tensor, v: Tensor, reach: Spans, scale: float, wants_scores: bool,
    walk: Walk | None = None, splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:  # fmt: skip
    """output (B, H, T, D), lse (B, H, T), and if wanted the scores (B, H, T, S), scaled, -inf where a key is hidden.

    q (B, H, T, D), k and v (B, H / GROUP, S, D) with GROUP x T at most MOST; scale above 0.
    """
    (B, H, T, D), (HK, S) = q.shape, k.shape[1:3]
    rows = H // HK * T
    if rows > MOST:
        raise ShapeError(f"{T} queries of {H // HK} heads that share keys", f"{MOST} together", where="decode")
    q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v))
    wide = tile_width(D)
    walk = walk or WALKS[wide * k.element_size()]
    first, last = _seen_by_any(reach, T, S, walk.keys)
    tiles = triton.cdiv(last - first, walk.keys)
    splits = min(splits or triton.cdiv(2 * _multiprocessors(q), B * HK), max(tiles, 1))
    peaks, totals, sums = (_room(q, B * HK, splits, rows, *more) for more in ((), (), (D,)))
    scores = None
    if wants_scores:  # keys outside of what the parts cover are hidden from every query
        scores = _room(q, B, H, T, S)
        scores[..., :first] = -torch.inf
        scores[..., last:] = -torch.inf
    out, lse = torch.empty(q.shape, dtype=v.dtype, device=v.device), _room(q, B, H, T)
    with on_device(q):
        attend_part[(splits, B * HK)](
            q, k, v, scores, peaks, totals, sums, H, H // HK, T, S, scale * LOG2E, scale, first, last,
            triton.cdiv(tiles, splits) * walk.keys, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
            **reach.ends(), **reach.documents(), **reach.kinds(),
            D=D, BD=wide, BM=max(16, triton.next_power_of_2(rows)), BN=walk.keys,
            num_warps=walk.warps, num_stages=walk.stages,
        )  # fmt: skip
        join_parts[(rows, B * HK)](
            peaks, totals, sums, out, lse, rows, splits,
            D=D, BD=wide, BS=triton.next_power_of_2(splits), CHUNK=max(4, 8192 // wide), num_warps=4,
        )  # fmt: skip
    return out, lse, scores


def _seen_by_any(reach: Spans, T: int, S: int, keys: int) -> tuple[int, int]:
    """The first key, rounded down to a tile, and one past the last that any query sees, as far as shifts tell."""
    first = min(max(reach.shift_lo, 0), S) // keys * keys
    return first, max(min(T - 1 + reach.shift_hi, S), first)


def _room(x: Tensor, *shape: int) -> Tensor:
    """Room for float32 numbers, where x lies."""
    return torch.empty(shape, dtype=torch.float32, device=x.device)


def _multiprocessors(x: Tensor) -> int:
    return int(torch.cuda.get_device_properties(x.device).multi_processor_count) if x.is_cuda else HOPPER


@triton.jit(do_not_specialize=LENGTHS)
def attend_part(
    Q, K, V, SCORES, PEAKS, TOTALS, SUMS, H, GROUP, T, S, c, scale, first, last, part,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, ASKING, ASKED, stride_ab, stride_sb,
    TOLD: tl.constexpr, DOCUMENTS: tl.constexpr,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """GROUP x T rows against `part` keys: maximum (x log2 e), sum and unfinished average of each, for `join_parts`."""
    split = tl.program_id(0)
    bhk = tl.program_id(1)
    b = bhk // (H // GROUP)
    hk = bhk % (H // GROUP)
    row = tl.arange(0, BM)
    real = row < GROUP * T
    wide = tl.arange(0, BD)
    inner = tl.arange(0, BN)
    h = hk * GROUP + row // T
    t = tl.where(real, row % T, T)  # a row past the end is a query past the end: it sees nothing
    lo, hi = ends(t, b, h, T, S, LO, HI, stride_eb, stride_eh, shift_lo, shift_hi, TOLD)
    asking = t
    if DOCUMENTS:
        asking = tl.load(ASKING + b * stride_ab + t, mask=real, other=0)
        ASKED += b * stride_sb
    q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh + t.to(tl.int64) * stride_qm
    q = tl.load(Q + q_at[:, None] + wide[None, :], mask=real[:, None] & (wide[None, :] < D), other=0.0)
    K += b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh
    V += b.to(tl.int64) * stride_vb + hk.to(tl.int64) * stride_vh
    line = (((b * H + h) * T).to(tl.int64) + t) * S

    begin = first + split * part
    stop = tl.minimum(begin + part, last)
    seen_from = begin
    seen_to = stop
    if TOLD:
        sees = hi > lo
        seen_from = tl.maximum(begin, tl.min(tl.where(sees, lo, S), 0) // BN * BN)
        seen_to = tl.minimum(stop, tl.max(tl.where(sees, hi, 0), 0))
        if SCORES is not None:
            _hide(SCORES, line, real, begin, tl.minimum(seen_from, stop), stop, BN)
            _hide(SCORES, line, real, tl.maximum(tl.cdiv(seen_to, BN) * BN, seen_from), stop, stop, BN)

    peak = tl.full((BM,), NEVER, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BD), tl.float32)
    for start in range(seen_from, seen_to, BN):
        start = tl.multiple_of(start, BN)
        cols = start + inner
        there = (cols[:, None] < S) & (wide[None, :] < D)
        k_at = K + start * tl.cast(stride_kn, tl.int64) + inner[:, None] * stride_kn + wide[None, :]
        v_at = V + start * tl.cast(stride_vn, tl.int64) + inner[:, None] * stride_vn + wide[None, :]
        k = tl.load(k_at, mask=there, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee")
        seen = (cols[None, :] >= lo[:, None]) & (cols[None, :] < hi[:, None])
        if DOCUMENTS:
            seen = seen & (asking[:, None] == tl.load(ASKED + cols, mask=cols < S, other=0)[None, :])
        if SCORES is not None:
            shown = tl.where(seen, s * scale, float("-inf"))
            tl.store(SCORES + line[:, None] + cols[None, :], shown, mask=real[:, None] & (cols[None, :] < stop))
        x = tl.where(seen, s * c, NEVER)
        higher = tl.maximum(peak, tl.max(x, 1))
        p = tl.where(seen, tl.exp2(x - higher[:, None]), 0.0)
        fade = tl.exp2(peak - higher)
        total = total * fade + tl.sum(p, 1)
        v = tl.load(v_at, mask=there, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc * fade[:, None], input_precision="ieee")
        peak = higher

    at = (bhk.to(tl.int64) * tl.num_programs(0) + split) * GROUP * T + row
    tl.store(PEAKS + at, peak, mask=real)
    tl.store(TOTALS + at, total, mask=real)
    tl.store(SUMS + at[:, None] * D + wide[None, :], acc, mask=real[:, None] & (wide[None, :] < D))


@triton.jit
def _hide(SCORES, line, real, first, last, stop, BN: tl.constexpr):
    """-inf for all rows from key `first` to `last`."""
    for start in range(first, last, BN):
        cols = start + tl.arange(0, BN)
        hidden = real[:, None] & (cols[None, :] < stop)
        tl.store(SCORES + line[:, None] + cols[None, :], float("-inf"), mask=hidden)


@triton.jit(do_not_specialize=["splits"])
def join_parts(
    PEAKS, TOTALS, SUMS, OUT, LSE, rows, splits,
    D: tl.constexpr, BD: tl.constexpr, BS: tl.constexpr, CHUNK: tl.constexpr,
    LN2: tl.constexpr = 0.6931471805599453,
):  # fmt: skip
    """Output and lse of one row, (B, H / GROUP, rows) being the same as (B, H, T)."""
    row = tl.program_id(0)
    bhk = tl.program_id(1)
    base = bhk.to(tl.int64) * splits * rows + row
    every = tl.arange(0, BS)
    peaks = tl.load(PEAKS + base + every * rows, mask=every < splits, other=NEVER)
    totals = tl.load(TOTALS + base + every * rows, mask=every < splits, other=0.0)
    peak = tl.max(peaks, 0)
    total = tl.sum(totals * tl.exp2(peaks - peak), 0)
    wide = tl.arange(0, BD)
    acc = tl.zeros((BD,), tl.float32)
    for start in range(0, splits, CHUNK):
        split = start + tl.arange(0, CHUNK)
        at = base + split * rows
        share = tl.exp2(tl.load(PEAKS + at, mask=split < splits, other=NEVER) - peak)
        there = (split[:, None] < splits) & (wide[None, :] < D)
        acc += tl.sum(tl.load(SUMS + at[:, None] * D + wide[None, :], mask=there, other=0.0) * share[:, None], 0)
    looks = total > 0
    whole = tl.where(looks, total, 1.0)
    place = bhk.to(tl.int64) * rows + row
    tl.store(LSE + place, tl.where(looks, (peak + tl.log2(whole)) * LN2, float("-inf")))
    out = tl.where(looks, acc / whole, 0.0)
    tl.store(OUT + place * D + wide, out.to(OUT.dtype.element_ty), mask=wide < D)
