"""`regard curves`: a figure by its suffix, numbers as JSON, and mistakes in words."""

import inspect
import json
import math
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from regard.cli import curves
from regard.errors import RegardError
from regard.training.events.event import Started
from regard.training.events.plot_curves import SMOOTHING
from training.events.runs import a_run, trained, write_run


def call(*arguments: object) -> Result:
    app = typer.Typer()
    app.command("curves")(curves.curves)
    return CliRunner().invoke(app, [str(one) for one in arguments])


def test_runs_are_drawn_and_told(tmp_path: Path) -> None:
    first, young = a_run(tmp_path / "first"), write_run(tmp_path / "young", [Started(0, 9)])
    figure = tmp_path / "new" / "curves.png"
    done = call(first, young, "-o", figure, "--metric", "loss", "--metric", "bleu", "--x-axis", "tokens")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "first: 40 steps, best at step 30: loss 4.133, perplexity 62.39, bleu 30",
        "young: 0 steps",
        f"Figure: {figure}",
    ]
    assert figure.read_bytes().startswith(b"\x89PNG")


def test_without_a_place_the_figure_is_in_the_folder_one_stands_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(a_run(tmp_path))
    assert call(".").exit_code == 0
    assert (tmp_path / "curves.png").is_file()


def test_json_is_the_numbers_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "run", [trained(1, 3.0), trained(2, math.nan)])
    told = json.loads(call(run, "--json", "-m", "loss").stdout)
    assert told == {
        "x_axis": "step",
        "runs": [
            {
                "name": "run",
                "path": str(run),
                "train": {"loss": {"step": [1, 2], "value": [3, "nan"]}},
                "valid": {},
            }
        ],
        "figure": None,
    }
    assert not (tmp_path / "curves.png").exists()
    told = json.loads(call(run, "--json", "-o", tmp_path / "a.svg").stdout)
    assert Path(told["figure"]).is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "File not found: nowhere"),
        (["."], "has no log.jsonl"),
        (["run", "-m", "bleeu"], "Did you mean 'bleu'?"),
        (["run", "-o", "curves.gif"], "Known: .pdf, .png, .svg"),
        (["run", "--x-axis", "epoch"], "Known: seconds, step, tokens"),
        (["run", "--x-axis", "epoch", "--json"], "Known: seconds, step, tokens"),
        (["run", "--smoothing", "1"], "expected at least 0 and less than 1"),
    ],
)
def test_mistakes_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str) -> None:
    a_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    done = call(*arguments)
    assert isinstance(done.exception, RegardError)
    assert said in str(done.exception)
    assert not list(tmp_path.glob("curves.*"))


def test_the_default_of_smoothing_is_the_figures_own() -> None:
    assert inspect.signature(curves.curves).parameters["smoothing"].default == SMOOTHING
