"""Objectives of models of texts: a label for each (Classify), or a number (Estimate)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from torch import Tensor, nn

from regard.models import Logits
from regard.text import LabelledBatch, Labels, Scale, Tokenizer
from regard.training import metrics
from regard.training.metrics import Grade
from regard.training.objectives.base import Better, Carry, Loss, Measured, Objective, Output


@dataclass(frozen=True)
class Classify:
    """A label for each text, of a model (inputs (B, T), lengths (B,), segments (B, T)) -> logits (B, C)."""

    labels: Labels
    tokenizer: Tokenizer
    smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "accuracy": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Loss:
        logits = model(batch.inputs, batch.lengths, batch.segments)
        return Loss(Logits(logits).surprise(batch.labels, self.smoothing).sum())

    def measure(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Measured:
        logits = model(batch.inputs, batch.lengths, batch.segments)
        table = metrics.confusion(logits.argmax(-1), batch.labels, len(self.labels))
        return Measured({"nll": Logits(logits).surprise(batch.labels).double().sum(), "confusion": table.double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return metrics.of_classes(sums["nll"], sums["confusion"])

    def outputs(self, model: nn.Module, batch: LabelledBatch) -> Sequence[Output]:
        names = self.labels.names
        got = model(batch.inputs, batch.lengths, batch.segments).argmax(-1).tolist()
        texts = self.tokenizer.decode_batch(_rows(batch.inputs, batch.lengths))
        rows = zip(batch.indices.tolist(), texts, got, batch.labels.tolist(), strict=True)
        return [Output(index, text, names[said], names[label]) for index, text, said, label in rows]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}


@dataclass(frozen=True)
class Estimate:
    """A number for each text, of a model (inputs (B, T), lengths (B,), segments (B, T)) -> (B, 1), in spreads.

    The loss is the squared error in spreads, so 1 is what the mean of all labels would have; `error` is the root of the
    mean squared error as labels are written, `pearson` how well estimates and labels rise and fall together.
    """

    scale: Scale
    tokenizer: Tokenizer

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "error": "lower", "pearson": "higher"}

    def loss(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Loss:
        return Loss((self._said(model, batch) - batch.labels).square().sum())

    def measure(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Measured:
        said, label = self._said(model, batch).double(), batch.labels.double()
        products = {"said": said, "label": label, "both": said * label, "said2": said**2, "label2": label**2}
        sums = {name: values.sum() for name, values in products.items()}
        return Measured({**sums, "count": label.new_tensor(float(len(label)))})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        said, label, both, said2, label2, count = (
            float(sums[name]) for name in ("said", "label", "both", "said2", "label2", "count")
        )
        loss = (said2 - 2 * both + label2) / count if count else nan
        return {
            "loss": loss,
            "error": self.scale.spread * max(loss, 0.0) ** 0.5,
            "pearson": metrics.pearson(count, said, label, both, said2, label2),
        }

    def outputs(self, model: nn.Module, batch: LabelledBatch) -> Sequence[Output]:
        said, labels = self._said(model, batch).tolist(), batch.labels.tolist()
        texts = self.tokenizer.decode_batch(_rows(batch.inputs, batch.lengths))
        rows = zip(batch.indices.tolist(), texts, said, labels, strict=True)
        return [
            Output(index, text, f"{self.scale.value(got):.4g}", f"{self.scale.value(label):.4g}")
            for index, text, got, label in rows
        ]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}

    def _said(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        estimates: Tensor = model(batch.inputs, batch.lengths, batch.segments)
        return estimates.squeeze(-1).float()


def _rows(inputs: Tensor, lengths: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(inputs.tolist(), lengths.tolist(), strict=True)]


if TYPE_CHECKING:
    _objective: type[Objective[LabelledBatch]] = Classify
