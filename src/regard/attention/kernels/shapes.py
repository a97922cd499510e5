"""Tensors of any leading dimensions in the shape of fused kernels, (B, heads, length, width), and tile sizes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.inputs import AttentionInputs

ALIGNMENT = 16  # bytes


class Tiling(NamedTuple):
    """The queries and keys of a tile, the warps of its program, and the tiles fetched ahead."""

    queries: int
    keys: int
    warps: int
    stages: int


def as_bhtd(prepared: AttentionInputs, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, H, T, D), k and v (B, key heads, S, D), in one dtype; each key head serves a group of query heads."""
    lead = prepared.grid.lead
    head_counts = {_heads(x, lead) for x in (prepared.k, v)}
    key_heads = head_counts.pop() if len(head_counts) == 1 else lead[-1]  # as many in keys and values
    q = _bhtd(prepared.q, lead, lead[-1] if lead else 1)
    k, v = _bhtd(prepared.k, lead, key_heads), _bhtd(v, lead, key_heads)
    # a score may have prepared one of them in float32
    common = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    return q.to(common), k.to(common), v.to(common)


def _heads(x: Tensor, lead: tuple[int, ...]) -> int:
    return x.size(-3) if len(lead) >= 2 and x.dim() >= 3 else 1


def _bhtd(x: Tensor, lead: tuple[int, ...], heads: int) -> Tensor:
    """x (..., n, D) with all leading dimensions but the heads expanded and flattened: (B, heads, n, D)."""
    if len(lead) < 2:
        return _unit_stride(x.expand(*lead, *x.shape[-2:]).reshape(-1, 1, *x.shape[-2:]))
    if 1 < _heads(x, lead) < heads:
        x = x.repeat_interleave(heads // x.size(-3), -3)
    return _unit_stride(x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:]))


def _unit_stride(x: Tensor) -> Tensor:
    """The kernels assume that the last dimension has stride 1."""
    return x if x.stride(-1) == 1 else x.contiguous()


def aligned(x: Tensor) -> Tensor:
    """x with vectors that all begin where copies of 16 bytes can, as those of a part of another tensor may not."""
    return x if is_aligned(x) else x.clone(memory_format=torch.contiguous_format)


def is_aligned(x: Tensor) -> bool:
    """Whether every vector of x begins at a multiple of 16 bytes; a contiguous x of any width counts, if x does."""
    address = x.data_ptr()
    for step in x.stride()[:-1]:
        address |= step * x.element_size()
    return address % ALIGNMENT == 0 or (x.is_contiguous() and x.data_ptr() % ALIGNMENT == 0)


def tile_width(width: int) -> int:
    """The width of tiles of such vectors: the next power of two, at least 16."""
    return max(16, 1 << (width - 1).bit_length())
