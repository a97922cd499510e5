"""BERT's pre-training objective: masked language modelling (MLM) and next-sentence prediction (NSP)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from regard.models import LinearCrossEntropy, Logits, MaskedLMOutput
from regard.text import MaskedBatch, RaggedArray, Tokenizer
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective

CHUNK = 1 << 22  # tokens counted at once


@dataclass(frozen=True, eq=False)
class MaskedLMObjective:
    """The masked tokens, and whether two texts follow each other, of a model (inputs, lengths, segments, positions,
    head) -> MaskedLMOutput.

    `pair_weight`: the weight of a pair in the loss, in masked tokens; at the average number of masked tokens in a pair,
    the loss is the mean of tokens plus the mean of pairs, as published. None: rows are single texts. `unigram` (V,):
    ln p of each token by its frequency in training, a baseline that the metrics report beside the model.
    """

    tokenizer: Tokenizer
    unigram: Tensor = field(repr=False)
    pair_weight: float | None = None

    @property
    def metrics(self) -> Mapping[str, Better]:
        words: dict[str, Better] = {"loss": "lower", "masked_accuracy": "higher", "perplexity": "lower"}
        follow: dict[str, Better] = {"next_accuracy": "higher"} if self.pair_weight is not None else {}
        return {**words, **follow, "unigram_accuracy": "higher", "unigram_perplexity": "lower"}

    def loss(self, model: nn.Module, batch: MaskedBatch, carry: Carry | None) -> Loss:
        # without padding, lengths are None: no mask is built, and kernels without one are faster
        lengths = batch.lengths if batch.padding else None
        output: MaskedLMOutput = model(
            batch.inputs, lengths, batch.segments, batch.positions, head=LinearCrossEntropy(batch.targets)
        )
        return Loss(output.logits + (self.pair_weight or 0.0) * _next_sentence_nll(output, batch).sum())

    def measure(self, model: nn.Module, batch: MaskedBatch, carry: Carry | None) -> MetricSums:
        output: MaskedLMOutput = model(batch.inputs, batch.lengths, batch.segments, batch.positions)
        words, follow = Logits(output.logits).nll(batch.targets), _next_sentence_nll(output, batch)
        unigram = self.unigram.to(batch.targets.device)
        sums = {
            "nll": words.double().sum(),
            "tokens": batch.targets.new_tensor(len(batch.targets)).double(),
            "right": (output.logits.argmax(-1) == batch.targets).double().sum(),
            "unigram": -unigram[batch.targets].double().sum(),
            "commonest": (batch.targets == unigram.argmax()).double().sum(),
        }
        if self.pair_weight is not None and batch.next is not None:
            sums["next"] = follow.double().sum()
            sums["pairs"] = batch.next.new_tensor(len(batch.next)).double()
            sums["next_right"] = (output.next_sentence.argmax(-1) == batch.next).double().sum()
        return MetricSums(sums)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        tokens = float(sums["tokens"])
        nll = float(sums["nll"]) / tokens if tokens else nan
        found = {
            "loss": nll,
            "masked_accuracy": metrics.accuracy(float(sums["right"]), tokens),
            "perplexity": metrics.perplexity(float(sums["nll"]), tokens),
        }
        if self.pair_weight is not None:
            pairs = float(sums["pairs"])
            found["loss"] += float(sums["next"]) / pairs if pairs else nan
            found["next_accuracy"] = metrics.accuracy(float(sums["next_right"]), pairs)
        found["unigram_accuracy"] = metrics.accuracy(float(sums["commonest"]), tokens)
        found["unigram_perplexity"] = metrics.perplexity(float(sums["unigram"]), tokens)
        return found

    def outputs(self, model: nn.Module, batch: MaskedBatch) -> Sequence[ExampleOutput]:
        """Each text with its masks, and the predictions for its masked tokens, in order."""
        output: MaskedLMOutput = model(batch.inputs, batch.lengths, batch.segments, batch.positions)
        rows = batch.positions // batch.inputs.size(1)
        found = []
        for row, (index, ids, length) in enumerate(
            zip(batch.indices.tolist(), batch.inputs.tolist(), batch.lengths.tolist(), strict=True)
        ):
            given = self.tokenizer.decode(ids[1 : length - 1], specials=True)
            got, expected = output.logits.argmax(-1)[rows == row], batch.targets[rows == row]
            found.append(ExampleOutput(index, given, self._decode_tokens(got), self._decode_tokens(expected)))
        return found

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}

    def _decode_tokens(self, ids: Tensor) -> str:
        return " ".join(self.tokenizer.decode_batch([[one] for one in ids.tolist()]))


def unigram_log_probs(text: RaggedArray, vocabulary: int) -> Tensor:
    """(V,): ln p of each token by its frequency in these texts, with add-one smoothing."""
    counts = np.ones(vocabulary, dtype=np.int64)
    for first in range(0, len(text.ids), CHUNK):
        counts += np.bincount(np.asarray(text.ids[first : first + CHUNK]), minlength=vocabulary)
    return torch.from_numpy(np.log(counts / counts.sum())).float()


def _next_sentence_nll(output: MaskedLMOutput, batch: MaskedBatch) -> Tensor:
    """- ln p of each pair (B,), next-sentence prediction; zeros where rows are single texts."""
    return (
        0 * output.next_sentence.float().sum(-1) if batch.next is None else Logits(output.next_sentence).nll(batch.next)
    )


if TYPE_CHECKING:
    _objectives: type[Objective[MaskedBatch]] = MaskedLMObjective
