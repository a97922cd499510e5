"""Planned calls: what depends on shapes and kinds alone in a call of `attend` on a GPU is worked out once, and kept.

At everyday lengths the host takes longer to check a request and to choose among kernels than the device to compute it.
So the first call of a kind goes the whole way, and leaves a PlannedCall for those that are alike: the same shapes,
strides, dtypes and alignment, an equal score, mask, backend and Observe. What has numbers on the device (lengths of a
padding mask, documents, a bias, a sink) is not planned, nor is a call with a gradient or inside a transform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from regard.attention.grid import Grid
from regard.attention.inputs import AttentionInputs, zero_masked
from regard.attention.kernels.devices import INTERPRETED
from regard.attention.kernels.fused import HALF_DTYPES, Request
from regard.attention.kernels.sdpa import CUDNN_MIN_LENGTH, SdpaRequest
from regard.attention.kernels.shapes import is_aligned
from regard.attention.kernels.spans import KeySpans
from regard.attention.mask_analysis import every_row_and_column_live, is_trivial, live_queries_and_keys
from regard.attention.masks import Causal, Everything, Mask, Runs, Window
from regard.attention.normalise import Softmax
from regard.attention.observe import Attended, Observe
from regard.attention.scores import Dot, ScaledDot
from regard.attention.transforms import is_plain_call

Vendor = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
DTYPES = (*HALF_DTYPES, torch.float32) if INTERPRETED else HALF_DTYPES
MAX_KEPT = 4096  # kinds of calls; a program that meets more of them begins anew

_kept: dict[Any, PlannedCall] = {}


class PlannedCall:
    """What `attend` does with tensors of one kind: which kernels, with what."""

    __slots__ = ("backend", "grid", "observe", "request", "vendor")

    def __init__(self, backend: str, observe: Observe, request: Request, vendor: Vendor | None, grid: Grid) -> None:
        self.backend, self.observe, self.request, self.vendor, self.grid = backend, observe, request, vendor, grid

    def run(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Attended:
        """What `attend` returns for tensors of this kind."""
        if self.vendor is None:
            return self._request(q, k, v, mask).attend(self.observe)
        output, lse = self.vendor(q, k, v)
        found = self._request(q, k, v, mask).statistics_of(lse, self.observe) if self.observe.statistics else {}
        return Attended.of_fields(output, lse, self.backend, found)

    def _request(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | None) -> Request:
        of, spans = self.request, self.request.spans
        if type(mask) is Runs:  # whose numbers are no part of the kind
            grid = self.grid if k.size(2) == self.grid.S else replace(self.grid, S=k.size(2))
            spans = KeySpans.of(mask, grid)
            # a hidden key's score is replaced before it is used, and a weight of 0 times NaN is NaN
            v = zero_masked(v, live_queries_and_keys(mask, grid)[1], grid)
        return Request(q, k, v, spans, of.scale, of.lead, of.cap, None, of.launches, True)


def kind_of(
    q: Tensor, k: Tensor, v: Tensor, score: object, mask: object, observe: Observe, backend: str
) -> tuple[Any, ...] | None:
    """The kind of a call with nothing else than this, which finds its plan; None: it is not planned."""
    if not (q.is_cuda or INTERPRETED) or not q.dim() == k.dim() == v.dim() == 4 or not is_plain_call(q, k, v):
        return None
    if q.dtype not in DTYPES or observe.weights or observe.prepared or observe.values:
        return None
    hides: tuple[Any, ...] | None
    if mask is None:
        hides = None
    elif type(mask) in (Window, Causal):
        hides = (mask.left, mask.right, mask.offset)  # type: ignore[attr-defined]
        if isinstance(hides[2], Tensor):
            return None
    elif type(mask) is Everything:
        hides = None
    elif type(mask) is Runs:
        first, stop = mask.first, mask.stop
        hides = (first.shape, stop.shape, first.device, stop.device)
    else:
        return None
    if score is None:
        scores: tuple[Any, ...] | None = None
    elif type(score) is ScaledDot:
        scores = (score.fixed, score.cap)
    elif type(score) is Dot:
        scores = ()
    else:
        return None
    shapes: tuple[Any, ...]
    runs = type(mask) is Runs
    if q.shape[2] == 1 and (hides is None or hides == (None, 0, None) or runs):  # of a cache that grows at every step
        lengths = (k.shape[0], k.shape[1], k.shape[3], k.stride(3), v.shape[0], v.shape[1], v.shape[3], v.stride(3))
        usual = v.shape[2] == k.shape[2] > 0, k.shape[2] >= CUDNN_MIN_LENGTH, max(k.stride()) < 2**31
        hides, shapes = hides if runs else None, (q.shape, q.stride(), lengths, *usual)
    else:
        shapes = (q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride())
    if not (is_aligned(q) and is_aligned(k) and is_aligned(v)):  # its kernels take a copy
        return None
    return (*shapes, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, hides, scores, observe, backend)


def planned(kind: tuple[Any, ...]) -> PlannedCall | None:
    """The plan of calls of this kind, if there was one before."""
    return _kept.get(kind)


def keep_plan(
    kind: tuple[Any, ...], prepared: AttentionInputs, q: Tensor, k: Tensor, v: Tensor, backend: str, observe: Observe
) -> None:
    """Plan the calls of this kind, if all that they need is known: `prepared` and `backend` are what a call of it, with
    these tensors, was served by."""
    lead, grid = q.shape[:2], prepared.grid
    runs = isinstance(prepared.mask, Runs)
    is_own = runs or (prepared.q is q and prepared.k is k)  # those with nothing of hidden ones are copies
    is_whole = is_own and grid.lead == tuple(lead) and k.shape[0] == v.shape[0] == lead[0]
    is_usual = k.size(1) == v.size(1) and all(x.stride(-1) == 1 for x in (q, k, v)) and q.dtype == k.dtype == v.dtype
    is_live = every_row_and_column_live(prepared.mask, grid) or (runs and prepared.q.shape == q.shape)
    is_usual = is_usual and is_live and isinstance(prepared.normalise, Softmax)
    if backend not in ("triton", "triton-fused") or (runs and backend == "triton") or not (is_whole and is_usual):
        return
    vendor = None
    if backend == "triton" and (vendor := _vendor_of(prepared, v)) is None:
        return
    if len(_kept) >= MAX_KEPT:
        _kept.clear()
    request, nothing = Request.of(prepared, v), torch.empty(0)
    # another cache may be longer: what sees all of this one sees all of that
    spans = KeySpans() if grid.T == 1 and is_trivial(prepared.mask, grid) else request.spans
    # no plan keeps a tensor alive
    spans = KeySpans() if runs else spans
    launches: dict[Any, Any] | None = None if runs and grid.T == 1 else {}  # None: those of one length of a cache
    request = replace(request, q=nothing, k=nothing, v=nothing, spans=spans, launches=launches)
    _kept[kind] = PlannedCall(backend, observe, request, vendor, grid)


def _vendor_of(prepared: AttentionInputs, v: Tensor) -> Vendor | None:
    """The vendor's operator for such tensors, as the backend "sdpa" would call it."""
    request = SdpaRequest.of(prepared, v)
    causal, scale = request.causal, request.scale
    if request.attn_mask is not None or not prepared.q.is_cuda:
        return None
    if request.suits_cudnn:

        def by_cudnn(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            found = torch._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal, False, scale=scale)
            return found[0], found[1].squeeze(-1)

        return by_cudnn
    if request.suits_flash:

        def by_flash(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            found = torch._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False, scale=scale)
            return found[0], found[1]

        return by_flash
    return None
