"""The most different map that keeps the output, against looking at every map there is."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch
from torch import Tensor

from faithfulness.toys import TEXTS, bert, classifier, row, rows
from regard.adapters.case import Row
from regard.attention.scores import Dot
from regard.faithfulness.adversary import PUBLISHED, QUICK, Search, adversary
from regard.faithfulness.counterfactual import Trial
from regard.inspection.statistics import jsd, shared, tvd

A, B, C = 7, 8, 9


def pooled(vectors: list[list[float]], weights: list[float], copies: int = 4) -> Trial:
    """Three words A, B, C with these vectors (2,), which the model's question gives these weights."""
    asker = classifier(classes=2, score=Dot())
    model = asker.model
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[A : C + 1, :2] = torch.tensor(vectors)
        model.embedding.weight[A : C + 1, 2] = torch.tensor(weights).log()
        model.pooling.questions[0, 2] = 1.0
        model.classes.weight[:, :2] = torch.eye(2)
    return Trial(asker, [row(A, B, C)], "pooling", copies)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def best_of_all(trial: Trial, tolerance: float, points: int = 120) -> float:
    """The largest divergence on a fine grid over the simplex."""
    steps = torch.arange(points + 1)
    grid = torch.cartesian_prod(steps, steps)
    grid = grid[grid.sum(-1) <= points]
    maps = torch.cat((grid, points - grid.sum(-1, keepdim=True)), -1) / points
    model, [one] = trial.asker.model, trial.rows
    said = model.classes(maps @ model.embedding(torch.tensor(one.ids))).softmax(-1)
    far = jsd(maps, trial.weights.flatten())
    return float(far[tvd(said, trial.plain[0]) <= tolerance].max())


CASES = {
    "one word speaks": ([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [0.6, 0.3, 0.1]),
    "two agree": ([[1.0, 0.0], [0.9, 0.0], [0.0, 3.0]], [0.7, 0.2, 0.1]),
    "it hangs on the map": ([[4.0, 0.0], [-4.0, 0.0], [0.0, 5.0]], [0.4, 0.4, 0.2]),
    "on a line": ([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]], [0.1, 0.8, 0.1]),
}


@pytest.mark.parametrize("name", CASES)
def test_three_words_against_every_map_there_is(name: str) -> None:
    trial = pooled(*CASES[name])
    best = best_of_all(trial, 0.05)
    found = adversary(trial, None, replace(QUICK, starts=10), generator())
    assert float(found.jsd) <= best + 0.02  # the grid is not infinitely fine
    assert float(found.jsd) >= 0.9 * best


@pytest.mark.parametrize("name", CASES)
def test_what_is_found_keeps_the_output_and_is_as_far_as_it_says(name: str) -> None:
    trial = pooled(*CASES[name])
    found = adversary(trial, None, QUICK, generator())
    assert found.weights.shape == (1, 1, 3) and found.weights.sum().item() == pytest.approx(1)
    with torch.no_grad():
        said = trial.said(lambda old: found.weights.expand(4, 1, 1, 3).unsqueeze(3))
    assert tvd(said[0], trial.plain).item() <= QUICK.tolerance + 1e-6
    real = trial.weights.squeeze(2)
    torch.testing.assert_close(jsd(found.weights, real).mean(-1), found.jsd)
    torch.testing.assert_close(shared(found.weights, real).mean(-1), found.shared)


@pytest.mark.parametrize("search", [QUICK, replace(PUBLISHED, steps=150, rate=0.05)], ids=["quick", "published"])
def test_words_that_mean_the_same_exchange_all_their_weight(search: Search) -> None:
    trial = pooled([[1.0, 0.0], [1.0, 0.0], [-3.0, 3.0]], [0.97, 0.02, 0.01])
    found = adversary(trial, None, search, generator())
    assert float(found.jsd) > 0.85 * log(2) and float(found.shared) < 0.06
    assert found.weights[0, 0, B - A] > 0.9


def test_a_tolerance_of_nothing_leaves_maps_with_the_same_output() -> None:
    search = replace(QUICK, tolerance=0.0, slack=0.0)
    apart = pooled([[3.0, 0.0], [0.0, 3.0], [-2.0, 1.0]], [0.5, 0.3, 0.2])
    found = adversary(apart, None, search, generator())
    assert found.jsd.tolist() == [0.0] and found.shared.tolist() == [1.0]
    assert torch.equal(found.weights, apart.weights.squeeze(2))
    alike = pooled([[0.5, 1.0]] * 3, [0.5, 0.25, 0.25])  # halves and quarters, so that every sum is exact
    assert float(adversary(alike, None, search, generator()).jsd) > 0.9 * float(
        jsd(torch.tensor([0.0, 0.0, 1.0]), alike.weights.flatten())
    )


def test_the_quick_search_finds_what_the_published_one_finds() -> None:
    """One step along the way, from one word to the next, costs little and misses little."""
    asker = classifier(reads=True)
    trial = Trial(asker, rows(asker, *TEXTS), "pooling", 4)
    hard = adversary(trial, None, replace(PUBLISHED, steps=80, rate=0.05), generator())
    quick = adversary(trial, None, QUICK, generator())
    assert (quick.jsd >= 0.85 * hard.jsd - 0.02).all()


def test_padding_is_no_place_to_look_at() -> None:
    asker = classifier()
    trial = Trial(asker, rows(asker, *TEXTS), "pooling", 3)
    found = adversary(trial, None, QUICK, generator())
    assert not found.weights.masked_select(~trial.real.unsqueeze(1)).any()
    torch.testing.assert_close(found.weights.sum(-1), torch.ones(4, 1))


def test_one_head_may_look_elsewhere_while_the_others_stay() -> None:
    asker = bert("cls")
    trial = Trial(asker, rows(asker, *TEXTS[:2]), "reading.bert.encoder.blocks.1.self", 4)
    found = adversary(trial, [1], replace(QUICK, steps=5), generator())
    assert found.weights.shape == (2, 1, trial.weights.size(-1))

    def instead(old: Tensor) -> Tensor:
        return found.weights.unsqueeze(2).expand_as(old)

    with torch.no_grad():
        assert (tvd(trial.said(instead, [1])[0], trial.plain) <= QUICK.tolerance + 1e-5).all()
    both = adversary(trial, None, replace(QUICK, steps=5), generator())
    assert both.weights.shape == (2, 2, trial.weights.size(-1))


def test_the_same_chance_finds_the_same() -> None:
    asker = classifier()
    given: list[Row] = rows(asker, *TEXTS)
    first, again = (adversary(Trial(asker, given, "pooling", 3), None, QUICK, generator()) for _ in range(2))
    assert torch.equal(first.weights, again.weights) and torch.equal(first.jsd, again.jsd)


def test_a_longer_search_finds_no_less() -> None:
    trial = pooled(*CASES["it hangs on the map"])
    far = [float(adversary(trial, None, replace(QUICK, steps=n, one_hot=False), generator()).jsd) for n in (0, 10, 60)]
    assert far == sorted(far) and far[-1] > 0
