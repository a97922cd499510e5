"""Attention rollout: how much of each input token is left in an output token, if every layer mixes as its weights say.

Abnar & Zuidema 2020: A = (W + I) / 2, since half of a vector is what it was before; rollout = A_L ... A_2 A_1. In a
model with several streams, cross-attention takes what is in the vectors of the other one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.inspection.measures.streams import Layer, expect_layers

Shares = dict[int, dict[int, Tensor]]
"""By stream, and by the stream of the inputs: how much of each input is in each vector, (..., T, N)."""


def rollout(layers: Sequence[Layer], residual: float = 0.5) -> Shares:
    """What the vectors of every stream are made of after these layers, first to last.

    `residual`: what share of a vector is what it was before. The shares of a vector, over all inputs, sum to one; a
    query that attends to nothing stays as it was.
    """
    sizes, lead = expect_layers(layers, residual, "rollout"), layers[0].weights.shape[:-2]
    first = layers[0].weights
    found: Shares = {
        stream: {stream: torch.eye(size, dtype=first.dtype, device=first.device).expand(*lead, size, size)}
        for stream, size in sizes.items()
    }
    for layer in layers:
        before, below = found[layer.queries], found[layer.keys]
        total = residual + (1 - residual) * layer.weights.sum(-1, keepdim=True)
        total = total.masked_fill(total == 0, 1.0)
        found[layer.queries] = {
            origin: _mixed(before.get(origin), below.get(origin), layer.weights, residual) / total
            for origin in {**before, **below}
        }
    return found


def _mixed(before: Tensor | None, below: Tensor | None, weights: Tensor, residual: float) -> Tensor:
    """residual * before + (1 - residual) * weights @ below, of which one may be nothing."""
    if below is None:
        assert before is not None
        return residual * before
    come = (1 - residual) * (weights @ below)
    return come if before is None else residual * before + come
