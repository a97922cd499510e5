"""A recipe: everything a training depends on, in sections, each checked when it is read.

A task (training/tasks) adds the sections that are its own: data, tokenizer, model, objective, batches. Sections that
come in kinds, such as schedules, are told apart by their `kind`.
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
Share = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Epochs = Annotated[str, Field(pattern=r"^\d+(\.\d+)? epochs?$", description='text such as "3 epochs"')]


def located(path: Path, info: ValidationInfo) -> Path:
    """A path as the reader of a recipe means it: `info.context` is the folder that a relative one starts from.

    Without such a folder it stays as it is.
    """
    if info.context is None:
        return path
    try:
        return Path(info.context) / path.expanduser()
    except RuntimeError as error:  # ~nobody
        raise ValueError("a path whose ~ is somebody's home folder") from error


InputPath = Annotated[Path, AfterValidator(located)]
"""A file or folder that a recipe names. Relative in a file: from that file's folder; in --set: from the working one."""


class Section(BaseModel):
    """Settings that are refused when misspelt and never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class AdamW(Section):
    kind: Literal["adamw"] = "adamw"
    rate: Positive = 1e-3
    betas: tuple[Share, Share] = (0.9, 0.999)
    eps: Positive = 1e-8
    decay: Annotated[float, Field(ge=0)] = 0.01


class SGD(Section):
    kind: Literal["sgd"] = "sgd"
    rate: Positive = 0.1
    momentum: Share = 0.0
    nesterov: bool = False
    decay: Annotated[float, Field(ge=0)] = 0.0


class Constant(Section):
    kind: Literal["constant"] = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0


class Linear(Section):
    kind: Literal["linear"] = "linear"
    warmup: Annotated[int, Field(ge=0)] = 0
    floor: Share = 0.0


class Cosine(Section):
    kind: Literal["cosine"] = "cosine"
    warmup: Annotated[int, Field(ge=0)] = 0
    floor: Share = 0.0


class InverseRoot(Section):
    kind: Literal["inverse-root"] = "inverse-root"
    warmup: Count = 4000


class Noam(Section):
    kind: Literal["noam"] = "noam"
    width: Count = 512
    warmup: Count = 4000


class Plateau(Section):
    kind: Literal["plateau"] = "plateau"
    warmup: Annotated[int, Field(ge=0)] = 0
    patience: Count = 3
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    floor: Share = 0.0


class NoAverage(Section):
    kind: Literal["none"] = "none"


class LastAverage(Section):
    """The mean of the last `count` checkpoints, taken at the end."""

    kind: Literal["last"] = "last"
    count: Count = 5


class MovingAverage(Section):
    """An exponential moving average of the weights, which is what is evaluated and kept."""

    kind: Literal["ema"] = "ema"
    decay: Annotated[float, Field(gt=0, lt=1)] = 0.999


class Train(Section):
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
    ahead: Annotated[int, Field(ge=0)] = 2


class Evaluate(Section):
    every: Count = 100
    watch: str = "loss"
    patience: Count | None = None
    samples: Annotated[int, Field(ge=0)] = 3
    graded: Annotated[int, Field(ge=0)] = 0


class Keep(Section):
    every: Count = 100
    latest: Count = 2


class Log(Section):
    every: Count = 10
    tensorboard: bool = False


class Start(Section):
    """Where the weights come from: a run folder or a file of weights; chance by default."""

    weights: InputPath | None = None


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Modules made inside get the fresh weights of this seed, the same on every rank; the global RNG stays as it is."""
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.default_generator.manual_seed(int(Epoch(seed).hashes("weights")[0]))
        yield


@dataclass(frozen=True)
class Prepared:
    """What a task makes of its recipe: all that the loop is handed.

    `valid(rank, ranks)` gives the same batches each time it is called. `recipe` has what the data told filled in.
    """

    recipe: Recipe
    model: nn.Module
    objective: Objective[Any]
    train: Batches[Any]
    valid: Callable[[int, int], Iterable[Batch]] | None
    notes: tuple[str, ...] = ()  # what a person wants to know: how many examples, what was skipped


class Recipe(Section):
    """The sections that every task has; `prepare` is the task's own.

    `pruned`: heads that the model lacks, by place, counted as they were before any was cut.
    """

    task: str

    version: Literal[1] = 1
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description=_NAME)]
    description: str = ""
    train: Train = Train()
    optimiser: Annotated[AdamW | SGD, Field(discriminator="kind")] = AdamW()
    schedule: Annotated[Constant | Linear | Cosine | InverseRoot | Noam | Plateau, Field(discriminator="kind")] = (
        Constant()
    )
    average: Annotated[NoAverage | LastAverage | MovingAverage, Field(discriminator="kind")] = NoAverage()
    evaluate: Evaluate = Evaluate()
    keep: Keep = Keep()
    log: Log = Log()
    start: Start = Start()
    pruned: dict[str, list[Annotated[int, Field(ge=0)]]] = Field(default_factory=dict)

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        """Model, objective and batches of this rank. What takes long is made once and found in `folder` again:
        tokenizer.json, and tokenised text under data/."""
        raise self._nobodys()

    def assemble(self, folder: Path) -> nn.Module:
        """The model with fresh weights, from what `prepare` has left in `folder`, without the data."""
        if self.task not in KINDS:
            raise self._nobodys()
        settings = self.model_dump(mode="json")
        with seeded(self.train.seed):
            return build_model(settings, load_tokenizers(settings, folder))

    def _nobodys(self) -> SettingError:
        """A recipe whose task has no class is for those who bring model, objective and batches themselves."""
        return SettingError(
            f"task {self.task!r}",
            "a task of regard.training.TASKS",
            where="Recipe",
            advice="Or hand a Prepared to Loop.",
        )
