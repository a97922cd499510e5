"""`regard atlas` with runs of every kind, as its users meet it, and what the page makes of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from page.serve.fakes import client_of
from regard import cli, look
from regard.adapters import adapter
from regard.inspection.atlas.head_atlas import Atlas
from regard.training.config.recipes import read_recipe
from regard.training.tasks import TASKS
from regard.training.train_run import train

SMALL = ["data.examples=60", "data.valid=10", "train.steps=1", "evaluate.every=1", "train.threads=1"]
RUNS = {
    "bert": ["model.layers=2", "model.width=16", "model.heads=2", "model.max_positions=90", "tokenizer.size=300"],
    "classifier": ["model.width=8"],
    "attentive-lm": ["model.width=8", "model.hidden=8", "batches.lanes=2"],
    "character-gpt": ["model.layers=1", "model.width=16", "model.heads=2"],
    "luong": ["model.width=8", "model.hidden=8"],
    "transformer": ["model.width=16", "model.heads=2"],
}
TEXTS = "The cat saw the dog .\nA dog ran .\nThe old man saw a cat and a dog .\nHe slept .\nShe saw him .\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, sets in RUNS.items():
        train(read_recipe(name, [*SMALL, *sets], tasks=TASKS), folder / name, notify=lambda text: None)
    return folder


def main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert isinstance(left.value.code, int)
    return left.value.code


@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run_has_an_atlas_of_its_own_corpus(
    runs: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "atlas.json"
    assert main(monkeypatch, "atlas", runs / name, "built-in", "--max-texts", 6, "-o", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["out"] == str(out) and told["texts"] == 6 and told["heads"]
    assert Atlas.load(out).to_dict() == {key: value for key, value in told.items() if key != "out"}
    measured = {pattern for head in told["heads"] for pattern in head["measures"]}
    assert ("alignment" in measured) == (name in ("luong", "transformer"))
    assert ("previous" in measured) == (name not in ("classifier", "luong"))
    assert ("identical word, other text" in measured) >= (name == "bert")
    assert {"broad", "nouns and names"} <= measured


def test_the_atlas_lies_with_the_run_and_the_page_shows_it(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run, texts = runs / "bert", tmp_path / "texts"
    texts.write_text(TEXTS)
    assert main(monkeypatch, "atlas", run, texts) == 0
    said = capsys.readouterr().out
    assert "4 heads over 5 texts" in said and "to beat" in said and str(run / "atlas.json") in said
    assert Atlas.load(run / "atlas.json").texts == 5
    own = {"patterns": {"encoder.0.self": {"1": "previous"}}}
    (run / "atlas.json").write_text(json.dumps(own))
    (run / "audit.json").write_text(json.dumps({"badges": {"encoder.0.self": {"0": "no reason"}}}))
    try:
        facts = look(run, "a cat").record.facts
        assert facts["patterns"] == own["patterns"] and facts["badges"] == {"encoder.0.self": {"0": "no reason"}}
        other = tmp_path / "other.json"
        other.write_text(json.dumps({"patterns": {"encoder.0.self": {"0": "next"}}}))
        page = tmp_path / "page.json"
        assert main(monkeypatch, "look", run, "a cat", "--atlas", other, "-o", page) == 0
        assert json.loads(page.read_text())["facts"]["patterns"]["encoder.0.self"] == {"0": "next"}
        found = Atlas("m", 5, ())
        assert look(run, "a cat", atlas=found).record.facts["patterns"] == {}
        with client_of(adapter(run)) as client:
            name = client.post("/api/look", json={"run": "bert", "text": "a cat"}).json()["id"]
            told = client.get(f"/api/records/{name}").json()["facts"]
            assert told["patterns"] == own["patterns"] and "badges" in told and told["look"]["text"] == "a cat"
    finally:
        (run / "atlas.json").unlink()
        (run / "audit.json").unlink()


def test_mistakes_are_refused_before_the_work(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    texts = tmp_path / "texts"
    texts.write_text(TEXTS)
    for arguments, message in (
        ([texts, "-o", tmp_path / "a.gif"], "Unknown file type '.gif'"),
        ([texts, "-o", tmp_path / "none" / "a.json"], "does not exist"),
        ([tmp_path / "none"], "File not found"),
        (["built-in", "--tags", texts], "has tags of its own"),
        ([texts, "--tags", texts], "texts"),
    ):
        assert main(monkeypatch, "atlas", runs / "bert", *arguments) == 2
        assert message in capsys.readouterr().err


def test_an_interrupt_leaves_no_file(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    calls = 0

    def interrupted(*given: object) -> None:
        nonlocal calls
        calls += 1
        if calls > 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("regard.inspection.atlas.head_atlas.accumulate", interrupted)
    assert main(monkeypatch, "atlas", runs / "bert", "built-in", "--max-texts", 6, "-o", tmp_path / "atlas.json") == 130
    assert calls == 4 and list(tmp_path.iterdir()) == []
    assert "Traceback" not in capsys.readouterr().err
