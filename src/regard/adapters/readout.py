"""Finds the readout token of a decision, such as [CLS], by gradients; runs the output layer at that position alone.

An audit runs the model thousands of times, and the output layer over thousands of words is most of the cost of a small
model, so it is computed only where it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from regard.adapters.base import ModelAdapter
from regard.adapters.case import InputRow
from regard.attention import Captured, Observe, capture_into
from regard.models import OutputProjection

Readout = Literal["first", "last"] | None


def find_readout(adapter: ModelAdapter, row: InputRow) -> Readout:
    """The query whose output changes the most likely answer, at the last place with several queries: the first token
    ([CLS]), the last one, or None if there are several."""
    heard = Captured()
    with adapter.borrow(through_regard=True), torch.enable_grad():
        with capture_into(adapter.model, "*", Observe(), heard):
            best = adapter.log_probs([row]).max(-1).values.sum()
        outputs = [
            call.output
            for place in heard
            for call in heard.calls(place)
            if adapter.has_text_keys(place) and call.output.size(-2) > 1
        ]
        if not outputs:
            return None
        [grad] = torch.autograd.grad(best, outputs[-1:], allow_unused=True, materialize_grads=True)
    queries = grad.reshape(-1, *grad.shape[-2:])  # (heads, T, D) of one row
    used = queries.abs().sum((0, -1)).nonzero().squeeze(-1).tolist()
    if used == [0]:
        return "first"
    return "last" if used == [grad.size(-2) - 1] else None


def readout_positions(readout: Readout, rows: Sequence[InputRow]) -> list[int] | None:
    """The position of the readout token in each row."""
    if readout is None:
        return None
    return [0 if readout == "first" else len(row.ids) - 1 for row in rows]


@contextmanager
def restrict_to_positions(module: nn.Module | None, index: Tensor) -> Iterator[None]:
    """Inside the block, a module receives only the vector at `index` (B,) of each row of vectors (B, T, D)."""

    def select(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        vectors = inputs[0]
        rows = torch.arange(len(vectors), device=vectors.device)
        return (vectors[rows, index.to(vectors.device)].unsqueeze(1), *inputs[1:])

    if module is None:
        yield
        return
    hook = module.register_forward_pre_hook(select)
    try:
        yield
    finally:
        hook.remove()


def gather_positions(x: Tensor, index: Tensor) -> Tensor:
    """x (B, T, C), or (B, 1, C) where only one position was computed: (B, C) at `index` (B,)."""
    if x.size(1) == 1:
        return x[:, 0]
    return x[torch.arange(len(x), device=x.device), index.to(x.device)]


def find_output_layer(model: nn.Module) -> nn.Module | None:
    """The module of ours that maps vectors to words, the final norm included; None where words are also copied, which
    needs all positions."""
    if getattr(model, "copies", False):
        return None
    projection = next((one for one in model.modules() if isinstance(one, OutputProjection)), None)
    last_norm = getattr(model, "final_norm", None)  # of a GPT, whose embedding is its output matrix
    return last_norm if projection is None else projection
