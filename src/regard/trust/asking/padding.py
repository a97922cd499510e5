"""Rows of different lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def padded(rows: Sequence[Sequence[int]], with_: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """ids (B, S), filled up on the right, and how many of each row are real, (B,)."""
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    ids = [[*row, *[with_] * (longest - len(row))] for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(lengths, device=device)
