"""Launch arguments of the dot family: tile sizes, TMA tensor descriptors, and dummies for what a mask does not have;
and whether the device runs Hopper's kernels."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels.devices import INTERPRETED
from regard.attention.kernels.shapes import Tiling
from regard.attention.kernels.spans import KeySpans

LOG2E = 1.4426950408889634
KEY_BLOCK = 128  # keys in a block of Hopper's kernels


def dot_tiling(width: int, dtype: torch.dtype) -> Tiling:
    """The tiles of the general kernels, by the width of a vector and its dtype."""
    if INTERPRETED:
        return Tiling(16, 16, 1, 1)
    size = triton.next_power_of_2(width) * dtype.itemsize
    if size <= 128:
        return Tiling(128, 64, 4, 3)
    return Tiling(128, 64, 8, 3) if size <= 256 else Tiling(64, 32, 4, 2)


def is_hopper_supported(q: Tensor, k: Tensor, spans: KeySpans) -> bool:
    """Whether Hopper's kernels were written for this request."""
    return (
        has_hopper(q.device)
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.size(-1) in (64, 128)
        and spans.query_docs is None
        and spans.bits is None
        and max(q.size(2), k.size(2)) < 2**22
        and q.size(0) * q.size(1) * max(q.size(2), k.size(2)) < 2**31
    )


@cache
def has_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9


def tma_descriptor(x: Tensor, rows: int) -> Any:
    """x (B, H, n, D) for the tensor memory accelerator, `rows` of a head at a time."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # type: ignore[import-untyped]

    strides = [step if size > 1 else x.size(-2) * x.size(-1) for size, step in zip(x.shape, x.stride(), strict=True)]
    strides[-1] = 1
    if any(step <= 0 or step * x.element_size() % 16 for step in strides[:-1]) or x.data_ptr() % 16:
        x = x.contiguous()
        strides = list(x.stride())
    block = [1, 1, rows, x.size(-1)]
    return TensorDescriptor(x, list(x.shape), strides, block, _shared_layout(rows, x.size(-1), x.dtype))


@cache
def _shared_layout(rows: int, width: int, dtype: torch.dtype) -> Any:
    """Their layout in shared memory, cached: to work it out takes longer than to start a kernel."""
    from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

    kind = gl.bfloat16 if dtype == torch.bfloat16 else gl.float16
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, width], kind)


def mask_tensors(spans: KeySpans, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tensors of the spans; where one is missing, a dummy that the kernel does not read."""
    dummy = unread_ints(like.device)
    lo, hi, query_docs, key_docs = (or_dummy(x, dummy) for x in (spans.lo, spans.hi, spans.query_docs, spans.key_docs))
    return lo, hi, query_docs, key_docs


@cache
def unread_ints(device: torch.device) -> Tensor:
    """A dummy for whole numbers that a kernel does not read."""
    return torch.zeros(4, dtype=torch.int32, device=device)


@cache
def absent(device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """What stands for a result that was not requested."""
    return torch.empty(0, dtype=dtype, device=device)


def document_strides(spans: KeySpans) -> tuple[int, int]:
    """The batch stride of the documents of queries and of keys; 0 where all rows share them."""
    query_stride, key_stride = (
        0 if ids is None or ids.size(0) == 1 else ids.size(1) for ids in (spans.query_docs, spans.key_docs)
    )
    return query_stride, key_stride


@cache
def sm_count(device: torch.device) -> int:
    """The number of streaming multiprocessors."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def or_dummy(x: Tensor | None, dummy: Tensor) -> Tensor:
    return dummy if x is None else x
