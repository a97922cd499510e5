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
from regard.models.bert import Bert, Size
from regard.models.bert_heads import OnTokens, Reading
from regard.text.examples import Labelled
from regard.training.distributed import World

EXAMPLES = [Labelled(text, f"c{number % 3}") for number, text in enumerate([*TEXTS, "the black cat", "he was long"])]


def said(report: Report) -> str:
    """To the bit."""
    return json.dumps(report.told(), sort_keys=True)


@pytest.fixture(scope="module")
def whole() -> str:
    """What one process finds that nobody disturbs."""
    return said(audit(classifier(), EXAMPLES, settings=QUICK))


def test_the_same_twice(whole: str) -> None:
    assert said(audit(classifier(), EXAMPLES, settings=QUICK)) == whole
    assert said(audit(classifier(), EXAMPLES, settings=replace(QUICK, seed=1))) != whole


def test_what_it_says() -> None:
    report = audit(classifier(), EXAMPLES, settings=QUICK)
    facts = report.facts
    assert (facts["model"], facts["decides"], facts["decisions"]) == ("toy", "class", 6)
    assert facts["settings"] == QUICK.told() and 0 <= facts["accuracy"]["value"] <= 1
    assert [one["number"] for one in report.examined] == list(range(6))
    assert report.verdict("pooling").kind == "layer" and report.badges()["pooling"].keys() == {"0"}


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("parts", [0, 1, 2])
def test_an_interrupted_one_goes_on_and_finds_the_same(parts: int, whole: str, tmp_path: Path) -> None:
    told: list[int] = []

    def stop(more: int) -> None:
        told.append(more)
        if len(told) == parts + 2:  # the first time, it is told what is there already
            raise Interrupted

    asker, file = classifier(), tmp_path / "audit.json"
    with pytest.raises(Interrupted):
        audit(asker, EXAMPLES, settings=QUICK, journal=file, tell=stop)
    assert told == [0, *[2] * (parts + 1)]
    assert [path.name for path in tmp_path.iterdir()] == ["audit.json.0.journal"]
    again: list[int] = []
    assert said(audit(asker, EXAMPLES, settings=QUICK, journal=file, tell=again.append)) == whole
    assert again == [2 * (parts + 1), *[2] * (2 - parts)] and sum(again) == 6
    assert [file.name for file in tmp_path.iterdir()] == ["audit.json.0.journal"]  # until the report is saved


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    asker, runs = classifier(), []
    hook = asker.model.register_forward_hook(lambda *_: runs.append(1))

    def stop(more: int) -> None:
        if len(runs) > before:
            raise Interrupted

    file, before = tmp_path / "audit.json", 0
    with pytest.raises(Interrupted):
        audit(asker, EXAMPLES[:2], settings=QUICK, journal=file, tell=stop)
    before = len(runs)
    audit(asker, EXAMPLES[:2], settings=QUICK, journal=file)
    assert len(runs) == before > 0
    hook.remove()


@pytest.mark.parametrize("change", ["model", "examples", "settings"])
def test_parts_of_another_audit_are_refused(change: str, tmp_path: Path) -> None:
    def stop(more: int) -> None:
        if more:
            raise Interrupted

    asker, file, examples, settings = classifier(), tmp_path / "audit.json", EXAMPLES, QUICK
    with pytest.raises(Interrupted):
        audit(asker, examples, settings=settings, journal=file, tell=stop)
    if change == "model":
        with torch.no_grad():
            asker.model.classes.bias[0] += 1e-3
    elif change == "examples":
        examples = [*EXAMPLES[1:], EXAMPLES[0]]
    else:
        settings = replace(QUICK, permutations=3)
    with pytest.raises(RunError, match="of another audit"):
        audit(asker, examples, settings=settings, journal=file)


