"""All tests on one decision: each number is what its own room finds, and controls stand beside."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch

from faithfulness.toys import PAIRS, QUICK, TEXTS, bert, cases, classifier, filler, language_model, translating
from regard.faithfulness.counterfactual import Trial, flipping, moved, order_of, uniform
from regard.faithfulness.maps import look, method_maps
from regard.faithfulness.run_tests import RANDOM, Examined, examine
from regard.faithfulness.token_erasure import Answers, erasing, planted
from regard.inspection.statistics import jsd
from regard.text.examples import Labelled

TRIED = {"permuted", "permuted flips", "uniform", "uniform flips", "adversarial jsd", "adversarial shared"}
TRIED |= {"largest weight", "erased flips", "erased random flips", "erased attention share", "erased gradient share"}
TRIED |= {"erased gradient x attention share", "erased random share"}
TOLD = {"tau gradient", "tau left out", "comprehensiveness", "sufficiency", "class change"}
METHODS = {"attention", "norm-based attention", "rollout", "gradient x attention", "gradient x input"}
METHODS |= {"integrated gradients"}


def test_every_map_has_every_number() -> None:
    asker = bert("cls")
    found = examine(asker, cases(asker, *TEXTS[:2]), QUICK, 0)
    places = [f"reading.bert.encoder.blocks.{layer}.self" for layer in range(2)]
    heads = {f"{place}/{head}" for place in places for head in range(2)}
    for one in found:
        assert set(one.maps) == METHODS | set(places) | heads | {RANDOM, "gradient"}
        for name in {*places, *heads}:
            assert set(one.maps[name]) == TRIED | TOLD
        for name in METHODS:
            assert set(one.maps[name]) == TOLD
        assert set(one.maps[RANDOM]) == TOLD - {"class change"} and set(one.maps["gradient"]) == {"tau left out"}
        assert set(one.shown) == METHODS | set(places)
        assert all(len(scores) == len(one.tokens) for scores in one.shown.values())


def test_numbers_are_those_of_their_rooms() -> None:
    asker = classifier(reads=True)
    known = Labelled(TEXTS[0], "c1", evidence=(3, 5))
    given = cases(asker, known, TEXTS[1])
    [first, second] = examine(asker, given, QUICK, 0)
    looked = look(asker, [case.row for case in given])
    trial = Trial(asker, looked.rows, "pooling")
    numbers = first.maps["pooling"]
    with torch.no_grad():
        even = moved(uniform(trial, None), trial.plain)
        flips, share = flipping(trial, None, order_of(trial.weights.mean((1, 2)), trial.real))
    assert numbers["uniform"] == pytest.approx(even[0].item(), abs=1e-6)
    assert (numbers["erased flips"], numbers["erased attention share"]) == (flips[0], pytest.approx(share[0].item()))
    assert numbers["largest weight"] == pytest.approx(trial.weights[0].max().item())
    scores = method_maps(asker, looked)["integrated gradients"][0, : len(given[0].row.ids)]
    chosen, p = int(looked.chosen[0]), float(looked.p[0])
    [expected] = erasing(Answers(asker), given[0].row, chosen, p, {"it": scores}).values()
    told = first.maps["integrated gradients"]
    assert (told["comprehensiveness"], told["sufficiency"]) == pytest.approx(expected, abs=1e-5)
    truth = planted(scores, given[0].row, frozenset({4, 6}))
    assert {name: told[name] for name in truth} == pytest.approx(truth)
    assert set(truth) <= set(first.maps[RANDOM]) and not set(truth) & set(second.maps["pooling"])
    assert (first.chosen, first.right) == (f"c{chosen}", chosen == 1) and second.right is None
    assert first.p == pytest.approx(p, abs=1e-6)


def test_the_only_head_of_a_place_is_the_place() -> None:
    asker = classifier()
    [one] = examine(asker, cases(asker, TEXTS[0]), QUICK, 0)
    assert one.maps["pooling/0"] == one.maps["pooling"] and set(one.maps["pooling"]) >= TRIED


def test_attention_does_not_change_with_the_question() -> None:
    """Nothing is asked of it; a gradient is asked about a class."""
    asker = bert("cls")
    [one] = examine(asker, cases(asker, TEXTS[0]), QUICK, 0)
    for name, numbers in one.maps.items():
        if name in ("gradient x attention", "gradient x input", "integrated gradients"):
            assert 0 < numbers["class change"] < 1 + 1e-9
        elif name not in (RANDOM, "gradient"):
            assert numbers["class change"] == 0
    looked = look(asker, [case.row for case in cases(asker, TEXTS[0])])
    first, second = (method_maps(asker, looked, second=which)["gradient x input"][0].clamp(min=0) for which in (0, 1))
    far = float(jsd((first / first.sum()).double(), (second / second.sum()).double())) / log(2)
    assert one.maps["gradient x input"]["class change"] == pytest.approx(far, abs=1e-5)


@pytest.mark.parametrize(
    ("asker", "examples"),
    [
        (filler(), TEXTS[:2]),
        (language_model(), TEXTS[:3]),
        (translating("bahdanau"), PAIRS[:2]),
        (translating("pointer"), PAIRS[:2]),
        (translating("transformer"), PAIRS[:1]),
        (bert("attention"), TEXTS[:1]),
    ],
    ids=["filler", "language model", "bahdanau", "pointer", "transformer", "question"],
)
def test_whatever_decides_can_be_examined(asker, examples) -> None:
    some = replace(QUICK, places=["*.1.*", "decoder", "summary.question"])
    found = examine(asker, cases(asker, *examples), some, 0)
    for one in found:
        places = [name for name, numbers in one.maps.items() if "permuted" in numbers]
        assert places and all(0 <= one.maps[name]["permuted"] <= 1 for name in places)
        assert 0 < one.p <= 1 and one.chosen


def test_chance_is_that_of_the_seed_and_the_part() -> None:
    asker = classifier()
    given = cases(asker, *TEXTS)
    first, again, other, seed = (
        [one.told() for one in examine(asker, given, settings, part)]
        for settings, part in ((QUICK, 0), (QUICK, 0), (QUICK, 1), (replace(QUICK, seed=1), 0))
    )
    assert first == again
    assert first != other and first != seed and other != seed
    assert [one["p"] for one in first] == [one["p"] for one in other]


def test_what_is_no_number_is_not_told() -> None:
    one = Examined(0, ("a",), "x", 0.5, None)
    one.add("map", tau_left_out=float("nan"), class_change=0.5)
    assert one.maps == {"map": {"class change": 0.5}}
