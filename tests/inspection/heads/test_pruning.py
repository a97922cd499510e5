"""A pruned run is a run: it says what the whole model says without those heads, loads, looks, and trains on."""

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
from regard.inspection.heads.evaluation import Examined, class_probability
from regard.inspection.heads.importance import importance
from regard.inspection.heads.pruning import lowest, prune, save_pruned
from regard.inspection.interventions import intervene
from regard.inspection.record.collect import collect
from regard.models.pruning import multi_heads
from regard.runs import Run
from regard.training.config.recipes import read_recipe
from regard.training.run import recorded, train
from regard.training.tasks import TASKS

FEW = ["data.examples=60", "train.steps=2", "evaluate.every=2", "train.threads=1", "train.device=cpu"]
SIZE = ["model.layers=2", "model.width=16", "model.heads=4"]
BERT = [*FEW, "data.valid=10", *SIZE, "model.positions=60", "tokenizer.size=300"]
RUNS = {
    "transformer": [*FEW, "data.valid=8", "batches.tokens=200", *SIZE, "model.hidden=24"],
    "gpt": [*FEW, "data.valid=10", *SIZE, "model.key_heads=2"],
    "bert": BERT,
    "bahdanau": [*FEW, "data.valid=4", "model.width=8", "model.states=16", "model.hidden=16"],
}


