"""How far a training is: the few numbers that a checkpoint keeps, and what follows from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from regard.training.objectives.base import Better


@dataclass
class Progress:
    """What was done so far; `history` has the step and the metrics of every evaluation."""

    watch: str
    better: Better
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    history: list[tuple[int, dict[str, float]]] = field(default_factory=list)

    @property
    def watched(self) -> list[float]:
        """The watched metric of every evaluation, turned so that lower is better."""
        sign = 1 if self.better == "lower" else -1
        return [sign * metrics[self.watch] for _, metrics in self.history]

    @property
    def best(self) -> int | None:
        """The number of the best evaluation; the first one of equals, and never one that is no number."""
        values = [(value, number) for number, value in enumerate(self.watched) if value == value]
        return min(values)[1] if values else None

    @property
    def best_step(self) -> int | None:
        return None if self.best is None else self.history[self.best][0]

    @property
    def best_metrics(self) -> dict[str, float]:
        return {} if self.best is None else self.history[self.best][1]

    @property
    def stale(self) -> int:
        """How many evaluations have passed since the best one; all of them where none was a number."""
        return len(self.history) - (0 if self.best is None else self.best + 1)

    @property
    def evaluated(self) -> bool:
        """Whether the weights of this very step were evaluated."""
        return bool(self.history) and self.history[-1][0] == self.step

    def scalars(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("watch", "better")}

    def restore(self, scalars: dict[str, Any]) -> None:
        for name, value in scalars.items():
            setattr(self, name, value)
        self.history = [(step, metrics) for step, metrics in self.history]
