"""From decisions to means: by hand, with controls beside them, whatever order the parts came in."""

from __future__ import annotations

from typing import Any

import pytest

from regard.faithfulness.findings import DIFFERENT
from regard.faithfulness.report import summarise
from regard.faithfulness.run_tests import Settings

SETTINGS = Settings(samples=200)


def decision(number: int, gone: float, far: float = 0.6, right: bool | None = True) -> dict[str, Any]:
    """One that a map of a place with one head, a method and chance were measured of."""
    trial = {"permuted": 0.2, "uniform": 0.1, "adversarial jsd": far, "adversarial shared": 0.1 * (number + 1)}
    erased = {"erased flips": 1.0, "erased random flips": 0.25}
    place = {"comprehensiveness": gone, **trial, **erased}
    return {
        "number": number,
        "tokens": ["a", "b"],
        "chosen": "x",
        "p": 0.9,
        "right": right,
        "maps": {
            "pooling/0": dict(place),
            "pooling": place,
            "rollout": {"comprehensiveness": 0.5},
            "random": {"comprehensiveness": 0.1 * number},
            "gradient": {"tau left out": 0.3},
        },
        "shown": {},
    }


def test_means_and_what_is_compared_decision_by_decision() -> None:
    examined = [decision(0, 0.2), decision(1, 0.6, far=0.1), decision(2, 0.4), decision(2, 0.8, right=False)]
    report = summarise({"model": "toy", "decides": "class"}, examined, SETTINGS)
    found = report.of("pooling")
    assert found["comprehensiveness"].value == pytest.approx(0.5)
    assert found["points"].value == pytest.approx(((0.2 - 0) + (0.6 - 0.1) + (0.4 - 0.2) + (0.8 - 0.2)) / 4)
    assert found["erased more"].value == pytest.approx(0.75)
    assert found["other map"].value == pytest.approx(0.75)
    assert found["other map shares"].value == pytest.approx((0.1 + 0.3 + 0.3) / 3)  # of those that differ
    assert found["comprehensiveness"].count == 3  # two of the four are of one example
    assert report.facts["decisions"] == 4 and report.facts["accuracy"]["value"] == pytest.approx(0.75)
    assert report.of("random")["comprehensiveness"].value == pytest.approx(0.125)
    assert 0 < DIFFERENT < 0.6


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


def test_what_is_not_known_is_not_told() -> None:
    examined = [decision(n, 0.5, right=None) for n in range(3)]
    assert summarise({}, examined, SETTINGS).facts["accuracy"] is None
    for one in examined:
        one["maps"]["pooling"]["adversarial jsd"] = 0.1
    found = summarise({}, examined, SETTINGS)
    assert "other map shares" not in found.of("pooling") and found.of("pooling")["other map"].value == 0
    assert found.verdict("pooling").words.endswith("no very different map gives the same output.")


def test_a_map_that_is_known_of_some_decisions_is_a_mean_over_these() -> None:
    examined = [decision(n, 0.5) for n in range(4)]
    del examined[0]["maps"]["rollout"]
    found = summarise({}, examined, SETTINGS).of("rollout")["comprehensiveness"]
    assert (found.value, found.count) == (0.5, 3)
