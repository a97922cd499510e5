"""The share of one token in the weights, on a GPU: dot products by Triton's kernels, in memory linear in the length.

An operator of torch.library, so that torch.compile, autograd and export know it. copy_kernels has the kernels; here is
in what tiles they walk over the map, and how they are started.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.inputs import Prepared
from regard.attention.kernels.devices import INTERPRETED, on_device
from regard.attention.kernels.fused import refuses_dots
from regard.attention.kernels.shapes import Tiling, as_four, tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton.copy_kernels import to_keys, to_queries, weigh
from regard.attention.masks import Documents
from regard.attention.scores import Dot

LOG2E = 1.4426950408889634


class Tilings(NamedTuple):
    """One for each kernel."""

    forward: Tiling
    to_queries: Tiling
    to_keys: Tiling


# by the width of a head, up to the next power of two; tuned at 128
TILINGS = {
    16: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    32: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    64: Tilings(Tiling(128, 64, 4, 3), Tiling(128, 64, 8, 3), Tiling(32, 64, 4, 3)),
    128: Tilings(Tiling(64, 64, 4, 3), Tiling(64, 64, 4, 3), Tiling(32, 64, 4, 3)),
    256: Tilings(Tiling(64, 64, 4, 2), Tiling(64, 32, 4, 2), Tiling(32, 64, 8, 2)),
}
# float32, by three products of tensor cores each up to a width of 128; tuned at 64 and 128
EXACT = {
    16: Tilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(32, 32, 4, 1)),
    32: Tilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(64, 16, 8, 1)),
    64: Tilings(Tiling(64, 64, 4, 1), Tiling(128, 64, 8, 1), Tiling(32, 32, 4, 1)),
    128: Tilings(Tiling(128, 64, 8, 2), Tiling(128, 64, 8, 1), Tiling(64, 32, 8, 1)),
    256: Tilings(Tiling(32, 16, 8, 1), Tiling(32, 16, 8, 1), Tiling(64, 16, 8, 1)),
}
SMALL = Tilings(Tiling(32, 16, 4, 1), Tiling(16, 32, 4, 1), Tiling(64, 16, 4, 1))  # for the interpreter


def tilings_for(q: Tensor) -> Tilings:
    """By width and precision."""
    if INTERPRETED:
        return SMALL
    return (EXACT if q.dtype == torch.float32 else TILINGS)[tile_width(q.size(-1))]


def forward(
    q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, reach: Spans, scale: float, tilings: Tilings | None = None
) -> tuple[Tensor, Tensor]:
    """ln mass (B, H, T), and what is left for the way back. q (B, H, T, D), k (B, H / GROUP, S, D), ids (B or 1, S),
    targets (B or 1, T); scale: above 0."""
    (B, H, T, _), S = q.shape, k.size(2)
    tiling, k = (tilings or tilings_for(q)).forward, _reached(k)
    mass = torch.empty(B, H, T, dtype=torch.float32, device=q.device)
    left = torch.empty(left_shape(q), dtype=torch.float32, device=q.device)
    with on_device(q):
        weigh[(triton.cdiv(T, tiling.queries), B * H)](
            q, k, ids, targets, mass, left, H, H // k.size(1), T, S, scale * LOG2E, B * H * T,
            *q.stride()[:3], *k.stride()[:3], *_rows_apart(ids, targets), **_told(reach), **_options(tiling, q),
        )  # fmt: skip
    return mass, left


def left_shape(q: Tensor) -> tuple[int, ...]:
    """Of what the forward pass leaves: one number for each half, or two."""
    return (4 if q.dtype == torch.float32 else 2, *q.shape[:3])


def gradients(
    grad: Tensor, q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, left: Tensor, reach: Spans, scale: float,
    tilings: Tilings | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dq and dk, from the gradient (B, H, T) of ln mass and what the forward pass `left`."""
    (B, H, T, _), (HK, S) = q.shape, k.shape[1:3]
    chosen, k = tilings or tilings_for(q), _reached(k)
    dq, dk = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k))
    askers = reach.askers(S, chosen.to_keys.keys, B, H)
    given = (ids, targets, grad.float().contiguous(), left, H, H // HK, T, S, scale * LOG2E, scale, B * H * T)
    strides = (*q.stride()[:3], *k.stride()[:3], *_rows_apart(ids, targets))
    with on_device(q):
        to_queries[(triton.cdiv(T, chosen.to_queries.queries), B * H)](
            q, k, dq, *given, *strides, **_told(reach), **_options(chosen.to_queries, q)
        )
        to_keys[(triton.cdiv(S, chosen.to_keys.keys), B * HK)](
            q, k, dk, askers, *given, *strides, **_told(reach), **_options(chosen.to_keys, q)
        )
    return dq, dk


def _told(reach: Spans) -> dict[str, Any]:
    return reach.ends() | reach.documents() | reach.kinds()


def _options(tiling: Tiling, q: Tensor) -> dict[str, int]:
    sizes = {"D": q.size(-1), "BD": tile_width(q.size(-1)), "BM": tiling.queries, "BN": tiling.keys}
    return sizes | {"EXACT": q.dtype == torch.float32} | {"num_warps": tiling.warps, "num_stages": tiling.stages}


def _rows_apart(ids: Tensor, targets: Tensor) -> tuple[int, int]:
    """How far apart the tokens of two batch rows lie, of keys and of queries; 0 where all share them."""
    by_key, by_query = (x.stride(0) if x.size(0) > 1 else 0 for x in (ids, targets))
    return by_key, by_query


def _reached(k: Tensor) -> Tensor:
    """The kernels count places within a head in 32 bits."""
    return k if k.size(2) * k.stride(2) < 2**31 else k.contiguous()


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
