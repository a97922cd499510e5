"""Devices on which Triton kernels run: support checks, and the device guard of a launch."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"  # on any device, for tests


def triton_unsupported_reason(q: Tensor) -> str | None:
    """Why Triton kernels cannot run on the device of q; None: they can."""
    if q.device.type != "cuda" and not INTERPRETED:
        return f"it runs on cuda, not on {q.device.type}"
    if not HAS_TRITON:
        return "it needs the package triton (pip install 'regard[gpu]')"
    if q.device.type == "cuda" and _too_old(q.device.index):
        return "it needs a GPU of compute capability 8.0 or newer"
    return None


def _too_old(device: int) -> bool:
    return torch.version.hip is None and torch.cuda.get_device_capability(device) < (8, 0)


_too_old._dynamo_marked_constant = True  # type: ignore[attr-defined]  # to compilers: as in sdpa.py


def on_device(x: Tensor) -> AbstractContextManager[object]:
    """Inside, the device of x is the current one, on which kernels start."""
    if not x.is_cuda or x.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(x.device)