def silent(text: str) -> None:
    """Nobody is told."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, sets in RUNS.items():
        train(read_recipe(name, sets, tasks=TASKS), folder / name, tell=silent)
    on = [*FEW, "data.valid=10", f"model.start={folder / 'bert'}", "tokenizer.size=50"]
    train(read_recipe("bert-classifier", on, tasks=TASKS), folder / "classifier", tell=silent)
    return folder


@pytest.mark.parametrize(("name", "keep"), [("transformer", 0.4), ("gpt", 0.5), ("bert", 0.7), ("classifier", 0.5)])
def test_a_pruned_run_says_what_the_whole_one_says_without_these_heads(
    runs: Path, name: str, keep: float, tmp_path: Path
) -> None:
    found = prune(runs / name, tmp_path / "half", keep, graded=4)
    whole = Examined.of(runs / name)
    total = sum(one.project.heads for one in multi_heads(whole.model).values())
    assert found.heads == total and sum(map(len, found.cut.values())) == total - round(keep * total)
    assert found.parameters[1] < found.parameters[0]
    with ExitStack() as stack:
        for place, heads in found.cut.items():
            stack.enter_context(intervene(whole.model, place, heads=heads, weights="zero"))
        masked = whole.metrics(graded=4)
    assert found.after == pytest.approx(masked, rel=1e-4)
    assert found.before == pytest.approx(whole.metrics(graded=4))
    again = replace(whole, model=load(tmp_path / "half"))
    assert again.metrics(graded=4) == pytest.approx(found.after)
    assert Examined.of(tmp_path / "half").metrics(graded=4) == pytest.approx(found.after)
    assert recorded(tmp_path / "half").pruned == found.cut


def test_a_pruned_translator_translates_is_looked_at_and_trained_on(runs: Path, tmp_path: Path) -> None:
    half, more = tmp_path / "half", tmp_path / "more"
    save_pruned(runs / "transformer", half, {"decoder.0.cross": [0, 3], "encoder.blocks.1.self": [1]})
    [[best]] = Run.open(half).translator()(["The black cat sleeps ."])
    record = collect(adapter(half), "The black cat sleeps .")
    assert record.place("decoder.0.cross").heads == 2 and len(record.steps) == len(best.tokens) + 1
    recipe = read_recipe(half / "recipe.toml", ["train.steps=1"], tasks=TASKS)
    before = Examined.of(half).loss()
    train(recipe, more, tell=silent)
    model = load(more)
    assert multi_heads(model)["decoder.0.cross"].project.heads == 2
    fresh = Examined.of(more)
    assert fresh.loss() == pytest.approx(before, abs=0.5), "it began with the weights of the smaller run"
    with pytest.raises(SettingError, match=r"\[pruned\]"):
        recorded(half, ["pruned.x=[1]"])


def test_pruning_twice_counts_heads_as_they_were_at_first(runs: Path, tmp_path: Path) -> None:
    one, two, at_once = tmp_path / "one", tmp_path / "two", tmp_path / "at once"
    save_pruned(runs / "transformer", one, {"decoder.0.self": [1]})
    save_pruned(one, two, {"decoder.0.self": [0, 1], "decoder.1.self": [3]})
    save_pruned(runs / "transformer", at_once, {"decoder.0.self": [0, 1, 2], "decoder.1.self": [3]})
    assert recorded(two).pruned == recorded(at_once).pruned == {"decoder.0.self": [0, 1, 2], "decoder.1.self": [3]}
    for (name, first), second in zip(load(two).state_dict().items(), load(at_once).state_dict().values(), strict=True):
        assert torch.equal(first, second), name


def test_the_lowest_go_and_one_stays_everywhere(runs: Path) -> None:
    model = load(runs / "transformer")
    scores = {"decoder.0.self": [0.1, 0.2, 0.3, 0.4], "decoder.1.self": [5.0, 0.35, 6.0, 7.0]}
    assert lowest(model, scores, 0.5) == {"decoder.0.self": [0, 1, 2], "decoder.1.self": [1]}
    assert lowest(model, scores, 0.01) == {"decoder.0.self": [0, 1, 2], "decoder.1.self": [0, 1, 2]}
    assert lowest(model, scores, 1.0) == {}
    grouped = load(runs / "gpt")
    together = {"decoder.0.self": [0.0, 5.0, 2.0, 2.0], "decoder.1.self": [9.0, 9.0, 9.0, 9.0]}
    assert lowest(grouped, together, 0.75) == {"decoder.0.self": [2, 3]}
    for keep in (0.0, 1.5):
        with pytest.raises(SettingError, match=f"keep={keep}"):
            lowest(model, scores, keep)


def test_a_run_is_judged_by_a_file(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("source\ttarget\nThe cat sleeps .\tLe chat dort .\nShe reads .\tElle lit .\n")
    one = Examined.of(runs / "transformer", tmp_path / "pairs.tsv")
    assert sum(map(len, one.batches)) == 2 and one.bleu(2) >= 0
    (tmp_path / "labelled.tsv").write_text("text\tlabel\nThe meal was good .\tpositive\nIt was bad .\tnegative\n")
    other = Examined.of(runs / "classifier", tmp_path / "labelled.tsv")
    assert sum(map(len, other.batches)) == 2 and other.loss() > 0
    (tmp_path / "text.txt").write_text("The cat sleeps in the house.\n" * 40)
    assert Examined.of(runs / "gpt", tmp_path / "text.txt", most=1).loss() > 0
    with pytest.raises(SettingError, match="BLEU"):
        other.bleu()
    with pytest.raises(SettingError, match="is no file"):
        Examined.of(runs / "gpt", tmp_path / "nothing.txt")


def test_the_probability_of_a_class_without_each_head(runs: Path) -> None:
    classifier = Classifier.of(runs / "classifier")
    number = class_probability(classifier, "The meal was good .", "positive")
    found = ablate(classifier.adapter.model, number)
    assert 0 < found.whole < 1 and {len(one) for one in found.without.values()} == {4}
    with pytest.raises(SettingError, match="label 'good'"):
        class_probability(classifier, "The meal was good .", "good")


def test_importance_of_a_run_is_of_length_one_at_each_place(runs: Path) -> None:
    run = Examined.of(runs / "transformer")
    found = importance(run.model, run.losses())
    assert set(found) == set(multi_heads(run.model))
    assert all(float(one.norm()) == pytest.approx(1, abs=1e-5) for one in found.values())


def test_what_cannot_be_pruned_is_refused(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="without several heads"):
        prune(runs / "bahdanau", tmp_path / "out", 0.5)
    with pytest.raises(RunError, match="which exists"):
        prune(runs / "transformer", runs / "gpt", 0.5)
    save_pruned(runs / "bert", tmp_path / "less", {"bert.encoder.blocks.0.self": [0]})
    on = [*FEW, f"model.start={tmp_path / 'less'}"]
    with pytest.raises(SettingError, match="has lost heads"):
        train(read_recipe("bert-classifier", on, tasks=TASKS), tmp_path / "new", tell=silent)


@pytest.mark.parametrize(
    ("name", "to", "place"), [("bert", "hf", "bert.encoder.blocks.0.self"), ("gpt", "ctranslate2", "decoder.1.self")]
)
def test_programs_that_know_no_pruned_layers_are_not_given_one(
    runs: Path, tmp_path: Path, name: str, to: str, place: str
) -> None:
    save_pruned(runs / name, tmp_path / "pruned", {place: [0, 1]})
    got = CliRunner().invoke(app, ["export", str(tmp_path / "pruned"), str(tmp_path / "out"), "--to", to])
    assert isinstance(got.exception, RunError) and "lacks heads" in str(got.exception)
    assert not (tmp_path / "out").exists()


def test_the_verb(runs: Path, tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["prune", str(runs / "gpt"), "-o", str(tmp_path / "a"), "--by", "ablation"])
    assert said.exit_code == 0, said.output
    lines = said.output.splitlines()
    assert "the rise of the loss" in lines[0] and lines[1].split() == ["0", "1", "2", "3"]
    assert sum(line.count("[") for line in lines) == 4 and "4 of 8 heads cut" in lines[-1]
    told = CliRunner().invoke(app, ["prune", str(runs / "gpt"), "-o", str(tmp_path / "b"), "--keep", "0.75", "--json"])
    found = json.loads(told.output)
    assert set(found) == {"run", "out", "by", "scores", "cut", "parameters", "before", "after"}
    assert sum(map(len, found["cut"].values())) == 2 and found["parameters"][1] < found["parameters"][0]
    wrong = CliRunner().invoke(app, ["prune", str(runs / "gpt"), "-o", str(tmp_path / "c"), "--by", "chance"])
    assert isinstance(wrong.exception, SettingError) and "importance" in str(wrong.exception)


def test_the_heads_of_the_book(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").symlink_to(runs)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(blocks("docs/intervening.md", "Which heads matter"), names)
    assert set(names["found"].changes) == {"decoder.0.cross", "decoder.1.cross"}
