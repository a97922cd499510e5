"""The training loop. It knows no model by name: it is handed batches and an objective.

    step:  batches -> losses, summed and divided by the tokens of all ranks -> gradients -> weights
    and between steps, when due: evaluate, save, tell

All that happens between two steps is a function of the progress so far, so a loop that resumes does what it would have
done.
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
from regard.training.averaging import mean_of, put
from regard.training.distributed import World
from regard.training.estimate import shape_of
from regard.training.evaluation import Examiner
from regard.training.events.event import Ended, Evaluated, Event, Listener, Resumed, Saved, Skipped, Started, Trained
from regard.training.guards import Interruption, out_of_memory, save_batch, too_large
from regard.training.randomness import undisturbed
from regard.training.recipe import LastAverage, Prepared
from regard.training.run_writer import Keeping
from regard.training.schedules import schedule
from regard.training.state import Moment, State
from regard.training.step import Step, Stepper

NO_FACTS: Mapping[str, Any] = MappingProxyType({})
HOPELESS = 100  # steps in a row that were skipped


class Loop:
    """One training, from where its state stands to its end.

    >>> Loop(prepared, steps=1000, keeping=Keeping(folder, world, prepared.recipe)).run()
    """

    def __init__(
        self,
        prepared: Prepared,
        steps: int,
        world: World | None = None,
        keeping: Keeping | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self.recipe, self.objective, self.steps = prepared.recipe, prepared.objective, steps
        self.world, self.keeping, self.listeners = world or World(), keeping, listeners
        if self.recipe.evaluate.watch not in self.objective.metrics:
            raise unknown(self.recipe.evaluate.watch, self.objective.metrics, kind="metric", where="evaluate.watch")
        self.state = State(prepared, self.world)
        self.progress = self.state.progress
        self.stepper = Stepper(self.state, self.objective, self.recipe.train.clip)
        self.rate = schedule(self.recipe.schedule, steps)
        self.examiner: Examiner | None = None
        if prepared.valid is not None:
            self.examiner = Examiner(
                self.objective, prepared.valid, self.state.spread, self.state.precision, self.recipe.evaluate
            )
        self._saved: int | None = None
        self._stall = 0.0  # seconds, of the last save
        self._skips = 0  # in a row
        self._told = _Pace()
        self._unread: _Done | None = None  # the last step, if nobody has asked what came of it
        self._since = 0.0

    def resume(self, facts: Mapping[str, Any] = NO_FACTS) -> None:
        """Go on from the newest sound checkpoint; from the beginning, if the training ended before there was one."""
        checkpoint = self.keeping.checkpoints.newest() if self.keeping else None
        if checkpoint is not None:
            self.state.restore(checkpoint)
            self._saved = self.progress.step
        self._tell(Resumed(self.progress.step, self.steps, facts))
        if checkpoint is not None and self._for_use():
            self._write_weights()  # in case the process ended between the checkpoint and this

    def start(self, facts: Mapping[str, Any] = NO_FACTS) -> None:
        """Begin; `facts` are for whoever listens."""
        if self.keeping is not None and self.keeping.checkpoints.steps():
            raise RunError(
                f"{self.keeping.folder}, which has checkpoints",
                "a new folder",
                where="Loop.start",
                advice="Loop.resume goes on from them.",
            )
        self._tell(Started(0, self.steps, facts))

    def run(self) -> Ended:
        """Train until the steps are done, the patience ends, or somebody interrupts."""
        self.state.model.train()
        with Interruption() as interruption:
            try:
                reason = self._go(interruption)
            finally:
                self._finish_saving()
            metrics = self.progress.best_metrics
            if reason != "interrupted" and isinstance(self.recipe.average, LastAverage):
                metrics = self._average(self.recipe.average.count)
        ended = Ended(self.progress.step, reason, self.progress.seconds, metrics, self.progress.skipped)
        self._tell(ended)
        return ended

    def _go(self, interruption: Interruption) -> str:
        feed = forever(self.state.batches)
        while True:
            if self._evaluation_due():
                self.settle()
                self._evaluate()
            over = self._over(interruption)
            if over or self._saving_due():
                self.settle()
                self._save(self.state.moment())
            self._look_after_saving()
            if over:
                return over
            self.advance(feed)

    def _over(self, interruption: Interruption) -> str | None:
        patience = self.recipe.evaluate.patience
        if self.progress.step >= self.steps:
            return "finished"
        if patience is not None and self.progress.stale >= patience:
            return "stopped early"
        if self.world.several and self.progress.step % self.recipe.log.every:
            return None  # ranks agree now and then only: it makes them wait for one another
        return "interrupted" if self.world.any(interruption.noted is not None) else None

    def advance(self, feed: Iterator[Batch]) -> None:
        """One step more. Where that may wait, what came of it is asked for while the next one is under way."""
        self._since, progress, before = perf_counter(), self.progress, self._unread
        was = _Was(self.state.moment(), progress.step, progress.tokens, progress.seconds)
        batches, rate = [next(feed) for _ in range(self.recipe.train.accumulate)], self._rate()
        unsure = before is not None and self.recipe.train.nonfinite == "stop"
        try:
            step = self.stepper.learn(batches)
            self.stepper.move(step, rate, before.step if before and unsure else None)
        except Exception as error:
            if out_of_memory(error):
                raise too_large(batches, self.recipe) from error
            raise
        self.state.optimiser.zero_grad(set_to_none=True)
        progress.step += 1
        progress.tokens += step.tokens
        done = _Done(step, progress.step, progress.tokens, self.state.batches.epoch, rate, batches, was)
        self._unread = done if self.stepper.may_wait(step) else None
        for one in (before, None if self._unread else done):
            if one is not None:
                self._judge(one)
        self._tick()

    def settle(self) -> None:
        """Ask what came of the last step, if nobody has."""
        self._since = perf_counter()
        done, self._unread = self._unread, None
        if done is not None:
            self._judge(done)

    def _judge(self, done: _Done) -> None:
        wrong = self.stepper.wrong(done.step)
        self._tick()
        if wrong is not None and self.recipe.train.nonfinite == "stop":
            self._unread = None  # the step after it has moved nothing either
            self.progress.step, self.progress.tokens = done.was.step, done.was.tokens
            self.progress.seconds = done.was.seconds
            raise self._stopped(wrong, done.was.moment, done.batches)
        self._skips = 0 if wrong is None else self._skips + 1
        if wrong is not None:
            self._skip(wrong, done.number)
            return
        self._told.add(done.step)
        if done.number % self.recipe.log.every == 0 or done.number == self.steps:
            self._tell_pace(done)

    def _tick(self) -> None:
        """Count the time that went by."""
        now = perf_counter()
        self.progress.seconds += now - self._since
        self._told.seconds += now - self._since
        self._since = now

    def _rate(self) -> float:
        return self.recipe.optimiser.rate * self.rate(self.progress.step + 1, self.progress.watched)

    def _stopped(self, wrong: str, moment: Moment, batches: Sequence[Batch]) -> TrainingError:
        """Keep the batch, and the state just before it, so that resuming is doing it again."""
        where = "the batch is not kept: this training keeps nothing"
        if self.keeping is not None:
            paths = [self.keeping.fault(self.progress.step + 1, number) for number in range(len(batches))]
            where = self._keep_batches(batches, paths)
            self._save(moment)
        return TrainingError(
            f"{wrong} in step {self.progress.step + 1}, with {'; '.join(map(shape_of, batches))}",
            "finite numbers",
            where=where,
            advice="Resuming does this step again. A lower optimiser.rate or a longer warm-up often helps; "
            "--set train.nonfinite=skip leaves such steps out and counts them.",
        )

    def _keep_batches(self, batches: Sequence[Batch], paths: Sequence[Path]) -> str:
        """Write the batches that went wrong; where they are, or why they are not."""
        try:
            for batch, path in zip(batches, paths, strict=True):
                save_batch(batch, path)
        except OSError as error:
            return f"the batch could not be kept ({error.strerror})"
        return ", ".join(str(path) for path in paths)

    def _skip(self, wrong: str, number: int) -> None:
        self.progress.skipped += 1
        self._tell(Skipped(number, wrong, self.progress.skipped))
        if self._skips >= HOPELESS:
            raise TrainingError(
                f"{HOPELESS} steps in a row that were skipped, the last for {wrong}",
                "finite numbers",
                where="train.nonfinite",
                advice="Resume from the last checkpoint with a lower optimiser.rate.",
            )

    def _evaluation_due(self) -> bool:
        step = self.progress.step
        if self.examiner is None or step == 0 or self.progress.evaluated:
            return False
        return step % self.recipe.evaluate.every == 0 or step >= self.steps

    def _evaluate(self) -> None:
        assert self.examiner is not None
        average = self.state.average
        with undisturbed(self.world.device), nullcontext() if average is None else average.in_place():
            found = self.examiner.examine(self.state.model)
        self.progress.history.append((self.progress.step, dict(found.metrics)))
        best = self.progress.best_step == self.progress.step
        self._tell(Evaluated(self.progress.step, found.metrics, best, found.samples, found.signatures))

    def _saving_due(self) -> bool:
        step = self.progress.step
        if step == 0 or self._saved == step:
            return False
        return step % self.recipe.keep.every == 0 or self.progress.best_step == step

    def _save(self, moment: Moment) -> None:
        if self.keeping is None or self._saved == self.progress.step:
            return
        begun = perf_counter()
        self._finish_saving()
        weights = self._weights() if self._for_use() else None
        self.keeping.save(self.progress.step, self.state.contents(moment), self.progress.best_step, weights)
        self._saved, self._stall = self.progress.step, perf_counter() - begun

    def _look_after_saving(self) -> None:
        """Tell what has been written meanwhile; a save that failed ends the training here."""
        path = self.keeping.written() if self.keeping else None
        if path is not None:
            self._tell(Saved(self.progress.step, str(path), self._stall))

    def _finish_saving(self) -> None:
        path = self.keeping.finish() if self.keeping else None
        if path is not None:
            self._tell(Saved(self.progress.step, str(path), self._stall))

    def _for_use(self) -> bool:
        """Whether the weights of this step are those to be used: the best ones, or the last where nothing is tried."""
        return self.examiner is None or self.progress.best_step == self.progress.step

    def _weights(self) -> dict[str, Tensor] | None:
        """The weights for use: those that were evaluated, or the last ones where nothing is; a mean comes later."""
        if self.keeping is None or isinstance(self.recipe.average, LastAverage):
            return None
        with nullcontext() if self.state.average is None else self.state.average.in_place():
            return self.keeping.weights(self.state.model)

    def _write_weights(self) -> None:
        weights = self._weights()
        if self.keeping is not None and weights is not None:
            self.keeping.write_weights(weights)

    def _average(self, count: int) -> dict[str, float]:
        """Give the model the mean weights of the last checkpoints, look how good it is, and keep it."""
        if self.keeping is None:
            raise SettingError("average.kind = 'last' without checkpoints", "a run folder", where="average")
        last = self.keeping.last(self.progress.step, count)
        put(self.state.model, mean_of(last, self.state.model, self.world, WEIGHTS))
        self.keeping.write_weights(self.keeping.weights(self.state.model))
        return dict(self.examiner.examine(self.state.model).metrics) if self.examiner else {}

    def _tell(self, event: Event) -> None:
        for listener in self.listeners:
            listener.hear(event)

    def _tell_pace(self, done: _Done) -> None:
        pace, self._told = self._told, _Pace()
        total = self.world.sum(torch.tensor(pace.total, dtype=torch.float64))
        self._tell(
            Trained(
                step=done.number,
                epoch=done.epoch,
                loss=float(total) / max(1, pace.tokens),
                rate=done.rate,
                norm=done.step.told.norm,
                tokens=done.tokens,
                tokens_per_second=pace.tokens / max(pace.seconds, 1e-9),
                seconds=self.progress.seconds,
                memory=_most_memory(self.world.device),
            )
        )


class _Was(NamedTuple):
    """How things stood before a step."""

    moment: Moment
    step: int
    tokens: int
    seconds: float


class _Done(NamedTuple):
    """A step that was done: its number, what was trained on up to it, and how things stood before."""

    step: Step
    number: int
    tokens: int
    epoch: int
    rate: float
    batches: Sequence[Batch]
    was: _Was


class _Pace:
    """What happened since the last time somebody was told."""

    def __init__(self) -> None:
        self.total, self.tokens, self.seconds = 0.0, 0, 0.0

    def add(self, step: Step) -> None:
        self.total += step.told.total
        self.tokens += step.tokens


def forever(batches: Any) -> Iterator[Batch]:
    """Epoch after epoch."""
    empty = 0
    while empty < 2:  # the rest of an epoch may be empty, a whole one may not
        empty += 1
        for batch in batches:
            empty = 0
            yield batch
    raise SettingError("an epoch without batches", "at least one", where="train")


def _most_memory(device: torch.device) -> int:
    """Bytes: of the device, or of this process, at their highest."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
