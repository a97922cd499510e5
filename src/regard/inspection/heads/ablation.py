"""What a number loses without a head: each is switched off, or flattened, one at a time.

run = Examined.of(Path("runs/transformer"))
found = ablate(run.model, run.loss, "*.cross")
found.changes["decoder.5.cross"]          # how much the loss rises without each of its heads
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from regard.attention import Attended, Observe
from regard.inspection.heads.evaluation import Number
from regard.inspection.interventions import Weights, answered, intervene


@dataclass(frozen=True)
class Ablated:
    """A number of the whole model, and of the model without each head, by place."""

    whole: float
    without: dict[str, list[float]]

    @property
    def changes(self) -> dict[str, list[float]]:
        """By how much the number rises without each head; it falls where this is negative."""
        return {place: [one - self.whole for one in numbers] for place, numbers in self.without.items()}


def ablate(
    model: nn.Module,
    number: Number,
    places: str | Sequence[str] = "*",
    weights: Weights = "zero",
    tell: Callable[[int], None] = lambda more: None,
) -> Ablated:
    """A number of a model without each head of these places; `weights`: what they have instead, as `intervene` says.

    `tell` is told of each head that is done.
    """
    heads, whole = heads_heard(model, number, places)
    found: dict[str, list[float]] = {}
    for place, count in heads.items():
        found[place] = []
        for head in range(count):
            with intervene(model, place, heads=head, weights=weights):
                found[place].append(number())
            tell(1)
    return Ablated(whole, found)


def heads_heard(model: nn.Module, number: Number, places: str | Sequence[str] = "*") -> tuple[dict[str, int], float]:
    """How many heads each place has that attends while the number is computed, and the number."""
    heads: dict[str, int] = {}

    def hear(place: str, got: Attended) -> Tensor | None:
        heads[place] = got.lse.size(-2) if got.lse.dim() > 2 else 1  # (..., heads, T), or (B, T) without any
        return None

    with answered(model, places, Observe(), hear):
        whole = number()
    return heads, whole
