"""What to do when training goes wrong: a signal to stop, memory that is not enough, a batch worth looking at again."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

import regard.text
from regard.errors import TrainingError
from regard.files import write_whole
from regard.text import Batch
from regard.training.estimate import shape_of
from regard.training.recipe import Recipe


class Interruption:
    """Inside, Ctrl-C and SIGTERM are noted instead of ending the process; a second Ctrl-C ends it as ever.

    Only the main thread can listen to signals; in another one nothing is noted.
    """

    def __init__(self) -> None:
        self.noted: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.noted is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.noted = signal.Signals(number).name


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is not enough, on any device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def too_large(batches: Sequence[Batch], recipe: Recipe) -> TrainingError:
    """The error for batches that do not fit: which shape it was, and what to lower."""
    section = getattr(recipe, "batches", None)
    now = "" if section is None else f" (now {', '.join(f'{name}={value}' for name, value in section if value)})"
    advice = f"Lower the size in [batches]{now} and raise train.accumulate by as much"
    if recipe.train.precision == "float32":
        advice += ", or compute in train.precision=bf16"
    return TrainingError(
        f"out of memory with {'; '.join(map(shape_of, batches))}",
        "batches that fit",
        where="train",
        advice=f"{advice}. Resume from the last checkpoint.",
    )


def save_batch(batch: Batch, path: Path) -> None:
    """Keep a batch as it is, to be read again by `read_batch`."""
    values = {one.name: getattr(batch, one.name) for one in fields(batch)}
    tensors = {name: value.cpu().contiguous() for name, value in values.items() if isinstance(value, Tensor)}
    rest = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, save(tensors, {"batch": json.dumps({"kind": type(batch).__name__, **rest})}))


def read_batch(path: Path) -> Batch:
    """A batch that `save_batch` kept: objective.loss(model, read_batch(path), None) is what happened."""
    with safe_open(path, framework="pt") as file:
        said = json.loads(file.metadata()["batch"])
    kind = getattr(regard.text, said.pop("kind"))
    batch: Batch = kind(**load_file(path), **said)
    return batch
