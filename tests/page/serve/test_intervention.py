"""Interventions through the API: the output before and after, and errors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from page import sample
from page.serve.fakes import client_of, error_of
from page.small import TEXT, classifying, continuing, filling, translating
from regard.inspection.interventions import HeadIntervention, apply_interventions
from regard.inspection.record.collect import collect
from regard.inspection.record.record import Record
from regard.inspection.record.token_axis import TokenAxis
from regard.page.serve import Limits
from regard.page.serve.intervention import HeadChange, compare_records
from regard.page.serve.serve_errors import ServeError

MASKED = "the black [MASK] sleeps ."


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    subjects = (translating(), classifying(), continuing(3), filling())
    with client_of(*subjects, limits=Limits(changes=3, edits=4)) as client:
        yield client


def looked(client: Any, run: str, text: str = TEXT, **more: object) -> str:
    found: str = client.post("/api/look", json={"run": run, "text": text, **more}).json()["id"]
    return found


def tried(client: Any, name: str, *changes: dict[str, Any]) -> Any:
    return client.post(f"/api/records/{name}/intervene", json={"changes": list(changes)})


def test_a_translator_rescores_its_tokens_and_generates_again(client: Any) -> None:
    name = looked(client, "translator")
    before, subject = client.get(f"/api/records/{name}").json(), translating()
    number = next(n for n, place in enumerate(before["places"]) if place["name"] == "decoder.1.cross")
    found = tried(client, name, {"place": number, "head": 2, "weights": "zero"}).json()
    words = [step[1] for step in before["steps"]]
    with apply_interventions(subject, [HeadIntervention("decoder.1.cross", 2, "zero")]):
        same, anew = collect(subject, TEXT, prefix=words), collect(subject, TEXT)
    assert [word["before"] for word in found["tokens"]] == pytest.approx([math.exp(s[2]) for s in before["steps"]])
    assert [word["after"] for word in found["tokens"]] == pytest.approx([math.exp(s.log_prob) for s in same.steps])
    assert len(found["generated"]) == len(anew.steps)
    assert (found["classes"], found["next_tokens"], found["estimate"]) == ([], [], None)


def test_a_given_translation_is_not_generated_again(client: Any) -> None:
    name = looked(client, "translator", other="a dog sleeps .")
    found = tried(client, name, {"place": 0, "head": None, "weights": "uniform"}).json()
    assert found["generated"] is None and len(found["tokens"]) == 5


def test_an_edited_row_of_a_classifier(client: Any) -> None:
    name = looked(client, "classifier")
    row = [{"key": 0, "weight": 0.75}, {"key": 3, "weight": 0.25}]
    found = tried(client, name, {"place": 1, "head": 1, "weights": row, "query": 0}).json()
    subject = classifying()
    with apply_interventions(
        subject, [HeadIntervention("features.bert.encoder.blocks.1.self", 1, ((0, 0.75), (3, 0.25)), 0)]
    ):
        after = dict(collect(subject, TEXT).facts["classes"])
    assert {one["text"]: one["after"] for one in found["classes"]} == pytest.approx(after)
    assert [one["text"] for one in found["classes"]] == ["bad", "good"]
    assert found["classes"][0]["before"] != pytest.approx(found["classes"][0]["after"])


def test_language_models_and_masked_tokens(client: Any) -> None:
    found = tried(client, looked(client, "writer"), {"place": 0, "head": None, "weights": "zero"}).json()
    assert len(found["tokens"]) == len(found["generated"]) == 3
    filled = tried(client, looked(client, "filler", MASKED), {"place": 0, "head": None, "weights": "zero"}).json()
    [word] = filled["tokens"]
    assert 0 < word["before"] <= 1 and 0 < word["best_probability"] <= 1 and filled["generated"] is None


def test_several_changes_compose(client: Any) -> None:
    name = looked(client, "classifier")
    one, other = ({"place": n, "head": None, "weights": "zero"} for n in (0, 1))
    alone, both = tried(client, name, one).json(), tried(client, name, one, other).json()
    assert alone["classes"][0]["after"] != pytest.approx(both["classes"][0]["after"])


HEAD = {"place": 0, "head": 0, "weights": "zero"}


@pytest.mark.parametrize(
    ("change", "status", "where"),
    [
        ({"place": 9}, 404, "place"),
        ({"head": 4}, 404, "head"),
        ({"head": -1}, 422, "changes.0.head"),
        ({"head": "all"}, 422, "changes.0.head"),
        ({"weights": "none"}, 422, "changes.0.weights.literal['zero','uniform']"),
        ({"query": 99}, 422, "query"),
        ({"weights": [{"key": 1, "weight": 0.5}]}, 422, "query"),
        ({"weights": [], "query": 1}, 422, "changes.0.weights.literal['zero','uniform']"),
        ({"weights": [{"key": 99, "weight": 0.5}], "query": 1}, 422, "weights"),
        ({"weights": [{"key": 1, "weight": 0.5}] * 2, "query": 1}, 422, "weights"),
        ({"weights": [{"key": n, "weight": 0.4} for n in range(3)], "query": 1}, 422, "weights"),
        ({"weights": [{"key": n, "weight": 0.1} for n in range(5)], "query": 1}, 422, "weights"),
        ({"weights": [{"key": 1, "weight": -0.5}], "query": 1}, 422, "changes.0.weights.literal['zero','uniform']"),
        ({"strange": 1}, 422, "changes.0.strange"),
    ],
)
def test_invalid_changes_are_refused(client: Any, change: dict[str, Any], status: int, where: str) -> None:
    answer = tried(client, looked(client, "classifier"), HEAD | change)
    assert answer.status_code == status
    assert error_of(answer)["where"] == where


def test_a_masked_key_cannot_get_a_weight(client: Any) -> None:
    name = looked(client, "writer")
    future = {"place": 0, "head": 0, "weights": [{"key": 5, "weight": 0.5}], "query": 3}
    assert error_of(tried(client, name, future))["problem"] == "Query 3 cannot attend to key 5, which is masked"
    nothing = {"place": 0, "head": 0, "weights": [{"key": 5, "weight": 0.0}, {"key": 2, "weight": 1.0}], "query": 3}
    assert tried(client, name, nothing).status_code == 200


def test_too_many_or_no_changes_are_refused(client: Any) -> None:
    name = looked(client, "classifier")
    assert error_of(tried(client, name, *[HEAD] * 4))["where"] == "changes"
    assert error_of(tried(client, name))["where"] == "changes"
    assert tried(client, "nowhere", HEAD).status_code == 404


def test_a_preloaded_record_has_no_model() -> None:
    with client_of(classifying(), records={"kept": collect(classifying(), TEXT)}) as client:
        answer = tried(client, "kept", HEAD)
        assert answer.status_code == 404 and "model of this record is not available" in error_of(answer)["problem"]


@pytest.mark.parametrize("record", [sample.windows(), sample.shared()], ids=["windows", "calls"])
def test_a_part_of_what_a_module_computes_is_not_changed_alone(record: Record) -> None:
    with pytest.raises(ServeError, match="a place whose module computes no more than this map in a pass"):
        HeadChange(place=0, head=1, weights="zero").change(record)


def test_generated_tokens_are_on_the_last_axis_of_text() -> None:
    """Positions without tokens come after it."""
    record = sample.translator()
    numbered = TokenAxis.from_tokens("2 positions", ["0", "1"], numbered=True)
    steps = tuple(replace(step, candidates=((90, "un", -1.6),)) for step in record.steps)
    found = replace(record, axes=(*record.axes, numbered), steps=steps)
    texts = [change.text for change in compare_records(found, found, None).tokens]
    assert texts == list(record.axes[2].tokens) and TokenAxis.from_dict(numbered.to_dict()) == numbered
