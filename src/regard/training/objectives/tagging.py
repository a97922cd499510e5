"""Objective of tagging: a class for each word, such as its part of speech (token classification)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from regard.models import Logits
from regard.text import IGNORED, Labels, SpelledTaggedBatch, Tokenizer
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective
from regard.training.objectives.bilm import decode_rows, within_vocabulary


@dataclass(frozen=True)
class TaggingObjective:
    """Token classification: a tag for each word at its first piece, of a model (inputs, lengths, spellings) -> logits
    (B, T, C)."""

    tags: Labels
    tokenizer: Tokenizer
    label_smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "accuracy": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: SpelledTaggedBatch, carry: Carry | None) -> Loss:
        logits = model(batch.inputs, batch.lengths, batch.spellings)
        return Loss(Logits(logits).nll(batch.tags, self.label_smoothing).sum())

    def measure(self, model: nn.Module, batch: SpelledTaggedBatch, carry: Carry | None) -> MetricSums:
        logits = model(batch.inputs, batch.lengths, batch.spellings)
        words = batch.tags != IGNORED
        table = metrics.confusion(logits.argmax(-1)[words], batch.tags[words], len(self.tags))
        return MetricSums({"nll": Logits(logits).nll(batch.tags).double().sum(), "confusion": table.double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return metrics.classification_metrics(sums["nll"], sums["confusion"])

    def outputs(self, model: nn.Module, batch: SpelledTaggedBatch) -> Sequence[ExampleOutput]:
        """Each text, with the predicted and the right tags of its words."""
        predicted = model(batch.inputs, batch.lengths, batch.spellings).argmax(-1)
        texts = decode_rows(self.tokenizer, within_vocabulary(batch.inputs[:, 1:-1], self.tokenizer), batch.lengths - 2)
        rows = zip(batch.indices.tolist(), texts, predicted, batch.tags, strict=True)
        return [
            ExampleOutput(index, text, self._tag_names(got[tags != IGNORED]), self._tag_names(tags[tags != IGNORED]))
            for index, text, got, tags in rows
        ]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}

    def _tag_names(self, numbers: Tensor) -> str:
        return " ".join(self.tags.names[number] for number in numbers.tolist())


if TYPE_CHECKING:
    _objective: type[Objective[SpelledTaggedBatch]] = TaggingObjective
