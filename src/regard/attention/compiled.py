"""Where layers may take kernels of our own: in code that is compiled for a GPU; elsewhere they are torch's."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.kernels.devices import no_kernels

HALF = (torch.bfloat16, torch.float16)


def compiled_half(x: Tensor) -> bool:
    """Whether this is being compiled, to learn, for a GPU that x is on and that runs Triton's kernels, with products of
    x and a matrix in half precision.

    Writing token by token has too little to do for what it costs to start a kernel that the compiler does not know.
    """
    if x.device.type != "cuda" or not torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return False
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype
    return dtype in HALF and no_kernels(x) is None
