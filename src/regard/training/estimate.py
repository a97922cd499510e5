"""What a training will take, before it takes it: parameters, batches, steps, memory."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from regard.text import Batch, Batches, Epoch
from regard.training.recipe import AdamW, MovingAverage, Prepared, Recipe

LOOKED_AT = 32  # batches of an epoch, evenly spaced, among which the largest is sought


@dataclass(frozen=True)
class Estimate:
    """Counts, and bytes; `activations` are measured on a row of the largest batch and multiplied."""

    parameters: int
    batches_per_epoch: int
    steps: int
    epochs: float
    largest: str  # batch, in words
    weights: int
    gradients: int
    optimiser: int
    average: int
    activations: int

    @property
    def memory(self) -> int:
        """Bytes in all."""
        return self.weights + self.gradients + self.optimiser + self.average + self.activations


def steps_of(recipe: Recipe, batches: Batches[Batch]) -> int:
    """How many steps a recipe means: as many as it says, or as many as its epochs have."""
    steps = recipe.train.steps
    if isinstance(steps, int):
        return steps
    return max(1, round(float(steps.split()[0]) * len(batches) / recipe.train.accumulate))


def estimate(prepared: Prepared) -> Estimate:
    """What training would need on one device, whole; sharding divides all but the activations by the ranks."""
    recipe, batches = prepared.recipe, prepared.train
    steps = steps_of(recipe, batches)
    parameters = list(prepared.model.parameters())
    weights = sum(one.nbytes for one in parameters)
    trained = sum(one.nbytes for one in parameters if one.requires_grad)
    copies = 2 if isinstance(recipe.optimiser, AdamW) else int(recipe.optimiser.momentum > 0)
    epoch = Epoch(recipe.train.seed)
    plan = batches.plan(epoch)
    rows = _largest(batches, plan, epoch)
    whole, one = batches.collate(rows, epoch), batches.collate(rows[:1], epoch)
    return Estimate(
        parameters=sum(one.numel() for one in parameters),
        batches_per_epoch=len(plan),
        steps=steps,
        epochs=steps * recipe.train.accumulate / len(plan),
        largest=shape_of(whole),
        weights=weights,
        gradients=trained,
        optimiser=copies * trained,
        average=weights if isinstance(recipe.average, MovingAverage) else 0,
        activations=round(_kept_for_backward(prepared, one) * cells(whole) / max(1, cells(one))),
    )


def shape_of(batch: Batch) -> str:
    """The shapes of a batch in words: a LabelledBatch of 32 rows (inputs 32 x 61, ...)."""
    wide = {one.name: getattr(batch, one.name) for one in fields(batch)}
    shapes = [f"{name} {' x '.join(map(str, value.shape))}" for name, value in wide.items() if _is_wide(value)]
    return f"a {type(batch).__name__} of {len(batch)} rows ({', '.join(shapes)})"


def cells(batch: Batch) -> int:
    """The places of a batch, padding and all: rows x longest, of all its sides."""
    return sum(value.numel() for one in fields(batch) if _is_wide(value := getattr(batch, one.name)))


def _is_wide(value: object) -> bool:
    return isinstance(value, Tensor) and value.dim() > 1


def _largest(batches: Batches[Batch], plan: object, epoch: Epoch) -> np.ndarray:
    some = plan[:: max(1, len(plan) // LOOKED_AT)]  # type: ignore[index, arg-type]
    return max(some, key=lambda rows: cells(batches.collate(rows, epoch)))


def _kept_for_backward(prepared: Prepared, batch: Batch) -> int:
    """The bytes that the loss of a batch keeps for its gradient, each stretch of memory once, the weights apart."""
    own = {one.untyped_storage().data_ptr() for one in prepared.model.parameters()}
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    state = torch.get_rng_state()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = prepared.objective.loss(prepared.model, batch, None)
    torch.set_rng_state(state)
    del loss
    return sum(kept.values())
