"""The command line under fire: SIGKILL, Ctrl-C, SIGTERM, and a second process in the same folder."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from faults.command import PATIENCE, SMALL, TRAIN, begin, end, logged, small_recipe, wait_for
from faults.cut import finish
from faults.sameness import bits, differences
from faults.victim import small
from regard.errors import RunError
from regard.training.events.event import Event, Trained
from regard.training.train_run import train


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert train(small_recipe(), folder, notify=lambda text: None).reason == "finished"
    return folder


def test_killed_twice_and_resumed(whole: Path, tmp_path: Path) -> None:
    folder, random = tmp_path / "run", Random(5)
    moments = [random.uniform(0.0, 0.8) for _ in range(2)]
    for number, moment in enumerate(moments):
        process = begin(*TRAIN, *SMALL, "--out", folder) if number == 0 else begin(*TRAIN, "--resume", "--out", folder)
        wait_for(process, folder, "resumed" if number else "started")
        time.sleep(moment)
        process.kill()
        end(process, -signal.SIGKILL)
    end(begin(*TRAIN, "--resume", "--out", folder))
    assert differences(folder, whole) == [], moments


@pytest.mark.parametrize(("number", "name"), [(signal.SIGINT, "run"), (signal.SIGTERM, "my run (1)")])
def test_interrupted_it_says_how_to_go_on(number: signal.Signals, name: str, whole: Path, tmp_path: Path) -> None:
    """The command that it says is run by a shell as it stands."""
    folder = tmp_path / name
    process = begin(*TRAIN, *SMALL, "--out", folder.name, cwd=tmp_path)
    wait_for(process, folder, "trained", 25)
    process.send_signal(number)
    said = end(process)
    assert "interrupted after step" in said and "Traceback" not in said
    assert logged(folder)[-1]["reason"] == "interrupted"
    [line] = [line.strip() for line in said.splitlines() if line.strip().startswith("regard train")]
    _shell(line, tmp_path)
    assert differences(folder, whole) == []


def _shell(line: str, folder: Path) -> None:
    command = folder / "bin" / "regard"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m regard "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, timeout=PATIENCE, capture_output=True)
    assert done.returncode == 0, done


def test_a_second_process_in_the_same_folder_is_refused(whole: Path, tmp_path: Path) -> None:
    """The first one holds its breath meanwhile, and then goes on undisturbed."""
    folder = tmp_path / "run"
    first = begin(*TRAIN, *SMALL, "--out", folder)
    wait_for(first, folder, "trained", 15)
    first.send_signal(signal.SIGSTOP)
    before = (folder / "log.jsonl").read_bytes()
    try:
        said = end(begin(*TRAIN, "--resume", "--out", folder), 2)
        assert "Another process is training" in said and "Traceback" not in said
        with pytest.raises(RunError, match="exists already"):
            train(small_recipe(), folder)
        assert (folder / "log.jsonl").read_bytes() == before
    finally:
        first.send_signal(signal.SIGCONT)
    end(first)
    assert differences(folder, whole) == []


class InterruptAt:
    """A user who presses Ctrl-C at a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_event(self, event: Event) -> None:
        if isinstance(event, Trained) and event.step == self.step:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("step", [7, 10, 11])
def test_interruptions_do_not_enter_a_mean_of_checkpoints(step: int, tmp_path: Path) -> None:
    """They save a checkpoint where a run never interrupted has none."""
    finish(tmp_path / "whole", "mean", resume=False)
    folder = tmp_path / "run"
    ended = train(small("mean"), folder, listeners=[InterruptAt(step)], notify=lambda text: None)
    assert (ended.reason, ended.step) == ("interrupted", step)
    finish(folder, "mean")
    assert bits(folder / "model.safetensors") == bits(tmp_path / "whole" / "model.safetensors")
