"""Sums are those of the definition, and do not depend on who added what first."""

from __future__ import annotations

import json
from itertools import product

import pytest
import torch

from inspection.atlas.planted import lexicon, plan_of, scene, texts
from regard.inspection.atlas.accumulate import KINDS, Plan, Sums, count, samples
from regard.inspection.atlas.examples import Passage
from regard.inspection.atlas.head_patterns import NUMBERS, TRAITS
from regard.inspection.atlas.label_heads import measured
from regard.inspection.atlas.token_features import between_units

SCENES = [scene(passage, "past" if number % 2 else "all") for number, passage in enumerate(texts(3, 6))]


def weights(number: int, heads: int = 2) -> torch.Tensor:
    torch.manual_seed(number)
    visible = SCENES[number].visible
    scores = 2 * torch.randn(heads, *visible.shape, dtype=torch.float64)
    return scores.masked_fill(~visible, -torch.inf).softmax(-1)


def summed(numbers: list[int]) -> Sums:
    sums = Sums.none(2, 0, True)
    for number in numbers:
        count(sums, plan_of(SCENES[number]), weights(number), number)
    return sums


def test_the_order_and_the_number_of_who_counts_change_no_bit() -> None:
    whole = summed(list(range(6)))
    parts = [summed([4, 1]), summed([]), summed([5, 0, 3, 2])]
    together = Sums.none(2, 0, True)
    for part in parts:
        together.add(Sums.read(json.loads(json.dumps(part.told()))))
    assert together.told()["share"] == whole.told()["share"]
    first, second = whole.told(), together.told()
    for name in first:
        if name != "examples":
            assert first[name] == second[name], name
    assert sorted(map(str, first["examples"])) == sorted(map(str, second["examples"]))
    assert measured(whole) == measured(together)


@pytest.mark.parametrize("name", ["previous", "delimiter", "identical word", "nouns and names", "rare word"])
def test_measures_are_their_definitions(name: str) -> None:
    sums, at = summed([0, 1]), NUMBERS[name]
    asked, share, hits, even = 0, torch.zeros(2).double(), torch.zeros(2), 0.0
    for number in (0, 1):
        one, maps = SCENES[number], weights(number)
        targets = TRAITS[at].targets(one)
        assert targets is not None
        visible = one.visible.double()
        flat = (visible / visible.sum(-1, keepdim=True)).unsqueeze(0)
        seen = one.visible
        if TRAITS[at].level == "words":
            maps, flat = (between_units(x, one.queries, one.keys) for x in (maps, flat))
            seen = one.seen
        for query in range(len(targets)):
            keys = [key for key in range(targets.size(1)) if targets[query, key] and seen[query, key]]
            if not keys or seen[query].sum() < 2:
                continue
            asked += 1
            even += float(flat[0, query, keys].sum())
            for head in range(2):
                share[head] += maps[head, query, keys].sum()
                hits[head] += int(maps[head, query].masked_fill(~seen[query], -1).argmax()) in keys
    assert asked == sums.asked[at]
    for head, found in enumerate(measured(sums)):
        assert found[name].weight.value == pytest.approx(float(share[head]) / asked, abs=1e-8)
        assert found[name].largest.value == pytest.approx(float(hits[head]) / asked)
        assert found[name].even == pytest.approx(even / asked, abs=1e-8)


def test_what_a_head_must_beat_is_what_it_gives_to_pairs_of_the_same_kinds() -> None:
    sums, at = summed([0, 1]), NUMBERS["identical word"]
    got, pairs = torch.zeros(KINDS).double(), torch.zeros(KINDS)
    aims, asked = torch.zeros(KINDS), 0
    for number in (0, 1):
        one = SCENES[number]
        maps, targets = between_units(weights(number), one.queries, one.keys)[1], TRAITS[at].targets(one)
        assert targets is not None
        for i, j in product(range(len(targets)), range(len(targets))):
            if one.seen[i, j] and one.seen[i].sum() >= 2:
                got[one.kinds[i, j]] += maps[i, j]
                pairs[one.kinds[i, j]] += 1
                aims[one.kinds[i, j]] += int(targets[i, j])
        asked += int((targets & one.seen & (one.seen.sum(-1, keepdim=True) >= 2)).any(-1).sum())
    expected = float((aims * got / pairs.clamp(min=1)).sum()) / asked
    assert measured(sums)[1]["identical word"].alike == pytest.approx(expected, abs=1e-8)


def test_broad_is_the_share_of_keys_that_an_even_look_would_need() -> None:
    one = scene(texts(1, 1)[0])
    half = torch.zeros(1, *one.visible.shape, dtype=torch.float64)
    half[..., : one.visible.size(1) // 4] = 1
    sums = Sums.none(1, 0, True)
    count(sums, Plan(one), half / half.sum(-1, keepdim=True), 0)
    share = (one.visible.size(1) // 4) / one.visible.size(1)
    assert measured(sums)[0]["broad"].weight.value == pytest.approx(share, abs=1e-9)


def test_two_largest_weights_that_are_alike_are_no_peak() -> None:
    one = scene(texts(1, 1)[0])
    sums = Sums.none(1, 0, True)
    count(sums, Plan(one), torch.full((1, *one.visible.shape), 1 / one.visible.size(1)).double(), 0)
    assert not sums.hits.any() and not sums.peaks.any()


def test_samples_belong_to_the_text_and_are_poisson() -> None:
    assert samples(5, 0).equal(samples(5, 0)) and not samples(5, 0).equal(samples(6, 0))
    many = torch.stack([samples(number, 0) for number in range(400)]).double()
    assert float(many.mean()) == pytest.approx(1, abs=0.02)
    assert float(many.var()) == pytest.approx(1, abs=0.03)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Texts whose heads look at themselves by a share that varies between texts: 95% of intervals hold its mean."""
    one = scene(Passage("a cat and a dog"), special=False)
    plan, size = plan_of(one), one.visible.size(0)
    eye = torch.eye(size, dtype=torch.float64)
    rest = (1 - eye) / (size - 1)
    heads, covered = 60, 0
    chance = torch.Generator().manual_seed(4)
    sums = Sums.none(heads, 0, True)
    for number in range(25):
        share = torch.rand(heads, 1, 1, dtype=torch.float64, generator=chance)
        count(sums, plan, share * eye + (1 - share) * rest, number)
    for found in measured(sums):
        covered += found["self"].weight.low <= 0.5 <= found["self"].weight.high
    assert 0.85 <= covered / heads <= 1.0


def test_examples_are_the_strongest_pairs_of_different_words() -> None:
    sums = summed(list(range(6)))
    at = NUMBERS["identical word"]
    found = sums.examples[0, at]
    assert 1 <= len(found) <= 3 and found == sorted(found)
    assert len({(one[4].lower(), one[5].lower()) for one in found}) == len(found)
    assert all(one[4].lower() == one[5].lower() for one in found)
    best = min(
        -float((between_units(weights(n), SCENES[n].queries, SCENES[n].keys)[0] * plan_of(SCENES[n]).wanted[at]).max())
        for n in range(6)
    )
    assert found[0][0] / 2**32 == pytest.approx(best, abs=1e-8)
    assert lexicon().count(found[0][4].lower()) > 0
