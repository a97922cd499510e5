"""In which numbers the forward pass computes; with fp16 the loss is scaled, so that small gradients do not vanish."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor, optim
from torch.amp import GradScaler

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Precision:
    """Weights and sums stay in float32 whatever is chosen (mixed precision)."""

    def __init__(self, kind: Literal["float32", "bf16", "fp16"], device: torch.device) -> None:
        self.kind, self.device = kind, device
        self.scaler = GradScaler(device.type, enabled=kind == "fp16")

    def computing(self) -> AbstractContextManager[object]:
        """Inside, matrix products are computed in the chosen numbers."""
        if self.kind == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, dtype=DTYPES[self.kind])

    def backward(self, loss: Tensor) -> None:
        self.scaler.scale(loss).backward()

    def unscale(self, optimizer: optim.Optimizer) -> None:
        """Bring the gradients to their true size."""
        self.scaler.unscale_(optimizer)

    def step(self, optimizer: optim.Optimizer) -> None:
        """Move the weights; with fp16, not if a gradient overflowed, and the scale goes down instead."""
        self.scaler.step(optimizer)
        self.scaler.update()

    @property
    def scale(self) -> float:
        return float(self.scaler.get_scale())
