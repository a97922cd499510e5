"""Averages of weights: an exponential moving one beside the training, or the mean of some checkpoints after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.runs import Checkpoint, weights_of
from regard.training.checkpoint import load_tensors
from regard.training.distributed import World


class Moving:
    """The exponential moving average of a model's weights: average = decay x average + (1 - decay) x weights.

    In its first steps it is the plain mean of what it has seen, where that is the shorter memory.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.tensors = {name: tensor.clone() for name, tensor in weights_of(model).items()}

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """Take the weights after this step in."""
        share = max(1 - self.decay, 1 / (step + 1))
        now = weights_of(self.model)
        floats = [name for name, tensor in now.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.tensors[name] for name in floats], [now[name] for name in floats], share)
        for name in now.keys() - set(floats):
            self.tensors[name].copy_(now[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averaged weights inside, and its own again afterwards."""
        own = {name: tensor.clone() for name, tensor in weights_of(self.model).items()}
        put(self.model, self.tensors)
        try:
            yield
        finally:
            put(self.model, own)


@torch.no_grad()
def put(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give a model these weights."""
    for name, tensor in weights_of(model).items():
        tensor.copy_(tensors[name])


def mean_of(checkpoints: Sequence[Checkpoint], model: nn.Module, world: World, prefix: str) -> dict[str, Tensor]:
    """The mean of the weights of some checkpoints, shard by shard."""
    total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in weights_of(model).items()}
    for checkpoint in checkpoints:
        one = {f"{prefix}{name}": torch.empty_like(tensor) for name, tensor in weights_of(model).items()}
        load_tensors(checkpoint, one, world)
        for name, tensor in total.items():
            tensor += one[f"{prefix}{name}"]
    return {name: (tensor / len(checkpoints)).to(weights_of(model)[name].dtype) for name, tensor in total.items()}
