"""Resource estimate of a training (`--dry-run`): parameters, batches, steps, and memory, before any training."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from regard.text import Batch, Batches, Epoch
from regard.training.optimisers import AdamW
from regard.training.recipe import MovingAverage, PreparedTask, Recipe

SAMPLED_BATCHES = 32  # batches of an epoch, evenly spaced, among which the largest is sought


@dataclass(frozen=True)
class ResourceEstimate:
    """Counts, and bytes; `activations` are measured on a row of the largest batch and multiplied."""

    parameters: int
    batches_per_epoch: int
    steps: int
    epochs: float
    largest_batch: str  # in words
    weights: int
    gradients: int
    optimiser: int
    weight_average: int
    activations: int

    @property
    def memory(self) -> int:
        """Bytes in all."""
        return self.weights + self.gradients + self.optimiser + self.weight_average + self.activations


def total_steps(recipe: Recipe, batches: Batches[Batch]) -> int:
    """The number of steps: as the recipe says, or as many as its epochs take."""
    steps = recipe.train.steps
    if isinstance(steps, int):
        return steps
    return max(1, round(float(steps.split()[0]) * len(batches) / recipe.train.accumulate))


def estimate_resources(prepared: PreparedTask) -> ResourceEstimate:
    """What training needs on one device without sharding; sharding divides all but the activations by the ranks."""
    recipe, batches = prepared.recipe, prepared.train
    steps = total_steps(recipe, batches)
    parameters = list(prepared.model.parameters())
    weights = sum(one.nbytes for one in parameters)
    trained = sum(one.nbytes for one in parameters if one.requires_grad)
    copies = 2 if isinstance(recipe.optimiser, AdamW) else int(recipe.optimiser.momentum > 0)
    epoch = Epoch(recipe.train.seed)
    plan = batches.plan(epoch)
    rows = _largest_batch(batches, plan, epoch)
    largest, one = batches.collate(rows, epoch), batches.collate(rows[:1], epoch)
    return ResourceEstimate(
        parameters=sum(one.numel() for one in parameters),
        batches_per_epoch=len(plan),
        steps=steps,
        epochs=steps * recipe.train.accumulate / len(plan),
        largest_batch=describe_shape(largest),
        weights=weights,
        gradients=trained,
        optimiser=copies * trained,
        weight_average=weights if isinstance(recipe.weight_average, MovingAverage) else 0,
        activations=round(_saved_for_backward(prepared, one) * padded_size(largest) / max(1, padded_size(one))),
    )


def describe_shape(batch: Batch) -> str:
    """The shapes of a batch in words: a LabelledBatch of 32 rows (inputs 32 x 61, ...)."""
    values = {one.name: getattr(batch, one.name) for one in fields(batch)}
    shapes = [f"{name} {' x '.join(map(str, value.shape))}" for name, value in values.items() if _is_matrix(value)]
    return f"a {type(batch).__name__} of {len(batch)} rows ({', '.join(shapes)})"


def padded_size(batch: Batch) -> int:
    """The token positions of a batch, padding included: rows x longest row, of source and target together."""
    return sum(value.numel() for one in fields(batch) if _is_matrix(value := getattr(batch, one.name)))


def _is_matrix(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1


def _largest_batch(batches: Batches[Batch], plan: object, epoch: Epoch) -> np.ndarray:
    some = plan[:: max(1, len(plan) // SAMPLED_BATCHES)]  # type: ignore[index, arg-type]
    return max(some, key=lambda rows: padded_size(batches.collate(rows, epoch)))


def _saved_for_backward(prepared: PreparedTask, batch: Batch) -> int:
    """The bytes that the loss of a batch saves for the backward pass: each storage once, without the weights."""
    weights = {one.untyped_storage().data_ptr() for one in prepared.model.parameters()}
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    state = torch.get_rng_state()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = prepared.objective.loss(prepared.model, batch, None)
    torch.set_rng_state(state)
    del loss
    return sum(saved.values())
