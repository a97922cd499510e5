"""A pruned run equals the model with zeroed heads, and is a run: it loads, records and trains."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.test_docs import blocks
from typer.testing import CliRunner

from regard import load
from regard.adapters import adapter
from regard.cli import app
from regard.errors import RunError, SettingError
from regard.inspection.classify import Classifier
from regard.inspection.heads.ablation import ablate
from regard.inspection.heads.importance import importance
from regard.inspection.heads.pruning import lowest_heads, prune, save_pruned
from regard.inspection.heads.run_evaluation import RunEvaluation, class_probability
from regard.inspection.interventions import intervene
from regard.inspection.record.collect import collect
from regard.models.pruning import find_multi_heads
from regard.runs import Run
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import load_recipe, train

FEW = ["data.examples=60", "train.steps=2", "evaluate.every=2", "train.threads=1", "train.device=cpu"]
SIZE = ["model.layers=2", "model.width=16", "model.heads=4"]
BERT = [*FEW, "data.valid=10", *SIZE, "model.max_positions=60", "tokenizer.size=300"]
RUNS = {
    "transformer": [*FEW, "data.valid=8", "batches.tokens=200", *SIZE, "model.feedforward_dim=24"],
    "gpt": [*FEW, "data.valid=10", *SIZE, "model.key_heads=2"],
    "bert": BERT,
    "bahdanau": [*FEW, "data.valid=4", "model.width=8", "model.encoder_dim=16", "model.hidden=16"],
}


def silent(text: str) -> None:
    """Nobody is told."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, sets in RUNS.items():
        train(read_recipe(name, sets, tasks=TASKS), folder / name, notify=silent)
    on = [*FEW, "data.valid=10", f"model.pretrained={folder / 'bert'}", "tokenizer.size=50"]
    train(read_recipe("bert-classifier", on, tasks=TASKS), folder / "classifier", notify=silent)
    return folder


@pytest.mark.parametrize(("name", "keep"), [("transformer", 0.4), ("gpt", 0.5), ("bert", 0.7), ("classifier", 0.5)])
def test_a_pruned_run_equals_the_run_with_zeroed_heads(runs: Path, name: str, keep: float, tmp_path: Path) -> None:
    found = prune(runs / name, tmp_path / "half", keep, generations=4)
    whole = RunEvaluation.of(runs / name)
    total = sum(one.project.heads for one in find_multi_heads(whole.model).values())
    assert found.heads == total and sum(map(len, found.cut.values())) == total - round(keep * total)
    assert found.parameters[1] < found.parameters[0]
    with ExitStack() as stack:
        for place, heads in found.cut.items():
            stack.enter_context(intervene(whole.model, place, heads=heads, weights="zero"))
        masked = whole.metrics(generations=4)
    assert found.after == pytest.approx(masked, rel=1e-4)
    assert found.before == pytest.approx(whole.metrics(generations=4))
    again = replace(whole, model=load(tmp_path / "half"))
    assert again.metrics(generations=4) == pytest.approx(found.after)
    assert RunEvaluation.of(tmp_path / "half").metrics(generations=4) == pytest.approx(found.after)
    assert load_recipe(tmp_path / "half").pruned == found.cut


def test_a_pruned_translator_translates_records_and_trains(runs: Path, tmp_path: Path) -> None:
    half, more = tmp_path / "half", tmp_path / "more"
    save_pruned(runs / "transformer", half, {"decoder.0.cross": [0, 3], "encoder.blocks.1.self": [1]})
    [[best]] = Run.open(half).translator()(["The black cat sleeps ."])
    record = collect(adapter(half), "The black cat sleeps .")
    assert record.place("decoder.0.cross").heads == 2 and len(record.steps) == len(best.tokens) + 1
    recipe = read_recipe(half / "recipe.toml", ["train.steps=1"], tasks=TASKS)
    before = RunEvaluation.of(half).loss()
    train(recipe, more, notify=silent)
    model = load(more)
    assert find_multi_heads(model)["decoder.0.cross"].project.heads == 2
    fresh = RunEvaluation.of(more)
    assert fresh.loss() == pytest.approx(before, abs=0.5), "it began with the weights of the smaller run"
    with pytest.raises(SettingError, match=r"\[pruned\]"):
        load_recipe(half, ["pruned.x=[1]"])


def test_pruning_twice_keeps_the_original_head_numbers(runs: Path, tmp_path: Path) -> None:
    one, two, at_once = tmp_path / "one", tmp_path / "two", tmp_path / "at once"
    save_pruned(runs / "transformer", one, {"decoder.0.self": [1]})
    save_pruned(one, two, {"decoder.0.self": [0, 1], "decoder.1.self": [3]})
    save_pruned(runs / "transformer", at_once, {"decoder.0.self": [0, 1, 2], "decoder.1.self": [3]})
    assert (
        load_recipe(two).pruned == load_recipe(at_once).pruned == {"decoder.0.self": [0, 1, 2], "decoder.1.self": [3]}
    )
    for (name, first), second in zip(load(two).state_dict().items(), load(at_once).state_dict().values(), strict=True):
        assert torch.equal(first, second), name


