"""The copy log-probability on a GPU: the weight of one token's keys, by Triton's kernels, in memory linear in length.

An operator of torch.library, so that torch.compile, autograd and export know it. The kernels are in copy_kernels, which
is imported only when they run, because it needs triton.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import AttentionInputs
from regard.attention.kernels.fused import dot_unsupported_reason
from regard.attention.kernels.shapes import as_bhtd
from regard.attention.kernels.spans import KeySpans
from regard.attention.masks import Documents
from regard.attention.scores import Dot

PRECISIONS = (torch.bfloat16, torch.float16, torch.float32)


def unsupported_reason(prepared: AttentionInputs) -> str | None:
    """Why these kernels cannot serve the request; None: they can."""
    return dot_unsupported_reason(prepared, PRECISIONS)


def compute(prepared: AttentionInputs, same: Documents) -> Tensor:
    """ln of the weight that the keys of each query's token get, (..., T)."""
    assert isinstance(prepared.score, Dot)
    grid = prepared.grid
    q, k, _ = as_bhtd(prepared, prepared.k)
    seen, named = KeySpans.of(prepared.mask, grid), KeySpans.of(same, grid)
    assert named.query_docs is not None and named.key_docs is not None
    dtype = torch.promote_types(named.query_docs.dtype, named.key_docs.dtype)
    mass, _ = _copy_log_prob(
        q, k, named.key_docs.to(dtype), named.query_docs.to(dtype), seen.lo, seen.hi, seen.query_docs, seen.key_docs,
        seen.shift_lo, seen.shift_hi, prepared.score.scale(k.size(-1)),
    )  # fmt: skip
    return mass.reshape(*grid.lead, grid.T)


@torch.library.custom_op("regard::copy_log_prob", mutates_args=())
def _copy_log_prob(
    q: Tensor, k: Tensor, ids: Tensor, targets: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ln mass (B, H, T), and what is saved for the backward pass: (4, B, H, T), or (2, B, H, T) for 16 bits."""
    from regard.attention.kernels.triton.copy_kernels import forward

    return forward(q, k, ids, targets, KeySpans(shift_lo, shift_hi, lo, hi, query_docs, key_docs), scale)


@_copy_log_prob.register_fake
def _(
    q: Tensor, k: Tensor, ids: Tensor, targets: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    mass = q.new_empty(q.shape[:3], dtype=torch.float32)
    return mass, mass.new_empty((4 if q.dtype == torch.float32 else 2, *mass.shape))


@torch.library.custom_op("regard::copy_log_prob_gradients", mutates_args=())
def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, saved: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of q and k."""
    from regard.attention.kernels.triton.copy_kernels import gradients

    return gradients(grad, q, k, ids, targets, saved, KeySpans(shift_lo, shift_hi, lo, hi, query_docs, key_docs), scale)


@_gradients.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, saved: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, ids, targets, lo, hi, query_docs, key_docs, *ctx.scalars = inputs
    ctx.save_for_backward(q, k, ids, targets, output[1], lo, hi, query_docs, key_docs)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*_gradients(grad, *ctx.saved_tensors, *ctx.scalars), *(None,) * 9)


_copy_log_prob.register_autograd(_backward, setup_context=_setup_context)
