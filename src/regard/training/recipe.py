"""A recipe: all settings of a training, in sections that are validated when they are read.

Here are the sections that every task has: early stopping, gradient accumulation and gradient clipping, checkpoints,
weight average; those of the optimiser (AdamW's betas and eps) and of the schedule (warmup) are in optimisers.py and
schedules.py. A task (training/tasks) adds its own: data, tokenizer, model, objective, batches. `kind` chooses among the
forms of a section, such as the schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn

from regard.errors import SettingError
from regard.models.config import KINDS
from regard.runs import build_model, load_tokenizers
from regard.text import Batch, Batches, Epoch
from regard.training.objectives.base import Objective
from regard.training.optimisers import SGD, AdamW
from regard.training.schedules import ConstantSchedule, ScheduleSettings
from regard.training.section import Count, Epochs, InputPath, Positive, RecipeSection

_NAME = "text of letters, digits, '.', '_' and '-', a letter or digit first"


class NoAverage(RecipeSection):
    kind: Literal["none"] = "none"


class LastAverage(RecipeSection):
    """The mean of the last `count` checkpoints, taken at the end."""

    kind: Literal["last"] = "last"
    count: Count = 5


class MovingAverage(RecipeSection):
    """An exponential moving average (EMA) of the weights; it is what is evaluated and saved for use."""

    kind: Literal["ema"] = "ema"
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.999


class TrainSettings(RecipeSection):
    """`accumulate`: batches per step (gradient accumulation); `clip`: largest gradient norm (gradient clipping)."""

    steps: Count | Epochs = 1000
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    accumulate: Count = 1
    clip: Positive | None = 1.0
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    compile: bool | Literal["graphs"] = False
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Count | None = None
    shard: Literal["ddp", "fsdp"] = "ddp"
    nonfinite: Literal["stop", "skip"] = "stop"
    prefetch: Annotated[int, Field(ge=0)] = 2


class EvaluateSettings(RecipeSection):
    """`monitor`: the metric that decides which weights are best; `patience`: evaluations without a new best before
    early stopping; `generations`: examples whose generated text is scored, as with BLEU."""

    every: Count = 100
    monitor: str = "loss"
    patience: Count | None = None
    samples: Annotated[int, Field(ge=0)] = 3
    generations: Annotated[int, Field(ge=0)] = 0


class CheckpointSettings(RecipeSection):
    """A checkpoint every `every` steps; the last `keep_last` and the best are kept (CheckpointSchedule)."""

    every: Count = 100
    keep_last: Count = 2


class LogSettings(RecipeSection):
    every: Count = 10
    tensorboard: bool = False


class StartSettings(RecipeSection):
    """Initial weights: a run folder or a .safetensors file; random ones by default."""

    weights: InputPath | None = None


@contextmanager
def seeded_weights(seed: int) -> Iterator[None]:
    """Modules made inside the block get initial weights from this seed, equal on every rank, without disturbing the
    global RNG."""
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.default_generator.manual_seed(int(Epoch(seed).hashes("weights")[0]))
        yield


@dataclass(frozen=True)
class PreparedTask:
    """What a task makes of its recipe for the training loop: model, objective and batches.

    `valid(rank, ranks)` gives the same validation batches each time it is called. `recipe` has the settings filled in
    that follow from the data, such as the labels.
    """

    recipe: Recipe
    model: nn.Module
    objective: Objective[Any]
    train: Batches[Any]
    valid: Callable[[int, int], Iterable[Batch]] | None
    notes: tuple[str, ...] = ()  # lines for a person: how many examples, how many were skipped


class Recipe(RecipeSection):
    """The sections that every task has; each task has its own `prepare`.

    `pruned`: the attention heads that were removed, by place, numbered as in the unpruned model.
    """

    task: str

    version: Literal[1] = 1
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description=_NAME)]
    description: str = ""
    train: TrainSettings = TrainSettings()
    optimiser: Annotated[AdamW | SGD, Field(discriminator="kind")] = AdamW()
    schedule: Annotated[ScheduleSettings, Field(discriminator="kind")] = ConstantSchedule()
    weight_average: Annotated[NoAverage | LastAverage | MovingAverage, Field(discriminator="kind")] = NoAverage()
    evaluate: EvaluateSettings = EvaluateSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    log: LogSettings = LogSettings()
    start: StartSettings = StartSettings()
    pruned: dict[str, list[Annotated[int, Field(ge=0)]]] = Field(default_factory=dict)

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        """Model, objective and the batches of this rank. What takes long is made once and found again in `folder`:
        tokenizer.json, and tokenized text under data/."""
        raise self._no_task()

    def assemble(self, folder: Path) -> nn.Module:
        """The model with initial weights, from the tokenizer that `prepare` left in `folder`; needs no data."""
        if self.task not in KINDS:
            raise self._no_task()
        settings = self.model_dump(mode="json")
        with seeded_weights(self.train.seed):
            return build_model(settings, load_tokenizers(settings, folder))

    def _no_task(self) -> SettingError:
        """The error for a recipe of another task, which comes with a model, an objective and batches of its own."""
        return SettingError(
            f"Task {self.task!r} is none of those in regard.training.TASKS, so it has no model of its own",
            where="Recipe",
            advice="Pass a PreparedTask to Loop.",
        )
