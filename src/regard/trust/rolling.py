"""Attention rollout of many texts at once, through the streams of a model: the text's, and that of what looks at it.

Abnar & Zuidema 2020: a layer leaves half of a vector as it was and mixes the other half as its weights say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Layer:
    """The mean weights (B, T, S) of a place: who looks, and at whom, the text or another stream."""

    weights: Tensor
    from_text: bool
    to_text: bool


def rolled(layers: Sequence[Layer], decider: Sequence[int] | None, lengths: Tensor) -> Tensor:
    """How much of each token of the text is in the vector that decides, (B, S), summing to 1; without one, in the mean
    of all real ones."""
    size = next(one.weights.size(2) for one in layers if one.to_text)
    rows = layers[0].weights.size(0)
    first = torch.eye(size, dtype=layers[0].weights.dtype, device=lengths.device)
    text = first.expand(rows, -1, -1)  # (B, S, S): what is in each vector of the text
    other: Tensor | None = None  # (B, T, S): what of the text is in each vector that looks at it
    for layer in layers:
        if layer.from_text:
            text = _mixed(text, layer.weights @ text, layer.weights)
            continue
        before = other if other is not None else layer.weights.new_zeros(rows, layer.weights.size(1), size)
        come = layer.weights @ (text if layer.to_text else before)
        other = _mixed(before, come, layer.weights)
    whole = text if other is None else other
    if decider is None:
        real = torch.arange(whole.size(1)) < lengths.unsqueeze(1)
        found = (whole * real.unsqueeze(-1)).sum(1)
    else:
        found = whole[range(rows), list(decider)]
    total = found.sum(-1, keepdim=True)
    return found / total.masked_fill(total == 0, 1.0)


def _mixed(before: Tensor, come: Tensor, weights: Tensor) -> Tensor:
    """Half of what was there and half of what has come; what looks nowhere stays as it was."""
    return (before + come) / (1 + weights.sum(-1, keepdim=True))
