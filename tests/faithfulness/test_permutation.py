"""Weights dealt out anew: all of them, to real tokens alone, in every order alike."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from faithfulness.toys import TEXTS, bert, classifier, row, rows
from regard.faithfulness.counterfactual import Elsewhere, Trial, flipped, moved, permuted, uniform


class Watched(Trial):
    """Keeps what the weights were changed to, (copies, B, heads, queries, S) of each run."""

    def said(self, elsewhere: Elsewhere | None = None, heads=None) -> Tensor:
        def change(weights: Tensor) -> Tensor:
            assert elsewhere is not None
            changed.append(elsewhere(weights))
            return changed[-1]

        changed: list[Tensor] = vars(self).setdefault("changed", [])
        return super().said(change, heads)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def test_real_tokens_exchange_their_weights_and_padding_has_none() -> None:
    asker = bert("mean")
    trial = Watched(asker, rows(asker, *TEXTS), "reading.bert.encoder.blocks.1.self", copies=3)
    found = permuted(trial, [1], 5, generator())
    assert found.shape == (5, 4, 3)
    for new in trial.changed:
        old = trial.weights[:, 1:]
        assert torch.equal(new.sort(-1).values, old.sort(-1).values.expand_as(new))
        assert not new.masked_select(~trial.real[:, None, None]).any()
        assert not torch.equal(new[0], new[1])  # each copy has an order of its own
    assert len(trial.changed) == 2


@torch.no_grad()
def test_all_heads_and_queries_of_a_text_go_by_one_order() -> None:
    """Otherwise an exchange of tokens would be a new map for each of them."""
    asker = bert("mean")
    trial = Watched(asker, rows(asker, TEXTS[0]), "reading.bert.encoder.blocks.1.self")
    permuted(trial, None, 1, generator())
    [new], old = trial.changed[0], trial.weights
    where = [(old[0, 0, 0] == value).nonzero().item() for value in new[0, 0, 0]]
    assert sorted(where) == list(range(8)) != where
    assert torch.equal(new, old[..., where])


@torch.no_grad()
def test_every_order_comes_up_alike() -> None:
    asker = classifier()
    trial = Watched(asker, [row(7, 8, 9), row(7, 8, 9, 10)], "pooling", copies=100)
    permuted(trial, None, 600, generator())
    ranks = torch.cat(trial.changed)[:, 0, 0, 0, :3]
    counts = Counter(tuple(one) for one in ranks.tolist())
    assert len(counts) == 6 and all(60 <= count <= 140 for count in counts.values())


@torch.no_grad()
def test_two_tokens_by_hand() -> None:
    """Either they keep their weights, or they exchange them."""
    asker = classifier()
    trial = Trial(asker, [row(7, 9)], "pooling", copies=4)
    states, weights = asker.model.embedding(torch.tensor([7, 9])), trial.weights.flatten()
    either = torch.stack([asker.model.classes(w @ states).softmax(-1) for w in (weights, weights.flip(0))])
    found = permuted(trial, None, 40, generator()).squeeze(1)
    near = torch.cdist(found, either) < 1e-6
    assert (near.sum(1) == 1).all() and near.any(0).all()


@torch.no_grad()
def test_the_same_weight_for_all_by_hand() -> None:
    asker = classifier()
    given = rows(asker, *TEXTS)
    model = asker.model
    for at, p in enumerate(uniform(Trial(asker, given, "pooling", copies=2), None)):
        mean = model.embedding(torch.tensor(given[at].ids)).mean(0)
        torch.testing.assert_close(p, model.classes(mean).softmax(-1))


def test_chance_is_that_of_the_generator() -> None:
    asker = classifier()
    trial = Trial(asker, rows(asker, TEXTS[0]), "pooling", copies=2)
    with torch.no_grad():
        first, again, other = (permuted(trial, None, 4, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_how_far_and_whether() -> None:
    plain = torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    said = torch.tensor([[[0.6, 0.4], [0.2, 0.8]], [[0.1, 0.9], [0.9, 0.1]]])
    assert moved(said, plain).flatten().tolist() == pytest.approx([0.1, 0.0, 0.6, 0.7])
    assert flipped(said, plain).tolist() == [[0.0, 0.0], [1.0, 1.0]]
