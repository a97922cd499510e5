"""The permutation test: weights are permuted uniformly among the real tokens."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from torch import Tensor

from faithfulness.toys import TEXTS, bert, classifier, row, rows
from regard.faithfulness.counterfactual import (
    Counterfactual,
    WeightChange,
    decision_flips,
    predict_permuted,
    predict_uniform,
)
from regard.inspection.distances import tvd


class Watched(Counterfactual):
    """Stores the changed weights, (copies, B, heads, queries, S), of each run."""

    def probs(self, replace: WeightChange | None = None, heads=None) -> Tensor:
        def change(weights: Tensor) -> Tensor:
            assert replace is not None
            changed.append(replace(weights))
            return changed[-1]

        changed: list[Tensor] = vars(self).setdefault("changed", [])
        return super().probs(change, heads)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@torch.no_grad()
def test_weights_are_permuted_among_real_tokens() -> None:
    adapter = bert("mean")
    counterfactual = Watched(adapter, rows(adapter, *TEXTS), "features.bert.encoder.blocks.1.self", copies=3)
    found = predict_permuted(counterfactual, [1], 5, generator())
    assert found.shape == (5, 4, 3)
    for new in counterfactual.changed:
        old = counterfactual.weights[:, 1:]
        assert torch.equal(new.sort(-1).values, old.sort(-1).values.expand_as(new))
        assert not new.masked_select(~counterfactual.is_token[:, None, None]).any()
        assert not torch.equal(new[0], new[1])  # each copy has an order of its own
    assert len(counterfactual.changed) == 2


@torch.no_grad()
def test_all_heads_and_queries_of_a_text_share_one_permutation() -> None:
    """Otherwise it would not be a permutation of the tokens."""
    adapter = bert("mean")
    counterfactual = Watched(adapter, rows(adapter, TEXTS[0]), "features.bert.encoder.blocks.1.self")
    predict_permuted(counterfactual, None, 1, generator())
    [new], old = counterfactual.changed[0], counterfactual.weights
    where = [(old[0, 0, 0] == value).nonzero().item() for value in new[0, 0, 0]]
    assert sorted(where) == list(range(8)) != where
    assert torch.equal(new, old[..., where])


@torch.no_grad()
def test_permutations_are_uniformly_distributed() -> None:
    adapter = classifier()
    counterfactual = Watched(adapter, [row(7, 8, 9), row(7, 8, 9, 10)], "pooling", copies=100)
    predict_permuted(counterfactual, None, 600, generator())
    ranks = torch.cat(counterfactual.changed)[:, 0, 0, 0, :3]
    counts = Counter(tuple(one) for one in ranks.tolist())
    assert len(counts) == 6 and all(60 <= count <= 140 for count in counts.values())


@torch.no_grad()
def test_two_tokens_by_hand() -> None:
    """They keep their weights or exchange them."""
    adapter = classifier()
    counterfactual = Counterfactual(adapter, [row(7, 9)], "pooling", copies=4)
    states, weights = adapter.model.embedding(torch.tensor([7, 9])), counterfactual.weights.flatten()
    either = torch.stack([adapter.model.classes(w @ states).softmax(-1) for w in (weights, weights.flip(0))])
    found = predict_permuted(counterfactual, None, 40, generator()).squeeze(1)
    near = torch.cdist(found, either) < 1e-6
    assert (near.sum(1) == 1).all() and near.any(0).all()


@torch.no_grad()
def test_uniform_attention_by_hand() -> None:
    adapter = classifier()
    given = rows(adapter, *TEXTS)
    model = adapter.model
    for at, p in enumerate(predict_uniform(Counterfactual(adapter, given, "pooling", copies=2), None)):
        mean = model.embedding(torch.tensor(given[at].ids)).mean(0)
        torch.testing.assert_close(p, model.classes(mean).softmax(-1))


def test_permutations_depend_on_the_generator() -> None:
    adapter = classifier()
    counterfactual = Counterfactual(adapter, rows(adapter, TEXTS[0]), "pooling", copies=2)
    with torch.no_grad():
        first, again, other = (predict_permuted(counterfactual, None, 4, generator(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_output_change_and_flips() -> None:
    plain = torch.tensor([[0.7, 0.3], [0.2, 0.8]])
    said = torch.tensor([[[0.6, 0.4], [0.2, 0.8]], [[0.1, 0.9], [0.9, 0.1]]])
    assert tvd(said, plain).flatten().tolist() == pytest.approx([0.1, 0.0, 0.6, 0.7])
    assert decision_flips(said, plain).tolist() == [[0.0, 0.0], [1.0, 1.0]]
