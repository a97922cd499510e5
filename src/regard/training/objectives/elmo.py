"""What models of words in context are trained for: their neighbours on both sides (PredictNeighbours), a tag for each
(TagWords)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.models import Logits, Neighbours
from regard.text import IGNORED, Labels, PlainBatch, SpelledTaggedBatch, Tokenizer, spelled
from regard.training import metrics
from regard.training.metrics import Grade
from regard.training.objectives.base import Better, Carry, Loss, Measured, Objective, Output


@dataclass(frozen=True)
class PredictNeighbours:
    """Each token from all before it, and from all after it, of a model (inputs, lengths, spellings) -> Neighbours.

    The loss of a token is the mean of both surprises. A word outside the vocabulary is read by its letters where the
    model can, and predicted as the unknown token.
    """

    tokenizer: Tokenizer
    smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        names = ("loss", "perplexity", "forward_perplexity", "backward_perplexity")
        return dict.fromkeys(names, "lower")

    def loss(self, model: nn.Module, batch: PlainBatch, carry: Carry | None) -> Loss:
        after, before = self._surprises(model, batch, self.smoothing)
        return Loss((after.sum() + before.sum()) / 2)

    def measure(self, model: nn.Module, batch: PlainBatch, carry: Carry | None) -> Measured:
        after, before = self._surprises(model, batch)
        sums = {"forward": after.double().sum(), "backward": before.double().sum()}
        tokens = (batch.lengths - 1).sum().double()
        return Measured({"nll": (sums["forward"] + sums["backward"]) / 2, **sums, "tokens": tokens})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        tokens = float(sums["tokens"])
        return {
            "loss": float(sums["nll"] / sums["tokens"]),
            "perplexity": metrics.perplexity(float(sums["nll"]), tokens),
            "forward_perplexity": metrics.perplexity(float(sums["forward"]), tokens),
            "backward_perplexity": metrics.perplexity(float(sums["backward"]), tokens),
        }

    def outputs(self, model: nn.Module, batch: PlainBatch) -> Sequence[Output]:
        """Each text, and the word that both directions together would put in each place of it."""
        said = model(batch.inputs, batch.lengths, batch.spellings)
        guesses = (_logs(said.after[:, :-2]) + _logs(said.before[:, 2:])).argmax(-1)  # of places 1 to T - 2
        given, got = (
            _texts(self.tokenizer, ids, batch.lengths - 2)
            for ids in (_known(batch.inputs[:, 1:-1], self.tokenizer), guesses)
        )
        return [Output(*row) for row in zip(batch.indices.tolist(), given, got, strict=True)]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}

    def _surprises(self, model: nn.Module, batch: PlainBatch, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """(B, T) each: of the token after every place, and of the one before it; 0 where there is none."""
        said: Neighbours = model(batch.inputs, batch.lengths, batch.spellings)
        after, before = neighbours_of(_known(batch.inputs, self.tokenizer), batch.lengths)
        return Logits(said.after).surprise(after, smoothing), Logits(said.before).surprise(before, smoothing)


def neighbours_of(inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T) each: the token after every place of a row and the one before it, IGNORED where there is none."""
    here = torch.arange(inputs.size(1), device=inputs.device)
    real = here < lengths.unsqueeze(-1)
    after = inputs.roll(-1, 1).masked_fill(here >= lengths.unsqueeze(-1) - 1, IGNORED)
    return after, inputs.roll(1, 1).masked_fill(~real | (here == 0), IGNORED)


@dataclass(frozen=True)
class TagWords:
    """A tag for each word, at its first piece, of a model (inputs, lengths, spellings) -> logits (B, T, C)."""

    tags: Labels
    tokenizer: Tokenizer
    smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "accuracy": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: SpelledTaggedBatch, carry: Carry | None) -> Loss:
        logits = model(batch.inputs, batch.lengths, batch.spellings)
        return Loss(Logits(logits).surprise(batch.tags, self.smoothing).sum())

    def measure(self, model: nn.Module, batch: SpelledTaggedBatch, carry: Carry | None) -> Measured:
        logits = model(batch.inputs, batch.lengths, batch.spellings)
        words = batch.tags != IGNORED
        table = metrics.confusion(logits.argmax(-1)[words], batch.tags[words], len(self.tags))
        return Measured({"nll": Logits(logits).surprise(batch.tags).double().sum(), "confusion": table.double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        return metrics.of_classes(sums["nll"], sums["confusion"])

    def outputs(self, model: nn.Module, batch: SpelledTaggedBatch) -> Sequence[Output]:
        """Each text, and the tags of its words."""
        said = model(batch.inputs, batch.lengths, batch.spellings).argmax(-1)
        texts = _texts(self.tokenizer, _known(batch.inputs[:, 1:-1], self.tokenizer), batch.lengths - 2)
        rows = zip(batch.indices.tolist(), texts, said, batch.tags, strict=True)
        return [
            Output(index, text, self._names(got[tags != IGNORED]), self._names(tags[tags != IGNORED]))
            for index, text, got, tags in rows
        ]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}

    def _names(self, numbers: Tensor) -> str:
        return " ".join(self.tags.names[number] for number in numbers.tolist())


def _known(inputs: Tensor, tokenizer: Tokenizer) -> Tensor:
    """inputs as the vocabulary has them: what lies outside is unknown."""
    return inputs.where(inputs < len(tokenizer), tokenizer.special.unknown or 0)


def _texts(tokenizer: Tokenizer, ids: Tensor, lengths: Tensor) -> list[str]:
    """The text of each row, unknown words shown as such."""
    size, unknown = len(tokenizer), tokenizer.special.unknown
    shown = {} if unknown is None else {size: tokenizer.token(unknown)}
    rows = zip(ids.where(ids != (-1 if unknown is None else unknown), size).tolist(), lengths.tolist(), strict=True)
    return [spelled(tokenizer, row[:length], shown) for row, length in rows]


def _logs(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(-1)


if TYPE_CHECKING:
    _objectives: tuple[type[Objective[PlainBatch]], type[Objective[SpelledTaggedBatch]]] = (PredictNeighbours, TagWords)
