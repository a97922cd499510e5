"""Numbers in 16 bits, fixed point, with a scale for each head and dimension.

Scores reach 80, where a number of half precision is off by more than a weight can bear; these are off by 1/65534 of the
largest of their dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

LAST = 32767


@dataclass(frozen=True, eq=False)
class Fixed:
    """x (H, N, D) is about steps * scale + centre; steps (H, N, D) of int16, scale and centre (H, D)."""

    steps: Tensor
    scale: Tensor
    centre: Tensor

    @classmethod
    def of(cls, x: Tensor, *, centred: bool = False) -> Fixed:
        """`centred`: the middle between the least and the largest of each dimension is taken off first."""
        x = x.float()
        low, high = (x.new_zeros(x.size(0), x.size(2)),) * 2 if not x.size(1) else x.aminmax(dim=1)
        centre = (low + high) / 2 if centred else torch.zeros_like(low)
        scale = torch.maximum(high - centre, centre - low) / LAST
        scale = scale.masked_fill(scale == 0, 1.0)
        steps = ((x - centre.unsqueeze(1)) / scale.unsqueeze(1)).round_().clamp_(-LAST, LAST)
        return cls(steps.to(torch.int16), scale, centre)

    def offsets(self, head: int, at: slice | Tensor = slice(None)) -> Tensor:
        """(n, D): what lies beyond the centre."""
        return self.steps[head][at].float() * self.scale[head]

    def values(self, head: int, at: slice | Tensor = slice(None)) -> Tensor:
        """(n, D): the numbers themselves."""
        return self.offsets(head, at) + self.centre[head]
