"""A training that is killed, anywhere and as often as one likes, and resumed, ends as one that never was."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from faults.sameness import bits, differences
from faults.victim import Fault, Outcome, attempt

NAMES = ["averaged", "mean", "unexamined", "recurrent"]


class Whole:
    """The runs that were never killed, each made once, and what they did to their folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outcomes: dict[str, Outcome] = {}

    def run(self, name: str) -> Path:
        if name not in self.outcomes:
            self.outcomes[name] = attempt(self.folder / name, name, resume=False)
            assert self.outcomes[name].reason == "finished", self.outcomes[name]
        return self.folder / name

    def moments(self, name: str) -> tuple[str, ...]:
        self.run(name)
        return self.outcomes[name].moments


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    return Whole(tmp_path_factory.mktemp("whole"))


def struck(folder: Path, name: str, moments: int, random: Random) -> Outcome:
    """Begin or go on, and be killed at a random moment: at a call, inside a write, or after some time."""
    resume = (folder / "recipe.toml").exists()
    if not resume:
        shutil.rmtree(folder, ignore_errors=True)
    match random.choice(["kill", "kill", "half", "time"]):
        case "time":
            return attempt(folder, name, resume, after=random.uniform(0.01, 1.0))
        case "half":
            fault = Fault(random.randrange(moments), does="half", size=random.randrange(1, 9000))
            return attempt(folder, name, resume, fault)
        case _:
            return attempt(folder, name, resume, Fault(random.randrange(moments)))


def kills(tmp_path: Path, name: str, whole: Whole, count: int, seed: int) -> Iterator[tuple[Path, list[str]]]:
    """Runs that were killed until one attempt lived to the end, with where they died; `count` deaths in all."""
    random, done, number = Random(seed), 0, 0
    while done < count:
        folder, places = tmp_path / str(number), []
        while (outcome := struck(folder, name, len(whole.moments(name)), random)).died:
            places.append(outcome.died)
        assert outcome.reason == "finished", (places, outcome)
        yield folder, places
        done += len(places)
        number += 1


def check_kills(tmp_path: Path, name: str, whole: Whole, count: int, seed: int) -> None:
    for folder, places in kills(tmp_path, name, whole, count, seed):
        assert differences(folder, whole.run(name)) == [], f"{name}, seed {seed}, died at: {'; '.join(places)}"
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_random_moments_it_ends_as_if_it_had_lived(name: str, whole: Whole, tmp_path: Path) -> None:
    check_kills(tmp_path, name, whole, count=5, seed=NAMES.index(name))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(10, 15))
def test_killed_at_two_hundred_moments(name: str, seed: int, whole: Whole, tmp_path: Path) -> None:
    check_kills(tmp_path, name, whole, count=10, seed=seed)


PLACES = {
    "the shard of the first checkpoint is open": Fault(0, "write .*shard"),
    "a shard is half written": Fault(1, "write .*shard", "half", 700),
    "a rank's own is half written": Fault(2, "write .*ranks/0.safetensors", "half", 700),
    "the manifest is half written": Fault(1, "write .*manifest.json", "half", 100),
    "a checkpoint is whole but has no name yet": Fault(2, r"rename state/\.step-\d+\.part$"),
    "a checkpoint has its name, the disk may not know": Fault(1, "sync state$"),
    "the weights for use are half written": Fault(1, "write model.safetensors", "half", 300),
    "the weights for use have no name yet": Fault(1, "rename model.safetensors"),
    "an old checkpoint is about to be removed": Fault(0, r"rename state/step-\d+$"),
    "an old checkpoint is half removed": Fault(2, "remove .*safetensors"),
    "the recipe is written again on resuming": Fault(1, "rename recipe.toml"),
}


@pytest.mark.parametrize("place", PLACES)
def test_killed_at_the_worst_moments(place: str, whole: Whole, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    died = attempt(folder, "averaged", False, PLACES[place]).died
    assert died is not None and re.search(PLACES[place].match, died), died
    assert attempt(folder, "averaged", True).reason == "finished"
    assert differences(folder, whole.run("averaged")) == [], died


@pytest.mark.parametrize("name", NAMES)
def test_killed_while_the_last_weights_are_written(name: str, whole: Whole, tmp_path: Path) -> None:
    """The last checkpoint is there, and the training has nothing left to do but this."""
    last = sum(text.startswith("rename model.safetensors") for text in whole.moments(name)) - 1
    assert attempt(tmp_path / "run", name, False, Fault(last, "rename model.safetensors")).died
    assert attempt(tmp_path / "run", name, True).reason == "finished"
    found, wanted = (bits(folder / "model.safetensors") for folder in (tmp_path / "run", whole.run(name)))
    assert found == wanted


def test_told_to_stop_again_and_again_it_still_saves(whole: Whole, tmp_path: Path) -> None:
    """Whoever sends one SIGTERM often sends a second one, while the checkpoint of the first is being written."""
    outcome = attempt(tmp_path / "run", "averaged", False, Fault(9, "sync state", "terminate"))
    assert outcome.reason == "interrupted", outcome
    assert attempt(tmp_path / "run", "averaged", True).reason == "finished"
    assert differences(tmp_path / "run", whole.run("averaged")) == []


def test_killed_before_there_is_a_recipe_it_can_be_started_again(whole: Whole, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert attempt(folder, "averaged", False, Fault(0, "rename recipe.toml")).died
    assert attempt(folder, "averaged", resume=False).reason == "finished"
    assert differences(folder, whole.run("averaged")) == []


@pytest.mark.parametrize(
    "match", ["sync model.safetensors", "sync recipe.toml", "sync .*scalars.json", "remove 0.json"]
)
def test_what_a_killed_write_leaves_behind_is_cleared_away(match: str, tmp_path: Path) -> None:
    assert attempt(tmp_path / "run", "averaged", False, Fault(1, match)).died
    assert attempt(tmp_path / "run", "averaged", True).reason == "finished"
    left = [path.name for path in (tmp_path / "run").rglob("*") if path.suffix == ".part" or ".gone" in path.name]
    assert left == []


def test_everything_is_on_the_disk_before_it_gets_its_name(whole: Whole) -> None:
    """What is written is synced before anything is renamed, and the new name right after it."""
    moments = whole.moments("averaged")
    unsynced: set[str] = set()
    for number, text in enumerate(moments):
        did, name = text.split(" ", 1)
        if did == "write" and name not in ("lock", "log.jsonl"):
            unsynced.add(name)
        elif did == "sync":
            unsynced.discard(name)
        elif did == "rename" and ".gone" not in name and not re.fullmatch(r"state/step-\d+", name):
            assert not unsynced, f"{name} is renamed while {unsynced} may not be on the disk"
            assert moments[number + 1] == f"sync {Path(name).parent}"
    assert not unsynced


def test_a_new_folder_is_known_to_the_disk_before_something_relies_on_it(whole: Whole) -> None:
    """A checkpoint in a folder whose name the disk does not know would be lost with the power."""
    moments = whole.moments("averaged")
    made, named = moments.index("make state"), moments.index("sync state")
    assert "sync ." in moments[made:named], moments[made : named + 1]
