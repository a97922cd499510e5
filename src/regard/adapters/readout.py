"""Where a decision is read: its token, found by gradients, and the output layer, run at that position alone.

A vocabulary of thousands of words is most of what a small model costs, and an audit asks it thousands of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor, nn

from regard.adapters.base import ModelAdapter
from regard.adapters.case import Row
from regard.attention import Heard, Observe, hearing
from regard.models import Softmax

Readout = Literal["first", "last"] | None


def find_readout(adapter: ModelAdapter, row: Row) -> Readout:
    """Which query of the last place that has several moves the likeliest answer: that of the first token ([CLS]), that
    of the last one, or None if it is more than one."""
    heard = Heard()
    with adapter.borrowed(through_regard=True), torch.enable_grad():
        with hearing(adapter.model, "*", Observe(), heard):
            said = adapter.log_probs([row]).max(-1).values.sum()
        outputs = [
            call.output
            for place in heard
            for call in heard.calls(place)
            if adapter.attends_to_text(place) and call.output.size(-2) > 1
        ]
        if not outputs:
            return None
        [slope] = torch.autograd.grad(said, outputs[-1:], allow_unused=True, materialize_grads=True)
    queries = slope.reshape(-1, *slope.shape[-2:])  # (heads, T, D) of one row
    moved = queries.abs().sum((0, -1)).nonzero().squeeze(-1).tolist()
    if moved == [0]:
        return "first"
    return "last" if moved == [slope.size(-2) - 1] else None


def readout_of(readout: Readout, rows: Sequence[Row]) -> list[int] | None:
    """The position of the readout token in each row."""
    if readout is None:
        return None
    return [0 if readout == "first" else len(row.ids) - 1 for row in rows]


@contextmanager
def only_at(module: nn.Module | None, index: Tensor) -> Iterator[None]:
    """While the block runs, a module is given only the vector at `index` (B,) of each row of vectors (B, T, D)."""

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
    """said (B, T, C), or (B, 1, C) where only one position was computed: (B, C) at `index` (B,)."""
    if said.size(1) == 1:
        return said[:, 0]
    return said[torch.arange(len(said), device=said.device), index.to(said.device)]


def output_layer(model: nn.Module) -> nn.Module | None:
    """What turns the vectors of a model of ours into words and nothing else, its last norm included; None where words
    are also copied, which takes all positions together."""
    if getattr(model, "copies", False):
        return None
    softmax = next((one for one in model.modules() if isinstance(one, Softmax)), None)
    last_norm = getattr(model, "norm", None)  # of a GPT, whose embedding is its output matrix
    return last_norm if softmax is None else softmax
