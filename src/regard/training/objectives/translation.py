"""Translation as an objective: the next word of the target at every place, given the source and the words before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from regard.decoding import Greedy, Rules, Stepper
from regard.models import Prediction, sayable
from regard.text import IGNORED, Tokenizer, TranslationBatch, compacted, spelled
from regard.training import metrics
from regard.training.metrics import Grade
from regard.training.objectives.base import Better, Carry, Loss, Measured, Objective, Output


@dataclass(frozen=True)
class PredictTarget:
    """How surprised a model is by a translation; and BLEU and chrF of what it says itself, where evaluation grades.

    Of a model (source (B, S), lengths (B,), target (B, T)) -> (prediction of what comes after each word, what is added
    to its loss, (B, T) or None), which is a Stepper too.
    """

    source: Tokenizer
    target: Tokenizer
    smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "perplexity": "lower", "bleu": "higher", "chrf": "higher"}

    def loss(self, model: nn.Module, batch: TranslationBatch, carry: Carry | None) -> Loss:
        said, more = model(batch.source, batch.source_lengths, batch.target_in)
        total = said.surprise(self._targets(said, batch), self.smoothing).sum()
        if more is not None:
            total = total + more.masked_fill(batch.target_out == IGNORED, 0.0).sum()
        return Loss(total)

    def measure(self, model: nn.Module, batch: TranslationBatch, carry: Carry | None) -> Measured:
        said, _ = model(batch.source, batch.source_lengths, batch.target_in)
        nll = said.surprise(self._targets(said, batch)).double().sum()
        return Measured({"nll": nll, "tokens": batch.target_lengths.sum().double()})

    def _targets(self, said: Prediction, batch: TranslationBatch) -> Tensor:
        return sayable(said, batch.target_out, self.target.special.unknown)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        nll, tokens = float(sums["nll"]), float(sums["tokens"])
        return {"loss": nll / max(1.0, tokens), "perplexity": metrics.perplexity(nll, tokens)}

    def outputs(self, model: nn.Module, batch: TranslationBatch) -> Sequence[Output]:
        """The likeliest words of each row. A word outside the vocabulary is spelled by its number, or is a ⟨?⟩ that
        nothing the model says is equal to."""
        special, stepper = self.target.special, cast(Stepper[Any], model)
        source, table = compacted(batch.source, len(self.source))
        first = torch.full_like(batch.source_lengths, special.need("start"))
        rules = Rules(special.need("end"), longest=2 * batch.source.size(1) + 10)
        written = Greedy()(stepper, stepper.start(source, batch.source_lengths), first, rules)
        rows = zip(batch.indices.tolist(), batch.source, batch.source_lengths, batch.target_out, written, strict=True)
        return [
            Output(
                index,
                spelled(self.source, given[: length - 1].tolist()),
                spelled(self.target, [_back(token, len(self.target), table) for token in best.tokens], unknown="<unk>"),
                spelled(self.target, expected[(expected != IGNORED) & (expected != rules.end)].tolist(), unknown="⟨?⟩"),
            )
            for index, given, length, expected, (best,) in rows
        ]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        got, expected = [one.got for one in outputs], [one.expected or "" for one in outputs]
        return {"bleu": metrics.bleu(got, expected), "chrf": metrics.chrf(got, expected)}


def _back(token: int, size: int, table: Tensor) -> int:
    """The number beyond the vocabulary that a compacted one stands for."""
    return token if token < size else int(table[token - size])


if TYPE_CHECKING:
    _objective: type[Objective[TranslationBatch]] = PredictTarget
