"""From decisions to means and gains over controls, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from regard.faithfulness.decision_scores import AuditSettings
from regard.faithfulness.findings import MIN_DIVERGENCE
from regard.faithfulness.report import summarise

SETTINGS = AuditSettings(bootstrap_samples=200)


def decision(number: int, gone: float, far: float = 0.6, right: bool | None = True) -> dict[str, Any]:
    """A decision with scores of a place with one head, a method and the controls."""
    counterfactual = {
        "permuted": 0.2,
        "uniform": 0.1,
        "adversarial_jsd": far,
        "adversarial_overlap": 0.1 * (number + 1),
    }
    erased = {"erased_flips": 1.0, "erased_random_flips": 0.25}
    place = {"comprehensiveness": gone, **counterfactual, **erased}
    return {
        "number": number,
        "tokens": ["a", "b"],
        "predicted": "x",
        "p": 0.9,
        "correct": right,
        "maps": {
            "pooling/0": dict(place),
            "pooling": place,
            "rollout": {"comprehensiveness": 0.5},
            "random": {"comprehensiveness": 0.1 * number},
            "gradient": {"tau_leave_one_out": 0.3},
        },
        "attributions": {},
    }


def test_means_and_gains_over_decisions() -> None:
    examined = [decision(0, 0.2), decision(1, 0.6, far=0.1), decision(2, 0.4), decision(2, 0.8, right=False)]
    report = summarise({"model": "toy", "decision": "class"}, examined, SETTINGS)
    found = report.estimates("pooling")
    assert found["comprehensiveness"].value == pytest.approx(0.5)
    assert found["comprehensiveness_gain"].value == pytest.approx(
        ((0.2 - 0) + (0.6 - 0.1) + (0.4 - 0.2) + (0.8 - 0.2)) / 4
    )
    assert found["erased_flips_gain"].value == pytest.approx(0.75)
    assert found["alternative_exists"].value == pytest.approx(0.75)
    assert found["alternative_overlap"].value == pytest.approx((0.1 + 0.3 + 0.3) / 3)  # of those that differ
    assert found["comprehensiveness"].count == 3  # two of the four are of one example
    assert report.facts["decisions"] == 4 and report.facts["accuracy"]["value"] == pytest.approx(0.75)
    assert report.estimates("random")["comprehensiveness"].value == pytest.approx(0.125)
    assert 0 < MIN_DIVERGENCE < 0.6


def test_kinds_and_their_order() -> None:
    report = summarise({}, [decision(n, 0.5) for n in range(4)], SETTINGS)
    assert report.maps == ["rollout", "pooling", "pooling/0", "random", "gradient"]
    kinds = {one.map: one.kind for one in report.findings}
    assert kinds == {
        "rollout": "method",
        "pooling": "layer",
        "pooling/0": "head",
        "random": "control",
        "gradient": "control",
    }
    assert [one.map for one in report.verdicts] == ["rollout", "pooling", "pooling/0"]


def test_unknown_values_are_left_out() -> None:
    examined = [decision(n, 0.5, right=None) for n in range(3)]
    assert summarise({}, examined, SETTINGS).facts["accuracy"] is None
    for one in examined:
        one["maps"]["pooling"]["adversarial_jsd"] = 0.1
    found = summarise({}, examined, SETTINGS)
    assert (
        "alternative_overlap" not in found.estimates("pooling")
        and found.estimates("pooling")["alternative_exists"].value == 0
    )
    assert found.verdict("pooling").reason.endswith("no very different map gives the same output.")


def test_a_map_of_some_decisions_is_a_mean_over_these() -> None:
    examined = [decision(n, 0.5) for n in range(4)]
    del examined[0]["maps"]["rollout"]
    found = summarise({}, examined, SETTINGS).estimates("rollout")["comprehensiveness"]
    assert (found.value, found.count) == (0.5, 3)
