"""Models with interventions on their heads, through adapters."""

from __future__ import annotations

import pytest
import torch

from page.small import TEXT, classifying, continuing, filling, translating
from regard.attention import capture
from regard.errors import RecordError
from regard.inspection.interventions import HeadIntervention, apply_interventions, edit_weights, intervene
from regard.inspection.record.collect import collect


def test_edited_weights_are_as_written_and_the_others_share_the_rest() -> None:
    weights = torch.tensor([[0.1, 0.2, 0.3, 0.4], [1.0, 0.0, 0.0, 0.0]])
    found = edit_weights(weights, ((0, 0.5), (2, 0.2), (9, 0.7)))
    torch.testing.assert_close(found, torch.tensor([[0.5, 0.1, 0.2, 0.2], [0.5, 0.0, 0.2, 0.0]]))
    torch.testing.assert_close(edit_weights(weights, ((1, 1.0),)), torch.tensor([[0.0, 1, 0, 0], [0.0, 1, 0, 0]]))


def test_the_classes_of_a_changed_classifier() -> None:
    subject = classifying()
    before = collect(subject, TEXT)
    shares = dict(before.facts["classes"])
    assert list(shares) == ["bad", "good"] and sum(shares.values()) == pytest.approx(1)
    with apply_interventions(subject, [HeadIntervention("features.bert.encoder.blocks.1.self", None, "zero")]):
        after = collect(subject, TEXT)
    assert dict(after.facts["classes"]) != shares
    assert collect(subject, TEXT).facts == before.facts


@pytest.mark.parametrize("query", [0, 2])
def test_a_row_is_changed_in_generation_and_teacher_forcing(query: int) -> None:
    subject = translating()
    before = collect(subject, TEXT)
    change = HeadIntervention("decoder.0.cross", None, ((1, 1.0),), query)
    with apply_interventions(subject, [change]), capture(subject.model, "decoder.0.cross") as heard:
        after = collect(subject, TEXT)
    weights = heard.calls("decoder.0.cross")[-1].weights  # of the last run, which reads what was written
    torch.testing.assert_close(weights[:, :, query, 1], torch.ones(1, 4))
    assert [step.token for step in after.steps[:query]] == [step.token for step in before.steps[:query]]
    assert after.steps[query].log_prob != pytest.approx(before.steps[query].log_prob)
    with apply_interventions(subject, [change]):
        again = collect(subject, TEXT, prefix=[step.token for step in before.steps])
    assert [step.token for step in again.steps] == [step.token for step in before.steps]
    for old, new in zip(before.steps[:query], again.steps[:query], strict=True):
        assert old.log_prob == pytest.approx(new.log_prob, abs=1e-5)


def test_a_language_model_with_changed_heads() -> None:
    subject = continuing()
    shares = collect(subject, TEXT).facts["next"]
    assert len(shares) == 8 and shares == sorted(shares, key=lambda one: -one[1])
    with apply_interventions(subject, [HeadIntervention("decoder.1.self", 0, "uniform")]):
        assert collect(subject, TEXT).facts["next"] != shares
    writer = continuing(4)
    before = collect(writer, TEXT)
    assert "next" not in before.facts
    last = len(before.axes[0]) - 2
    with apply_interventions(writer, [HeadIntervention("decoder.0.self", None, ((0, 1.0),), last)]):
        after = collect(writer, TEXT)
    assert [step.token for step in after.steps[:3]] == [step.token for step in before.steps[:3]]
    assert after.steps[3].log_prob != pytest.approx(before.steps[3].log_prob)


def test_words_behind_masks_change() -> None:
    subject = filling()
    text = "the black [MASK] sleeps ."
    before = collect(subject, text)
    with apply_interventions(subject, [HeadIntervention("bert.encoder.blocks.0.self", None, "zero")]):
        after = collect(subject, text)
    assert before.steps[0].at == after.steps[0].at and before.steps[0].candidates != after.steps[0].candidates


def test_the_map_of_a_changed_place_is_not_stored() -> None:
    subject = classifying()
    place, other = (f"features.bert.encoder.blocks.{n}.self" for n in (0, 1))
    with intervene(subject.model, place, weights="uniform"):
        record = collect(subject, TEXT)
    with pytest.raises(RecordError, match="an intervention changes the weights here"):
        record.place(place).tile(0)
    assert record.place(other).tile(0).shape == (record.place(other).T,) * 2
    even = torch.full((4, record.place(place).T), record.place(place).S).float().log()
    torch.testing.assert_close(record.place(place).statistics.entropy, even, atol=1e-4, rtol=0)
