"""Dispatch of the dot family on a GPU: which kernel serves a request, and how its forward and backward pass start.

Hopper's own kernels (kernels/hopper) take the widths and masks they were written for; kernels/triton/forward takes
everything else. The choice looks at shapes, dtypes and the device alone.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.triton.backward import gradients as general_gradients, sink_gradient, sink_strides
from regard.attention.kernels.triton.descriptors import (
    KEY_BLOCK,
    LOG2E,
    absent,
    document_strides,
    dot_tiling,
    has_hopper,
    mask_tensors,
    or_dummy,
    sm_count,
    unread_ints,
)
from regard.attention.kernels.triton.forward import forward as general_forward
from regard.attention.kernels.triton.launch import DescriptorPlan, Launches, PlannedLaunch, launches_of, runs_on_hopper
from regard.attention.kernels.triton.soft_cap import factors
from regard.attention.kernels.triton.statistics_pass import StatisticsPass

L2_BUDGET = 24 * 2**20  # bytes of keys and values of the heads worked on together: half of the second-level cache


def forward(
    q: Tensor, k: Tensor, v: Tensor, spans: KeySpans, scale: float, entropy: bool, top: int,
    cap: float = 0.0, sink: Tensor | None = None, launches: Launches | None = None, known: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """output (B, H, T, D), lse, entropy, what a sink (B, H) takes (B, H, T). top 1: the largest weight of each
    row and its key, both (B, H, T, 1); more: maxima of 16 classes of keys (B, H, T, 16), which Hopper's kernel alone
    writes. `launches`: those of this signature. `known`: the log-sum-exp, where another kernel has computed the output
    with it, which then may be left out here."""
    B, H, T, D = q.shape
    nothing, average = absent(q.device), known is None
    output = q.new_empty(B, T, H, D).transpose(1, 2) if average else absent(q.device, q.dtype)
    lse = torch.empty((B, H, T), dtype=torch.float32, device=q.device) if known is None else known
    row_entropy = torch.empty_like(lse) if entropy else nothing
    class_maxima, argmax = nothing, absent(q.device, torch.int64)
    if top:
        class_maxima = torch.empty((B, H, T, 16 if top > 1 else 1), dtype=torch.float32, device=q.device)
    if top == 1:
        argmax = torch.empty((B, H, T, 1), dtype=torch.int64, device=q.device)
    taken = nothing if sink is None else torch.empty_like(lse)
    found = output, lse, row_entropy, class_maxima, argmax, taken
    if launches is None:
        launches = launches_of((q, k, v), spans, scale, cap, sink)
    if runs_on_hopper(launches, q, k, spans):
        name = "forward", entropy, top, average
        plan = launches.get(name) or launches.setdefault(
            name, HopperForward(q, k, v, output, spans, scale, entropy, top, cap, sink, average)
        )
        plan.run(q, k, v, spans, sink, found)
        if plan.defers:
            StatisticsPass(q, k, lse, spans, scale, cap, launches).argmax_indices(argmax)
        return found
    if not average:
        output, lse = q.new_empty(B, T, H, D).transpose(1, 2), torch.empty_like(lse)
    k, v = (x if x.size(2) * x.stride(2) < 2**31 else x.contiguous() for x in (k, v))
    tile, (after, before) = dot_tiling(D, q.dtype), factors(scale, cap)
    packed = spans.bits is not None
    tiles, counts = spans.tile_lists(tile.queries, tile.keys, T, k.size(2)) if packed else (None, None)
    general_forward[(triton.cdiv(T, tile.queries), B * H)](
        q, k, v, output, lse, row_entropy, sink, taken, *mask_tensors(spans, lse), tiles, counts,
        H, H // k.size(1), T, k.size(2), after * LOG2E, before, spans.shift_lo, spans.shift_hi,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *output.stride()[:3], *spans.strides(),
        *document_strides(spans), *sink_strides(sink), **spans.packed_args(),
        D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, ENTROPY=entropy, ENDS=spans.has_ends,
        DOCUMENTS=spans.query_docs is not None, SINKS=sink is not None, CAPPED=cap > 0, PACKED=packed,
        num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    if top == 1:
        StatisticsPass(q, k, lse, spans, scale, cap, launches).topk_by_scan(class_maxima, argmax, 1)
    return output, lse, row_entropy, class_maxima, argmax, taken


class HopperForward:
    """Hopper's forward pass, planned for one signature."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, output: Tensor, spans: KeySpans, scale: float, entropy: bool, top: int,
        cap: float, sink: Tensor | None, average: bool,
    ) -> None:  # fmt: skip
        from regard.attention.kernels.hopper.forward import forward as kernel

        B, H, T, D = q.shape
        groups = _warp_groups(D, T) if average else _score_groups(T, top > 1 and spans.hides_nothing(T, k.size(2)))
        rows, (after, before) = 64 * groups, factors(scale, cap)
        blocks = triton.cdiv(T, rows)
        jobs = blocks * B * H
        stages = 2 if average or D > 64 else 4  # without values there is room
        programs = min(sm_count(q.device), jobs)
        shared = groups == 2 and top <= 1  # else the code for it is slower by as much as there is to win
        self.rows, self.counts_jobs = rows, shared and programs < jobs
        # to search for the place costs more than products hide where keys are narrow
        self.defers = average and top == 1 and groups == 3
        described = DescriptorPlan(q, 64), DescriptorPlan(k, KEY_BLOCK), DescriptorPlan(v, KEY_BLOCK)
        strides = (*(output.stride()[:3] if average else (0, 0, 0)), *spans.strides(), *sink_strides(sink))
        numbers = (
            H, H // k.size(1), T, k.size(2), after * LOG2E, before, spans.shift_lo, spans.shift_hi, blocks,
            _heads_per_chunk(B * H, k), jobs, *strides,
        )  # fmt: skip
        self.launch = PlannedLaunch(
            kernel, (programs,), numbers, described,
            D=D, BN=KEY_BLOCK, GROUPS=groups, STAGES=stages, ENTROPY=entropy, TOP=top, DEFER=self.defers,
            ENDS=spans.has_ends, SHARED=shared, SINKS=sink is not None, CAPPED=cap > 0, AVERAGE=average, num_warps=4,
        )  # fmt: skip

    def run(
        self, q: Tensor, k: Tensor, v: Tensor, spans: KeySpans, sink: Tensor | None, found: tuple[Tensor, ...]
    ) -> None:
        """Fill in what `forward` found."""
        output, lse, row_entropy, class_maxima, argmax, taken = found
        unread = unread_ints(q.device)
        next_job = torch.zeros(1, dtype=torch.int32, device=q.device) if self.counts_jobs else unread
        lo, hi = or_dummy(spans.lo, unread), or_dummy(spans.hi, unread)
        bounds = or_dummy(spans.query_block_bounds(k.size(2), self.rows, *q.shape[:2]), unread)
        self.launch(
            q, k, v, output, lse, row_entropy, class_maxima, argmax, or_dummy(sink, lse), taken, next_job, lo, hi,
            bounds,
        )  # fmt: skip


