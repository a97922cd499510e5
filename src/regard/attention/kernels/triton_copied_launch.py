"""In what tiles the kernels of triton_copied_tiles.py walk over the map, and how they are started."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED, on_device
from regard.attention.kernels.shapes import Tiling, tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton_copied_tiles import to_keys, to_queries, weigh

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