def test_the_lowest_heads_are_pruned_and_one_stays_at_each_place(runs: Path) -> None:
    model = load(runs / "transformer")
    scores = {"decoder.0.self": [0.1, 0.2, 0.3, 0.4], "decoder.1.self": [5.0, 0.35, 6.0, 7.0]}
    assert lowest_heads(model, scores, 0.5) == {"decoder.0.self": [0, 1, 2], "decoder.1.self": [1]}
    assert lowest_heads(model, scores, 0.01) == {"decoder.0.self": [0, 1, 2], "decoder.1.self": [0, 1, 2]}
    assert lowest_heads(model, scores, 1.0) == {}
    grouped = load(runs / "gpt")
    together = {"decoder.0.self": [0.0, 5.0, 2.0, 2.0], "decoder.1.self": [9.0, 9.0, 9.0, 9.0]}
    assert lowest_heads(grouped, together, 0.75) == {"decoder.0.self": [2, 3]}
    for keep in (0.0, 1.5):
        with pytest.raises(SettingError, match=f"keep={keep}"):
            lowest_heads(model, scores, keep)


def test_a_run_is_evaluated_on_a_file(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("source\ttarget\nThe cat sleeps .\tLe chat dort .\nShe reads .\tElle lit .\n")
    one = RunEvaluation.of(runs / "transformer", tmp_path / "pairs.tsv")
    assert sum(map(len, one.batches)) == 2 and one.bleu(2) >= 0
    (tmp_path / "labelled.tsv").write_text("text\tlabel\nThe meal was good .\tpositive\nIt was bad .\tnegative\n")
    other = RunEvaluation.of(runs / "classifier", tmp_path / "labelled.tsv")
    assert sum(map(len, other.batches)) == 2 and other.loss() > 0
    (tmp_path / "text.txt").write_text("The cat sleeps in the house.\n" * 40)
    assert RunEvaluation.of(runs / "gpt", tmp_path / "text.txt", max_batches=1).loss() > 0
    with pytest.raises(SettingError, match="BLEU"):
        other.bleu()
    with pytest.raises(SettingError, match="File not found"):
        RunEvaluation.of(runs / "gpt", tmp_path / "nothing.txt")


def test_the_probability_of_a_class_without_each_head(runs: Path) -> None:
    classifier = Classifier.of(runs / "classifier")
    number = class_probability(classifier, "The meal was good .", "positive")
    found = ablate(classifier.adapter.model, number)
    assert 0 < found.baseline < 1 and {len(one) for one in found.without.values()} == {4}
    with pytest.raises(SettingError, match="label 'good'"):
        class_probability(classifier, "The meal was good .", "good")


def test_importance_is_normalised_at_each_place(runs: Path) -> None:
    run = RunEvaluation.of(runs / "transformer")
    found = importance(run.model, run.losses())
    assert set(found) == set(find_multi_heads(run.model))
    assert all(float(one.norm()) == pytest.approx(1, abs=1e-5) for one in found.values())


def test_models_that_cannot_be_pruned_are_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="no multi-head attention to prune"):
        prune(runs / "bahdanau", tmp_path / "out", 0.5)
    with pytest.raises(RunError, match="exists and is not empty"):
        prune(runs / "transformer", runs / "gpt", 0.5)
    save_pruned(runs / "bert", tmp_path / "less", {"bert.encoder.blocks.0.self": [0]})
    on = [*FEW, f"model.pretrained={tmp_path / 'less'}"]
    with pytest.raises(SettingError, match="were pruned"):
        train(read_recipe("bert-classifier", on, tasks=TASKS), tmp_path / "new", notify=silent)


@pytest.mark.parametrize(
    ("name", "to", "place"), [("bert", "hf", "bert.encoder.blocks.0.self"), ("gpt", "ctranslate2", "decoder.1.self")]
)
def test_pruned_runs_are_not_exported(runs: Path, tmp_path: Path, name: str, to: str, place: str) -> None:
    save_pruned(runs / name, tmp_path / "pruned", {place: [0, 1]})
    got = CliRunner().invoke(app, ["export", str(tmp_path / "pruned"), str(tmp_path / "out"), "--to", to])
    assert isinstance(got.exception, RunError) and "were pruned" in str(got.exception)
    assert not (tmp_path / "out").exists()


def test_the_verb(runs: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["prune", str(runs / "gpt"), "-o", str(tmp_path / "a"), "--criterion", "ablation"])
    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    assert "increase of the loss" in lines[0] and lines[1].split() == ["0", "1", "2", "3"]
    assert sum(line.count("[") for line in lines) == 4 and "4 of 8 heads pruned" in lines[-1]
    told = CliRunner().invoke(app, ["prune", str(runs / "gpt"), "-o", str(tmp_path / "b"), "--keep", "0.75", "--json"])
    found = json.loads(told.output)
    assert set(found) == {"run", "out", "by", "scores", "cut", "parameters", "before", "after"}
    assert sum(map(len, found["cut"].values())) == 2 and found["parameters"][1] < found["parameters"][0]
    wrong = CliRunner().invoke(app, ["prune", str(runs / "gpt"), "-o", str(tmp_path / "c"), "--criterion", "chance"])
    assert isinstance(wrong.exception, SettingError) and "importance" in str(wrong.exception)


def test_the_docs_on_heads(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").symlink_to(runs)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks("docs/intervening.md", "Which heads matter"), names)
    assert set(names["found"].changes) == {"decoder.0.cross", "decoder.1.cross"}
