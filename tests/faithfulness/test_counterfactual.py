"""Heads that look elsewhere: by hand where one can, against an intervention on each text alone where one cannot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from faithfulness.toys import PAIRS, TEXTS, bert, cases, classifier, rows, translating
from regard.attention import Observe, capture
from regard.attention.scores import Additive
from regard.faithfulness.counterfactual import Trial
from regard.inspection.interventions import intervene


def turned(weights: Tensor) -> Tensor:
    return weights.flip(-1)


def same(weights: Tensor) -> Tensor:
    return weights


def test_a_question_by_hand() -> None:
    """p = softmax(W sum w'_t h_t + b), each copy with weights of its own."""
    asker = classifier(score=Additive(6, 4))
    given = rows(asker, *TEXTS)
    trial = Trial(asker, given, "pooling", copies=3)
    B, S = trial.real.shape
    chance = torch.Generator().manual_seed(0)
    new = torch.rand(3, B, 1, 1, S, generator=chance).masked_fill(~trial.real[:, None, None], -torch.inf).softmax(-1)
    found = trial.said(lambda old: new)
    model = asker.model
    states = model.embedding(asker.input_ids(given))
    expected = model.classes((new[:, :, 0, 0, :, None] * states).sum(2)).softmax(-1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(trial.plain, asker.log_probs(given).exp())


@pytest.mark.parametrize(
    ("asker", "place"),
    [
        (classifier(reads=True), "pooling"),
        (bert("cls"), "reading.bert.encoder.blocks.1.self"),
        (bert("mean"), "reading.bert.encoder.blocks.0.self"),
    ],
)
@torch.no_grad()
def test_what_is_not_changed_is_plain_to_the_bit(asker, place: str) -> None:
    trial = Trial(asker, rows(asker, *TEXTS), place, copies=2)
    assert torch.equal(trial.said(same)[1], trial.plain)
    assert torch.equal(trial.said(), trial.said(same, [0]))
    changed = trial.said(turned)
    assert not torch.allclose(changed[0], trial.plain) and torch.equal(changed[0], changed[1])
    assert torch.equal(trial.said()[0], trial.plain)  # one that comes after a change sees nothing of it


def test_weights_are_those_of_the_queries_that_decide() -> None:
    for pooling, queries in (("cls", 1), ("mean", 12)):
        asker = bert(pooling)
        given = rows(asker, *TEXTS)
        place = "reading.bert.encoder.blocks.1.self"
        with torch.no_grad(), capture(asker.model, place) as heard:
            asker.log_probs(given)
        trial = Trial(asker, given, place, copies=2)
        whole = heard[place].weights
        assert trial.weights.shape == (4, 2, queries, 12)
        torch.testing.assert_close(trial.weights, whole[:, :, :1] if pooling == "cls" else whole)
        assert trial.real.sum(-1).tolist() == [len(row.ids) for row in given]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@torch.no_grad()
def test_one_head_changes_its_own_part_alone(pooling: str) -> None:
    """What leaves the place differs by (w' - w) v of head 1 through its part of the output matrix, nowhere else."""
    asker = bert(pooling)
    place = "reading.bert.encoder.blocks.1.self"
    heads = asker.model.get_submodule(place)
    given = rows(asker, TEXTS[0])
    trial = Trial(asker, given, place)
    plain, seen = trial.plain, list[Tensor]()
    hook = heads.register_forward_hook(lambda module, inputs, output: seen.append(output))
    trial.said(same)
    trial.said(turned, [1])
    hook.remove()
    with capture(asker.model, place, Observe(weights=True, values=True)) as heard:
        asker.log_probs(given)
    weights, values = heard[place].weights, heard[place].values
    moved = (weights.flip(-1) - weights)[:, 1] @ values[:, 1] @ heads.out.weight[:, 4:].mT
    if pooling == "cls":
        moved[:, 1:] = 0
        assert torch.equal(seen[1][:, 1:], seen[0][:, 1:])
    torch.testing.assert_close(seen[1] - seen[0], moved, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(trial.said(turned, [1])[0], plain)
    assert not torch.allclose(trial.said(turned, [1]), trial.said(turned, [0]))
    with intervene(asker.model, place, weights=turned, rows=0 if pooling == "cls" else None):
        expected = asker.log_probs(given).exp()
    torch.testing.assert_close(trial.said(turned)[0], expected)
    torch.testing.assert_close(trial.said(turned, [0, 1])[0], expected)


@pytest.mark.parametrize("kind", ["bahdanau", "transformer", "pointer"])
@torch.no_grad()
def test_words_of_a_translation_look_elsewhere_each_at_its_own_step(kind: str) -> None:
    """Rows that have written different amounts, in models that are called once, or once a step."""
    asker = translating(kind)
    given = rows(asker, *PAIRS)
    assert len({len(row.written) for row in given}) > 1
    place = "decoder.1.cross" if kind == "transformer" else "decoder"
    trial = Trial(asker, given, place, copies=2)
    found = trial.said(lambda old: old.square() / old.square().sum(-1, keepdim=True))
    for at, row in enumerate(given):
        with intervene(
            asker.model,
            place,
            weights=lambda w: w.square() / w.square().sum(-1, keepdim=True),
            rows=len(row.written) - 1,
        ):
            alone = asker.log_probs([row])[0].exp()
        torch.testing.assert_close(found[1, at], alone, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(trial.plain[at], asker.log_probs([row])[0].exp(), atol=1e-5, rtol=1e-4)
    assert (found[1] - trial.plain).abs().amax(-1).min() > 1e-5


def test_gradients_flow_to_the_new_weights_and_not_where_nobody_asks() -> None:
    asker = classifier()
    trial = Trial(asker, rows(asker, TEXTS[0]), "pooling")
    new = trial.weights.detach().clone().unsqueeze(0).requires_grad_()
    trial.said(lambda old: new)[0, 0, 1].backward()
    model, p = asker.model, trial.plain[0]
    states = model.embedding(asker.input_ids([cases(asker, TEXTS[0])[0].row]))[0]
    logits = states @ model.classes.weight.mT  # (S, C): d logits / d w_t
    expected = p[1] * (logits[:, 1] - logits @ p)
    torch.testing.assert_close(new.grad.flatten(), expected.detach())
    assert not trial.plain.requires_grad and not trial.weights.requires_grad
    with torch.no_grad():
        assert not trial.said(lambda old: new).requires_grad
