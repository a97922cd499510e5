"""Where a decision is read from one place, the vocabulary need not be asked at all others.

A vocabulary of thousands of words is most of what a small model costs, and an audit asks it thousands of times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.models.gpt import GPT
from regard.models.words import Softmax


@contextmanager
def only_at(module: nn.Module | None, index: Tensor) -> Iterator[None]:
    """While the block runs, a module is handed only the vector at `index` (B,) of each row of vectors (B, T, D)."""

    def chosen(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        vectors = inputs[0]
        rows = torch.arange(len(vectors), device=vectors.device)
        return (vectors[rows, index.to(vectors.device)].unsqueeze(1), *inputs[1:])

    if module is None:
        yield
        return
    hook = module.register_forward_pre_hook(chosen)
    try:
        yield
    finally:
        hook.remove()


def picked(said: Tensor, index: Tensor) -> Tensor:
    """said (B, T, C), or (B, 1, C) where only the place that counts was asked: (B, C) at `index` (B,)."""
    if said.size(1) == 1:
        return said[:, 0]
    return said[torch.arange(len(said), device=said.device), index.to(said.device)]


def speaking(model: nn.Module) -> nn.Module | None:
    """What turns the vectors of a model of ours into words and nothing else; None where words are also copied, which
    takes all places together."""
    if getattr(model, "copies", False):
        return None
    if isinstance(model, GPT):
        return model.norm
    return next((one for one in model.modules() if isinstance(one, Softmax)), None)
