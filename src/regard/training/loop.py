"""The training loop: steps, evaluation, early stopping, checkpoints and events, for any model and objective.

    step:  batches -> losses, summed and divided by the tokens of all ranks -> gradients -> weights
    and between steps, when due: evaluate, save a checkpoint, emit events

What happens between two steps is a function of the progress so far, so a resumed loop does what an uninterrupted one
does.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import RunError, SettingError, TrainingError, unknown
from regard.runs import WEIGHTS
from regard.text import Batch
from regard.training.distributed import World
from regard.training.evaluation import Evaluator
from regard.training.events.event import (
    Ended,
    Evaluated,
    Event,
    EventListener,
    Resumed,
    Saved,
    Skipped,
    Started,
    Trained,
)
from regard.training.failures import is_out_of_memory, out_of_memory_error, save_batch
from regard.training.interrupts import InterruptHandler
from regard.training.random_state import preserved_rng
from regard.training.recipe import LastAverage, PreparedTask
from regard.training.resource_estimate import describe_shape
from regard.training.run_writer import RunWriter
from regard.training.schedules import make_schedule
from regard.training.state import ResumePoint, TrainingState
from regard.training.step import StepResult, TrainStep
from regard.training.weight_average import mean_weights, set_weights

NO_FACTS: Mapping[str, Any] = MappingProxyType({})
MAX_SKIPS = 100  # skipped steps in a row, before training gives up


class Loop:
    """One training, from the current state to its end.

    >>> Loop(prepared, steps=1000, writer=RunWriter(folder, world, prepared.recipe)).run()
    """

    def __init__(
        self,
        prepared: PreparedTask,
        steps: int,
        world: World | None = None,
        writer: RunWriter | None = None,
        listeners: Sequence[EventListener] = (),
    ) -> None:
        self.recipe, self.objective, self.steps = prepared.recipe, prepared.objective, steps
        self.world, self.writer, self.listeners = world or World(), writer, listeners
        if self.recipe.evaluate.monitor not in self.objective.metrics:
            raise unknown(self.recipe.evaluate.monitor, self.objective.metrics, kind="metric", where="evaluate.monitor")
        self.state = TrainingState(prepared, self.world)
        self.progress = self.state.progress
        self.train_step = TrainStep(self.state, self.objective, self.recipe.train.clip)
        self.schedule = make_schedule(self.recipe.schedule, steps)
        self.evaluator: Evaluator | None = None
        if prepared.valid is not None:
            self.evaluator = Evaluator(
                self.objective, prepared.valid, self.state.distributed, self.state.precision, self.recipe.evaluate
            )
        self._saved_step: int | None = None
        self._save_seconds = 0.0  # for which the last save stopped training
        self._skips = 0  # in a row
        self._interval = _LogInterval()
        self._pending: _FinishedStep | None = None  # the last step, while its loss has not been read
        self._clock = 0.0

    def resume(self, facts: Mapping[str, Any] = NO_FACTS) -> None:
        """Continue from the newest sound checkpoint; from the beginning, if the training ended before the first."""
        checkpoint = self.writer.checkpoints.newest() if self.writer else None
        if checkpoint is not None:
            self.state.restore(checkpoint)
            self._saved_step = self.progress.step
        self._emit(Resumed(self.progress.step, self.steps, facts))
        if checkpoint is not None and self._is_best():
            self._write_weights()  # in case the process ended between the checkpoint and this

    def start(self, facts: Mapping[str, Any] = NO_FACTS) -> None:
        """Start from step 0; `facts` go to the listeners."""
        if self.writer is not None and self.writer.checkpoints.steps():
            raise RunError(
                f"{self.writer.folder} has checkpoints already",
                where="Loop.start",
                advice="Loop.resume continues from them; a new training needs a new folder.",
            )
        self._emit(Started(0, self.steps, facts))

    def run(self) -> Ended:
        """Train until all steps are done, early stopping runs out of patience, or an interrupt comes."""
        self.state.model.train()
        with InterruptHandler() as interrupt:
            try:
                reason = self._train(interrupt)
            finally:
                self._finish_saving()
            metrics = self.progress.best_metrics
            if reason != "interrupted" and isinstance(self.recipe.weight_average, LastAverage):
                metrics = self._average_checkpoints(self.recipe.weight_average.count)
        ended = Ended(self.progress.step, reason, self.progress.seconds, metrics, self.progress.skipped)
        self._emit(ended)
        return ended

    def _train(self, interrupt: InterruptHandler) -> str:
        batches = cycle(self.state.batches)
        while True:
            if self._is_evaluation_due():
                self.flush()
                self._evaluate()
            reason = self._end_reason(interrupt)
            if reason or self._is_save_due():
                self.flush()
                self._save(self.state.resume_point())
            self._poll_saving()
            if reason:
                return reason
            self.advance(batches)

    def _end_reason(self, interrupt: InterruptHandler) -> str | None:
        if self.progress.step >= self.steps:
            return "finished"
        if self.progress.stops_early(self.recipe.evaluate.patience):
            return "stopped early"
        if self.world.is_distributed and self.progress.step % self.recipe.log.every:
            return None  # ranks agree every few steps only: each time they wait for one another
        return "interrupted" if self.world.any(interrupt.received is not None) else None

    def advance(self, batches: Iterator[Batch]) -> None:
        """Take one step. Where the device allows it, the loss is read only while the next step is under way."""
        self._clock, progress, earlier = perf_counter(), self.progress, self._pending
        before = _Before(self.state.resume_point(), progress.step, progress.tokens, progress.seconds)
        accumulated, learning_rate = [next(batches) for _ in range(self.recipe.train.accumulate)], self._learning_rate()
        stops = earlier is not None and self.recipe.train.nonfinite == "stop"
        try:
            step = self.train_step.backward(accumulated)
            self.train_step.update(step, learning_rate, earlier.step if earlier and stops else None)
        except Exception as error:
            if is_out_of_memory(error):
                raise out_of_memory_error(accumulated, self.recipe) from error
            raise
        self.state.optimiser.zero_grad(set_to_none=True)
        progress.step += 1
        progress.tokens += step.tokens
        epoch = self.state.batches.epoch
        finished = _FinishedStep(step, progress.step, progress.tokens, epoch, learning_rate, accumulated, before)
        self._pending = finished if self.train_step.can_defer_check(step) else None
        for one in (earlier, None if self._pending else finished):
            if one is not None:
                self._check(one)
        self._tick()

    def flush(self) -> None:
        """Read and check the loss of the last step, if that is pending."""
        self._clock = perf_counter()
        finished, self._pending = self._pending, None
        if finished is not None:
            self._check(finished)

    def _check(self, finished: _FinishedStep) -> None:
        failure = self.train_step.failure(finished.step)
        self._tick()
        if failure is not None and self.recipe.train.nonfinite == "stop":
            self._pending = None  # the step after it was skipped too
            self.progress.step, self.progress.tokens = finished.before.step, finished.before.tokens
            self.progress.seconds = finished.before.seconds
            raise self._not_finite(failure, finished.before.point, finished.batches)
        self._skips = 0 if failure is None else self._skips + 1
        if failure is not None:
            self._skip(failure, finished.number)
            return
        self._interval.add(finished.step)
        if finished.number % self.recipe.log.every == 0 or finished.number == self.steps:
            self._emit_trained(finished)

    def _tick(self) -> None:
        """Add the time since the last call to the progress."""
        now = perf_counter()
        self.progress.seconds += now - self._clock
        self._interval.seconds += now - self._clock
        self._clock = now

    def _learning_rate(self) -> float:
        return self.recipe.optimiser.learning_rate * self.schedule(self.progress.step + 1, self.progress.monitored)

    def _not_finite(self, failure: str, point: ResumePoint, batches: Sequence[Batch]) -> TrainingError:
        """Save the batches and the state just before the step, so that resuming repeats it; the error to raise."""
        where = "the batch is not saved: this training has no run folder"
        if self.writer is not None:
            paths = [self.writer.failed_batch_path(self.progress.step + 1, number) for number in range(len(batches))]
            where = self._save_batches(batches, paths)
            self._save(point)
        shapes = "; ".join(map(describe_shape, batches))
        return TrainingError(
            f"Step {self.progress.step + 1} has {failure}, with {shapes}",
            where=where,
            advice="Resuming repeats this step. A lower optimiser.learning_rate or a longer warmup often helps; "
            "--set train.nonfinite=skip skips and counts such steps.",
        )

    def _save_batches(self, batches: Sequence[Batch], paths: Sequence[Path]) -> str:
        """Save the batches that failed; where they are, or why they could not be saved."""
        try:
            for batch, path in zip(batches, paths, strict=True):
                save_batch(batch, path)
        except OSError as error:
            return f"the batch could not be saved ({error.strerror})"
        return ", ".join(str(path) for path in paths)

    def _skip(self, failure: str, number: int) -> None:
        self.progress.skipped += 1
        self._emit(Skipped(number, failure, self.progress.skipped))
        if self._skips >= MAX_SKIPS:
            raise TrainingError(
                f"{MAX_SKIPS} steps in a row were skipped, the last for {failure}",
                where="train.nonfinite",
                advice="Resume from the last checkpoint with a lower optimiser.learning_rate.",
            )

    def _is_evaluation_due(self) -> bool:
        step = self.progress.step
        if self.evaluator is None or step == 0 or self.progress.is_evaluated:
            return False
        return step % self.recipe.evaluate.every == 0 or step >= self.steps

    def _evaluate(self) -> None:
        assert self.evaluator is not None
        average = self.state.average
        with preserved_rng(self.world.device), nullcontext() if average is None else average.swapped_in():
            found = self.evaluator.evaluate(self.state.model)
        self.progress.history.append((self.progress.step, dict(found.metrics)))
        best = self.progress.best_step == self.progress.step
        self._emit(Evaluated(self.progress.step, found.metrics, best, found.samples, found.signatures))

    def _is_save_due(self) -> bool:
        step = self.progress.step
        if self.writer is None or self._saved_step == step:
            return False
        return self.writer.schedule.is_due(step, self.progress.best_step)

    def _save(self, point: ResumePoint) -> None:
        if self.writer is None or self._saved_step == self.progress.step:
            return
        begun = perf_counter()
        self._finish_saving()
        weights = self._weights() if self._is_best() else None
        self.writer.save(self.progress.step, self.state.contents(point), self.progress.best_step, weights)
        self._saved_step, self._save_seconds = self.progress.step, perf_counter() - begun

    def _poll_saving(self) -> None:
        """Report a checkpoint that was finished meanwhile; a failed save ends the training here."""
        path = self.writer.poll() if self.writer else None
        if path is not None:
            self._emit(Saved(self.progress.step, str(path), self._save_seconds))

    def _finish_saving(self) -> None:
        path = self.writer.finish() if self.writer else None
        if path is not None:
            self._emit(Saved(self.progress.step, str(path), self._save_seconds))

    def _is_best(self) -> bool:
        """Whether the weights of this step are to be used: the best ones, or the last where there is no evaluation."""
        return self.evaluator is None or self.progress.best_step == self.progress.step

    def _weights(self) -> dict[str, Tensor] | None:
        """The weights for use, as an EMA where the recipe says so; None if checkpoints are averaged at the end."""
        if self.writer is None or isinstance(self.recipe.weight_average, LastAverage):
            return None
        with nullcontext() if self.state.average is None else self.state.average.swapped_in():
            return self.writer.gather_weights(self.state.model)

    def _write_weights(self) -> None:
        weights = self._weights()
        if self.writer is not None and weights is not None:
            self.writer.write_weights(weights)

    def _average_checkpoints(self, count: int) -> dict[str, float]:
        """Load the mean weights of the last checkpoints into the model, write them, and evaluate them."""
        if self.writer is None:
            raise SettingError(
                "weight_average.kind = 'last' needs checkpoints, and this training has no run folder",
                where="weight_average.kind",
                advice="Pass a RunWriter to Loop, or choose ema.",
            )
        last = self.writer.last_checkpoints(self.progress.step, count)
        set_weights(self.state.model, mean_weights(last, self.state.model, self.world, WEIGHTS))
        self.writer.write_weights(self.writer.gather_weights(self.state.model))
        return dict(self.evaluator.evaluate(self.state.model).metrics) if self.evaluator else {}

    def _emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener.on_event(event)

    def _emit_trained(self, finished: _FinishedStep) -> None:
        interval, self._interval = self._interval, _LogInterval()
        total = self.world.sum(torch.tensor(interval.total, dtype=torch.float64))
        self._emit(
            Trained(
                step=finished.number,
                epoch=finished.epoch,
                loss=float(total) / max(1, interval.tokens),
                learning_rate=finished.learning_rate,
                gradient_norm=finished.step.scalars.norm,
                tokens=finished.tokens,
                tokens_per_second=interval.tokens / max(interval.seconds, 1e-9),
                seconds=self.progress.seconds,
                memory=_peak_memory(self.world.device),
            )
        )


class _Before(NamedTuple):
    """State and progress before a step."""

    point: ResumePoint
    step: int
    tokens: int
    seconds: float


class _FinishedStep(NamedTuple):
    """A step that was taken: its number, the tokens trained on up to it, and the state before it."""

    step: StepResult
    number: int
    tokens: int
    epoch: int
    learning_rate: float
    batches: Sequence[Batch]
    before: _Before


class _LogInterval:
    """Loss, tokens and seconds since the last Trained event."""

    def __init__(self) -> None:
        self.total, self.tokens, self.seconds = 0.0, 0, 0.0

    def add(self, step: StepResult) -> None:
        self.total += step.scalars.total
        self.tokens += step.tokens


def cycle(batches: Any) -> Iterator[Batch]:
    """The batches of epoch after epoch."""
    empty = 0
    while empty < 2:  # a resumed epoch may have no batches left, a full one must have some
        empty += 1
        for batch in batches:
            empty = 0
            yield batch
    raise SettingError("The training data gives no batches", where="train", advice="Check [data].")


def _peak_memory(device: torch.device) -> int:
    """Bytes: of the device, or of this process on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
