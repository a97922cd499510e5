"""Nothing in a run folder is ever unpickled, however well it is disguised; where it is in the way, words say so."""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from faults.command import RECIPE
from faults.cut import NAME, finish
from faults.sameness import differences, newest
from regard.cli import main
from regard.errors import RegardError, RunWarning
from regard.files import digest_of
from regard.runs import Run
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import load_recipe, train

SHARD = "tensors/shard-00001-model-00001-of-00001.safetensors"
BESIDE = [".metadata", "tensors/.metadata", "tensors/__0_0.distcp", "optimizer.pt", "ranks/0.pt", "ranks/1.safetensors"]
Make = Callable[[Path], bytes]
INSTEAD = [SHARD, "tensors/evil.safetensors", "ranks/0.safetensors", "ranks/0.json"]


class Evil:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.mark),)


def bare(mark: Path) -> bytes:
    return pickle.dumps(Evil(mark))


def by_torch(mark: Path) -> bytes:
    stream = io.BytesIO()
    torch.save({"weights": Evil(mark)}, stream)
    return stream.getvalue()


def by_numpy(mark: Path) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([Evil(mark)], dtype=object), allow_pickle=True)
    return stream.getvalue()


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture(scope="module")
def usable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a real task, from a table of its own."""
    folder = tmp_path_factory.mktemp("usable")
    rows = [f"the day is {word}\t{label}" for word, label in (("fine", "yes"), ("bad", "no")) for _ in range(20)]
    (folder / "table.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    sets = ["data.kind=table", f"data.train={folder / 'table.tsv'}", "model.width=8", "train.steps=2"]
    train(read_recipe(RECIPE, sets, tasks=TASKS), folder / "run", notify=lambda text: None)
    return folder / "run"


def vouch(checkpoint: Path) -> None:
    """Write a manifest that calls everything in a checkpoint sound."""
    names = [path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*") if path.is_file()]
    prints = [asdict(digest_of(checkpoint / name, name)) for name in sorted(names) if name != "manifest.json"]
    (checkpoint / "manifest.json").write_text(json.dumps({"format": 1, "files": prints}))


def test_the_pickles_are_poisonous(mark: Path) -> None:
    pickle.loads(bare(mark))
    mark.rmdir()
    torch.load(io.BytesIO(by_torch(mark)), weights_only=False)
    mark.rmdir()
    np.load(io.BytesIO(by_numpy(mark)), allow_pickle=True)
    mark.rmdir()


@pytest.mark.parametrize("place", [*BESIDE, *INSTEAD, "scalars.json"])
def test_in_a_checkpoint_it_is_damage(place: str, dead: Path, whole: Path, mark: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    (newest(folder) / place).write_bytes(bare(mark))
    _, told = finish(folder, NAME)
    assert any("the checkpoint of step" in text and Path(place).name in text for text in told)
    assert differences(folder, whole) == []
    assert not mark.exists()


@pytest.mark.parametrize("make", [bare, by_torch])
def test_beside_what_is_read_it_is_not_even_opened(
    make: Make, dead: Path, whole: Path, mark: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    for place in BESIDE:
        (newest(folder) / place).write_bytes(make(mark))
    vouch(newest(folder))
    finish(folder, NAME)
    assert differences(folder, whole) == []
    assert not mark.exists()


@pytest.mark.parametrize("make", [bare, by_torch])
@pytest.mark.parametrize("place", INSTEAD)
def test_in_place_of_what_is_read_it_is_refused(place: str, make: Make, dead: Path, mark: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(dead, tmp_path / "run")
    (newest(folder) / place).write_bytes(make(mark))
    vouch(newest(folder))
    with pytest.raises(RegardError):
        finish(folder, NAME)
    assert not mark.exists()


@pytest.mark.parametrize("make", [bare, by_torch])
def test_a_step_that_cannot_be_read_is_damage_though_the_manifest_knows_the_file(
    make: Make, dead: Path, whole: Path, mark: Path, tmp_path: Path
) -> None:
    """The step inside is compared with the folder's name, so this file is read when a checkpoint is verified."""
    folder = shutil.copytree(dead, tmp_path / "run")
    (newest(folder) / "scalars.json").write_bytes(make(mark))
    vouch(newest(folder))
    _, told = finish(folder, NAME)
    assert any("the checkpoint of step" in text and "a damaged file" in text for text in told)
    assert differences(folder, whole) == [] and not mark.exists()


@pytest.mark.parametrize("make", [bare, by_torch])
@pytest.mark.parametrize("file", ["model.safetensors", "tokenizer.json", "recipe.toml"])
def test_a_model_is_loaded_or_refused(file: str, make: Make, usable: Path, mark: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(usable, tmp_path / "run")
    for other in ("model.pt", "pytorch_model.bin", "optimizer.pt", "training_args.bin"):
        (folder / other).write_bytes(make(mark))
    Run.open(folder).model()
    (folder / file).write_bytes(make(mark))
    with pytest.raises(RegardError):
        Run.open(folder).model()
    (folder / "model.safetensors").unlink()
    if file == "model.safetensors":  # what is gone is no lie: the newest checkpoint serves, and says so
        with pytest.warns(RunWarning, match="of step 2, from state"):
            Run.open(folder).model()
    else:
        with pytest.raises(RegardError):
            Run.open(folder).model()
    assert not mark.exists()


@pytest.mark.parametrize("make", [bare, by_torch, by_numpy])
def test_tokenized_text_is_used_or_refused(make: Make, usable: Path, mark: Path, tmp_path: Path) -> None:
    files = [path.relative_to(usable) for path in (usable / "data").rglob("*") if path.is_file()]
    assert files
    for number, file in enumerate(files):
        folder = shutil.copytree(usable, tmp_path / str(number))
        (folder / file).write_bytes(make(mark))
        try:
            train(load_recipe(folder, ["train.steps=3"]), folder, resume=True, notify=lambda text: None)
        except RegardError as error:
            print(error)
        assert not mark.exists()


@pytest.mark.parametrize("name", ["evil.pt", "evil.safetensors"])
@pytest.mark.parametrize("make", [bare, by_torch])
def test_weights_to_start_from_are_refused(
    make: Make,
    name: str,
    mark: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).write_bytes(make(mark))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        sys, "argv", ["regard", "train", "classifier", "--set", f"start.weights={name}", "--set", "data.examples=50"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"{name}: Could not read the weights" in said and "Traceback" not in said
    assert ("Pickled weights (.pt, .bin) are never opened" in said) == name.endswith(".pt")
    assert not mark.exists()
