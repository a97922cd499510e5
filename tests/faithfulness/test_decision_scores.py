"""All tests of one decision: each number equals that of the single test, with controls."""

from __future__ import annotations

from dataclasses import replace
from math import log

import pytest
import torch

from faithfulness.toys import PAIRS, QUICK, TEXTS, bert, cases, classifier, filler, language_model, translating
from regard.faithfulness.counterfactual import Counterfactual, erase_until_flip, predict_uniform, rank_tokens
from regard.faithfulness.decision_scores import RANDOM, ExampleResult, run_tests
from regard.faithfulness.maps import method_maps, trace_decisions
from regard.faithfulness.token_erasure import PredictionCache, ground_truth_scores, rationale_scores
from regard.inspection.distances import jsd, tvd
from regard.text.examples import Labelled

TRIED = {"permuted", "permuted_flips", "uniform", "uniform_flips", "adversarial_jsd", "adversarial_overlap"}
TRIED |= {"largest_weight", "erased_flips", "erased_random_flips", "erased_attention_share", "erased_gradient_share"}
TRIED |= {"erased_gradient_x_attention_share", "erased_random_share"}
TOLD = {"tau_gradient", "tau_leave_one_out", "comprehensiveness", "sufficiency", "class_sensitivity"}
METHODS = {"attention", "norm-based attention", "rollout", "relevance", "gradient x attention", "gradient x input"}
METHODS |= {"integrated gradients"}


def test_every_map_has_every_number() -> None:
    adapter = bert("cls")
    found = run_tests(adapter, cases(adapter, *TEXTS[:2]), QUICK, 0)
    places = [f"features.bert.encoder.blocks.{layer}.self" for layer in range(2)]
    heads = {f"{place}/{head}" for place in places for head in range(2)}
    for one in found:
        assert set(one.maps) == METHODS | set(places) | heads | {RANDOM, "gradient"}
        for name in {*places, *heads}:
            assert set(one.maps[name]) == TRIED | TOLD
        for name in METHODS:
            assert set(one.maps[name]) == TOLD
        assert set(one.maps[RANDOM]) == TOLD - {"class_sensitivity"} and set(one.maps["gradient"]) == {
            "tau_leave_one_out"
        }
        assert set(one.attributions) == METHODS | set(places)
        assert all(len(scores) == len(one.tokens) for scores in one.attributions.values())


def test_numbers_equal_those_of_the_single_tests() -> None:
    adapter = classifier(reads=True)
    known = Labelled(TEXTS[0], "c1", evidence=(3, 5))
    given = cases(adapter, known, TEXTS[1])
    [first, second] = run_tests(adapter, given, QUICK, 0)
    trace = trace_decisions(adapter, [case.row for case in given])
    counterfactual = Counterfactual(adapter, trace.rows, "pooling")
    numbers = first.maps["pooling"]
    with torch.no_grad():
        even = tvd(predict_uniform(counterfactual, None), counterfactual.plain)
        flips, share = erase_until_flip(
            counterfactual, None, rank_tokens(counterfactual.weights.mean((1, 2)), counterfactual.is_token)
        )
    assert numbers["uniform"] == pytest.approx(even[0].item(), abs=1e-6)
    assert (numbers["erased_flips"], numbers["erased_attention_share"]) == (flips[0], pytest.approx(share[0].item()))
    assert numbers["largest_weight"] == pytest.approx(counterfactual.weights[0].max().item())
    scores = method_maps(adapter, trace)["integrated gradients"][0, : len(given[0].row.ids)]
    chosen, p = int(trace.predicted[0]), float(trace.p[0])
    [expected] = rationale_scores(PredictionCache(adapter), given[0].row, chosen, p, {"it": scores}).values()
    told = first.maps["integrated gradients"]
    assert (told["comprehensiveness"], told["sufficiency"]) == pytest.approx(expected, abs=1e-5)
    truth = ground_truth_scores(scores, given[0].row, frozenset({4, 6}))
    assert {name: told[name] for name in truth} == pytest.approx(truth)
    assert set(truth) <= set(first.maps[RANDOM]) and not set(truth) & set(second.maps["pooling"])
    assert (first.predicted, first.correct) == (f"c{chosen}", chosen == 1) and second.correct is None
    assert first.p == pytest.approx(p, abs=1e-6)


def test_the_only_head_of_a_place_has_its_numbers() -> None:
    adapter = classifier()
    [one] = run_tests(adapter, cases(adapter, TEXTS[0]), QUICK, 0)
    assert one.maps["pooling/0"] == one.maps["pooling"] and set(one.maps["pooling"]) >= TRIED


def test_attention_does_not_depend_on_the_class() -> None:
    """Weights do not depend on a class; gradients do."""
    adapter = bert("cls")
    [one] = run_tests(adapter, cases(adapter, TEXTS[0]), QUICK, 0)
    for name, numbers in one.maps.items():
        if name in ("relevance", "gradient x attention", "gradient x input", "integrated gradients"):
            assert 0 < numbers["class_sensitivity"] < 1 + 1e-9
        elif name not in (RANDOM, "gradient"):
            assert numbers["class_sensitivity"] == 0
    trace = trace_decisions(adapter, [case.row for case in cases(adapter, TEXTS[0])])
    first, second = (method_maps(adapter, trace, second=which)["gradient x input"][0].clamp(min=0) for which in (0, 1))
    far = float(jsd((first / first.sum()).double(), (second / second.sum()).double())) / log(2)
    assert one.maps["gradient x input"]["class_sensitivity"] == pytest.approx(far, abs=1e-5)


@pytest.mark.parametrize(
    ("adapter", "examples"),
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
def test_every_kind_of_model_can_be_tested(adapter, examples) -> None:
    some = replace(QUICK, places=["*.1.*", "decoder", "pooler.attention"])
    found = run_tests(adapter, cases(adapter, *examples), some, 0)
    for one in found:
        places = [name for name, numbers in one.maps.items() if "permuted" in numbers]
        assert places and all(0 <= one.maps[name]["permuted"] <= 1 for name in places)
        assert 0 < one.p <= 1 and one.predicted


def test_random_numbers_depend_on_the_seed_and_the_part() -> None:
    adapter = classifier()
    given = cases(adapter, *TEXTS)
    first, again, other, seed = (
        [one.to_dict() for one in run_tests(adapter, given, settings, part)]
        for settings, part in ((QUICK, 0), (QUICK, 0), (QUICK, 1), (replace(QUICK, seed=1), 0))
    )
    assert first == again
    assert first != other and first != seed and other != seed
    assert [one["p"] for one in first] == [one["p"] for one in other]


def test_nan_is_left_out() -> None:
    one = ExampleResult(0, ("a",), "x", 0.5, None)
    one.add("map", tau_leave_one_out=float("nan"), class_sensitivity=0.5)
    assert one.maps == {"map": {"class_sensitivity": 0.5}}
