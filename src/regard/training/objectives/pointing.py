"""Pointing: a phrase attends to the patches of a picture, and its attention is the prediction of what it refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d

from regard.pictures import PointingBatch
from regard.text import Tokenizer
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective


@dataclass(frozen=True)
class PointingObjective:
    """Cross-entropy of the attention over patches, with the target's region as the wanted distribution.

    The model maps (pixels (B, H, W, 3), phrases (B, T), lengths (B,)) to ln of the weights (B, S). `pointing` is the
    accuracy of the pointing game (Zhang et al. 2018): the share of phrases whose most attended patch is a patch of the
    target, at least half of it inside or, of a thin one, the most of any; `mass` the mean attention inside the region.
    """

    tokenizer: Tokenizer

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "pointing": "higher", "mass": "higher"}

    def loss(self, model: nn.Module, batch: PointingBatch, carry: Carry | None) -> Loss:
        logs = model(batch.pixels, batch.phrases, batch.lengths)
        return Loss(-(_shares(batch.regions, logs)[1] * logs).sum())

    def measure(self, model: nn.Module, batch: PointingBatch, carry: Carry | None) -> MetricSums:
        logs = model(batch.pixels, batch.phrases, batch.lengths)
        inside, wanted = _shares(batch.regions, logs)
        best = inside.gather(1, logs.argmax(-1, keepdim=True)).squeeze(1)
        enough = inside.amax(-1).clamp(max=0.5)
        return MetricSums(
            {
                "loss": -(wanted * logs).sum().double(),
                "pointing": (best >= enough).sum().double(),
                "mass": (logs.exp() * inside).sum().double(),
                "phrases": torch.tensor(float(len(batch)), dtype=torch.float64, device=logs.device),
            }
        )

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        phrases = float(sums["phrases"])
        return {name: metrics.accuracy(float(sums[name]), phrases) for name in self.metrics}

    def outputs(self, model: nn.Module, batch: PointingBatch) -> Sequence[ExampleOutput]:
        """The most attended patch and the most covered one, by row and column."""
        logs = model(batch.pixels, batch.phrases, batch.lengths)
        inside, cols = _shares(batch.regions, logs)[0], cast(Any, model).encoder.cols
        found = zip(
            batch.indices.tolist(),
            batch.phrases.tolist(),
            batch.lengths.tolist(),
            logs.argmax(-1).tolist(),
            inside.argmax(-1).tolist(),
            strict=True,
        )
        return [
            ExampleOutput(index, self.tokenizer.decode(ids[1 : length - 1]), _place(got, cols), _place(best, cols))
            for index, ids, length, got, best in found
        ]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}


def _shares(regions: Tensor, logs: Tensor) -> tuple[Tensor, Tensor]:
    """Regions (B, H, W) on the grid of square cells of logs (B, S): the share of each cell inside (B, S), and the
    distribution proportional to it."""
    side = round(logs.size(-1) ** 0.5)
    inside = adaptive_avg_pool2d(regions.to(logs.dtype), side).flatten(1)
    return inside, inside / inside.sum(-1, keepdim=True).clamp(min=torch.finfo(logs.dtype).tiny)


def _place(cell: int, cols: int) -> str:
    return f"patch {cell // cols},{cell % cols}"


if TYPE_CHECKING:
    _objective: type[Objective[PointingBatch]] = PointingObjective
