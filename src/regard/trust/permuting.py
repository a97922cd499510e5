"""Weights dealt out anew: how far does the output move when the tokens exchange their weights, or all get the same?

Jain & Wallace 2019, algorithm 2. If attention says why, then another attention ought to say something else.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.trust.distances import tvd
from regard.trust.trial import Elsewhere, Trial


def permuted(trial: Trial, heads: Sequence[int] | None, times: int, chance: torch.Generator) -> Tensor:
    """p (times, B, C) when the real tokens of each text exchange their weights at random."""
    rounds = -(-times // trial.copies)
    said = [trial.said(_exchange(_orders(trial, chance)), heads) for _ in range(rounds)]
    return torch.cat(said)[:times]


def uniform(trial: Trial, heads: Sequence[int] | None) -> Tensor:
    """p (B, C) when every token that is seen gets the same weight."""

    def even(weights: Tensor) -> Tensor:
        seen = (weights > 0).to(weights.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)

    return trial.said(even, heads)[0]


def moved(said: Tensor, plain: Tensor) -> Tensor:
    """Total variation between what is said now (..., B, C) and what was said (B, C): (..., B)."""
    return tvd(said, plain)


def flipped(said: Tensor, plain: Tensor) -> Tensor:
    """Whether the decision is another one, (..., B), as 0 and 1."""
    return (said.argmax(-1) != plain.argmax(-1)).to(plain.dtype)


def _orders(trial: Trial, chance: torch.Generator) -> Tensor:
    """(copies, B, S): a random order of the real tokens of every text; padding stays where it is."""
    real = trial.real
    keys = torch.rand(trial.copies, *real.shape, generator=chance).masked_fill(~real, 2.0)
    return keys.argsort(dim=-1, stable=True)


def _exchange(orders: Tensor) -> Elsewhere:
    def exchanged(weights: Tensor) -> Tensor:
        index = orders[:, :, None, None].expand(weights.shape).to(weights.device)
        return weights.gather(-1, index)

    return exchanged
