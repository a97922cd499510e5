"""Early stopping, and the progress of training that it needs: steps, evaluations, and which of them was the best."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from regard.training.objectives.base import Better


@dataclass
class Progress:
    """What was done so far; `history` has the step and the metrics of every evaluation."""

    monitor: str
    better: Better
    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    history: list[tuple[int, dict[str, float]]] = field(default_factory=list)

    @property
    def monitored(self) -> list[float]:
        """The monitored metric of every evaluation, negated where higher is better: lower is always better here."""
        sign = 1 if self.better == "lower" else -1
        return [sign * metrics[self.monitor] for _, metrics in self.history]

    @property
    def best(self) -> int | None:
        """The number of the best evaluation: the first of equal ones, and never one that is NaN."""
        values = [(value, number) for number, value in enumerate(self.monitored) if value == value]
        return min(values)[1] if values else None

    @property
    def best_step(self) -> int | None:
        return None if self.best is None else self.history[self.best][0]

    @property
    def best_metrics(self) -> dict[str, float]:
        return {} if self.best is None else self.history[self.best][1]

    @property
    def evaluations_since_best(self) -> int:
        """What the patience of early stopping counts; all evaluations where every one was NaN."""
        return len(self.history) - (0 if self.best is None else self.best + 1)

    def stops_early(self, patience: int | None) -> bool:
        """Whether the last `patience` evaluations brought no better value of the monitored metric; None: never."""
        return patience is not None and self.evaluations_since_best >= patience

    @property
    def is_evaluated(self) -> bool:
        """Whether the weights of the current step were evaluated."""
        return bool(self.history) and self.history[-1][0] == self.step

    def scalars(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name not in ("monitor", "better")}

    def restore(self, scalars: dict[str, Any]) -> None:
        for name, value in scalars.items():
            setattr(self, name, value)
        self.history = [(step, metrics) for step, metrics in self.history]
