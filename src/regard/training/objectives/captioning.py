"""Image captioning: the loss of each next word of a caption, exact captions, BLEU-4, gold weight.

The gold weight of a word is the attention mass inside the region of which it speaks, where that is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from regard.decoding import Greedy, Rules, Stepper
from regard.models import doubly_stochastic
from regard.pictures import NO_REGION, CaptionBatch
from regard.text import IGNORED, Tokenizer
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective

INSIDE = 0.5  # of a word's attention: then it looks at what it says


@dataclass(frozen=True)
class CaptioningObjective:
    """Cross-entropy of the caption, and `doubly_stochastic` times that penalty of the attention (Xu et al. 2015).

    The model maps (pixels (B, H, W, 3), target (B, T), weights=True or False) to a prediction of the word after each
    and the attention weights (B, T, S) of the steps, or None; it is a Stepper too.

    `exact` is the share of captions of which every word is right; since a greedy caption is right exactly if each next
    word is, this needs no decoding. `gold_weight` is the mean attention mass of colour and shape words inside their
    gold regions, `gold_words` the share of these words with at least half of it inside.
    """

    tokenizer: Tokenizer
    label_smoothing: float = 0.0
    doubly_stochastic: float = 0.0
    has_regions: bool = False

    @property
    def metrics(self) -> Mapping[str, Better]:
        known: dict[str, Better] = {"loss": "lower", "perplexity": "lower", "exact": "higher", "bleu": "higher"}
        return known | ({"gold_weight": "higher", "gold_words": "higher"} if self.has_regions else {})

    def loss(self, model: nn.Module, batch: CaptionBatch, carry: Carry | None) -> Loss:
        wanted = self.doubly_stochastic > 0
        prediction, weights = model(batch.pixels, batch.target_in, weights=wanted)
        total = prediction.nll(batch.target_out, self.label_smoothing).sum()
        if weights is not None:
            total = total + self.doubly_stochastic * doubly_stochastic(weights, batch.target_out != IGNORED).sum()
        return Loss(total)

    def measure(self, model: nn.Module, batch: CaptionBatch, carry: Carry | None) -> MetricSums:
        prediction, weights = model(batch.pixels, batch.target_in, weights=self.has_regions)
        targets = batch.target_out
        right = (prediction.log_probs().argmax(-1) == targets) | (targets == IGNORED)
        sums = {
            "nll": prediction.nll(targets).double().sum(),
            "tokens": batch.target_lengths.sum().double(),
            "exact": right.all(-1).double().sum(),
            "captions": targets.new_tensor(len(batch)).double(),
        }
        if weights is not None and batch.regions is not None and batch.words is not None:
            inside = gold_weight(weights, batch.regions, batch.words, cast(Any, model).encoder.rows)
            told = batch.words != NO_REGION
            sums |= {
                "gold": (inside * told).sum().double(),
                "gold_words": ((inside >= INSIDE) & told).sum().double(),
                "words": told.sum().double(),
            }
        return MetricSums(sums)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        nll, tokens = float(sums["nll"]), float(sums["tokens"])
        found = {
            "loss": nll / max(1.0, tokens),
            "perplexity": metrics.perplexity(nll, tokens),
            "exact": metrics.accuracy(float(sums["exact"]), float(sums["captions"])),
        }
        if self.has_regions:
            words = float(sums["words"])
            found["gold_weight"] = metrics.accuracy(float(sums["gold"]), words)
            found["gold_words"] = metrics.accuracy(float(sums["gold_words"]), words)
        return found

    def outputs(self, model: nn.Module, batch: CaptionBatch) -> Sequence[ExampleOutput]:
        """A greedy caption of each picture."""
        special, stepper = self.tokenizer.special, cast(Stepper[Any], model)
        end = special.need("end")
        first = torch.full_like(batch.target_lengths, special.need("start"))
        rules = Rules(end, max_length=2 * batch.target_in.size(1) + 10)
        written = Greedy()(stepper, stepper.start(batch.pixels, batch.target_lengths), first, rules)
        size = f"{batch.pixels.size(2)} x {batch.pixels.size(1)} pixels"
        return [
            ExampleOutput(
                index,
                f"picture {index + 1}, {size}",
                self.tokenizer.decode(best.tokens),
                self.tokenizer.decode(expected[(expected != IGNORED) & (expected != end)].tolist()),
            )
            for index, expected, (best,) in zip(batch.indices.tolist(), batch.target_out, written, strict=True)
        ]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {"bleu": metrics.bleu([one.got for one in outputs], [one.expected or "" for one in outputs])}


def gold_weight(weights: Tensor, regions: Tensor, words: Tensor, rows: int) -> Tensor:
    """The attention mass (B, T) inside the region of each word, of weights (B, T, S) over a grid of `rows` x S / rows
    cells: the weight of a cell counts by the share of its area inside. 0 for words without a region."""
    cells = adaptive_avg_pool2d(regions.to(weights.dtype), (rows, weights.size(-1) // rows)).flatten(2)  # (B, R, S)
    chosen = words.clamp(min=0).unsqueeze(-1).expand(-1, -1, cells.size(-1))
    inside = (weights * cells.gather(1, chosen)).sum(-1)
    return inside.where(words != NO_REGION, 0.0)


if TYPE_CHECKING:
    _objective: type[Objective[CaptionBatch]] = CaptioningObjective
