"""Bidirectional language modelling, as ELMo is pre-trained: each token from both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.models import BiLMLogits, Logits
from regard.text import IGNORED, PlainBatch, Tokenizer, decode_with_oov
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective


@dataclass(frozen=True)
class BiLMObjective:
    """Each token from all before it, and from all after it, of a model (inputs, lengths, spellings) -> BiLMLogits.

    The loss of a token is the mean cross-entropy of both directions. A word outside the vocabulary is read by its
    characters where the model can, and predicted as the unknown token.
    """

    tokenizer: Tokenizer
    label_smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        names = ("loss", "perplexity", "forward_perplexity", "backward_perplexity")
        return dict.fromkeys(names, "lower")

    def loss(self, model: nn.Module, batch: PlainBatch, carry: Carry | None) -> Loss:
        after, before = self._nlls(model, batch, self.label_smoothing)
        return Loss((after.sum() + before.sum()) / 2)

    def measure(self, model: nn.Module, batch: PlainBatch, carry: Carry | None) -> MetricSums:
        after, before = self._nlls(model, batch)
        sums = {"forward": after.double().sum(), "backward": before.double().sum()}
        tokens = (batch.lengths - 1).sum().double()
        return MetricSums({"nll": (sums["forward"] + sums["backward"]) / 2, **sums, "tokens": tokens})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        tokens = float(sums["tokens"])
        return {
            "loss": float(sums["nll"] / sums["tokens"]),
            "perplexity": metrics.perplexity(float(sums["nll"]), tokens),
            "forward_perplexity": metrics.perplexity(float(sums["forward"]), tokens),
            "backward_perplexity": metrics.perplexity(float(sums["backward"]), tokens),
        }

    def outputs(self, model: nn.Module, batch: PlainBatch) -> Sequence[ExampleOutput]:
        """Each text, and the word that both directions together predict at each position."""
        logits: BiLMLogits = model(batch.inputs, batch.lengths, batch.spellings)
        guesses = (_log_softmax(logits.forward[:, :-2]) + _log_softmax(logits.backward[:, 2:])).argmax(
            -1
        )  # of places 1 to T - 2
        given, got = (
            decode_rows(self.tokenizer, ids, batch.lengths - 2)
            for ids in (within_vocabulary(batch.inputs[:, 1:-1], self.tokenizer), guesses)
        )
        return [ExampleOutput(*row) for row in zip(batch.indices.tolist(), given, got, strict=True)]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}

    def _nlls(self, model: nn.Module, batch: PlainBatch, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """(B, T) each: - ln p of the token after every position and of the one before it; 0 where there is none."""
        logits: BiLMLogits = model(batch.inputs, batch.lengths, batch.spellings)
        after, before = neighbour_targets(within_vocabulary(batch.inputs, self.tokenizer), batch.lengths)
        return Logits(logits.forward).nll(after, label_smoothing), Logits(logits.backward).nll(before, label_smoothing)


def neighbour_targets(inputs: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(B, T) each: the token after every position of a row and the one before it, IGNORED where there is none."""
    here = torch.arange(inputs.size(1), device=inputs.device)
    real = here < lengths.unsqueeze(-1)
    after = inputs.roll(-1, 1).masked_fill(here >= lengths.unsqueeze(-1) - 1, IGNORED)
    return after, inputs.roll(1, 1).masked_fill(~real | (here == 0), IGNORED)


def within_vocabulary(inputs: Tensor, tokenizer: Tokenizer) -> Tensor:
    """The ids of inputs within the vocabulary: those beyond it become the unknown token."""
    return inputs.where(inputs < len(tokenizer), tokenizer.special.unknown or 0)


def decode_rows(tokenizer: Tokenizer, ids: Tensor, lengths: Tensor) -> list[str]:
    """The text of each row, with unknown words shown as the unknown token."""
    size, unknown = len(tokenizer), tokenizer.special.unknown
    shown = {} if unknown is None else {size: tokenizer.token(unknown)}
    rows = zip(ids.where(ids != (-1 if unknown is None else unknown), size).tolist(), lengths.tolist(), strict=True)
    return [decode_with_oov(tokenizer, row[:length], shown) for row, length in rows]


def _log_softmax(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(-1)


if TYPE_CHECKING:
    _objective: type[Objective[PlainBatch]] = BiLMObjective
