"""Logs of trainings that never took place, for the tests of curves."""

import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from regard.training.events.event import Evaluated, Event, Started, Trained
from regard.training.events.log import LogFile


def trained(step: int, loss: float) -> Trained:
    """A hundred tokens and two seconds a step."""
    return Trained(step, 0, loss, 1e-3 * step, 0.5, 100 * step, 50.0, 2.0 * step, 1)


def write_run(folder: Path, events: Sequence[Event]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with closing(LogFile(folder / "log.jsonl")) as log:
        for event in events:
            log.on_event(event)
    return folder


def a_run(folder: Path, height: float = 4.0, steps: int = 40) -> Path:
    """Trained each 5 steps and evaluated each 10; the best evaluation is the last but one."""
    events: list[Event] = [Started(0, steps)]
    for step in range(5, steps + 1, 5):
        loss = height / step + height
        events.append(trained(step, loss))
        if step % 10 == 0:
            last = step == steps
            metrics = {"loss": loss + last, "perplexity": math.exp(loss + last), "bleu": float(step)}
            events.append(Evaluated(step, metrics, best=not last))
    return write_run(folder, events)
