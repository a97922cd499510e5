"""Which kernel serves the dot family, and how its forward pass and its gradients are started.

Hopper's own kernels (kernels/hopper) take the widths and masks they were written for; kernels/triton/forward takes
everything else. The choice looks at shapes, dtypes and the device alone.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton.backward import gradients as general_gradients
from regard.attention.kernels.triton.descriptors import (
    KEYS,
    LOG2E,
    described,
    has_hopper,
    of_documents,
    or_any,
    processors,
    suits_hopper,
    tile_of,
    told,
)
from regard.attention.kernels.triton.forward import forward as general_forward
from regard.attention.kernels.triton.statistics_pass import Pass

HELD = 24 * 2**20  # bytes of keys and values that heads worked on together may have: the second-level cache's half


def forward(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float, entropy: bool, top: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """output (B, H, T, D), lse, entropy (B, H, T). top 1: the largest weight of each row, its key, both (B, H, T, 1);
    more: traces of the largest (B, H, T, 16), which Hopper's kernel alone leaves."""
    B, H, T, D = q.shape
    output = q.new_empty(B, T, H, D).transpose(1, 2)
    lse = q.new_empty(B, H, T, dtype=torch.float32)
    found = torch.empty_like(lse) if entropy else lse.new_empty(0)
    strips = lse.new_empty((B, H, T, 16 if top > 1 else 1) if top else (0,))
    best = lse.new_empty((B, H, T, 1) if top == 1 else (0,), dtype=torch.int64)
    if suits_hopper(q, k, spans):
        _hopper_forward(q, k, v, spans, scale, (output, lse, found, strips, best), entropy, top)
        return output, lse, found, strips, best
    k, v = (x if x.size(2) * x.stride(2) < 2**31 else x.contiguous() for x in (k, v))
    tile = tile_of(D, q.dtype)
    general_forward[(triton.cdiv(T, tile.queries), B * H)](
        q, k, v, output, lse, found, *told(spans, lse),
        H, H // k.size(1), T, k.size(2), scale * LOG2E, spans.shift_lo, spans.shift_hi,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *output.stride()[:3], *spans.strides(),
        *of_documents(spans),
        D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, ENTROPY=entropy, TOLD=spans.told,
        DOCUMENTS=spans.asking is not None, num_warps=tile.warps, num_stages=tile.ahead,
    )  # fmt: skip
    if top == 1:
        Pass(q, k, lse, spans, scale).largest(strips, best, 1)
    return output, lse, found, strips, best


def _hopper_forward(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float, out: tuple[Tensor, ...], entropy: bool, top: int
) -> None:
    from regard.attention.kernels.hopper.forward import forward as kernel

    B, H, T, D = q.shape
    output, lse, found, strips, best = out
    groups = _groups(D, T)
    rows = 64 * groups
    leads = top == 1 and groups == 3  # to look for places costs more than products hide where keys are narrow
    blocks = triton.cdiv(T, rows)
    whole = lse.view(torch.int32)
    lo, hi = (whole if end is None else end for end in (spans.lo, spans.hi))
    bounds = or_any(spans.blocks(k.size(2), rows, B, H), whole)
    jobs = blocks * B * H
    programs = min(processors(q.device), jobs)
    shared = groups == 2 and top <= 1  # else the code for it is slower by as much as there is to win
    taken = whole.new_zeros(1) if shared and programs < jobs else whole
    kernel[(programs,)](
        described(q, 64), described(k, KEYS), described(v, KEYS), output, lse, found, strips, best, taken, lo, hi,
        bounds, H, H // k.size(1), T, k.size(2), scale * LOG2E, spans.shift_lo, spans.shift_hi, blocks,
        _together(B * H, k), jobs, *output.stride()[:3], *spans.strides(),
        D=D, BN=KEYS, GROUPS=groups, STAGES=2, ENTROPY=entropy, TOP=top, LEAD=leads, TOLD=spans.told,
        SHARED=shared, num_warps=4,
    )  # fmt: skip
    if leads:
        Pass(q, k, lse, spans, scale).located(best)


def _groups(width: int, length: int) -> int:
    """How many groups of 64 queries work together: more of them share fewer registers."""
    return 3 if width == 64 and length >= 1024 else 2


def _together(heads: int, k: Tensor) -> int:
    """How many heads are worked on at a time: a divisor of all of them whose keys and values stay in the cache."""
    most = max(1, HELD // (k.size(2) * k.size(3) * 2 * k.element_size()))
    return max(count for count in range(1, min(most, heads) + 1) if heads % count == 0)


def gradients(
    grad: Tensor, of_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, spans: Spans,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v: by the vendor's kernel where it knows the mask, which is quicker, or by ours."""
    if of_lse is not None or not _suits_vendor(q, k, spans):
        return general_gradients(grad, q, k, v, output, lse, of_lse, spans, scale)
    causal, nothing = spans.shift_hi == 1, torch.zeros((), dtype=torch.int64, device=q.device)  # no dropout: no seed
    found = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, output, lse.unsqueeze(-1), nothing, nothing, None, None, None, q.size(2), k.size(2), 0.0, causal,
        scale=scale,
    )  # fmt: skip
    dq, dk, dv = found
    return dq.contiguous(), dk.contiguous(), dv.contiguous()


def _suits_vendor(q: Tensor, k: Tensor, spans: Spans) -> bool:
    """Whether cuDNN knows this mask, and more: everything, or causal with as many queries as keys."""
    T, S = q.size(2), k.size(2)
    full = spans.shift_hi >= S and spans.shift_lo <= 1 - T
    causal = spans.shift_hi == 1 and spans.shift_lo <= 1 - T and T == S
    return (
        has_hopper(q.device)
        and q.dtype in (torch.bfloat16, torch.float16)
        and not spans.told
        and spans.asking is None
        and (full or causal)
        and q.size(1) == k.size(1)
        and q.size(-1) in (64, 128)
        and min(T, S) >= 64
    )
