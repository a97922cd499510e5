"""A request with any leading dimensions in the shape that fused kernels take, (B, heads, length, width), and tiles."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.inputs import Prepared


class Tiling(NamedTuple):
    """How many queries and keys a tile has, the warps of its program, and how many tiles are fetched ahead."""

    queries: int
    keys: int
    warps: int
    stages: int


def as_four(prepared: Prepared, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, H, T, D), k and v (B, few, S, D), in one dtype; each of the few key heads serves a group of query heads."""
    lead = prepared.grid.lead
    own = {_heads(x, lead) for x in (prepared.k, v)}
    few = own.pop() if len(own) == 1 else lead[-1]  # keys and values with as many heads, each shared by a group
    q = _four(prepared.q, lead, lead[-1] if lead else 1)
    k, v = _four(prepared.k, lead, few), _four(v, lead, few)
    # a score may have prepared one of them in float32
    common = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    return q.to(common), k.to(common), v.to(common)


def _heads(x: Tensor, lead: tuple[int, ...]) -> int:
    return x.size(-3) if len(lead) >= 2 and x.dim() >= 3 else 1


def _four(x: Tensor, lead: tuple[int, ...], heads: int) -> Tensor:
    """x (..., n, D) with all leading dimensions but the heads spread out and joined: (B, heads, n, D)."""
    if len(lead) < 2:
        return _side_by_side(x.expand(*lead, *x.shape[-2:]).reshape(-1, 1, *x.shape[-2:]))
    if 1 < _heads(x, lead) < heads:
        x = x.repeat_interleave(heads // x.size(-3), -3)
    return _side_by_side(x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:]))


def _side_by_side(x: Tensor) -> Tensor:
    """The kernels take a vector's numbers to lie side by side, and do not look."""
    return x if x.stride(-1) == 1 else x.contiguous()


def tile_width(width: int) -> int:
    """How wide the tiles of vectors of this width are: the next power of two, 16 at least."""
    return max(16, 1 << (width - 1).bit_length())
