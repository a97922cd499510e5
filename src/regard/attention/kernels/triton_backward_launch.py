"""In what tiles the kernels of triton_backward.py walk over the map, and how they are started."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor  # type: ignore[import-untyped]

from regard.attention.kernels.devices import on_device
from regard.attention.kernels.shapes import Tiling, tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton_backward import remember, to_keys, to_queries

LOG2E = 1.4426950408889634


class Tilings(NamedTuple):
    """One for each of the two kernels that walk."""

    to_keys: Tiling
    to_queries: Tiling


# by the width of a head, up to the next power of two
TILINGS = {
    16: Tilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    32: Tilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    64: Tilings(Tiling(128, 64, 4, 2), Tiling(128, 64, 8, 3)),
    128: Tilings(Tiling(64, 64, 4, 2), Tiling(64, 64, 4, 2)),
    256: Tilings(Tiling(32, 64, 8, 2), Tiling(128, 32, 8, 2)),
}
# float32 has no tensor cores that are exact: its products are sums in registers
EXACT = {
    16: Tilings(Tiling(32, 64, 4, 1), Tiling(64, 32, 4, 1)),
    32: Tilings(Tiling(32, 64, 4, 1), Tiling(64, 32, 4, 1)),
    64: Tilings(Tiling(32, 32, 4, 1), Tiling(32, 32, 4, 1)),
    128: Tilings(Tiling(32, 32, 8, 1), Tiling(32, 32, 8, 1)),
    256: Tilings(Tiling(16, 32, 8, 1), Tiling(32, 16, 8, 1)),
}


def gradients(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, dlse: Tensor | None, reach: Spans,
    scale: float, tilings: Tilings | None = None, descriptors: bool | None = None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq (B, H, T, D), dk and dv (B, H / GROUP, S, D), from do and out (B, H, T, D), lse and dlse (B, H, T).

    scale: above 0. descriptors: whether tiles are fetched by the tensor memory accelerator; None: if it can and helps.
    """
    (B, H, T, D), (S, HK) = q.shape, (k.size(2), k.size(1))
    do, q, k, v, out = (x if x.stride(-1) == 1 else x.contiguous() for x in (do, q, k, v, out))
    wide = tile_width(D)
    by_keys, by_queries = tilings or (EXACT if q.dtype == torch.float32 else TILINGS)[wide]
    if descriptors is None:
        descriptors = q.is_cuda and q.dtype != torch.float32 and all(_describable(x) for x in (do, q, k, v))
    blocks = triton.cdiv(T, by_keys.queries)
    start, delta = (torch.empty(B, H, blocks * by_keys.queries, dtype=torch.float32, device=q.device) for _ in range(2))
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    limits, told = reach.ends(), reach.kinds()
    bounds = torch.empty(B * H, 4, blocks, dtype=torch.int32, device=q.device) if told["TOLD"] else None
    shape = {"D": D, "BD": wide}
    with on_device(q):
        remember[(blocks, B * H)](
            do, out, lse.contiguous(), None if dlse is None else dlse.contiguous(), start, delta, bounds,
            H, T, S, scale, blocks, *do.stride()[:3], *out.stride()[:3], **limits,
            **shape, BM=by_keys.queries, TOLD=told["TOLD"], num_warps=4,
        )  # fmt: skip
        share = torch.zeros_like(delta) if q.dtype == torch.float32 else None
        brought = (start, delta, share, H, H // HK, T, S, scale * LOG2E, scale)
        strides = [n for x in (do, q, k, v) for n in x.stride()[:3]]

        def tiles(tiling: Tiling) -> list[Any]:
            rows = (tiling.queries, tiling.queries, tiling.keys, tiling.keys)
            if not descriptors:
                return [do, q, k, v]
            return [TensorDescriptor.from_tensor(x, [1, 1, n, wide]) for x, n in zip((do, q, k, v), rows, strict=True)]

        to_queries[(triton.cdiv(T, by_queries.queries), B * H)](
            *tiles(by_queries), dq, *brought, blocks * by_keys.queries, *strides, **limits, **reach.documents(),
            **shape, **told, **_options(by_queries), TMA=descriptors,
        )  # fmt: skip
        to_keys[(triton.cdiv(S, by_keys.keys), B * HK)](
            *tiles(by_keys), dk, dv, bounds, *brought, blocks, *strides, **limits, **reach.documents(),
            **shape, **told, **_options(by_keys), TMA=descriptors,
        )  # fmt: skip
    return dq, dk, dv


def _options(tiling: Tiling) -> dict[str, int]:
    names = {"BM": tiling.queries, "BN": tiling.keys}
    return names | {"num_warps": tiling.warps, "num_stages": tiling.stages}


def _describable(x: Tensor) -> bool:
    """Whether the tensor memory accelerator can fetch tiles of it: all but single numbers start at 16 bytes."""
    starts = [stride * x.element_size() for stride in x.stride()[:-1]] + [x.data_ptr()]
    return all(start % 16 == 0 for start in starts) and min(x.stride()) > 0
