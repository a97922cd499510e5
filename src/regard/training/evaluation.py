"""How well a model does on held-out batches: sums over batches and ranks, texts worth grading, a few samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.text import Batch
from regard.training.distributed import Spread, World
from regard.training.objectives.base import Carry, Objective, Output
from regard.training.precision import Precision
from regard.training.recipe import Evaluate


@dataclass(frozen=True)
class Evaluation:
    """`signatures` say how metrics of texts were computed, where they say it."""

    metrics: Mapping[str, float]
    samples: Sequence[Output] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Examiner:
    """Asks an objective, over all ranks; the same batches every time.

    `batches(rank, ranks)` are the rows of one rank. Where the weights lie in shards, every rank says the same samples,
    because all of them must call the model equally often.
    """

    objective: Objective[Any]
    batches: Callable[[int, int], Iterable[Batch]]
    spread: Spread
    precision: Precision
    section: Evaluate

    @property
    def world(self) -> World:
        return self.spread.world

    def examine(self, model: nn.Module) -> Evaluation:
        """The metrics of a model as it is; it is left in training mode, its weights untouched."""
        model.eval()
        try:
            with torch.no_grad(), self.precision.computing():
                metrics = self.objective.summary(self._sums(model))
                outputs = self._outputs(model, max(self.section.graded, self.section.samples))
        finally:
            model.train()
        grades = self.objective.grade(outputs[: self.section.graded]) if self.section.graded else {}
        metrics |= {name: grade.value for name, grade in grades.items()}
        self._check(metrics)
        signatures = {name: grade.signature for name, grade in grades.items() if grade.signature}
        return Evaluation(metrics, outputs[: self.section.samples], signatures)

    def _sums(self, model: nn.Module) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        carry: Carry | None = None
        for batch in self.batches(self.world.rank, self.world.ranks):
            got = self.objective.measure(model, batch.to(self.world.device), carry)
            carry = got.carry
            for name, value in got.sums.items():
                sums[name] = sums[name] + value if name in sums else value
        if not sums:
            raise SettingError("no batches to evaluate on", "at least one", where="evaluate")
        return {name: self.world.sum(value) for name, value in sums.items()}

    def _outputs(self, model: nn.Module, count: int) -> list[Output]:
        """The first `count` outputs in the order of their numbers, so the number of ranks changes nothing."""
        made: list[Output] = []
        together = World(device=self.world.device) if self.spread.how == "fsdp" else self.world
        for batch in self.batches(together.rank, together.ranks) if count else ():
            said = self.objective.outputs(model, batch.to(self.world.device)) if len(batch) else []
            heard = together.gather([asdict(one) for one in said])
            made += sorted((Output(**one) for one in chain.from_iterable(heard)), key=lambda output: output.index)
            if len(made) >= count:
                break
        return made[:count]

    def _check(self, metrics: Mapping[str, float]) -> None:
        if self.section.watch not in metrics:
            raise SettingError(
                f"watch = {self.section.watch!r}",
                f"one of {', '.join(sorted(metrics))}",
                where="evaluate.watch",
                advice="Metrics of texts need evaluate.graded above 0." if not self.section.graded else "",
            )
