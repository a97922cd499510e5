"""Statistics of a query's row beside any fused kernel: peak, distance, spans, and what chosen queries gave to each key.

One operator of torch.library, for graphs and gradients; kernels/triton/row_pass computes it.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from regard.attention.groups import Queries
from regard.attention.kernels.devices import on_device
from regard.attention.kernels.shapes import aligned
from regard.attention.kernels.spans import KeySpans
from regard.attention.observe import Observe


def without_rows(observe: Observe) -> Observe:
    """The request without what this pass computes."""
    if not has_rows(observe):
        return observe
    received = bool(observe.received) and observe.counted is None
    return replace(observe, received=received, peak=False, distance=False, spans=None)


def has_rows(observe: Observe) -> bool:
    """Whether anything is requested of this pass."""
    return observe.peak or observe.distance or observe.spans is not None or observe.counted is not None


def row_statistics(
    q: Tensor, k: Tensor, lse: Tensor, spans: KeySpans, scale: float, cap: float, observe: Observe
) -> dict[str, Tensor]:
    """Peak, distance and spans (B, H, ...) of queries q (B, H, T, D) and keys k (B, key heads, S, D); lse (B, H, T)."""
    T, S = q.size(2), k.size(2)
    members = None
    if observe.spans is not None:
        observe.spans.check(T, S)
        members = observe.spans.key_members(slice(0, S), S, lse)
    found: dict[str, Tensor] = {}
    if not (observe.peak or observe.distance or members is not None):
        return found
    s = spans
    peaks, moments, sums = _operator(
        q.detach(), k.detach(), lse.detach(), members, s.lo, s.hi, s.query_docs, s.key_docs, s.bits, s.tiles,
        s.shift_lo, s.shift_hi, s.unit, scale, cap, observe.peak, observe.distance,
    )  # fmt: skip
    if observe.peak:
        found["peak"] = peaks
    if observe.distance:
        found["distance"] = moments
    if observe.spans is not None:
        found["spans"] = observe.spans.sum_queries(sums)
    return found


def counted_queries(
    q: Tensor, lse: Tensor, spans: KeySpans, counted: Queries, S: int
) -> tuple[Tensor, Tensor, KeySpans]:
    """Queries, log-sum-exp and spans of a pass in which only these queries give weight: the last ones alone where they
    can be cut out, or all, those that do not count with a log-sum-exp of infinity, so that their weights are 0."""
    T = q.size(2)
    if counted.last is not None and spans.bits is None:
        first = max(T - counted.last, 0)
        return q[:, :, first:], lse[..., first:].contiguous(), spans.from_query(first)
    chosen = counted.counted(slice(0, T), T, q.device)
    return q, lse.masked_fill(~chosen, torch.inf), spans


@torch.library.custom_op("regard::attend_rows", mutates_args=())
def _operator(
    q: Tensor, k: Tensor, lse: Tensor, members: Tensor | None,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float, peak: bool,
    distance: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The largest score, the moments of the distance, and the weight of each group of keys; what is not requested is
    empty."""
    from regard.attention.kernels.triton.row_pass import row_pass

    spans = KeySpans(shift_lo, shift_hi, lo, hi, query_docs, key_docs, bits, tiles, unit)
    with on_device(q):
        found = row_pass(aligned(q), aligned(k), lse, spans, scale, cap, peak, distance, members)
    return tuple(x if x.numel() else torch.empty_like(x) for x in found)  # type: ignore[return-value]


@_operator.register_fake
def _(
    q: Tensor, k: Tensor, lse: Tensor, members: Tensor | None,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float, peak: bool,
    distance: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    rows = tuple(q.shape[:3])
    return (
        lse.new_empty(rows if peak else (0,)),
        lse.new_empty((*rows, 2) if distance else (0,)),
        lse.new_empty((0,) if members is None else (*rows, members.size(0))),
    )
