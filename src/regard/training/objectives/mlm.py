"""What BERT is pre-trained for: hidden tokens, and whether one text follows the other (GuessHidden)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from regard.models import Guesses, Logits, Surprise
from regard.text import Flat, MaskedBatch, Tokenizer
from regard.training import metrics
from regard.training.metrics import Grade
from regard.training.objectives.base import Better, Carry, Loss, Measured, Objective, Output

PORTION = 1 << 22  # tokens counted at once


@dataclass(frozen=True, eq=False)
class GuessHidden:
    """The tokens behind masks, and next sentences, of a model (inputs, lengths, segments, places, say) -> Guesses.

    `pair`: what a pair weighs in the loss, in hidden tokens; with as many as a pair has on average, the loss is the
    mean surprise of tokens plus the mean surprise of pairs, as published. None: rows are no pairs. Beside what the
    model does stands a guess that knows how common each token is in training and nothing else, `unigram` (V,): ln p.
    """

    tokenizer: Tokenizer
    unigram: Tensor = field(repr=False)
    pair: float | None = None

    @property
    def metrics(self) -> Mapping[str, Better]:
        words: dict[str, Better] = {"loss": "lower", "masked_accuracy": "higher", "perplexity": "lower"}
        follow: dict[str, Better] = {"next_accuracy": "higher"} if self.pair is not None else {}
        return {**words, **follow, "unigram_accuracy": "higher", "unigram_perplexity": "lower"}

    def loss(self, model: nn.Module, batch: MaskedBatch, carry: Carry | None) -> Loss:
        # where nothing is padded, that is told as None: a mask need not be asked, and kernels without one are quicker
        lengths = batch.lengths if batch.padding else None
        said: Guesses = model(batch.inputs, lengths, batch.segments, batch.positions, say=Surprise(batch.targets))
        return Loss(said.words + (self.pair or 0.0) * _follow(said, batch).sum())

    def measure(self, model: nn.Module, batch: MaskedBatch, carry: Carry | None) -> Measured:
        said: Guesses = model(batch.inputs, batch.lengths, batch.segments, batch.positions)
        words, follow = Logits(said.words).surprise(batch.targets), _follow(said, batch)
        unigram = self.unigram.to(batch.targets.device)
        sums = {
            "nll": words.double().sum(),
            "tokens": batch.targets.new_tensor(len(batch.targets)).double(),
            "right": (said.words.argmax(-1) == batch.targets).double().sum(),
            "unigram": -unigram[batch.targets].double().sum(),
            "commonest": (batch.targets == unigram.argmax()).double().sum(),
        }
        if self.pair is not None and batch.next is not None:
            sums["next"] = follow.double().sum()
            sums["pairs"] = batch.next.new_tensor(len(batch.next)).double()
            sums["next_right"] = (said.next.argmax(-1) == batch.next).double().sum()
        return Measured(sums)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        tokens = float(sums["tokens"])
        nll = float(sums["nll"]) / tokens if tokens else nan
        found = {
            "loss": nll,
            "masked_accuracy": metrics.accuracy(float(sums["right"]), tokens),
            "perplexity": metrics.perplexity(float(sums["nll"]), tokens),
        }
        if self.pair is not None:
            pairs = float(sums["pairs"])
            found["loss"] += float(sums["next"]) / pairs if pairs else nan
            found["next_accuracy"] = metrics.accuracy(float(sums["next_right"]), pairs)
        found["unigram_accuracy"] = metrics.accuracy(float(sums["commonest"]), tokens)
        found["unigram_perplexity"] = metrics.perplexity(float(sums["unigram"]), tokens)
        return found

    def outputs(self, model: nn.Module, batch: MaskedBatch) -> Sequence[Output]:
        """Each text as it is shown, and the guesses for its hidden tokens, in order."""
        said: Guesses = model(batch.inputs, batch.lengths, batch.segments, batch.positions)
        rows = batch.positions // batch.inputs.size(1)
        found = []
        for row, (index, ids, length) in enumerate(
            zip(batch.indices.tolist(), batch.inputs.tolist(), batch.lengths.tolist(), strict=True)
        ):
            given = self.tokenizer.decode(ids[1 : length - 1], specials=True)
            got, expected = said.words.argmax(-1)[rows == row], batch.targets[rows == row]
            found.append(Output(index, given, self._spelled(got), self._spelled(expected)))
        return found

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}

    def _spelled(self, ids: Tensor) -> str:
        return " ".join(self.tokenizer.decode_batch([[one] for one in ids.tolist()]))


def unigram(text: Flat, vocabulary: int) -> Tensor:
    """(V,): ln p of each token by how often it stands in these texts, each counted once more than it does."""
    counts = np.ones(vocabulary, dtype=np.int64)
    for first in range(0, len(text.ids), PORTION):
        counts += np.bincount(np.asarray(text.ids[first : first + PORTION]), minlength=vocabulary)
    return torch.from_numpy(np.log(counts / counts.sum())).float()


def _follow(said: Guesses, batch: MaskedBatch) -> Tensor:
    """The surprise of pairs (B,): zeros where rows are no pairs."""
    return 0 * said.next.float().sum(-1) if batch.next is None else Logits(said.next).surprise(batch.next)


if TYPE_CHECKING:
    _objectives: type[Objective[MaskedBatch]] = GuessHidden
