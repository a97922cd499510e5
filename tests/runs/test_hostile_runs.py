"""Hostile runs: recipe.toml is bounded, and checked against the weights' header before a model is built."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from regard.errors import CheckpointError, RegardError, RunError, SettingError
from regard.runs import Run, toml
from regard.training import TASKS, read_recipe, train

SMALL = ["data.examples=100", "data.valid=8", "train.steps=2", "train.threads=1", "checkpoint.every=2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "transformer"
    sizes = ["model.width=16", "model.heads=2", "model.feedforward_dim=16", "evaluate.every=2"]
    train(read_recipe("transformer", [*SMALL, *sizes], tasks=TASKS), folder, notify=lambda text: None)
    return folder


def changed(run: Path, folder: Path, old: str, new: str) -> Path:
    copy = shutil.copytree(run, folder / "run")
    text = (copy / "recipe.toml").read_text()
    assert old in text
    (copy / "recipe.toml").write_text(text.replace(old, new))
    return copy


@pytest.mark.parametrize("finished", [True, False], ids=["final", "checkpoint"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("layers = 2", "layers = 100000", r"recipe\.toml:\d+: The recipe says layers = 100000, the weights have 2"),
        ("layers = 2", "layers = 1", "Unknown weights"),
        ("width = 16", "width = 16000000", "weights with .* of shape"),
        ("width = 16", "width = 99999999999", "width = 99999999999, expected at most"),
        ("heads = 2", "heads = 0", "No model can be built|heads"),
        ("heads = 2", "heads = -2", "No model can be built|heads|shape"),
        ("heads = 2", "heads = 3", "heads"),
        ("feedforward_dim = 16", "feedforward_dim = -1", "No model can be built"),
    ],
)
def test_a_recipe_that_does_not_fit_the_weights(
    old: str, new: str, said: str, finished: bool, trained: Path, tmp_path: Path
) -> None:
    run, began = changed(trained, tmp_path, old, new), time.monotonic()
    if not finished:
        (run / "model.safetensors").unlink()
    with pytest.raises((CheckpointError, SettingError), match=said):
        Run.open(run).model()
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("name", ["recipe.toml", "tokenizer.json", "model.safetensors"])
def test_a_fifo_or_a_device_is_no_file_of_a_run(name: str, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    for make in (os.mkfifo, lambda path: path.symlink_to("/dev/zero")):
        (run / name).unlink()
        make(run / name)
        with pytest.raises(RegardError, match="expected a regular file"):
            Run.open(run).translator()


def test_a_manifest_of_a_checkpoint_that_is_a_fifo_or_nests_deep_is_damage(trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "model.safetensors").unlink()
    manifest = next(run.glob("state/*/manifest.json"))
    manifest.write_text("[" * 1_000_000)
    with pytest.raises(CheckpointError, match="nor an undamaged checkpoint"):
        Run.open(run).model()
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(CheckpointError, match="nor an undamaged checkpoint"):
        Run.open(run).model()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".".join(["a"] * 300_000) + " = 1", "a key of more than 50 parts"),
        ("[" + ".".join(["a"] * 300_000) + "]", "a key of more than 50 parts"),
        (" . ".join(['"a b"'] * 100_000) + " = 1", "a key of more than 50 parts"),
        ("a = " + "[" * 500_000, "nested|TOML"),
        ("a = " + "{a=" * 300_000, "nested|TOML"),
        ("a = [\n" + "1,\n" * 200_000 + "2020-01-01]\n", "date or time"),
        ("x" * 1_000_000, "TOML"),
        ("a" * 2_000_000, "more than 1,048,576 bytes"),
        ("a = " + "9" * 5000, "TOML"),
    ],
    ids=range(9),
)
def test_a_recipe_that_takes_too_long_to_parse(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(text)
    began = time.monotonic()
    with pytest.raises((SettingError, RunError), match=said):
        Run.open(tmp_path)
    assert time.monotonic() - began < 30


def test_keys_of_some_parts_and_dots_in_text_are_fine() -> None:
    dots = "a.b.c." * 100
    assert toml.parse(f"a.b.c = 1\n[d.e]\nf = '''x'''\ng = 'one. two. three.'\n# {dots[:90]}", "x")["a"]["b"]["c"] == 1
