"""Metrics of a trained run on held-out examples, as functions that ablation and head importance call."""

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

from regard.errors import SettingError, unknown
from regard.inspection.classify import Classifier
from regard.runs import TARGET_TOKENIZER, TOKENIZER, Run
from regard.text import Batch
from regard.training import (
    DistributedModel,
    EvaluateSettings,
    Evaluator,
    Objective,
    Precision,
    Recipe,
    World,
    load_recipe,
)
from regard.training.tasks import FILE_SECTIONS, PRETRAINED, PRETRAINED_RECIPE

MetricFunction = Callable[[], float]
"""Runs a model and returns a number: a loss, BLEU, the probability of a class."""

EVAL_GENERATIONS = 100  # translations that BLEU is computed on
FEW_EXAMPLES = 100
TOKENIZER_FILES = (TOKENIZER, TARGET_TOKENIZER, PRETRAINED, PRETRAINED_RECIPE)  # what a run needs to read text


@dataclass(frozen=True, eq=False, repr=False)
class RunEvaluation:
    """A model, its objective, and the batches that it is evaluated on."""

    model: nn.Module
    objective: Objective[Any]
    batches: Sequence[Batch]

    def __repr__(self) -> str:
        return f"RunEvaluation({type(self.model).__name__}, {len(self.batches)} batches)"

    @classmethod
    def of(cls, run: str | os.PathLike[str], file: Path | None = None, max_batches: int | None = None) -> RunEvaluation:
        """The model of a run with its own validation examples, or those of a file, `max_batches` of them.

        The file has the format that the task trains on: a table with the columns of [data], or by default those of the
        task (source and target, text and label), or plain text for language models and BERT.
        """
        opened = Run.open(run)
        model = opened.model()
        with _validation_batches(opened, file) as (objective, batches):
            some = [one for _, one in zip(range(max_batches), batches, strict=False)] if max_batches else list(batches)
        if not some:
            advice = "Name a file of examples." if file is None else ""
            raise SettingError("There are no validation examples", where=str(file or opened.path), advice=advice)
        return cls(model, objective, some)

    def metrics(self, generations: int = 0) -> dict[str, float]:
        """All metrics of the objective; of translators also BLEU and chrF, on the first `generations` translations."""
        model, precision = DistributedModel(self.model, World(), "ddp"), Precision("float32", torch.device("cpu"))
        section = EvaluateSettings(samples=0, generations=generations if "bleu" in self.objective.metrics else 0)
        try:
            found = Evaluator(self.objective, lambda rank, ranks: self.batches, model, precision, section)
            return dict(found.evaluate(self.model).metrics)
        finally:
            self.model.eval()

    def losses(self) -> Iterator[Callable[[], Tensor]]:
        """For each batch, a function that runs the model and returns the sum of its losses; rows are independent."""
        return (partial(self._loss, batch) for batch in self.batches)

    def _loss(self, batch: Batch) -> Tensor:
        return self.objective.loss(self.model, batch, None).total

    def loss(self) -> float:
        """The loss of all batches."""
        return self.metrics()["loss"]

    def bleu(self, generations: int = EVAL_GENERATIONS) -> float:
        """BLEU of a translator's first `generations` translations."""
        if "bleu" not in self.objective.metrics:
            raise SettingError("BLEU needs a translator", where=type(self.objective).__name__)
        return self.metrics(generations)["bleu"]


def class_probability(classifier: Classifier, text: str, label: str, other: str | None = None) -> MetricFunction:
    """The probability that a classifier gives to a label of a text."""
    [found] = classifier([text], None if other is None else [other])
    if label not in found.probabilities:
        raise unknown(label, found.probabilities, kind="label", where="heads")
    return lambda: classifier([text], None if other is None else [other])[0].probabilities[label]


@contextmanager
def _validation_batches(run: Run, file: Path | None) -> Iterator[tuple[Objective[Any], Iterable[Batch]]]:
    """The objective of a run and its held-out batches."""
    recipe = load_recipe(run)
    if file is None:
        prepared = _with_few_examples(recipe).prepare(run.path)
        yield prepared.objective, () if prepared.valid is None else prepared.valid(0, 1)
        return
    if not file.is_file():
        raise SettingError(f"File not found: {file}", where="heads")
    with TemporaryDirectory() as folder:
        for name in TOKENIZER_FILES:
            if (run.path / name).exists():
                Path(folder, name).parent.mkdir(exist_ok=True)
                copyfile(run.path / name, Path(folder, name))
        prepared = _with_file(recipe, file.resolve()).prepare(Path(folder))
        yield prepared.objective, () if prepared.valid is None else prepared.valid(0, 1)


def _with_few_examples(recipe: Recipe) -> Recipe:
    """The recipe with few training examples of the built-in corpus, since only the validation ones are used."""
    data: Any = recipe.data  # type: ignore[attr-defined]
    if data.kind != "built-in":
        return recipe
    return recipe.model_copy(update={"data": data.model_copy(update={"examples": min(data.examples, FEW_EXAMPLES)})})


def _with_file(recipe: Recipe, file: Path) -> Recipe:
    """The recipe with a file in place of its data."""
    if recipe.task not in FILE_SECTIONS:
        problem = f"A run of task {recipe.task!r} cannot be evaluated on a file"
        raise SettingError(problem, where="heads", advice=f"Tasks that can: {', '.join(FILE_SECTIONS)}.")
    data: Any = recipe.data  # type: ignore[attr-defined]
    given, kind = {"train": file, "valid": file}, FILE_SECTIONS[recipe.task]
    known = {name: getattr(data, name) for name in ("labels", "tags") if hasattr(data, name)}
    made = data.model_copy(update=given) if isinstance(data, kind) else kind(**given, **known)
    return recipe.model_copy(update={"data": made})
