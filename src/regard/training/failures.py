"""Failed steps: the error for running out of memory, and saving a batch whose loss was not finite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

import regard.pictures
import regard.text
from regard.errors import TrainingError
from regard.files import write_atomic
from regard.text import Batch
from regard.training.recipe import Recipe
from regard.training.resource_estimate import describe_shape


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a device or the machine ran out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def out_of_memory_error(batches: Sequence[Batch], recipe: Recipe) -> TrainingError:
    """The error for batches that do not fit into memory: their shapes, and what to lower."""
    section = getattr(recipe, "batches", None)
    now = "" if section is None else f" (now {', '.join(f'{name}={value}' for name, value in section if value)})"
    advice = f"Lower the size in [batches]{now} and raise train.accumulate by the same factor"
    if recipe.train.precision == "float32":
        advice += ", or set train.precision=bf16"
    shapes = "; ".join(map(describe_shape, batches))
    advice = f"{advice}. Then resume from the last checkpoint."
    return TrainingError(f"Out of memory with {shapes}", where="train", advice=advice)


def save_batch(batch: Batch, path: Path) -> None:
    """Save a batch, to be loaded by `read_batch`."""
    values = {one.name: getattr(batch, one.name) for one in fields(batch)}
    tensors = {name: value.cpu().contiguous() for name, value in values.items() if isinstance(value, Tensor)}
    rest = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, save(tensors, {"batch": json.dumps({"kind": type(batch).__name__, **rest})}))


def read_batch(path: Path) -> Batch:
    """A batch that `save_batch` wrote: objective.loss(model, read_batch(path), None) repeats what failed."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["batch"])
    name = header.pop("kind")
    kind = getattr(regard.pictures if name in regard.pictures.__all__ else regard.text, name)
    batch: Batch = kind(**load_file(path), **header)
    return batch
