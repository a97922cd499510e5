"""Image classification: cross-entropy of the class, accuracy and F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from regard.models import Logits
from regard.pictures import ImageLabelBatch
from regard.text import Labels
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective


@dataclass(frozen=True)
class ImageClassificationObjective:
    """Classification of pictures by a model pixels (B, H, W, 3) -> logits (B, C)."""

    labels: Labels
    label_smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "accuracy": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: ImageLabelBatch, carry: Carry | None) -> Loss:
        return Loss(Logits(model(batch.pixels)).nll(batch.labels, self.label_smoothing).sum())

    def measure(self, model: nn.Module, batch: ImageLabelBatch, carry: Carry | None) -> MetricSums:
        logits = model(batch.pixels)
        table = metrics.confusion(logits.argmax(-1), batch.labels, len(self.labels))
        return MetricSums({"nll": Logits(logits).nll(batch.labels).double().sum(), "confusion": table.double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return metrics.classification_metrics(sums["nll"], sums["confusion"])

    def outputs(self, model: nn.Module, batch: ImageLabelBatch) -> Sequence[ExampleOutput]:
        names, predicted = self.labels.names, model(batch.pixels).argmax(-1).tolist()
        rows = zip(batch.indices.tolist(), predicted, batch.labels.tolist(), strict=True)
        return [ExampleOutput(index, f"picture {index + 1}", names[best], names[label]) for index, best, label in rows]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}


if TYPE_CHECKING:
    _objective: type[Objective[ImageLabelBatch]] = ImageClassificationObjective
