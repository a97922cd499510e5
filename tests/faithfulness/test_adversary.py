"""Adversarial attention: the most different map that keeps the output, against an exhaustive search."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch
from torch import Tensor

from faithfulness.toys import TEXTS, bert, classifier, row, rows
from regard.adapters.case import InputRow
from regard.attention.scores import Dot
from regard.faithfulness.adversary import PUBLISHED_SEARCH, QUICK_SEARCH, AdversarySearch, find_adversary
from regard.faithfulness.counterfactual import Counterfactual
from regard.inspection.distances import jsd, overlap, tvd

A, B, C = 7, 8, 9


def pooled(vectors: list[list[float]], weights: list[float], copies: int = 4) -> Counterfactual:
    """Three words A, B, C with these embeddings (2,), to which the model's query gives these weights."""
    adapter = classifier(classes=2, score=Dot())
    model = adapter.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[A : C + 1, :2] = torch.tensor(vectors)
        model.embedding.weight[A : C + 1, 2] = torch.tensor(weights).log()
        model.pooling.queries[0, 2] = 1.0
        model.classes.weight[:, :2] = torch.eye(2)
    return Counterfactual(adapter, [row(A, B, C)], "pooling", copies)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def best_of_all(counterfactual: Counterfactual, tolerance: float, points: int = 120) -> float:
    """The largest divergence on a fine grid over the simplex."""
    steps = torch.arange(points + 1)
    grid = torch.cartesian_prod(steps, steps)
    grid = grid[grid.sum(-1) <= points]
    maps = torch.cat((grid, points - grid.sum(-1, keepdim=True)), -1) / points
    model, [one] = counterfactual.adapter.model, counterfactual.rows
    said = model.classes(maps @ model.embedding(torch.tensor(one.ids))).softmax(-1)
    far = jsd(maps, counterfactual.weights.flatten())
    return float(far[tvd(said, counterfactual.plain[0]) <= tolerance].max())


