"""Mixed precision: autocast of the forward pass to bf16 or fp16, and loss scaling for fp16."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, optim
from torch.amp import GradScaler

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """The precision of matrix products; weights and optimiser state stay in float32."""

    def __init__(self, kind: Literal["float32", "bf16", "fp16"], device: torch.device) -> None:
        self.kind, self.device = kind, device
        self.scaler = GradScaler(device.type, enabled=kind == "fp16")

    def autocast(self) -> AbstractContextManager[object]:
        """Inside the block, matrix products are computed in the chosen precision."""
        if self.kind == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[self.kind])

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def unscale(self, optimizer: optim.Optimizer) -> None:
        """Undo the loss scaling of the gradients."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: optim.Optimizer) -> None:
        """Take an optimiser step; with fp16, an overflowed gradient skips it and lowers the loss scale."""
        self.scaler.step(optimizer)
        self.scaler.update()

    @property
    def scale(self) -> float:
        return float(self.scaler.get_scale())
