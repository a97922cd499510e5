"""A trained run and the examples it is asked about: how well it does on them, and numbers that a head may change."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.inspection.classify import Classifier
from regard.runs import TARGET_TOKENIZER, TOKENIZER, Run
from regard.text import Batch
from regard.training import Evaluate, Examiner, Objective, Precision, Recipe, Spread, World, recorded
from regard.training.tasks import FILE_SECTIONS, READER, READER_RECIPE

Number = Callable[[], float]
"""Runs a model and says how well it does, or how sure it is: a loss, BLEU, the probability of a class."""

GRADED = 100  # texts that BLEU is measured on
FEW = 100
CARRIED = (TOKENIZER, TARGET_TOKENIZER, READER, READER_RECIPE)  # what a run needs to read text


@dataclass(frozen=True, eq=False)
class Examined:
    """A model and the batches it is asked about, with what it was trained for."""

    model: nn.Module
    objective: Objective[Any]
    batches: Sequence[Batch]

    @classmethod
    def of(cls, run: str | os.PathLike[str], file: Path | None = None, most: int | None = None) -> Examined:
        """The model of a run with its own validation examples, or those of a file, of which `most` batches are taken.

        The file is what the task trains on: a table with the columns of [data], or by default those of the task
        (source and target, text and label), or plain text for language models and BERT.
        """
        opened = Run.open(run)
        model = opened.model()
        with _prepared(opened, file) as (objective, batches):
            some = [batch for _, batch in zip(range(most), batches, strict=False)] if most else list(batches)
        if not some:
            raise SettingError(
                f"{file or opened.path}, which has no validation examples", "at least one", where="heads"
            )
        return cls(model, objective, some)

    def metrics(self, graded: int = 0) -> dict[str, float]:
        """All that the objective measures; of translations BLEU and chrF too, of the first `graded` of them."""
        spread, precision = Spread(self.model, World(), "ddp"), Precision("float32", torch.device("cpu"))
        section = Evaluate(samples=0, graded=graded if "bleu" in self.objective.metrics else 0)
        try:
            found = Examiner(self.objective, lambda rank, ranks: self.batches, spread, precision, section)
            return dict(found.examine(self.model).metrics)
        finally:
            self.model.eval()

    def losses(self) -> Iterator[Callable[[], Tensor]]:
        """For each batch, what runs the model and gives the sum of its losses; its rows do not see each other."""
        return (partial(self._loss, batch) for batch in self.batches)

    def _loss(self, batch: Batch) -> Tensor:
        return self.objective.loss(self.model, batch, None).total

    def loss(self) -> float:
        """The loss of all batches."""
        return self.metrics()["loss"]

    def bleu(self, graded: int = GRADED) -> float:
        """BLEU of a translator's first `graded` translations."""
        if "bleu" not in self.objective.metrics:
            raise SettingError(f"BLEU of {type(self.objective).__name__}", "a translator", where="heads")
        return self.metrics(graded)["bleu"]


def class_probability(classifier: Classifier, text: str, label: str, other: str | None = None) -> Number:
    """How likely a classifier holds a label of a text."""
    [found] = classifier([text], None if other is None else [other])
    if label not in found.probabilities:
        raise SettingError(f"label {label!r}", f"one of {', '.join(found.probabilities)}", where="heads")
    return lambda: classifier([text], None if other is None else [other])[0].probabilities[label]


@contextmanager
def _prepared(run: Run, file: Path | None) -> Iterator[tuple[Objective[Any], Iterable[Batch]]]:
    """The objective of a run and its held-out batches."""
    recipe = recorded(run)
    if file is None:
        prepared = _lightly(recipe).prepare(run.path)
        yield prepared.objective, () if prepared.valid is None else prepared.valid(0, 1)
        return
    if not file.is_file():
        raise SettingError(f"{file}, which is no file", "a file of examples", where="heads")
    with TemporaryDirectory() as folder:
        for name in CARRIED:
            if (run.path / name).exists():
                Path(folder, name).parent.mkdir(exist_ok=True)
                copyfile(run.path / name, Path(folder, name))
        prepared = _reading(recipe, file.resolve()).prepare(Path(folder))
        yield prepared.objective, () if prepared.valid is None else prepared.valid(0, 1)


def _lightly(recipe: Recipe) -> Recipe:
    """The recipe without what training alone needs: of the built-in corpus a few examples to train on are enough."""
    data: Any = recipe.data  # type: ignore[attr-defined]
    if data.kind != "built-in":
        return recipe
    return recipe.model_copy(update={"data": data.model_copy(update={"examples": min(data.examples, FEW)})})


def _reading(recipe: Recipe, file: Path) -> Recipe:
    """The recipe with a file in the place of its data."""
    if recipe.task not in FILE_SECTIONS:
        raise SettingError(
            f"a file for a run of task {recipe.task!r}", f"one of {', '.join(FILE_SECTIONS)}", where="heads"
        )
    data: Any = recipe.data  # type: ignore[attr-defined]
    given, kind = {"train": file, "valid": file}, FILE_SECTIONS[recipe.task]
    known = {name: getattr(data, name) for name in ("labels", "tags") if hasattr(data, name)}
    made = data.model_copy(update=given) if isinstance(data, kind) else kind(**given, **known)
    return recipe.model_copy(update={"data": made})
