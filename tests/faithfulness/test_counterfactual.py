"""Counterfactual attention: computed by hand, or against an intervention on each text alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from faithfulness.toys import PAIRS, TEXTS, bert, cases, classifier, rows, translating
from regard.attention import Observe, capture
from regard.attention.scores import Additive
from regard.faithfulness.counterfactual import Counterfactual
from regard.inspection.interventions import intervene


def turned(weights: Tensor) -> Tensor:
    return weights.flip(-1)


def same(weights: Tensor) -> Tensor:
    return weights


def test_attention_pooling_by_hand() -> None:
    """p = softmax(W sum w'_t h_t + b), each copy with weights of its own."""
    adapter = classifier(score=Additive(6, 4))
    given = rows(adapter, *TEXTS)
    counterfactual = Counterfactual(adapter, given, "pooling", copies=3)
    B, S = counterfactual.is_token.shape
    rng = torch.Generator().manual_seed(0)
    new = (
        torch.rand(3, B, 1, 1, S, generator=rng)
        .masked_fill(~counterfactual.is_token[:, None, None], -torch.inf)
        .softmax(-1)
    )
    found = counterfactual.probs(lambda old: new)
    model = adapter.model
    states = model.embedding(adapter.input_ids(given))
    expected = model.classes((new[:, :, 0, 0, :, None] * states).sum(2)).softmax(-1)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(counterfactual.plain, adapter.log_probs(given).exp())


@pytest.mark.parametrize(
    ("adapter", "place"),
    [
        (classifier(reads=True), "pooling"),
        (bert("cls"), "features.bert.encoder.blocks.1.self"),
        (bert("mean"), "features.bert.encoder.blocks.0.self"),
    ],
)
@torch.no_grad()
def test_unchanged_copies_equal_the_plain_run_bit_for_bit(adapter, place: str) -> None:
    counterfactual = Counterfactual(adapter, rows(adapter, *TEXTS), place, copies=2)
    assert torch.equal(counterfactual.probs(same)[1], counterfactual.plain)
    assert torch.equal(counterfactual.probs(), counterfactual.probs(same, [0]))
    changed = counterfactual.probs(turned)
    assert not torch.allclose(changed[0], counterfactual.plain) and torch.equal(changed[0], changed[1])
    assert torch.equal(
        counterfactual.probs()[0], counterfactual.plain
    )  # one that comes after a change sees nothing of it


def test_weights_are_those_of_the_readout_query() -> None:
    for pooling, queries in (("cls", 1), ("mean", 12)):
        adapter = bert(pooling)
        given = rows(adapter, *TEXTS)
        place = "features.bert.encoder.blocks.1.self"
        with torch.no_grad(), capture(adapter.model, place) as heard:
            adapter.log_probs(given)
        counterfactual = Counterfactual(adapter, given, place, copies=2)
        whole = heard[place].weights
        assert counterfactual.weights.shape == (4, 2, queries, 12)
        torch.testing.assert_close(counterfactual.weights, whole[:, :, :1] if pooling == "cls" else whole)
        assert counterfactual.is_token.sum(-1).tolist() == [len(row.ids) for row in given]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@torch.no_grad()
def test_changing_one_head_changes_only_its_part_of_the_output(pooling: str) -> None:
    """The output of the place differs by (w' - w) v of head 1 through its part of the output matrix, nowhere else."""
    adapter = bert(pooling)
    place = "features.bert.encoder.blocks.1.self"
    heads = adapter.model.get_submodule(place)
    given = rows(adapter, TEXTS[0])
    counterfactual = Counterfactual(adapter, given, place)
    plain, seen = counterfactual.plain, list[Tensor]()
    hook = heads.register_forward_hook(lambda module, inputs, output: seen.append(output))
    counterfactual.probs(same)
    counterfactual.probs(turned, [1])
    hook.remove()
    with capture(adapter.model, place, Observe(weights=True, values=True)) as heard:
        adapter.log_probs(given)
    weights, values = heard[place].weights, heard[place].values
    moved = (weights.flip(-1) - weights)[:, 1] @ values[:, 1] @ heads.out.weight[:, 4:].mT
    if pooling == "cls":
        moved[:, 1:] = 0
        assert torch.equal(seen[1][:, 1:], seen[0][:, 1:])
    torch.testing.assert_close(seen[1] - seen[0], moved, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(counterfactual.probs(turned, [1])[0], plain)
    assert not torch.allclose(counterfactual.probs(turned, [1]), counterfactual.probs(turned, [0]))
    with intervene(adapter.model, place, weights=turned, rows=0 if pooling == "cls" else None):
        expected = adapter.log_probs(given).exp()
    torch.testing.assert_close(counterfactual.probs(turned)[0], expected)
    torch.testing.assert_close(counterfactual.probs(turned, [0, 1])[0], expected)


@pytest.mark.parametrize("kind", ["bahdanau", "transformer", "pointer"])
@torch.no_grad()
def test_each_word_of_a_translation_changes_at_its_own_step(kind: str) -> None:
    """Rows with different numbers of decoder tokens, in models that attend once, or once a step."""
    adapter = translating(kind)
    given = rows(adapter, *PAIRS)
    assert len({len(row.decoder_ids) for row in given}) > 1
    place = "decoder.1.cross" if kind == "transformer" else "decoder"
    counterfactual = Counterfactual(adapter, given, place, copies=2)
    found = counterfactual.probs(lambda old: old.square() / old.square().sum(-1, keepdim=True))
    for at, row in enumerate(given):
        with intervene(
            adapter.model,
            place,
            weights=lambda w: w.square() / w.square().sum(-1, keepdim=True),
            rows=len(row.decoder_ids) - 1,
        ):
            alone = adapter.log_probs([row])[0].exp()
        torch.testing.assert_close(found[1, at], alone, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(counterfactual.plain[at], adapter.log_probs([row])[0].exp(), atol=1e-5, rtol=1e-4)
    assert (found[1] - counterfactual.plain).abs().amax(-1).min() > 1e-5


def test_gradients_flow_to_the_changed_weights_only() -> None:
    adapter = classifier()
    counterfactual = Counterfactual(adapter, rows(adapter, TEXTS[0]), "pooling")
    new = counterfactual.weights.detach().clone().unsqueeze(0).requires_grad_()
    counterfactual.probs(lambda old: new)[0, 0, 1].backward()
    model, p = adapter.model, counterfactual.plain[0]
    states = model.embedding(adapter.input_ids([cases(adapter, TEXTS[0])[0].row]))[0]
    logits = states @ model.classes.weight.mT  # (S, C): d logits / d w_t
    expected = p[1] * (logits[:, 1] - logits @ p)
    torch.testing.assert_close(new.grad.flatten(), expected.detach())
    assert not counterfactual.plain.requires_grad and not counterfactual.weights.requires_grad
    with torch.no_grad():
        assert not counterfactual.probs(lambda old: new).requires_grad
