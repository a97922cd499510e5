"""How far from float64 a kernel's results may be: what the kernels reach on a GPU (benchmarks/RESULTS.md), with room
for another draw and no more.

Inputs are bfloat16 or float16, but products of them are summed in float32 and statistics never leave it, so their
errors are those of float32 and not of the inputs' precision.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.normalise import Sink

EPS = torch.finfo(torch.float32).eps
STATISTIC = 1e-5  # lse and entropy reach 1e-6, received 2e-6, the largest weights 2e-7, of scores up to 6
UNEVEN_CELL = 3e-5  # the documented error where cells are no multiples of 16 x 8: weights are summed in float16 there
SCORE_ROUNDINGS = 8  # a score of size s has an error of some s eps, which every statistic inherits


def statistics_bound(name: str, exact: Tensor, loudest: float, *, even_cells: bool) -> Tensor:
    """The largest error allowed of each number of a statistic. loudest: the largest score there is, hidden ones too; up
    to 10 its rounding is below the bound, and scores of thousands have an error of their own."""
    rate = max(STATISTIC, SCORE_ROUNDINGS * EPS * loudest)
    if name == "received":  # a sum over queries: its error grows with it, as the rounding of each weight does
        return rate * exact.abs().clamp(min=1.0)
    if name == "thumbnail" and not even_cells:
        return torch.full_like(exact, max(rate, UNEVEN_CELL))
    return torch.full_like(exact, rate)


def loudest_score(q: Tensor, k: Tensor, normalise: object = None) -> float:
    """The largest |score| of scaled dot products; a sink that takes much counts too, since lse is as large as it."""
    k = k.repeat_interleave(q.size(1) // k.size(1), 1)
    top = float((q.double() @ k.double().mT).abs().max()) * q.size(-1) ** -0.5
    return max(top, float(normalise.logits.max())) if isinstance(normalise, Sink) else top


def has_even_cells(T: int, S: int, rows: int, cols: int) -> bool:
    """Whether every cell of a thumbnail is a whole multiple of 16 queries and of 8 keys."""
    return T % (16 * rows) == 0 and S % (8 * cols) == 0
