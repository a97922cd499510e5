"""Translation with teacher forcing: cross-entropy of the next target word; BLEU and chrF of greedy translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from regard.decoding import Greedy, Rules, Stepper
from regard.models import Prediction, map_unreachable_to_unk
from regard.text import IGNORED, Tokenizer, TranslationBatch, compact_oov, decode_with_oov
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective


@dataclass(frozen=True)
class TranslationObjective:
    """Cross-entropy of the target under teacher forcing; in evaluations also BLEU and chrF of greedy translations.

    The model maps (source (B, S), lengths (B,), target (B, T)) to a prediction of the word after each and a penalty
    (B, T) added to the loss, such as that of coverage, or None; it is a Stepper too.
    """

    source: Tokenizer
    target: Tokenizer
    label_smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "perplexity": "lower", "bleu": "higher", "chrf": "higher"}

    def loss(self, model: nn.Module, batch: TranslationBatch, carry: Carry | None) -> Loss:
        prediction, penalty = model(batch.source, batch.source_lengths, batch.target_in)
        total = prediction.nll(self._targets(prediction, batch), self.label_smoothing).sum()
        if penalty is not None:
            total = total + penalty.masked_fill(batch.target_out == IGNORED, 0.0).sum()
        return Loss(total)

    def measure(self, model: nn.Module, batch: TranslationBatch, carry: Carry | None) -> MetricSums:
        prediction, _ = model(batch.source, batch.source_lengths, batch.target_in)
        nll = prediction.nll(self._targets(prediction, batch)).double().sum()
        return MetricSums({"nll": nll, "tokens": batch.target_lengths.sum().double()})

    def _targets(self, prediction: Prediction, batch: TranslationBatch) -> Tensor:
        return map_unreachable_to_unk(prediction, batch.target_out, self.target.special.unknown)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        nll, tokens = float(sums["nll"]), float(sums["tokens"])
        return {"loss": nll / max(1.0, tokens), "perplexity": metrics.perplexity(nll, tokens)}

    def outputs(self, model: nn.Module, batch: TranslationBatch) -> Sequence[ExampleOutput]:
        """A greedy translation of each row. A word outside the vocabulary is shown by its number; in a reference it is
        ⟨?⟩, which equals no output."""
        special, stepper = self.target.special, cast(Stepper[Any], model)
        source, table = compact_oov(batch.source, len(self.source))
        first = torch.full_like(batch.source_lengths, special.need("start"))
        rules = Rules(special.need("end"), max_length=2 * batch.source.size(1) + 10)
        written = Greedy()(stepper, stepper.start(source, batch.source_lengths), first, rules)
        rows = zip(batch.indices.tolist(), batch.source, batch.source_lengths, batch.target_out, written, strict=True)
        return [
            ExampleOutput(
                index,
                decode_with_oov(self.source, given[: length - 1].tolist()),
                decode_with_oov(
                    self.target, [_expand_oov(token, len(self.target), table) for token in best.tokens], unknown="<unk>"
                ),
                decode_with_oov(
                    self.target, expected[(expected != IGNORED) & (expected != rules.end)].tolist(), unknown="⟨?⟩"
                ),
            )
            for index, given, length, expected, (best,) in rows
        ]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        got, expected = [one.got for one in outputs], [one.expected or "" for one in outputs]
        return {"bleu": metrics.bleu(got, expected), "chrf": metrics.chrf(got, expected)}


def _expand_oov(token: int, size: int, table: Tensor) -> int:
    """The OOV id that a compacted one stands for."""
    return token if token < size else int(table[token - size])


if TYPE_CHECKING:
    _objective: type[Objective[TranslationBatch]] = TranslationObjective
