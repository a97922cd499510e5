"""A damaged checkpoint is noticed, told of and put aside; the one before it takes its place, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from faults.cut import NAME, finish
from faults.sameness import bits, differences, newest
from regard.cli import main
from regard.errors import CheckpointError, RunError
from regard.files import exclusive_lock
from regard.training.checkpoint import Checkpoint

FILES = ["tensors/shard-00001-model-00001-of-00001.safetensors", "scalars.json", "ranks/0.json", "ranks/0.safetensors"]
MANIFEST = "manifest.json"


def cut_short(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def lacks_a_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path, place: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def has_a_flipped_bit(path: Path) -> None:
    random = Random(path.name)
    flip(path, random.randrange(path.stat().st_size), random.randrange(8))


def is_of_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def is_empty(path: Path) -> None:
    path.write_bytes(b"")


def is_missing(path: Path) -> None:
    path.unlink()


def has_a_strange_neighbour(path: Path) -> None:
    shutil.copy(path, path.with_name(f"copy-{path.name}"))


def is_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Callable[[Path], None]] = [
    cut_short,
    lacks_a_byte,
    has_a_flipped_bit,
    is_of_zeros,
    is_empty,
    is_missing,
    has_a_strange_neighbour,
    is_a_folder,
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", [*FILES, MANIFEST])
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    file: str, damage: Callable[[Path], None], dead: Path, whole: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    last = newest(folder)
    damage(last / file)
    left = sorted((path.relative_to(last), path.is_dir() or path.read_bytes()) for path in last.rglob("*"))
    ended, told = finish(folder, NAME)
    said, used = [text for text in told if "checkpoint" in text]
    assert used.startswith("using the checkpoint of step")
    assert f"the checkpoint of step {int(last.name[-8:])} has" in said
    assert file == MANIFEST or Path(file).name in said
    aside = last.with_name(f"damaged-{last.name}")
    assert str(aside) in said
    assert left == sorted((path.relative_to(aside), path.is_dir() or path.read_bytes()) for path in aside.rglob("*"))
    assert ended.reason == "finished"
    assert differences(folder, whole) == []


def test_a_checkpoint_that_is_an_empty_folder_gives_way(dead: Path, whole: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    last = newest(folder)
    shutil.rmtree(last)
    last.mkdir()
    _, told = finish(folder, NAME)
    assert any("manifest.json: No such file" in text for text in told)
    assert last.with_name(f"damaged-{last.name}").is_dir()
    assert differences(folder, whole) == []


def test_no_flipped_bit_of_a_manifest_goes_unnoticed(dead: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(newest(dead), tmp_path / "step")
    sound, manifest = Checkpoint(folder, int(newest(dead).name[-8:])), folder / MANIFEST
    assert sound.find_damage() is None
    for place in range(manifest.stat().st_size):
        flip(manifest, place, place % 8)
        assert sound.find_damage() is not None, place
        flip(manifest, place, place % 8)
    assert sound.find_damage() is None


def test_swapped_folders_are_noticed(dead: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    one, other = sorted((folder / "state").glob("step-*"))[-2:]
    one.rename(aside := folder / "aside")
    other.rename(one)
    aside.rename(other)
    said = rf"damaged: damaged-{other.name} with the state of step {int(one.name[-8:])}: its folder was renamed"
    with pytest.raises(CheckpointError, match=said):
        finish(folder, NAME)


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "fifo"])
def test_a_lock_that_is_no_file_is_a_sentence(make: Callable[[Path], None], dead: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    (folder / "lock").unlink(missing_ok=True)
    make(folder / "lock")
    with pytest.raises(RunError, match=r"Could not open the lock file .*lock: (Is a directory|No such device)"):
        finish(folder, NAME)


@pytest.mark.parametrize("verb", ["tokenize", "embed", "look", "resume"])
def test_a_forbidden_folder_is_a_sentence(
    verb: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """/sys takes no files, not even of root."""
    (tmp_path / "text").write_text("the cat sleeps .\n" * 20)
    corpus, run, out = str(tmp_path / "text"), str(whole), "/sys/regard-test"
    arguments = {
        "tokenize": ["tokenize", "train", corpus, "-o", f"{out}.json"],
        "embed": ["embed", run, corpus, "-o", f"{out}.npz"],
        "look": ["look", run, "the cat", "-o", f"{out}.html"],
        "resume": ["train", "gpt", "--out", out],
    }
    monkeypatch.setattr(sys, "argv", ["regard", *arguments[verb]])
    with pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().err
    assert left.value.code == 2 and len(said.splitlines()) == 1, said
    with (
        pytest.raises(RunError, match="Could not open the lock file /sys/lock: Permission denied"),
        exclusive_lock(Path("/sys"), lambda: RunError("busy")),
    ):
        raise AssertionError("it was locked")


def test_what_was_put_aside_before_stays_beside_it(dead: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    last = newest(folder)
    earlier = last.with_name(f"damaged-{last.name}")
    earlier.mkdir()
    is_of_zeros(last / MANIFEST)
    _, told = finish(folder, NAME)
    assert any(text.endswith(f"it was renamed to {earlier}.1") for text in told)
    assert any("using the checkpoint of step" in text for text in told)
    assert list(earlier.iterdir()) == []
    assert (last.with_name(f"{earlier.name}.1") / MANIFEST).exists()


def test_where_all_are_damaged_it_says_so_and_deletes_nothing(dead: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    steps = sorted(path.name for path in (folder / "state").glob("step-*"))
    for name in steps:
        has_a_flipped_bit(folder / "state" / name / "scalars.json")
    files = sorted(path.read_bytes() for path in (folder / "state").rglob("*") if path.is_file())
    weights = bits(folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"a damaged scalars.json.*None was deleted") as caught:
        finish(folder, NAME)
    assert all(f"damaged-{name}" in str(caught.value) for name in steps)
    assert files == sorted(path.read_bytes() for path in (folder / "state").rglob("*") if path.is_file())
    with pytest.raises(CheckpointError):  # it does not begin anew over what is there, just because it was asked twice
        finish(folder, NAME)
    assert files == sorted(path.read_bytes() for path in (folder / "state").rglob("*") if path.is_file())
    assert bits(folder / "model.safetensors") == weights


@pytest.mark.parametrize("file", FILES)
def test_a_mean_of_checkpoints_does_not_take_a_damaged_one(file: str, tmp_path: Path) -> None:
    """The newest is sound, so the run goes on from it; the one before it is needed at the end."""
    finish(tmp_path / "whole", "mean", resume=False)
    folder = shutil.copytree(tmp_path / "whole", tmp_path / "run")
    weights = bits(folder / "model.safetensors")
    before = sorted((folder / "state").glob("step-*"))[-2]
    path = before / file
    flip(path, path.stat().st_size - 1, 6)
    with suppress(CheckpointError):  # to refuse is as good as to do without it
        finish(folder, "mean")
    assert bits(folder / "model.safetensors") == weights


def test_damaged_weights_for_use_are_refused_in_words(whole: Path, tmp_path: Path) -> None:
    from regard.runs.weights import load_weights
    from training.little import reading

    folder = shutil.copytree(whole, tmp_path / "run")
    for damage in (is_of_zeros, is_empty, is_missing):
        damage(folder / "model.safetensors")
        with pytest.raises(CheckpointError, match="Could not read the weights"):
            load_weights(reading().model, folder)
