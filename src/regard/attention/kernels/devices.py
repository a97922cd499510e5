"""Where Triton's kernels run, and how one is started there."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import torch
from torch import Tensor

HAS_TRITON = find_spec("triton") is not None
INTERPRETED = HAS_TRITON and os.environ.get("TRITON_INTERPRET") == "1"  # on any device, for tests


def no_kernels(q: Tensor) -> str | None:
    """Why nothing of Triton's runs where q lies."""
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
    """Kernels start on the device that is the current one: inside, that of x."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()
