"""Audits: the same each time, interrupted or not, by one process or several."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from faithfulness.toys import QUICK, SIZE, TEXTS, TOKENIZER, bert, classifier
from regard.errors import RunError, SettingError
from regard.faithfulness.audit import audit
from regard.faithfulness.report import Report
from regard.models.bert import Bert, BertSize
from regard.models.bert_heads import BertFeatures, TokenClassifier
from regard.text.examples import Labelled
from regard.training.distributed import World

EXAMPLES = [Labelled(text, f"c{number % 3}") for number, text in enumerate([*TEXTS, "the black cat", "he was long"])]


def said(report: Report) -> str:
    """Every bit of a report."""
    return json.dumps(report.to_dict(), sort_keys=True)


@pytest.fixture(scope="module")
def whole() -> str:
    """The report of one uninterrupted process."""
    return said(audit(classifier(), EXAMPLES, settings=QUICK))


def test_the_same_twice(whole: str) -> None:
    assert said(audit(classifier(), EXAMPLES, settings=QUICK)) == whole
    assert said(audit(classifier(), EXAMPLES, settings=replace(QUICK, seed=1))) != whole


def test_the_contents_of_a_report() -> None:
    report = audit(classifier(), EXAMPLES, settings=QUICK)
    facts = report.facts
    assert (facts["model"], facts["decision"], facts["decisions"]) == ("toy", "class", 6)
    assert facts["settings"] == QUICK.to_dict() and 0 <= facts["accuracy"]["value"] <= 1
    assert [one["number"] for one in report.examples] == list(range(6))
    assert report.verdict("pooling").kind == "layer" and report.badges()["pooling"].keys() == {"0"}


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_an_interrupted_audit_resumes_with_the_same_result(parts: int, whole: str, tmp_path: Path) -> None:
    told: list[int] = []

    def stop(more: int) -> None:
        told.append(more)
        if len(told) == parts + 2:  # the first time, it is told what is there already
            raise Interrupted

    adapter, file = classifier(), tmp_path / "audit.json"
    with pytest.raises(Interrupted):
        audit(adapter, EXAMPLES, settings=QUICK, journal=file, on_progress=stop)
    assert told == [0, *[2] * (parts + 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["audit.json.0.journal"]
    again: list[int] = []
    assert said(audit(adapter, EXAMPLES, settings=QUICK, journal=file, on_progress=again.append)) == whole
    assert again == [2 * (parts + 1), *[2] * (2 - parts)] and sum(again) == 6
    assert [file.name for file in tmp_path.iterdir()] == ["audit.json.0.journal"]  # until the report is saved


def test_finished_parts_are_not_run_again(tmp_path: Path) -> None:
    adapter, runs = classifier(), []
    hook = adapter.model.register_forward_hook(lambda *_: runs.append(1))

    def stop(more: int) -> None:
        if len(runs) > before:
            raise Interrupted

    file, before = tmp_path / "audit.json", 0
    with pytest.raises(Interrupted):
        audit(adapter, EXAMPLES[:2], settings=QUICK, journal=file, on_progress=stop)
    before = len(runs)
    audit(adapter, EXAMPLES[:2], settings=QUICK, journal=file)
    assert len(runs) == before > 0
    hook.remove()


@pytest.mark.parametrize("change", ["model", "examples", "settings"])
def test_parts_of_another_audit_are_refused(change: str, tmp_path: Path) -> None:
    def stop(more: int) -> None:
        if more:
            raise Interrupted

    adapter, file, examples, settings = classifier(), tmp_path / "audit.json", EXAMPLES, QUICK
    with pytest.raises(Interrupted):
        audit(adapter, examples, settings=settings, journal=file, on_progress=stop)
    if change == "model":
        with torch.no_grad():
            adapter.model.classes.bias[0] += 1e-3
    elif change == "examples":
        examples = [*EXAMPLES[1:], EXAMPLES[0]]
    else:
        settings = replace(QUICK, permutations=3)
    with pytest.raises(RunError, match="belongs to an audit of another model"):
        audit(adapter, examples, settings=settings, journal=file)


class Other(World):
    """A rank of two; the results of the other rank are set by the test."""

    def gather(self, value: Any) -> list[Any]:
        own = json.loads(json.dumps(value))
        vars(self)["said"] = own
        return [own] if "heard" not in vars(self) else [vars(self)["heard"], own]


def test_two_ranks_find_what_one_finds(whole: str) -> None:
    """Two ranks, one after the other; the second gathers the results of the first."""
    first, second = Other(0, 2), Other(1, 2)
    with pytest.raises(KeyError):  # half of it is no audit
        audit(classifier(), EXAMPLES, settings=QUICK, world=first)
    assert [number for number, _ in vars(first)["said"]] == [0, 2]
    vars(second)["heard"] = vars(first)["said"]
    assert said(audit(classifier(), EXAMPLES, settings=QUICK, world=second)) == whole
    assert [number for number, _ in vars(second)["said"]] == [1]


def test_one_process_resumes_the_journals_of_two(whole: str, tmp_path: Path) -> None:
    """It reads the journals of both ranks."""
    file = tmp_path / "audit.json"
    for rank in range(2):
        told = list[int]()

        def stop(more: int, told: list[int] = told) -> None:
            told.append(more)
            if len(told) == 2:
                raise Interrupted

        with pytest.raises(Interrupted):
            audit(classifier(), EXAMPLES, settings=QUICK, journal=file, world=World(rank, 2), on_progress=stop)
    assert len(list(tmp_path.iterdir())) == 2
    told = []
    assert said(audit(classifier(), EXAMPLES, settings=QUICK, journal=file, on_progress=told.append)) == whole
    assert told == [4, 2]


def test_a_part_does_not_depend_on_those_before_it(whole: str) -> None:
    """The results of the first four examples are the same among six."""
    few, all_of_it = audit(classifier(), EXAMPLES[:4], settings=QUICK).to_dict(), json.loads(whole)
    assert json.loads(json.dumps(few["examples"])) == all_of_it["examples"][:4]


def test_short_texts_are_skipped() -> None:
    report = audit(classifier(), ["cat", TEXTS[0], "", TEXTS[1]], settings=QUICK)
    assert [one["number"] for one in report.examples] == [1, 3]
    with pytest.raises(
        SettingError, match=r"None of the 2 examples can be audited\. An audit needs texts of at least two words"
    ):
        audit(classifier(), ["cat", ""], settings=QUICK)


def test_a_model_without_predictions_is_refused() -> None:
    inner = Bert.of(SIZE, BertSize(1, 8, heads=2), max_positions=24)
    with pytest.raises(SettingError, match=r"A TokenClassifier predicts nothing that can be tested"):
        audit(TokenClassifier(BertFeatures(inner), 3), TEXTS, tokenizer=TOKENIZER, settings=QUICK)
    with pytest.raises(SettingError, match=r"A Linear predicts nothing that can be tested"):
        audit(nn.Linear(2, 2), TEXTS, tokenizer=TOKENIZER, settings=QUICK)


def test_a_model_is_audited_in_eval_mode_and_restored() -> None:
    """In eval(), whatever its mode before; its weights stay unchanged."""
    adapter = bert("cls", layers=1)
    model = adapter.model
    model.dropout.p = 0.5
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = audit(model.train(), TEXTS[:3], tokenizer=TOKENIZER, settings=QUICK)
    assert [json.dumps(one) for one in found.examples] == [
        json.dumps(one) for one in audit(adapter, TEXTS[:3], settings=QUICK).examples
    ]
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_chosen_places() -> None:
    report = audit(bert("cls"), TEXTS[:3], settings=replace(QUICK, places="*.1.self"))
    layers = {one.map for one in report.verdicts if one.kind == "layer"}
    assert layers == {"features.bert.encoder.blocks.1.self"}


def test_few_examples_have_no_interval() -> None:
    report = audit(classifier(), TEXTS[:2], settings=QUICK)
    assert report.estimates("pooling")["permuted"].low is None and report.verdict("pooling").status == "inconclusive"
