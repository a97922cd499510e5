"""Objectives of text classification, with cross-entropy and label smoothing, and of regression to a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING

from torch import Tensor, nn

from regard.models import Logits
from regard.text import LabelledBatch, Labels, Scale, Tokenizer
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective


@dataclass(frozen=True)
class ClassificationObjective:
    """Classification of texts by a model (inputs (B, T), lengths (B,), segments (B, T)) -> logits (B, C)."""

    labels: Labels
    tokenizer: Tokenizer
    label_smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "accuracy": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Loss:
        logits = model(batch.inputs, batch.lengths, batch.segments)
        return Loss(Logits(logits).nll(batch.labels, self.label_smoothing).sum())

    def measure(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> MetricSums:
        logits = model(batch.inputs, batch.lengths, batch.segments)
        table = metrics.confusion(logits.argmax(-1), batch.labels, len(self.labels))
        return MetricSums({"nll": Logits(logits).nll(batch.labels).double().sum(), "confusion": table.double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return metrics.classification_metrics(sums["nll"], sums["confusion"])

    def outputs(self, model: nn.Module, batch: LabelledBatch) -> Sequence[ExampleOutput]:
        names = self.labels.names
        predicted = model(batch.inputs, batch.lengths, batch.segments).argmax(-1).tolist()
        texts = self.tokenizer.decode_batch(_rows(batch.inputs, batch.lengths))
        rows = zip(batch.indices.tolist(), texts, predicted, batch.labels.tolist(), strict=True)
        return [ExampleOutput(index, text, names[best], names[label]) for index, text, best, label in rows]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}


@dataclass(frozen=True)
class RegressionObjective:
    """Regression by a model (inputs (B, T), lengths (B,), segments (B, T)) -> (B, 1), in standard deviations.

    The loss is the mean squared error of standardised labels, so predicting the mean of all labels has loss 1; `error`
    is the root mean squared error in the unit of the labels, `pearson` the correlation of predictions and labels.
    """

    scale: Scale
    tokenizer: Tokenizer

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "error": "lower", "pearson": "higher"}

    def loss(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Loss:
        return Loss((self._predict(model, batch) - batch.labels).square().sum())

    def measure(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> MetricSums:
        predicted, label = self._predict(model, batch).double(), batch.labels.double()
        products = {
            "predicted": predicted,
            "label": label,
            "product": predicted * label,
            "predicted2": predicted**2,
            "label2": label**2,
        }
        sums = {name: values.sum() for name, values in products.items()}
        return MetricSums({**sums, "count": label.new_tensor(float(len(label)))})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        names = ("predicted", "label", "product", "predicted2", "label2", "count")
        predicted, label, product, predicted2, label2, count = (float(sums[name]) for name in names)
        loss = (predicted2 - 2 * product + label2) / count if count else nan
        return {
            "loss": loss,
            "error": self.scale.std * max(loss, 0.0) ** 0.5,
            "pearson": metrics.pearson(count, predicted, label, product, predicted2, label2),
        }

    def outputs(self, model: nn.Module, batch: LabelledBatch) -> Sequence[ExampleOutput]:
        predicted, labels = self._predict(model, batch).tolist(), batch.labels.tolist()
        texts = self.tokenizer.decode_batch(_rows(batch.inputs, batch.lengths))
        rows = zip(batch.indices.tolist(), texts, predicted, labels, strict=True)
        return [
            ExampleOutput(index, text, f"{self.scale.value(got):.4g}", f"{self.scale.value(label):.4g}")
            for index, text, got, label in rows
        ]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}

    def _predict(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        outputs: Tensor = model(batch.inputs, batch.lengths, batch.segments)
        return outputs.squeeze(-1).float()


def _rows(inputs: Tensor, lengths: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(inputs.tolist(), lengths.tolist(), strict=True)]


if TYPE_CHECKING:
    _objective: type[Objective[LabelledBatch]] = ClassificationObjective
