"""Progress bars on standard error, for loops and for training; silent when standard error is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.training import ExampleOutput
    from regard.training.events import Evaluated, Event, Resumed, Trained


@contextmanager
def progress_bar(what: str, total: int | None = None, hidden: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar; yields a function that advances it.

    >>> with progress_bar("lines", total=100) as advance: advance(50)
    """
    if hidden or not sys.stderr.isatty():
        yield lambda more: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda more: progress.advance(task, more)


SHOWN = 100  # characters of a sample


class TrainingProgress:
    """Shows the events of a training on standard error; `hidden` shows nothing.

    On a terminal there is a progress bar; elsewhere only the lines are printed.
    """

    def __init__(self, hidden: bool = False) -> None:
        self.hidden = hidden
        self._bar: Any = None
        self._task: Any = None
        self._samples: Sequence[ExampleOutput] = ()  # of the last evaluation; unchanged ones are not shown again

    def __enter__(self) -> TrainingProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def print_line(self, text: str) -> None:
        """Print a line, above the progress bar if there is one."""
        if self.hidden:
            return
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def on_event(self, event: Event) -> None:
        from regard.training import events

        match event:
            case events.Started():
                facts = event.facts
                summary = f"{facts['parameters']:,} parameters, {event.steps:,} steps on {_devices(facts)}"
                self.print_line(summary + _checkpoint_interval(facts, event.steps))
                self._start_bar(event.steps, 0)
            case events.Resumed():
                self._resumed(event)
            case events.Trained():
                self._advance(event)
            case events.Evaluated():
                self._evaluated(event)
            case events.Skipped():
                self.print_line(f"step {event.step:,} skipped: {event.reason} ({event.count:,} so far)")

    def _resumed(self, event: Resumed) -> None:
        if event.step >= event.steps:
            self.print_line(f"all {event.step:,} steps are done; --set train.steps=N continues to step N")
            return
        self.print_line(f"resuming after step {event.step:,} of {event.steps:,}")
        self._start_bar(event.steps, event.step)

    def _start_bar(self, steps: int, done: int) -> None:
        if self.hidden or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}  {task.fields[pace]} tokens/s  {task.fields[memory]}  left"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("train", total=steps, completed=done, loss="-", pace="-", memory="-")
        self._bar.start()

    def _advance(self, event: Trained) -> None:
        if self._bar is not None:
            self._bar.update(
                self._task,
                completed=event.step,
                loss=f"{event.loss:.4f}",
                pace=f"{event.tokens_per_second:,.0f}",
                memory=format_bytes(event.memory),
            )

    def _evaluated(self, event: Evaluated) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=event.step)
        self.print_line(f"step {event.step:>6,}  {format_metrics(event.metrics)}{'  (best)' if event.best else ''}")
        new = [sample for sample in event.samples if sample not in self._samples]
        self._samples = event.samples
        for sample in new:
            expected = f"  (expected {_short(sample.expected)})" if sample.expected not in (None, sample.got) else ""
            self.print_line(f"    {_short(sample.given)} -> {_short(sample.got)}{expected}")


def _devices(facts: Any) -> str:
    if facts["ranks"] > 1:
        return f"{facts['ranks']} ranks ({facts['device'].partition(':')[0]})"
    if facts["device"] != "cpu":
        return str(facts["device"])
    return f"cpu, {facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"


def format_metrics(metrics: Mapping[str, float]) -> str:
    """Metrics in a line; very large ones with an exponent."""
    numbers = {name: f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}" for name, value in metrics.items()}
    return "  ".join(f"{name.replace('_', ' ')} {number}" for name, number in numbers.items())


def _short(text: str | None) -> str:
    """A text on one line, truncated to its end if it is long."""
    line = repr(text or "")[1:-1]
    return line if len(line) <= SHOWN else "..." + line[-SHOWN:]


def format_bytes(count: int) -> str:
    """A number of bytes with its unit: 1.5 GB."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"


def _checkpoint_interval(facts: Mapping[str, Any], steps: int) -> str:
    """How often a checkpoint is written."""
    every = facts.get("checkpoint_every")
    if every is None:
        return ""
    return f", a checkpoint every {every:,}" if every < steps else ", a checkpoint only at the end"
