"""Rows turned round, each at its own last word, so that padding comes after the text for who reads from the right."""

from __future__ import annotations

import torch
from torch import Tensor


def turned(x: Tensor, lengths: Tensor) -> Tensor:
    """x (B, T, D) with the first `lengths` (B,) places of each row in reverse, the others where they are.

    Its own inverse: turned(turned(x, lengths), lengths) is x.
    """
    here = torch.arange(x.size(1), device=x.device)
    last = lengths.unsqueeze(-1) - 1
    there = torch.where(here <= last, last - here, here)  # (B, T)
    return x.gather(1, there.unsqueeze(-1).expand_as(x))
