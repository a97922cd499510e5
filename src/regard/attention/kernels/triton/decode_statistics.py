"""Statistics of one query a head against a KV cache, whatever computed its output: two small kernels.

The first writes the weights, exp(score - lse), all query heads of a key head in one product, so that every key is read
once; with one query they are also what each key received. The second goes through each row of them once: entropy,
top-k, thumbnail. A cache grows at every step, so lengths are no part of what is compiled, nor of what is planned.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED, on_device
from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.triton.launch import Launches, PlannedLaunch
from regard.attention.kernels.triton.soft_cap import factors, soft_cap

LOG2E = 1.4426950408889634
KEYS = 16 if INTERPRETED else 128  # of a tile
ROW = 32 if INTERPRETED else 1024  # weights of a row that are held at a time
CELLS = 256  # cells of a thumbnail that are summed at a time
MAX_GROUP = 64  # query heads that share a key head
MAX_TOP = 64


def decode_statistics(
    q: Tensor, k: Tensor, lse: Tensor, scale: float, cap: float, entropy: bool, top: int, cells: int,
    launches: Launches,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Weights (B, H, S), entropy (B, H), the largest weights (B, H, top) and their keys, thumbnail (B, H, cells), of
    queries q (B, H, 1, D) that see all keys k (B, key heads, S, D), with lse (B, H); what is not requested is empty."""
    (B, H, _, D), (HK, S) = q.shape, k.shape[1:3]
    weights = torch.empty((B, H, S), dtype=torch.float32, device=q.device)
    entropies = weights.new_empty((B, H) if entropy else (0,))
    values = weights.new_empty((B, H, top) if top else (0,))
    indices = torch.empty((B, H, top) if top else (0,), dtype=torch.int64, device=q.device)
    thumbnail = weights.new_empty((B, H, cells) if cells else (0,))
    with on_device(q):
        if (write := launches.get("decode weights")) is None:
            after, before = factors(scale, cap)
            write = launches["decode weights"] = PlannedLaunch(
                decode_weights, (), (H, H // HK, after * LOG2E, before),
                D=D, BD=tile_width(D), BM=max(16, triton.next_power_of_2(H // HK)), BN=KEYS, CAPPED=cap > 0,
                STEP=8 if D % 8 == 0 and k.element_size() == 2 else 1, num_warps=4,
            )  # fmt: skip
        sizes = S, q.stride(0), q.stride(1), *k.stride()[:3], lse.stride(0)
        write(q, k, lse, weights, grid=(triton.cdiv(S, KEYS), B * HK), sizes=sizes)
        if entropy or top or cells:
            name = "decode rows", entropy, top, cells > 0
            if (read := launches.get(name)) is None:
                read = launches[name] = PlannedLaunch(
                    row_statistics, (), (),
                    ENTROPY=entropy, TOP=top, BT=triton.next_power_of_2(max(top, 1)), THUMBNAIL=cells > 0, BLOCK=ROW,
                    CELLS=CELLS, num_warps=4,
                )  # fmt: skip
            read(weights, entropies, values, indices, thumbnail, grid=(B * H,), sizes=(S, cells))
    return weights, entropies, values, indices, thumbnail


@triton.jit(do_not_specialize=["S", "stride_qb", "stride_qh", "stride_kb", "stride_kh", "stride_kn", "stride_lb"])
def decode_weights(
    Q, K, LSE, WEIGHTS, S, stride_qb, stride_qh, stride_kb, stride_kh, stride_kn, stride_lb, H, GROUP, c, g,
    D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAPPED: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """The weights that the GROUP query heads of one key head give to BN keys. All strides of keys are multiples of
    STEP, so that they are read 16 bytes at a time."""
    stride_kb = tl.multiple_of(stride_kb, STEP)
    stride_kh = tl.multiple_of(stride_kh, STEP)
    stride_kn = tl.multiple_of(stride_kn, STEP)
    start = tl.program_id(0) * BN
    b = tl.program_id(1) // (H // GROUP)
    hk = tl.program_id(1) % (H // GROUP)
    row = tl.arange(0, BM)
    real = row < GROUP
    h = hk * GROUP + row
    dims = tl.arange(0, BD)
    cols = start + tl.arange(0, BN)
    q_at = b.to(tl.int64) * stride_qb + h.to(tl.int64) * stride_qh
    q = tl.load(Q + q_at[:, None] + dims[None, :], mask=real[:, None] & (dims[None, :] < D), other=0.0)
    k_at = K + b.to(tl.int64) * stride_kb + hk.to(tl.int64) * stride_kh + cols[:, None].to(tl.int64) * stride_kn
    k = tl.load(k_at + dims[None, :], mask=(cols[:, None] < S) & (dims[None, :] < D), other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    if CAPPED:
        s = soft_cap(s, g)
    lse = tl.load(LSE + b.to(tl.int64) * stride_lb + h, mask=real, other=0.0) * 1.4426950408889634
    weight = tl.minimum(tl.exp2(s * c - lse[:, None]), 1.0)
    place = (b.to(tl.int64) * H + h) * S
    tl.store(WEIGHTS + place[:, None] + cols[None, :], weight, mask=real[:, None] & (cols[None, :] < S))


@triton.jit(do_not_specialize=["S", "C"])
def row_statistics(
    WEIGHTS, ENT, VALUES, INDICES, THUMB, S, C,
    ENTROPY: tl.constexpr, TOP: tl.constexpr, BT: tl.constexpr, THUMBNAIL: tl.constexpr, BLOCK: tl.constexpr,
    CELLS: tl.constexpr,
):  # fmt: skip
    """The statistics of one row of weights. The largest so far are kept in order; a block of the row is searched for
    its largest until that is not among them."""
    line = tl.program_id(0).to(tl.int64)
    row = WEIGHTS + line * S
    inner = tl.arange(0, BLOCK)
    places = tl.arange(0, BT)
    best = tl.full((BT,), -1.0, tl.float32)
    keys = tl.full((BT,), -1, tl.int32)
    total = 0.0
    whole = 0.0
    for start in range(0, S, BLOCK):
        cols = start + inner
        w = tl.load(row + cols, mask=cols < S, other=-1.0)
        if ENTROPY:
            total += tl.sum(tl.where(w > 0, -w * tl.log(tl.where(w > 0, w, 1.0)), 0.0), 0)
            whole += tl.sum(tl.where(w > 0, w, 0.0), 0)
        if TOP:
            last = tl.min(tl.where(places < TOP, best, 2.0), 0)  # the least of the largest so far
            largest = tl.max(w, 0)
            while largest > last:
                at = tl.min(tl.where(w == largest, inner, BLOCK), 0)
                rank = tl.sum((best >= largest).to(tl.int32), 0)  # of equal ones the earlier key comes first
                above = tl.sum(tl.where(places[None, :] == places[:, None] - 1, best[None, :], 0.0), 1)
                above_key = tl.sum(tl.where(places[None, :] == places[:, None] - 1, keys[None, :], 0), 1)
                best = tl.where(places < rank, best, tl.where(places == rank, largest, above))
                keys = tl.where(places < rank, keys, tl.where(places == rank, start + at, above_key))
                w = tl.where(inner == at, -1.0, w)
                last = tl.min(tl.where(places < TOP, best, 2.0), 0)
                largest = tl.max(w, 0)
    if ENTROPY:
        tl.store(ENT + line, total / whole + tl.log(whole))  # the log-sum-exp was rounded, and with it all weights
    if TOP:
        tl.store(VALUES + line * TOP + places, tl.maximum(best, 0.0), mask=places < TOP)
        tl.store(INDICES + line * TOP + places, keys.to(tl.int64), mask=places < TOP)
    if THUMBNAIL:
        for begin in range(0, C, CELLS):
            cell = (begin + tl.arange(0, CELLS)).to(tl.int64)
            first = (cell * S + C - 1) // C  # key j is in cell floor(j C / S)
            until = ((cell + 1) * S + C - 1) // C
            cell_sum = tl.zeros((CELLS,), tl.float32)
            for i in range((S + C - 1) // C):
                there = (cell < C) & (first + i < until)
                cell_sum += tl.load(row + first + i, mask=there, other=0.0)
            tl.store(THUMB + line * C + cell, cell_sum / (until - first).to(tl.float32), mask=cell < C)
