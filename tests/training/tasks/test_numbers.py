"""Labels that are numbers: estimated, measured, and told as they were written."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from regard.cli import app
from regard.errors import CorpusError, SettingError
from regard.inspection.classify import Classifier
from regard.runs import Run
from regard.text.corpora.labels import Scale
from regard.training.config.recipes import read_recipe
from regard.training.metrics import pearson
from regard.training.objectives.classification import RegressionObjective
from regard.training.tasks import TASKS
from regard.training.train_run import load_recipe, train

WORDS = {"awful": 10.0, "poor": 35.0, "fair": 50.0, "fine": 70.0, "superb": 95.0}


def table(folder, rows: int = 200):
    """The number of each text is the mean of its two words'."""
    names = list(WORDS)
    lines = ["text\tlabel"]
    for number in range(rows):
        a, b = names[number % 5], names[(number // 5) % 5]
        lines.append(f"{a} and {b}\t{(WORDS[a] + WORDS[b]) / 2}")
    path = folder / "numbers.tsv"
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(path, *more: str) -> list[str]:
    data = [f"data.train={path}", "data.kind=table", "data.labels=numbers", "data.valid=0.2"]
    return [*data, "train.steps=120", "evaluate.every=60", "evaluate.monitor=pearson", "train.threads=1", *more]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    recipe = read_recipe("classifier", settings(table(folder), "optimiser.learning_rate=1e-2"), tasks=TASKS)
    return train(recipe, folder / "run", notify=lambda text: None), folder / "run"


def test_numbers_are_learned_and_measured(run) -> None:
    ended, folder = run
    spread = load_recipe(folder).data.labels.std
    assert ended.metrics["pearson"] > 0.95
    assert ended.metrics["error"] < 10
    assert ended.metrics["loss"] == pytest.approx((ended.metrics["error"] / spread) ** 2)


def test_the_run_knows_its_scale(run) -> None:
    _, folder = run
    kept = load_recipe(folder).data.labels
    assert 40 < kept.mean < 60 and 15 < kept.std < 30
    assert Run.open(folder).model().classes.out_features == 1


def test_they_are_told_as_they_were_written(run) -> None:
    _, folder = run
    low, high = (one.label for one in Classifier.of(folder)(["awful and awful", "superb and superb"]))
    assert low == pytest.approx(10, abs=15) and high == pytest.approx(95, abs=15)
    said = CliRunner().invoke(app, ["classify", str(folder), "superb and superb"])
    assert said.exit_code == 0 and float(said.output) == pytest.approx(high, rel=1e-3)
    said = CliRunner().invoke(app, ["classify", str(folder), "superb and superb", "--json"])
    assert json.loads(said.output)["label"] == pytest.approx(high)


def test_bert_estimates_too(tmp_path) -> None:
    small = ["model.layers=1", "model.width=16", "model.heads=2", "train.steps=2", "evaluate.every=2"]
    recipe = read_recipe("bert-classifier", settings(table(tmp_path, 40), *small), tasks=TASKS)
    ended = train(recipe, tmp_path / "run", notify=lambda text: None)
    assert math.isfinite(ended.metrics["loss"])
    assert Run.open(tmp_path / "run").model().outputs.out_features == 1


def test_the_command_of_the_chapter_trains(tmp_path) -> None:
    told = ["data.kind=table", f"data.train={table(tmp_path, 20)}", "data.labels=numbers", "evaluate.monitor=error"]
    chapter = (Path(__file__).parents[3] / "docs" / "bert.md").read_text()
    assert all(f"--set {one.partition('/')[0]}" in chapter for one in told if "train=" not in one)
    small = ["model.layers=1", "model.width=16", "model.heads=2", "train.steps=2"]
    sets = [one for pair in zip(["--set"] * 8, [*told, *small], strict=True) for one in pair]
    said = CliRunner().invoke(app, ["train", "bert-classifier", *sets, "--out", str(tmp_path / "run"), "--json"])
    assert said.exit_code == 0, said.output


def test_what_is_no_number_is_refused_where_it_stands(tmp_path) -> None:
    path = table(tmp_path, 20)
    path.write_text(path.read_text() + "well\tgood\n" + "fine and fine\t70\n" * 8)
    recipe = read_recipe("classifier", settings(path), tasks=TASKS)
    with pytest.raises(CorpusError, match=r"label 'good'.*a number"):
        recipe.prepare(tmp_path / "run")
    with pytest.raises(CorpusError, match="label 'nan'"):
        Scale.of(["1", "nan"])


def test_numbers_are_not_smoothed(tmp_path) -> None:
    recipe = read_recipe("classifier", settings(table(tmp_path, 20), "objective.label_smoothing=0.1"), tasks=TASKS)
    with pytest.raises(SettingError, match="these labels are numbers"):
        recipe.prepare(tmp_path / "run")


def test_a_scale_goes_there_and_back() -> None:
    scale = Scale.of(["1", "2", "6"])
    assert scale.value(scale.number("6")) == pytest.approx(6)
    assert Scale.of(["3", "3"]).std == 1.0


def test_pearson_is_numpys() -> None:
    x, y = torch.randn(2, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    found = pearson(50, *(float(one.sum()) for one in (x, y, x * y, x**2, y**2)))
    assert found == pytest.approx(float(torch.corrcoef(torch.stack((x, y)))[0, 1]))
    assert math.isnan(pearson(3, 3.0, 6.0, 6.0, 3.0, 14.0))
    assert math.isnan(
        RegressionObjective(Scale(0.0, 1.0), None).summary(
            {name: torch.zeros(()) for name in ("predicted", "label", "product", "predicted2", "label2", "count")}
        )["loss"]
    )
