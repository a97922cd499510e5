"""The real command line in a process of its own: a recipe of the library made small, watched through its log."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from regard.training.config.recipes import read_recipe
from regard.training.events.log import read_log
from regard.training.recipe import Recipe
from regard.training.tasks import TASKS

PATIENCE = 600  # seconds: only what hangs takes so long
RECIPE = "classifier"
SETS = [
    *("data.examples=200", "data.valid=40", "model.width=16", "schedule.warmup=5"),
    *("train.steps=150", "train.threads=1", "train.device=cpu"),
    *("evaluate.every=50", "checkpoint.every=10", "log.every=1"),
]
TRAIN = ["-m", "regard", "train"]
SMALL = [RECIPE, *(word for text in SETS for word in ("--set", text))]


def small_recipe(*sets: str) -> Recipe:
    """The recipe that SMALL means."""
    return read_recipe(RECIPE, [*SETS, *sets], tasks=TASKS)


def begin(*words: str | Path, **more: Any) -> subprocess.Popen[str]:
    """Start a Python program; what it says is kept."""
    command = [sys.executable, *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, **more)


def end(process: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a process, which must end with this code; all that it said."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        stop(process)
    assert process.returncode == code, f"exit code {process.returncode}\n{out}\n{err}"
    return out + err


def stop(process: subprocess.Popen[str]) -> None:
    """End a process that is still there; torchrun takes its workers along only if it is asked."""
    process.terminate()
    try:
        process.wait(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()


def logged(folder: Path) -> list[dict[str, Any]]:
    log = folder / "log.jsonl"
    return read_log(log) if log.exists() else []


def wait_for(process: subprocess.Popen[str], folder: Path, event: str, step: int = 0) -> None:
    """Until the log of a run has an event of this step or a later one."""
    deadline = time.monotonic() + PATIENCE
    while not any(entry["event"] == event and entry["step"] >= step for entry in logged(folder)):
        assert process.poll() is None, process.communicate()
        if time.monotonic() > deadline:
            stop(process)
            raise AssertionError(f"no {event} at {step}")
        time.sleep(0.02)
