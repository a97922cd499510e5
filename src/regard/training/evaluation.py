"""Evaluation on the validation set: metrics summed over batches and ranks, scores of generated texts, samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import SettingError, unknown
from regard.text import Batch
from regard.training.distributed import DistributedModel, World
from regard.training.objectives.base import Carry, ExampleOutput, Objective
from regard.training.precision import Precision
from regard.training.recipe import EvaluateSettings


@dataclass(frozen=True)
class Evaluation:
    """`signatures` say how the metrics of texts were computed, where they have one (sacrebleu)."""

    metrics: Mapping[str, float]
    samples: Sequence[ExampleOutput] = ()
    signatures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluator:
    """Evaluates a model by an objective, over all ranks, on the same batches every time.

    `batches(rank, ranks)` are the rows of one rank. With FSDP every rank makes the outputs of all rows, because all
    ranks must call the model equally often.
    """

    objective: Objective[Any]
    batches: Callable[[int, int], Iterable[Batch]]
    distributed: DistributedModel
    precision: Precision
    section: EvaluateSettings

    @property
    def world(self) -> World:
        return self.distributed.world

    def evaluate(self, model: nn.Module) -> Evaluation:
        """The metrics of a model; it is left in training mode, its weights untouched."""
        model.eval()
        try:
            with torch.no_grad(), self.precision.autocast():
                metrics = self.objective.summary(self._sums(model))
                outputs = self._outputs(model, max(self.section.generations, self.section.samples))
        finally:
            model.train()
        generated = outputs[: self.section.generations]
        scores = self.objective.text_metrics(generated) if self.section.generations else {}
        metrics |= {name: score.value for name, score in scores.items()}
        self._check_monitor(metrics)
        signatures = {name: score.signature for name, score in scores.items() if score.signature}
        return Evaluation(metrics, outputs[: self.section.samples], signatures)

    def _sums(self, model: nn.Module) -> dict[str, Tensor]:
        sums: dict[str, Tensor] = {}
        carry: Carry | None = None
        for batch in self.batches(self.world.rank, self.world.ranks):
            measured = self.objective.measure(model, batch.to(self.world.device), carry)
            carry = measured.carry
            for name, value in measured.sums.items():
                sums[name] = sums[name] + value if name in sums else value
        if not sums:
            raise SettingError(
                "The validation set is empty", where="evaluate", advice="Hold out more of the data: data.valid."
            )
        return {name: self.world.sum(value) for name, value in sums.items()}

    def _outputs(self, model: nn.Module, count: int) -> list[ExampleOutput]:
        """The first `count` outputs in the order of the examples, the same for any number of ranks."""
        outputs: list[ExampleOutput] = []
        world = World(device=self.world.device) if self.distributed.strategy == "fsdp" else self.world
        for batch in self.batches(world.rank, world.ranks) if count else ():
            mine = self.objective.outputs(model, batch.to(self.world.device)) if len(batch) else []
            gathered = world.gather([asdict(one) for one in mine])
            rows = (ExampleOutput(**one) for one in chain.from_iterable(gathered))
            outputs += sorted(rows, key=lambda output: output.index)
            if len(outputs) >= count:
                break
        return outputs[:count]

    def _check_monitor(self, metrics: Mapping[str, float]) -> None:
        monitor = self.section.monitor
        if monitor in metrics:
            return
        if monitor in self.objective.metrics and not self.section.generations:
            raise SettingError(
                f"Metric {monitor!r} is computed from generated texts, and evaluate.generations = 0 generates none",
                where="evaluate.monitor",
                advice=f"Set evaluate.generations above 0, or monitor one of {', '.join(sorted(metrics))}.",
            )
        raise unknown(monitor, metrics, kind="metric", where="evaluate.monitor")
