"""A recipe: all settings of a training, in sections that are validated when they are read.

Here are the sections that every task has: early stopping, gradient accumulation and gradient clipping, warmup,
checkpoints, weight average. A task (training/tasks) adds its own: data, tokenizer, model, objective, batches. `kind`
chooses among the forms of a section, such as the schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo
from torch import nn

from regard.errors import SettingError
from regard.models.config import KINDS
from regard.runs import build_model, load_tokenizers
from regard.text import Batch, Batches, Epoch
from regard.training.objectives.base import Objective

_NAME = "text of letters, digits, '.', '_' and '-', a letter or digit first"

Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Epochs = Annotated[str, Field(pattern=r"^\d+(\.\d+)? epochs?$", description='text such as "3 epochs"')]


def resolve_path(path: Path, info: ValidationInfo) -> Path:
    """An absolute path: a relative one starts from the folder `info.context`, and stays as it is without one."""
    if info.context is None:
        return path
    try:
        return Path(info.context) / path.expanduser()
    except RuntimeError as error:  # ~name of an unknown user
        raise ValueError("a path whose ~ is the home folder of a known user") from error


InputPath = Annotated[Path, AfterValidator(resolve_path)]
"""A file or folder that a recipe names. A relative one starts from the folder of the recipe's file, in --set from the
working directory."""


class RecipeSection(BaseModel):
    """A section of a recipe: immutable settings, of which misspelt ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class LabelSmoothing(RecipeSection):
    """Label smoothing: the share of each target's probability that is spread evenly over all classes or tokens."""

    label_smoothing: Fraction = 0.0


class AdamW(RecipeSection):
    kind: Literal["adamw"] = "adamw"
    learning_rate: Positive = 1e-3
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: Annotated[float, Field(ge=0)] = 0.01


class SGD(RecipeSection):
    kind: Literal["sgd"] = "sgd"
    learning_rate: Positive = 0.1
    momentum: Fraction = 0.0
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0)] = 0.0


class ConstantSchedule(RecipeSection):
    kind: Literal["constant"] = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0


class LinearSchedule(RecipeSection):
    kind: Literal["linear"] = "linear"
    warmup: Annotated[int, Field(ge=0)] = 0
    floor: Fraction = 0.0


class CosineSchedule(RecipeSection):
    kind: Literal["cosine"] = "cosine"
    warmup: Annotated[int, Field(ge=0)] = 0
    floor: Fraction = 0.0


class InverseRootSchedule(RecipeSection):
    kind: Literal["inverse-root"] = "inverse-root"
    warmup: Count = 4000


class NoamSchedule(RecipeSection):
    kind: Literal["noam"] = "noam"
    width: Count = 512
    warmup: Count = 4000


class PlateauSchedule(RecipeSection):
    kind: Literal["plateau"] = "plateau"
    warmup: Annotated[int, Field(ge=0)] = 0
    patience: Count = 3
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    floor: Fraction = 0.0


ScheduleSettings = (
    ConstantSchedule | LinearSchedule | CosineSchedule | InverseRootSchedule | NoamSchedule | PlateauSchedule
)


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
