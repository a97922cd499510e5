"""Two ranks under torchrun: one of them is killed, or all are told to stop; the run goes on from its checkpoint."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from subprocess import Popen

import pytest

from faults.command import PATIENCE, SMALL, begin, end, logged, small_recipe, wait_for
from faults.sameness import differences
from regard.training.train_run import train
from training.together import run

TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "2"]
TORCHRUN += ["--monitor-interval", "0.1", "-m", "regard", "train"]


def _train(folder: Path) -> str:
    return train(small_recipe(), folder, notify=lambda text: None).reason


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two ranks do that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert run(partial(_train, folder), 2) == ["finished"] * 2
    return folder


def worker(torchrun: Popen[str], rank: int) -> int:
    """The process of a rank."""
    children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
    [found] = [
        pid for pid in children if f"RANK={rank}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
    return int(found)


@pytest.mark.parametrize(
    ("rank", "event", "step"),
    [
        (1, "saved", 40),
        pytest.param(0, "saved", 40, marks=pytest.mark.long),
        pytest.param(0, "started", 0, marks=pytest.mark.long),
        pytest.param(1, "started", 0, marks=pytest.mark.long),
    ],
)
def test_a_killed_worker_is_replaced(rank: int, event: str, step: int, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = begin(*TORCHRUN, *SMALL, "--out", folder)
    wait_for(process, folder, event, step)
    os.kill(worker(process, rank), signal.SIGKILL)
    end(process)
    resumed = [entry["step"] for entry in logged(folder) if entry["event"] == "resumed"]
    assert len(resumed) == 1 and resumed[0] >= step - 10
    assert logged(folder)[-1]["reason"] == "finished"
    assert differences(folder, whole) == []


def tell_torchrun(torchrun: Popen[str]) -> None:
    torchrun.terminate()


def press_ctrl_c(torchrun: Popen[str]) -> None:
    """A terminal tells everybody, and torchrun then tells its workers once more."""
    os.killpg(torchrun.pid, signal.SIGINT)


@pytest.mark.parametrize("stop", [tell_torchrun, pytest.param(press_ctrl_c, marks=pytest.mark.long)])
def test_told_to_stop_it_saves_and_can_go_on(stop: Callable[[Popen[str]], None], whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = begin(*TORCHRUN, *SMALL, "--out", folder, start_new_session=True)
    wait_for(process, folder, "trained", 25)
    stop(process)
    _, said = process.communicate(timeout=PATIENCE)
    assert "forcefully exiting" not in said, "torchrun had to kill a worker that did not stop"
    last = logged(folder)[-1]
    assert (last["event"], last["reason"]) == ("ended", "interrupted")
    assert (folder / "state" / f"step-{last['step']:08d}").is_dir()
    end(begin(*TORCHRUN, "--resume", "--out", folder))
    assert differences(folder, whole) == []