CASES = {
    "one word speaks": ([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0.6, 0.3, 0.1]),
    "two agree": ([[1.0, 0.0], [0.9, 0.0], [0.0, 3.0]], [0.7, 0.2, 0.1]),
    "it hangs on the map": ([[4.0, 0.0], [-4.0, 0.0], [0.0, 5.0]], [0.4, 0.4, 0.2]),
    "on a line": ([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [0.1, 0.8, 0.1]),
}


@pytest.mark.parametrize("name", CASES)
def test_three_words_against_an_exhaustive_search(name: str) -> None:
    counterfactual = pooled(*CASES[name])
    best = best_of_all(counterfactual, 0.05)
    found = find_adversary(counterfactual, None, replace(QUICK_SEARCH, starts=10), generator())
    assert float(found.jsd) <= best + 0.02  # the grid is not infinitely fine
    assert float(found.jsd) >= 0.9 * best


@pytest.mark.parametrize("name", CASES)
def test_the_adversary_keeps_the_output_and_has_its_divergence(name: str) -> None:
    counterfactual = pooled(*CASES[name])
    found = find_adversary(counterfactual, None, QUICK_SEARCH, generator())
    assert found.weights.shape == (1, 1, 3) and found.weights.sum().item() == pytest.approx(1)
    with torch.no_grad():
        said = counterfactual.probs(lambda old: found.weights.expand(4, 1, 1, 3).unsqueeze(3))
    assert tvd(said[0], counterfactual.plain).item() <= QUICK_SEARCH.tolerance + 1e-6
    real = counterfactual.weights.squeeze(2)
    torch.testing.assert_close(jsd(found.weights, real).mean(-1), found.jsd)
    torch.testing.assert_close(overlap(found.weights, real).mean(-1), found.overlap)


@pytest.mark.parametrize(
    "search", [QUICK_SEARCH, replace(PUBLISHED_SEARCH, steps=150, lr=0.05)], ids=["quick", "published"]
)
def test_equivalent_words_exchange_all_their_weight(search: AdversarySearch) -> None:
    counterfactual = pooled([[1.0, 0.0], [1.0, 0.0], [-3.0, 3.0]], [0.97, 0.02, 0.01])
    found = find_adversary(counterfactual, None, search, generator())
    assert float(found.jsd) > 0.85 * log(2) and float(found.overlap) < 0.06
    assert found.weights[0, 0, B - A] > 0.9


def test_tolerance_zero_allows_only_maps_with_the_same_output() -> None:
    search = replace(QUICK_SEARCH, tolerance=0.0, slack=0.0)
    apart = pooled([[3.0, 0.0], [0.0, 3.0], [-2.0, 1.0]], [0.5, 0.3, 0.2])
    found = find_adversary(apart, None, search, generator())
    assert found.jsd.tolist() == [0.0] and found.overlap.tolist() == [1.0]
    assert torch.equal(found.weights, apart.weights.squeeze(2))
    alike = pooled([[0.5, 1.0]] * 3, [0.5, 0.25, 0.25])  # halves and quarters, so that every sum is exact
    assert float(find_adversary(alike, None, search, generator()).jsd) > 0.9 * float(
        jsd(torch.tensor([0.0, 0.0, 1.0]), alike.weights.flatten())
    )


def test_the_quick_search_finds_what_the_published_one_finds() -> None:
    """It is much shorter, and misses little."""
    adapter = classifier(reads=True)
    counterfactual = Counterfactual(adapter, rows(adapter, *TEXTS), "pooling", 4)
    hard = find_adversary(counterfactual, None, replace(PUBLISHED_SEARCH, steps=80, lr=0.05), generator())
    quick = find_adversary(counterfactual, None, QUICK_SEARCH, generator())
    assert (quick.jsd >= 0.85 * hard.jsd - 0.02).all()


def test_padding_gets_no_weight() -> None:
    adapter = classifier()
    counterfactual = Counterfactual(adapter, rows(adapter, *TEXTS), "pooling", 3)
    found = find_adversary(counterfactual, None, QUICK_SEARCH, generator())
    assert not found.weights.masked_select(~counterfactual.is_token.unsqueeze(1)).any()
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(4, 1))


def test_one_head_changes_while_the_others_stay() -> None:
    adapter = bert("cls")
    counterfactual = Counterfactual(adapter, rows(adapter, *TEXTS[:2]), "features.bert.encoder.blocks.1.self", 4)
    found = find_adversary(counterfactual, [1], replace(QUICK_SEARCH, steps=5), generator())
    assert found.weights.shape == (2, 1, counterfactual.weights.size(-1))

    def instead(old: Tensor) -> Tensor:
        return found.weights.unsqueeze(2).expand_as(old)

    with torch.no_grad():
        assert (tvd(counterfactual.probs(instead, [1])[0], counterfactual.plain) <= QUICK_SEARCH.tolerance + 1e-5).all()
    both = find_adversary(counterfactual, None, replace(QUICK_SEARCH, steps=5), generator())
    assert both.weights.shape == (2, 2, counterfactual.weights.size(-1))


def test_the_same_seed_finds_the_same_adversary() -> None:
    adapter = classifier()
    given: list[InputRow] = rows(adapter, *TEXTS)
    first, again = (
        find_adversary(Counterfactual(adapter, given, "pooling", 3), None, QUICK_SEARCH, generator()) for _ in range(2)
    )
    assert torch.equal(first.weights, again.weights) and torch.equal(first.jsd, again.jsd)


def test_a_longer_search_finds_at_least_as_much() -> None:
    counterfactual = pooled(*CASES["it hangs on the map"])
    far = [
        float(find_adversary(counterfactual, None, replace(QUICK_SEARCH, steps=n, one_hot=False), generator()).jsd)
        for n in (0, 10, 60)
    ]
    assert far == sorted(far) and far[-1] > 0
