"""Weight averages: an exponential moving average (EMA) during training, or the mean of the last checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from regard.runs import Checkpoint, weights_of
from regard.training.checkpoint import load_tensors
from regard.training.distributed import World


class EMA:
    """The exponential moving average of a model's weights: average = decay x average + (1 - decay) x weights.

    While fewer steps have been taken than the decay would remember, it is their plain mean.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.tensors = {name: tensor.clone() for name, tensor in weights_of(model).items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after this step to the average."""
        rate = max(1 - self.decay, 1 / (step + 1))
        now = weights_of(self.model)
        floats = [name for name, tensor in now.items() if tensor.is_floating_point()]
        torch._foreach_lerp_([self.tensors[name] for name in floats], [now[name] for name in floats], rate)
        for name in now.keys() - set(floats):
            self.tensors[name].copy_(now[name])

    @contextmanager
    def swapped_in(self) -> Iterator[None]:
        """The model has the averaged weights inside the block, and its own again afterwards."""
        trained = {name: tensor.clone() for name, tensor in weights_of(self.model).items()}
        set_weights(self.model, self.tensors)
        try:
            yield
        finally:
            set_weights(self.model, trained)


@torch.no_grad()
def set_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy these weights into the model, in place."""
    for name, tensor in weights_of(model).items():
        tensor.copy_(tensors[name])


def mean_weights(checkpoints: Sequence[Checkpoint], model: nn.Module, world: World, prefix: str) -> dict[str, Tensor]:
    """The mean of the weights of some checkpoints, shard by shard."""
    total = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in weights_of(model).items()}
    for checkpoint in checkpoints:
        one = {f"{prefix}{name}": torch.empty_like(tensor) for name, tensor in weights_of(model).items()}
        load_tensors(checkpoint, one, world)
        for name, tensor in total.items():
            tensor += one[f"{prefix}{name}"]
    return {name: (tensor / len(checkpoints)).to(weights_of(model)[name].dtype) for name, tensor in total.items()}
