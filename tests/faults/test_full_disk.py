"""A disk that is full: it is told in words, nothing that was saved is lost, nothing half is left, and it can go on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from faults.sameness import differences
from faults.victim import Fault, Outcome, attempt
from regard.errors import CheckpointError, RegardError
from regard.training.checkpoint import Checkpoint

NAME = "averaged"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert attempt(folder, NAME, resume=False).reason == "finished"
    return folder


def check_state(folder: Path, refused: Outcome) -> None:
    """Nothing half under a good name, and nothing left over."""
    steps = sorted((folder / "state").glob("step-*"))
    assert [Checkpoint(path, int(path.name[-8:])).find_damage() for path in steps] == [None] * len(steps)
    left = [path.name for path in folder.rglob("*") if path.name.endswith(".part") or path.name.startswith(".")]
    assert left == []
    if steps and isinstance(refused.error, CheckpointError) and "state" in refused.error.where:
        assert f"The checkpoint of step {int(steps[-1].name[-8:])} is intact" in str(refused.error)


@pytest.mark.parametrize(
    "match",
    [
        "make .*ranks",
        "write .*shard",
        pytest.param("sync .*shard", marks=pytest.mark.long),
        "write .*ranks/0.safetensors",
        pytest.param("sync .*ranks/0.json", marks=pytest.mark.long),
        pytest.param("write .*scalars.json", marks=pytest.mark.long),
        "sync .*manifest.json",
    ],
)
def test_no_room_for_a_checkpoint(match: str, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refused = attempt(folder, NAME, False, Fault(2, match, "full"))
    assert isinstance(refused.error, CheckpointError)
    assert "Could not write the checkpoint: No space left on device" in str(refused.error)
    assert sorted((folder / "state").glob("step-*")), "the checkpoints before"
    check_state(folder, refused)
    assert attempt(folder, NAME, True).reason == "finished"
    assert differences(folder, whole) == []


def test_no_room_for_the_first_checkpoint(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refused = attempt(folder, NAME, False, Fault(0, "write .*shard", "full"))
    assert "There was no checkpoint before" in str(refused.error)
    check_state(folder, refused)
    assert attempt(folder, NAME, True).reason == "finished"
    assert differences(folder, whole) == []


@pytest.mark.parametrize("room", [300, 3000, 8000])
def test_files_that_must_stay_small(room: int, whole: Path, tmp_path: Path) -> None:
    """The kernel writes up to a number of bytes and then refuses; which file it meets first depends on the number."""
    folder = tmp_path / "run"
    refused = attempt(folder, NAME, False, Fault(0, does="short", size=room))
    assert isinstance(refused.error, RegardError), refused
    assert "File too large" in str(refused.error)
    check_state(folder, refused)
    if not (folder / "recipe.toml").exists():
        shutil.rmtree(folder, ignore_errors=True)
    assert attempt(folder, NAME, (folder / "recipe.toml").exists()).reason == "finished"
    assert differences(folder, whole) == []


@pytest.mark.parametrize("at", [0, 1])
def test_no_room_for_the_weights(at: int, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refused = attempt(folder, NAME, False, Fault(at, "write model.safetensors", "full"))
    assert isinstance(refused.error, CheckpointError)
    assert "Could not write the weights: No space left on device" in str(refused.error)
    check_state(folder, refused)
    assert (folder / "model.safetensors").exists() == bool(at), "the ones before"
    assert attempt(folder, NAME, True).reason == "finished"
    assert differences(folder, whole) == []


def test_no_room_for_the_log(whole: Path, tmp_path: Path) -> None:
    """Right after a checkpoint, before its line; a checkpoint's files are smaller than such a log."""
    folder = tmp_path / "run"
    attempt(folder, NAME, False, Fault(1, r"rename state/\.step"))
    log = folder / "log.jsonl"
    with log.open("a") as stream:
        stream.write(json.dumps({"event": "resumed", "step": 0, "facts": {"padding": "x" * 30_000}}) + "\n")
    refused = attempt(folder, NAME, True, Fault(0, "write log.jsonl", "short", log.stat().st_size + 100))
    assert isinstance(refused.error, RegardError), refused
    assert "log.jsonl" in str(refused.error) and "File too large" in str(refused.error)
    check_state(folder, refused)
    assert attempt(folder, NAME, True).reason == "finished"
    assert differences(folder, whole) == []


def test_no_room_for_the_recipe_of_a_run_that_goes_on(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    attempt(folder, NAME, False, Fault(3, r"rename state/\.step"))
    before = (folder / "recipe.toml").read_bytes()
    refused = attempt(folder, NAME, True, Fault(0, "write recipe.toml", "full"))
    assert isinstance(refused.error, RegardError), refused
    assert "recipe.toml: No space left on device" in str(refused.error)
    assert (folder / "recipe.toml").read_bytes() == before
    check_leftovers = [path.name for path in folder.iterdir() if path.name.endswith(".part")]
    assert check_leftovers == []
    assert attempt(folder, NAME, True).reason == "finished"
    assert differences(folder, whole) == []


def test_no_room_for_the_recipe_of_a_new_run(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    refused = attempt(folder, NAME, False, Fault(0, "write recipe.toml", "full"))
    assert isinstance(refused.error, RegardError), refused
    assert attempt(folder, NAME, resume=False).reason == "finished"
    assert differences(folder, whole) == []
