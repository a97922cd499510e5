"""Sums equal their definition, and do not depend on the order or the process."""

from __future__ import annotations

import json
from itertools import product

import pytest
import torch

from inspection.atlas.planted import lexicon, plan_of, scene, texts
from regard.inspection.atlas.accumulate import KINDS, PatternSums, PatternTargets, accumulate
from regard.inspection.atlas.head_patterns import NUMBERS, PATTERNS
from regard.inspection.atlas.label_criteria import measure_patterns
from regard.inspection.atlas.passages import Passage
from regard.inspection.atlas.token_features import pool_to_units

SCENES = [scene(passage, "past" if number % 2 else "all") for number, passage in enumerate(texts(3, 6))]


def weights(number: int, heads: int = 2) -> torch.Tensor:
    torch.manual_seed(number)
    visible = SCENES[number].visible
    scores = 2 * torch.randn(heads, *visible.shape, dtype=torch.float64)
    return scores.masked_fill(~visible, -torch.inf).softmax(-1)


def summed(numbers: list[int]) -> PatternSums:
    sums = PatternSums.zeros(2, 0, True)
    for number in numbers:
        accumulate(sums, plan_of(SCENES[number]), weights(number), number)
    return sums


def test_order_and_number_of_processes_change_no_bit() -> None:
    whole = summed(list(range(6)))
    parts = [summed([4, 1]), summed([]), summed([5, 0, 3, 2])]
    together = PatternSums.zeros(2, 0, True)
    for part in parts:
        together.add(PatternSums.from_dict(json.loads(json.dumps(part.to_dict()))))
    assert together.to_dict()["target_weight"] == whole.to_dict()["target_weight"]
    first, second = whole.to_dict(), together.to_dict()
    for name in first:
        if name != "examples":
            assert first[name] == second[name], name
    assert sorted(map(str, first["examples"])) == sorted(map(str, second["examples"]))
    assert measure_patterns(whole) == measure_patterns(together)


@pytest.mark.parametrize("name", ["previous", "delimiter", "identical word", "nouns and names", "rare word"])
def test_measures_are_their_definitions(name: str) -> None:
    sums, at = summed([0, 1]), NUMBERS[name]
    asked, share, hits, even = 0, torch.zeros(2).double(), torch.zeros(2), 0.0
    for number in (0, 1):
        one, maps = SCENES[number], weights(number)
        targets = PATTERNS[at].targets(one)
        assert targets is not None
        visible = one.visible.double()
        flat = (visible / visible.sum(-1, keepdim=True)).unsqueeze(0)
        seen = one.visible
        if PATTERNS[at].level == "words":
            maps, flat = (pool_to_units(x, one.queries, one.keys) for x in (maps, flat))
            seen = one.visible_words
        for query in range(len(targets)):
            keys = [key for key in range(targets.size(1)) if targets[query, key] and seen[query, key]]
            if not keys or seen[query].sum() < 2:
                continue
            asked += 1
            even += float(flat[0, query, keys].sum())
            for head in range(2):
                share[head] += maps[head, query, keys].sum()
                hits[head] += int(maps[head, query].masked_fill(~seen[query], -1).argmax()) in keys
    assert asked == sums.query_counts[at]
    for head, found in enumerate(measure_patterns(sums)):
        assert found[name].weight.value == pytest.approx(float(share[head]) / asked, abs=1e-8)
        assert found[name].largest.value == pytest.approx(float(hits[head]) / asked)
        assert found[name].uniform == pytest.approx(even / asked, abs=1e-8)


def test_the_control_is_the_weight_on_pairs_of_the_same_kinds() -> None:
    sums, at = summed([0, 1]), NUMBERS["identical word"]
    got, pairs = torch.zeros(KINDS).double(), torch.zeros(KINDS)
    aims, asked = torch.zeros(KINDS), 0
    for number in (0, 1):
        one = SCENES[number]
        maps, targets = pool_to_units(weights(number), one.queries, one.keys)[1], PATTERNS[at].targets(one)
        assert targets is not None
        for i, j in product(range(len(targets)), range(len(targets))):
            if one.visible_words[i, j] and one.visible_words[i].sum() >= 2:
                got[one.kinds[i, j]] += maps[i, j]
                pairs[one.kinds[i, j]] += 1
                aims[one.kinds[i, j]] += int(targets[i, j])
        asked += int((targets & one.visible_words & (one.visible_words.sum(-1, keepdim=True) >= 2)).any(-1).sum())
    expected = float((aims * got / pairs.clamp(min=1)).sum()) / asked
    assert measure_patterns(sums)[1]["identical word"].control == pytest.approx(expected, abs=1e-8)


def test_broad_is_the_effective_share_of_keys() -> None:
    one = scene(texts(1, 1)[0])
    half = torch.zeros(1, *one.visible.shape, dtype=torch.float64)
    half[..., : one.visible.size(1) // 4] = 1
    sums = PatternSums.zeros(1, 0, True)
    accumulate(sums, PatternTargets(one), half / half.sum(-1, keepdim=True), 0)
    share = (one.visible.size(1) // 4) / one.visible.size(1)
    assert measure_patterns(sums)[0]["broad"].weight.value == pytest.approx(share, abs=1e-9)


def test_equal_largest_weights_are_no_peak() -> None:
    one = scene(texts(1, 1)[0])
    sums = PatternSums.zeros(1, 0, True)
    accumulate(sums, PatternTargets(one), torch.full((1, *one.visible.shape), 1 / one.visible.size(1)).double(), 0)
    assert not sums.target_peaks.any() and not sums.kind_peaks.any()


def test_the_interval_has_its_nominal_coverage() -> None:
    """Texts whose heads look at themselves by a share that varies between texts: 95% of intervals hold its mean."""
    one = scene(Passage("a cat and a dog"), special=False)
    plan, size = plan_of(one), one.visible.size(0)
    eye = torch.eye(size, dtype=torch.float64)
    rest = (1 - eye) / (size - 1)
    heads, covered = 60, 0
    rng = torch.Generator().manual_seed(4)
    sums = PatternSums.zeros(heads, 0, True)
    for number in range(25):
        share = torch.rand(heads, 1, 1, dtype=torch.float64, generator=rng)
        accumulate(sums, plan, share * eye + (1 - share) * rest, number)
    for found in measure_patterns(sums):
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
        -float((pool_to_units(weights(n), SCENES[n].queries, SCENES[n].keys)[0] * plan_of(SCENES[n]).wanted[at]).max())
        for n in range(6)
    )
    assert found[0][0] / 2**32 == pytest.approx(best, abs=1e-8)
    assert lexicon().count(found[0][4].lower()) > 0
