"""Trainings in this process that end early, for tests of what is done to their folders afterwards."""

from __future__ import annotations

from pathlib import Path

from faults.victim import small
from regard.training.events.event import Ended, Event, Trained
from regard.training.train_run import train

STEPS = 12

NAME = "recurrent"  # of all plans, what is carried makes the most of a rank's own file


class Died(Exception):
    """Stands for the end of the process."""


class DieAt:
    """Ends the process in the middle of some step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_event(self, event: Event) -> None:
        if isinstance(event, Trained) and event.step >= self.step:
            raise Died


def cut(folder: Path, name: str, step: int) -> Path:
    """A run that died at a step."""
    try:
        train(small(name), folder, listeners=[DieAt(step)], notify=_nobody)
    except Died:
        return folder
    raise AssertionError(f"it lived beyond step {step}")


def finish(folder: Path, name: str, resume: bool = True) -> tuple[Ended, list[str]]:
    """How a run ended, and what was told on the way."""
    told: list[str] = []
    return train(small(name), folder, resume=resume, notify=told.append), told


def _nobody(text: str) -> None:
    """Nobody listens."""
