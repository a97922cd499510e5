"""Weights taken away: zero the largest, share out the rest, and see when the decision flips.

Serrano & Smith 2019. If the largest weights decide, then fewer of them need to go than of weights taken at random, or
in the order of the gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.trust.trial import Elsewhere, Trial

POINTS = 10  # shares of the tokens at which it is looked whether the decision has flipped


def shares(points: int = POINTS) -> list[float]:
    """1/points, 2/points ... of the tokens; never all, since nothing could be shared out then."""
    return [(number + 1) / points for number in range(points)]


def order_of(scores: Tensor, real: Tensor) -> Tensor:
    """Tokens (B, S) from the highest score to the lowest, the first of equals first; padding comes last."""
    return scores.masked_fill(~real, -torch.inf).argsort(dim=-1, descending=True, stable=True)


def erased(trial: Trial, heads: Sequence[int] | None, gone: Tensor) -> Tensor:
    """p (copies, B, C) without the weights of tokens `gone` (copies, B, S), the others larger by as much."""
    return trial.said(_rest(gone), heads)


def flipping(trial: Trial, heads: Sequence[int] | None, order: Tensor, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """Tokens go in this order (B, S): whether the first alone flips the decision (B,), and the smallest share that
    does, of those looked at; 1 where none does."""
    lengths = trial.real.sum(-1)
    place = order.argsort(-1)  # when each token goes
    counts = [torch.ones_like(lengths)]
    counts += [(share * lengths.double() - 1e-9).ceil().long().clamp(max=lengths - 1) for share in shares(points)]
    flips = []
    for some in torch.stack(counts).split(trial.copies):
        filled = torch.cat((some, some[-1:].expand(trial.copies - len(some), -1)))
        said = erased(trial, heads, place < filled.unsqueeze(-1))
        flips.append((said.argmax(-1) != trial.plain.argmax(-1))[: len(some)])
    flat = torch.cat(flips)  # (1 + points, B)
    portions = torch.stack(counts) / lengths
    smallest = torch.where(flat, portions, torch.ones(())).min(0).values
    return flat[0].to(trial.plain.dtype), smallest


def _rest(gone: Tensor) -> Elsewhere:
    def left(weights: Tensor) -> Tensor:
        kept = weights.masked_fill(gone[:, :, None, None, :], 0.0)
        before, after = weights.sum(-1, keepdim=True), kept.sum(-1, keepdim=True)
        return kept * (before / after.masked_fill(after == 0, 1.0))

    return left
