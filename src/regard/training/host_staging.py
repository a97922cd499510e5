"""Copies of tensors that can be written while training goes on, in memory that is taken again for every copy.

New memory costs more than the copying itself; and only memory that is pinned takes data from a GPU at full speed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Staging:
    """Copies in main memory; they are good until the next ones are made. Shards are copied where they lie."""

    def __init__(self) -> None:
        self._held: dict[str, Tensor] = {}

    def copies(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        made = {name: self._copy(name, tensor.detach()) for name, tensor in tensors.items()}
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return made

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        if isinstance(tensor, DTensor):
            return tensor.clone()
        held = self._held.get(name)
        if held is None or held.shape != tensor.shape or held.dtype != tensor.dtype:
            held = self._held[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        return held.copy_(tensor, non_blocking=True)
