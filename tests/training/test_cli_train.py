"""`regard train` as its user meets it: a recipe in, a run out, and each mistake one clear sentence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from regard import cli
from regard.runs import Run
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import WordLevel
from regard.training.config.recipes import shipped_recipes
from regard.training.events.log import read_log

SMALL = [
    "data.examples=60",
    "data.valid=20",
    "train.steps=6",
    "evaluate.every=3",
    "checkpoint.every=2",
    "train.threads=1",
]


class Said:
    """What a command printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


class Command:
    """Runs the command line in this process, in a folder of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *arguments: str, small: bool = True) -> Said:
        sets = [part for one in SMALL for part in ("--set", one)] if small else []
        self.monkeypatch.setattr(sys, "argv", ["regard", "train", *arguments, *sets])
        with pytest.raises(SystemExit) as left:
            cli.main()
        said = self.capsys.readouterr()
        code = left.value.code
        assert code is None or isinstance(code, int)
        return Said(code or 0, said.out, said.err)


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    return Command(monkeypatch, capsys)


def refused(said: Said, *words: str) -> None:
    """One sentence on standard error, the last line there, with these words, and exit code 2."""
    assert said.code == 2, said.err
    assert "Traceback" not in said.err
    *_, last = said.err.splitlines()
    assert last.startswith("regard: "), said.err
    for word in words:
        assert word in last, said.err


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_run_has_all_its_files_and_the_model_loads(name: str, train: Command, tmp_path: Path) -> None:
    said = train(name)
    assert said.code == 0, said.err
    folder = tmp_path / "runs" / name
    expected = {"recipe.toml", "tokenizer.json", "model.safetensors", "state", "log.jsonl"}
    if name.startswith("image-classifier"):
        expected -= {"tokenizer.json"}  # it has no text
    assert expected <= {path.name for path in folder.iterdir()}
    assert f"model saved to {Path('runs') / name / 'model.safetensors'}: loss" in said.out
    assert "step      3  loss" in said.err and "parameters" in said.err
    events = read_log(folder / "log.jsonl")
    assert events[0]["event"] == "started" and events[0]["facts"]["threads"] == 1
    assert events[-1]["event"] == "ended"
    model = Run.open(str(folder)).model()
    assert not model.training
    assert sum(one.numel() for one in model.parameters()) == events[0]["facts"]["parameters"]


def test_the_result_as_json(train: Command) -> None:
    told = json.loads(train("classifier", "--json", "--out", "run").out)
    assert (told["run"], told["reason"], told["step"]) == ("run", "finished", 6)
    assert 0 <= told["metrics"]["accuracy"] <= 1


def test_the_recipes_are_listed(train: Command) -> None:
    said = train(small=False)
    assert said.code == 0
    assert all(f"{name} " in said.out for name in shipped_recipes())


def test_a_dry_run_prints_and_leaves_no_trace(train: Command, tmp_path: Path) -> None:
    said = train("character-gpt", "--dry-run")
    assert said.code == 0
    assert "layers = 4" in said.out and "examples = 60" in said.out
    told = json.loads(train("character-gpt", "--dry-run", "--json").out)
    model = 4 * (12 * 128 * 128 + 13 * 128) + 2 * 128  # of each layer its matrices, biases and norms; the last norm
    embedded = told["parameters"] - model
    assert embedded % 128 == 0 and 20 < embedded // 128 < 200  # an alphabet, and perhaps positions
    assert told["weights"] == 4 * told["parameters"] and told["optimiser"] == 2 * told["weights"]
    assert told["memory"] == sum(
        told[part] for part in ("weights", "gradients", "optimiser", "weight_average", "activations")
    )
    assert told["steps"] == 6 and told["batches_per_epoch"] > 1
    assert not list(tmp_path.iterdir())


def test_epochs_are_counted_in_batches(train: Command) -> None:
    told = json.loads(train("classifier", "--dry-run", "--json", "--set", "train.steps=3 epochs", small=False).out)
    assert told["steps"] == 3 * told["batches_per_epoch"]
    assert told["epochs"] == 3


def test_resuming_goes_by_the_run(train: Command, tmp_path: Path) -> None:
    train("classifier")
    said = train("--resume", "--out", "runs/classifier", "--set", "train.steps=9", small=False)
    assert said.code == 0, said.err
    assert "resuming after step 6 of 9" in said.err
    assert "steps = 9" in (tmp_path / "runs" / "classifier" / "recipe.toml").read_text()
    said = train("--resume", "--out", "runs/classifier", small=False)
    assert said.code == 0 and "all 9 steps are done" in said.err


def test_a_run_folder_that_exists(train: Command) -> None:
    train("classifier")
    refused(train("classifier"), "runs/classifier exists already", "regard train --resume --out runs/classifier")


def test_a_folder_that_is_not_a_run(train: Command, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    refused(train("--resume", "--out", "there"), "there is not a run")
    (tmp_path / "there" / "thesis.txt").write_text("do not overwrite")
    refused(train("classifier", "--out", "there"), "there exists already", "Choose another folder")
    assert (tmp_path / "there" / "thesis.txt").read_text() == "do not overwrite"
    (tmp_path / "file").touch()
    refused(train("classifier", "--out", "file/run"), "file/run: Not a directory")
    refused(train("--resume"), "--resume needs a recipe or --out RUN")


def test_no_such_recipe_or_text(train: Command) -> None:
    refused(train("clasifier"), "'clasifier'", "Did you mean 'classifier'?")
    refused(train("mine.toml"), "mine.toml: No such file or directory")
    sets = ("--set", "data.kind=table", "--set", "data.train=no.tsv")
    refused(train("classifier", *sets, "--set", "train.steps=5", small=False), "no.tsv", "File not found")


def test_misspelt_settings(train: Command, tmp_path: Path) -> None:
    refused(train("classifier", "--set", "train.step=3"), "--set train.step=3", "Did you mean 'steps'?")
    (tmp_path / "mine.toml").write_text('task = "classification"\nname = "mine"\n\n[model]\nwitdh = 8\n')
    refused(train("mine.toml"), "mine.toml:5", "Unknown setting 'witdh' in [model]", "Did you mean 'width'?")


def test_a_recipe_of_another_version(train: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('version = 7\ntask = "classification"\nname = "mine"\n')
    refused(train("mine.toml"), "mine.toml:1", "version 7", "expected version 1")


def test_cuda_asked_for_and_absent(train: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refused(train("classifier", "--set", "train.device=cuda"), "this machine has no CUDA device", "train.device=cpu")
    assert not (tmp_path / "runs").exists()


def test_weights_of_another_vocabulary(train: Command, tmp_path: Path) -> None:
    train("classifier", "--out", "first")
    weights = ("--set", "start.weights=first")
    said = train("classifier", "--out", "second", *weights, "--set", "tokenizer.size=40")
    refused(said, "weights are of a run with another tokenizer", "--set tokenizer.kind=file --set tokenizer.path=")
    file = ("--set", f"start.weights={tmp_path / 'first' / 'model.safetensors'}")
    said = train("classifier", "--out", "second", *file, "--set", "tokenizer.size=40")
    refused(said, "embedding.weight", "They belong to a vocabulary of", "the tokenizer of this model has 40")
    assert train("classifier", "--out", "third", *weights).code == 0
    taken = ("--set", "tokenizer.kind=file", "--set", "tokenizer.path=first/tokenizer.json")
    assert train("classifier", "--out", "fourth", *weights, *taken, "--set", "data.seed=7").code == 0


def test_a_tokenizer_that_was_exchanged(train: Command, tmp_path: Path) -> None:
    train("classifier", "--out", "run")
    Tokenizer.train(WordLevel(30), ["a few words of another text"] * 3).save(tmp_path / "run" / "tokenizer.json")
    said = train("--resume", "--out", "run", "--set", "train.steps=8", small=False)
    refused(said, "vocabulary")


def test_what_a_run_is_made_of_cannot_change(train: Command) -> None:
    train("classifier", "--out", "run")
    kept = Path("run/recipe.toml").read_text()
    refused(train("--resume", "--out", "run", "--set", "model.width=32"), "cannot change [model]", "start.weights")
    refused(train("--resume", "--out", "run", "--set", "train.seed=1", small=False), "cannot change train.seed")
    assert Path("run/recipe.toml").read_text() == kept
    refused(
        train("classifier", "--resume", "--out", "run", "--set", "checkpoint.keep_last=3", small=False),
        "The recipe has train.steps = 600",
        "the run 6",
    )


def test_an_unknown_metric(train: Command) -> None:
    refused(train("classifier", "--set", "evaluate.monitor=acuracy"), "Did you mean 'accuracy'?")
    assert train("classifier").code == 0  # the folder is free for a second try


@pytest.mark.parametrize("content", ["text\tlabel\ngood\tyes\n", "text\tlabel\n", ""])
def test_a_table_with_too_little_in_it(content: str, train: Command, tmp_path: Path) -> None:
    (tmp_path / "table.tsv").write_text(content)
    sets = ("--set", "data.kind=table", "--set", "data.train=table.tsv", "--set", "train.steps=5")
    refused(train("classifier", *sets, small=False))


def test_own_text_trains_with_one_command(train: Command, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("to be or not to be\nthat is the question\n" * 40)
    sets = ("--set", "data.kind=text", "--set", "data.train=mine.txt", "--set", "train.steps=4")
    said = train("character-gpt", *sets, "--set", "evaluate.every=2", "--out", "run", small=False)
    assert said.code == 0, said.err
    assert "bits per character" in said.err
    (tmp_path / "mine.txt").write_text("something else\n" * 40)
    kept = (tmp_path / "run" / "recipe.toml").read_text()
    refused(
        train("--resume", "--out", "run", "--set", "train.steps=6", small=False),
        "mine.txt",
        "Restore the text, or start a new run",
    )
    assert (tmp_path / "run" / "recipe.toml").read_text() == kept  # a resume that is refused leaves no trace


@pytest.mark.parametrize(
    ("every", "said"),
    [(40, ", a checkpoint every 40"), (100, ", a checkpoint only at the end"), (None, "")],
)
def test_the_checkpoint_interval_is_shown(every: int | None, said: str) -> None:
    from regard.cli.progress_ui import _checkpoint_interval

    assert _checkpoint_interval({} if every is None else {"checkpoint_every": every}, 100) == said
