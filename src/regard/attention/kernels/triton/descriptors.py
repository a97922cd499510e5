"""What kernels of the dot family are given: tiles, descriptors of tensors, and whatever stands for what a mask does not
have; and whether the device has Hopper's kernels."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED
from regard.attention.kernels.spans import Spans

LOG2E = 1.4426950408889634
KEYS = 128  # in a block of Hopper's kernels


class Tile(NamedTuple):
    """Queries and keys of a block, warps that work on it, blocks fetched ahead."""

    queries: int
    keys: int
    warps: int
    ahead: int


def tile_of(width: int, dtype: torch.dtype) -> Tile:
    """Tiles of the general kernels, by the width of a vector and its numbers'."""
    if INTERPRETED:
        return Tile(16, 16, 1, 1)
    wide = triton.next_power_of_2(width) * dtype.itemsize
    if wide <= 128:
        return Tile(128, 64, 4, 3)
    return Tile(128, 64, 8, 3) if wide <= 256 else Tile(64, 32, 4, 2)


def suits_hopper(q: Tensor, k: Tensor, spans: Spans) -> bool:
    """Whether Hopper's kernels were written for this."""
    return (
        has_hopper(q.device)
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.size(-1) in (64, 128)
        and spans.asking is None
        and max(q.size(2), k.size(2)) < 2**22
        and q.size(0) * q.size(1) * max(q.size(2), k.size(2)) < 2**31
    )


@cache
def has_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9


def described(x: Tensor, rows: int) -> Any:
    """x (B, H, n, D) for the tensor memory accelerator, `rows` of a head at a time."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # type: ignore[import-untyped]

    strides = [step if size > 1 else x.size(-2) * x.size(-1) for size, step in zip(x.shape, x.stride(), strict=True)]
    strides[-1] = 1
    if any(step <= 0 or step * x.element_size() % 16 for step in strides[:-1]) or x.data_ptr() % 16:
        x = x.contiguous()
        strides = list(x.stride())
    block = [1, 1, rows, x.size(-1)]
    return TensorDescriptor(x, list(x.shape), strides, block, _shared(rows, x.size(-1), x.dtype))


@cache
def _shared(rows: int, width: int, dtype: torch.dtype) -> Any:
    """How they lie in shared memory; to work it out takes longer than to start a kernel."""
    from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

    kind = gl.bfloat16 if dtype == torch.bfloat16 else gl.float16
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, width], kind)


def told(spans: Spans, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tensors of the spans; any tensor stands for one that is not there and is not read."""
    lo, hi, asking, asked = (or_any(x, like.view(torch.int32)) for x in (spans.lo, spans.hi, spans.asking, spans.asked))
    return lo, hi, asking, asked


def of_documents(spans: Spans) -> tuple[int, int]:
    """How far apart the documents of two batch rows lie, of queries and of keys."""
    asking, asked = (0 if ids is None or ids.size(0) == 1 else ids.size(1) for ids in (spans.asking, spans.asked))
    return asking, asked


@cache
def processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def or_any(x: Tensor | None, other: Tensor) -> Tensor:
    return other if x is None else x
