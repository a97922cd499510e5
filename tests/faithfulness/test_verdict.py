"""Verdicts: three questions, and the reasons in words."""

from __future__ import annotations

import pytest

from regard.faithfulness.findings import BADGES, Verdict, judge
from regard.inspection.bootstrap import ConfidenceInterval


def sure(value: float, spread: float = 0.02) -> ConfidenceInterval:
    return ConfidenceInterval(value, value - spread, value + spread, 50)


def found(
    gain: float = 0.2, permuted: float = 0.3, others: float = 0.1, **more: ConfidenceInterval
) -> dict[str, ConfidenceInterval]:
    return {
        "comprehensiveness_gain": sure(gain),
        "comprehensiveness": sure(0.35),
        "permuted": sure(permuted),
        "uniform": sure(0.01),
        "alternative_exists": sure(others),
        "alternative_overlap": sure(0.03),
    } | more


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        (found(), "explains"),
        (found(gain=0.01), "does not explain"),  # the interval reaches 0
        (found(gain=-0.2), "does not explain"),
        (found(permuted=0.04), "informative"),  # nothing hangs on it
        (found(permuted=0.04, uniform=sure(0.4)), "explains"),  # one way of moving is enough
        (found(others=0.94), "informative"),
        (found(others=0.49), "informative"),  # it may be half of the cases
        (found(gain=0.01, permuted=0.0, others=1.0), "does not explain"),
        (found(precision=sure(0.6), precision_gain=sure(0.5)), "explains"),
        (
            found(precision=sure(0.1), precision_gain=sure(0.01)),
            "does not explain",
        ),  # it misses what is known to decide
    ],
)
def test_a_map_explains_if_it_matters_is_used_and_is_unique(
    numbers: dict[str, ConfidenceInterval], status: str
) -> None:
    for kind in ("head", "layer"):
        verdict = judge("pooling", kind, numbers)
        assert (verdict.map, verdict.kind, verdict.status) == ("pooling", kind, status)


def test_a_method_is_informative_at_best() -> None:
    assert (
        judge("rollout", "method", {"comprehensiveness_gain": sure(0.2), "comprehensiveness": sure(0.3)}).status
        == "informative"
    )
    assert (
        judge("rollout", "method", {"comprehensiveness_gain": sure(0.0), "comprehensiveness": sure(0.3)}).status
        == "does not explain"
    )


def test_reasons_give_the_numbers() -> None:
    words = judge("pooling", "layer", found(gain=0.0, permuted=0.013, others=0.94)).reason
    assert words == (
        "This map does not explain the decision: removing its top words lowers the probability by 35%, no more than "
        "removing as many random words (difference 0% [-2%, +2%]); permuting its weights hardly changes the output "
        "(1.3%); a very different map (overlap 3%) gives the same output in 94% of cases."
    )
    known = judge("pooling", "layer", found(precision=sure(0.1), precision_gain=sure(0.01))).reason
    assert known.startswith(
        "This map does not explain the decision: 10% of its top words are known to decide, no better than random (9%); "
        "removing its top words lowers the probability by 35%"
    )
    assert judge("pooling", "layer", found()).reason.startswith(
        "This map explains the decision: removing its top words"
    )
    assert "in only 10% of cases" in judge("pooling", "layer", found()).reason


def test_without_an_alternative_map() -> None:
    numbers = found(others=0.0)
    del numbers["alternative_overlap"]
    verdict = judge("pooling", "layer", numbers)
    assert verdict.status == "explains" and verdict.reason.endswith("; no very different map gives the same output.")


def test_few_examples_are_inconclusive() -> None:
    few = ConfidenceInterval(0.9, None, None, 2)
    for numbers in ({}, {"comprehensiveness_gain": few, "comprehensiveness": few}):
        assert judge("a", "method", numbers) == Verdict(
            "a", "method", "inconclusive", "Too few examples for a verdict."
        )


def test_every_status_has_a_badge() -> None:
    assert set(BADGES) == {"explains", "informative", "does not explain", "inconclusive"} and all(BADGES.values())