def _warp_groups(width: int, length: int) -> int:
    """How many groups of 64 queries work together: more groups leave fewer registers to each."""
    return 3 if width == 64 and length >= 1024 else 2


def _score_groups(length: int, may_be_four: bool) -> int:
    """The same where nothing is averaged, which leaves registers for a fourth: as leaves fewer of them without work.
    Four take 5 to 12% longer than three under a mask, where all wait for the one that sees most, and no less time with
    the argmax, whose search needs registers."""
    return min((4, 3), key=lambda groups: triton.cdiv(length, 64 * groups) * groups) if may_be_four else 3


def _heads_per_chunk(heads: int, k: Tensor) -> int:
    """How many heads are worked on at a time: a divisor of all heads whose keys and values stay in the cache."""
    limit = max(1, L2_BUDGET // (k.size(2) * k.size(3) * 2 * k.element_size()))
    return max(count for count in range(1, min(limit, heads) + 1) if heads % count == 0)


def gradients(
    grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    spans: KeySpans, scale: float, cap: float = 0.0, sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v: by the vendor's kernel where it knows the mask, which is quicker, or by ours; a sink is
    in the lse. Those of the sink (B, H), empty without one."""
    if grad_lse is not None or cap or not _is_cudnn_supported(q, k, spans):
        return general_gradients(grad, q, k, v, output, lse, grad_lse, spans, scale, cap=cap, sink=sink)
    causal, nothing = spans.shift_hi == 1, torch.zeros((), dtype=torch.int64, device=q.device)  # no dropout: no seed
    found = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, output, lse.unsqueeze(-1), nothing, nothing, None, None, None, q.size(2), k.size(2), 0.0, causal,
        scale=scale,
    )  # fmt: skip
    dq, dk, dv = (x.contiguous() for x in found)
    return dq, dk, dv, lse.new_empty(0) if sink is None else sink_gradient(grad, output, lse, sink)


def _is_cudnn_supported(q: Tensor, k: Tensor, spans: KeySpans) -> bool:
    """Whether cuDNN knows this mask (none, or causal with as many queries as keys) and takes these tensors."""
    T, S = q.size(2), k.size(2)
    full = spans.shift_hi >= S and spans.shift_lo <= 1 - T
    causal = spans.shift_hi == 1 and spans.shift_lo <= 1 - T and T == S
    return (
        has_hopper(q.device)
        and q.dtype in (torch.bfloat16, torch.float16)
        and not spans.has_ends
        and spans.query_docs is None
        and spans.bits is None
        and (full or causal)
        and q.size(1) == k.size(1)
        and q.size(-1) in (64, 128)
        and min(T, S) >= 64
    )
