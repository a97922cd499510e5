"""The share of one token in the weights, on a GPU: dot products by Triton's kernels, in memory linear in the length.

An operator of torch.library, so that torch.compile, autograd and export know it. copy_kernels has the kernels, and
starts them; it is loaded when they are needed, because it needs triton.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import Prepared
from regard.attention.kernels.fused import refuses_dots
from regard.attention.kernels.shapes import as_four
from regard.attention.kernels.spans import Spans
from regard.attention.masks import Documents
from regard.attention.scores import Dot

PRECISIONS = (torch.bfloat16, torch.float16, torch.float32)


def refuses(prepared: Prepared) -> str | None:
    """Why these kernels cannot serve the request, in words; None: they can."""
    return refuses_dots(prepared, PRECISIONS)


def compute(prepared: Prepared, same: Documents) -> Tensor:
    """ln of what the keys of each query's own token get, (..., T)."""
    assert isinstance(prepared.score, Dot)
    grid = prepared.grid
    q, k, _ = as_four(prepared, prepared.k)
    seen, named = Spans.of(prepared.mask, grid), Spans.of(same, grid)
    assert named.asking is not None and named.asked is not None
    kind = torch.promote_types(named.asking.dtype, named.asked.dtype)
    mass, _ = _copied(
        q, k, named.asked.to(kind), named.asking.to(kind), seen.lo, seen.hi, seen.asking, seen.asked,
        seen.shift_lo, seen.shift_hi, prepared.score.scale(k.size(-1)),
    )  # fmt: skip
    return mass.reshape(*grid.lead, grid.T)


@torch.library.custom_op("regard::copied", mutates_args=())
def _copied(
    q: Tensor, k: Tensor, ids: Tensor, targets: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """ln mass (B, H, T), and what is left for the way back: (4, B, H, T), or (2, B, H, T) for 16 bits."""
    from regard.attention.kernels.triton.copy_kernels import forward

    return forward(q, k, ids, targets, Spans(shift_lo, shift_hi, lo, hi, asking, asked), scale)


@_copied.register_fake
def _(
    q: Tensor, k: Tensor, ids: Tensor, targets: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    mass = q.new_empty(q.shape[:3], dtype=torch.float32)
    return mass, mass.new_empty((4 if q.dtype == torch.float32 else 2, *mass.shape))


@torch.library.custom_op("regard::copied_gradients", mutates_args=())
def _gradients(
    grad: Tensor, q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, left: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of q and k."""
    from regard.attention.kernels.triton.copy_kernels import gradients

    return gradients(grad, q, k, ids, targets, left, Spans(shift_lo, shift_hi, lo, hi, asking, asked), scale)


@_gradients.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, left: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, ids, targets, lo, hi, asking, asked, *ctx.numbers = inputs
    ctx.save_for_backward(q, k, ids, targets, output[1], lo, hi, asking, asked)
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*_gradients(grad, *ctx.saved_tensors, *ctx.numbers), *(None,) * 9)


_copied.register_autograd(_backward, setup_context=_keep)
