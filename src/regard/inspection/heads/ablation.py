"""Head ablation: the change of a metric without each head, which is zeroed, or made uniform, one at a time.

run = RunEvaluation.of(Path("runs/transformer"))
found = ablate(run.model, run.loss, "*.cross")
found.changes["decoder.5.cross"]          # how much the loss rises without each of its heads
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from regard.attention import Attended, Observe
from regard.inspection.heads.run_evaluation import MetricFunction
from regard.inspection.interventions import Weights, intervene, replace_weights


@dataclass(frozen=True, repr=False)
class Ablated:
    """A metric of the whole model, and of the model without each head, by place."""

    baseline: float
    without: dict[str, list[float]]

    def __repr__(self) -> str:
        heads = sum(map(len, self.without.values()))
        changes = [(change, place, head) for place, row in self.changes.items() for head, change in enumerate(row)]
        largest = max(changes, key=lambda one: abs(one[0]), default=None)
        shown = "" if largest is None else f", largest change {largest[0]:+.4g} at {largest[1]}/{largest[2]}"
        return f"Ablated(baseline {self.baseline:.4g}, {heads} heads{shown})"

    @property
    def changes(self) -> dict[str, list[float]]:
        """How much the metric rises without each head; negative where it falls."""
        return {place: [one - self.baseline for one in numbers] for place, numbers in self.without.items()}


def ablate(
    model: nn.Module,
    metric: MetricFunction,
    places: str | Sequence[str] = "*",
    weights: Weights = "zero",
    on_progress: Callable[[int], None] = lambda more: None,
) -> Ablated:
    """A metric of a model without each head of these places; `weights`: what replaces theirs, as in `intervene`.

    `on_progress` is called after each head.
    """
    heads, baseline = count_heads(model, metric, places)
    found: dict[str, list[float]] = {}
    for place, count in heads.items():
        found[place] = []
        for head in range(count):
            with intervene(model, place, heads=head, weights=weights):
                found[place].append(metric())
            on_progress(1)
    return Ablated(baseline, found)


def count_heads(
    model: nn.Module, metric: MetricFunction, places: str | Sequence[str] = "*"
) -> tuple[dict[str, int], float]:
    """The number of heads of each place that attends while the metric is computed, and the metric."""
    heads: dict[str, int] = {}

    def on_attention(place: str, got: Attended) -> Tensor | None:
        heads[place] = got.lse.size(-2) if got.lse.dim() > 2 else 1  # (..., heads, T), or (B, T) without heads
        return None

    with replace_weights(model, places, Observe(), on_attention):
        baseline = metric()
    return heads, baseline