class Other(World):
    """A rank of two, whose words are what both have said: the other's part is handed in."""

    def gather(self, value: Any) -> list[Any]:
        own = json.loads(json.dumps(value))
        vars(self)["said"] = own
        return [own] if "heard" not in vars(self) else [vars(self)["heard"], own]


def test_shards_merge_exactly(whole: str) -> None:
    """Two ranks, one after the other; the second hears what the first has found."""
    first, second = Other(0, 2), Other(1, 2)
    with pytest.raises(KeyError):  # half of it is no audit
        audit(classifier(), EXAMPLES, settings=QUICK, world=first)
    assert [number for number, _ in vars(first)["said"]] == [0, 2]
    vars(second)["heard"] = vars(first)["said"]
    assert said(audit(classifier(), EXAMPLES, settings=QUICK, world=second)) == whole
    assert [number for number, _ in vars(second)["said"]] == [1]


def test_parts_begun_by_two_are_finished_by_one(whole: str, tmp_path: Path) -> None:
    """What each of the ranks has kept is taken over."""
    file = tmp_path / "audit.json"
    for rank in range(2):
        told = list[int]()

        def stop(more: int, told: list[int] = told) -> None:
            told.append(more)
            if len(told) == 2:
                raise Interrupted

        with pytest.raises(Interrupted):
            audit(classifier(), EXAMPLES, settings=QUICK, journal=file, world=World(rank, 2), tell=stop)
    assert len(list(tmp_path.iterdir())) == 2
    told = []
    assert said(audit(classifier(), EXAMPLES, settings=QUICK, journal=file, tell=told.append)) == whole
    assert told == [4, 2]


def test_a_part_does_not_depend_on_those_before_it(whole: str) -> None:
    """Asked about the first four alone, they are what they are among six."""
    few, all_of_it = audit(classifier(), EXAMPLES[:4], settings=QUICK).told(), json.loads(whole)
    assert json.loads(json.dumps(few["examined"])) == all_of_it["examined"][:4]


def test_texts_that_are_too_short_are_left_out() -> None:
    report = audit(classifier(), ["cat", TEXTS[0], "", TEXTS[1]], settings=QUICK)
    assert [one["number"] for one in report.examined] == [1, 3]
    with pytest.raises(SettingError, match="2 examples of which none can be asked about, expected texts of two words"):
        audit(classifier(), ["cat", ""], settings=QUICK)


def test_a_model_that_decides_nothing_is_refused_in_words() -> None:
    inner = Bert.of(SIZE, Size(1, 8, heads=2), positions=24)
    with pytest.raises(SettingError, match=r"OnTokens, which decides nothing that can be asked for"):
        audit(OnTokens(Reading(inner), 3), TEXTS, tokenizer=TOKENIZER, settings=QUICK)
    with pytest.raises(SettingError, match=r"decides nothing that can be asked for"):
        audit(nn.Linear(2, 2), TEXTS, tokenizer=TOKENIZER, settings=QUICK)


def test_a_model_is_asked_as_it_is_used() -> None:
    """In eval(), whatever it was in before, and with all its weights as they were."""
    asker = bert("cls", layers=1)
    model = asker.model
    model.dropout.p = 0.5
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = audit(model.train(), TEXTS[:3], tokenizer=TOKENIZER, settings=QUICK)
    assert [json.dumps(one) for one in found.examined] == [
        json.dumps(one) for one in audit(asker, TEXTS[:3], settings=QUICK).examined
    ]
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())


def test_only_some_places() -> None:
    report = audit(bert("cls"), TEXTS[:3], settings=replace(QUICK, places="*.1.self"))
    layers = {one.map for one in report.verdicts if one.kind == "layer"}
    assert layers == {"reading.bert.encoder.blocks.1.self"}


def test_few_examples_are_told_without_an_interval() -> None:
    report = audit(classifier(), TEXTS[:2], settings=QUICK)
    assert report.of("pooling")["permuted"].low is None and report.verdict("pooling").status == "not known"
