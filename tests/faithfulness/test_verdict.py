"""Verdicts: three questions, and the words that the answers come in."""

from __future__ import annotations

import pytest

from regard.faithfulness.findings import BADGES, Verdict, judge
from regard.inspection.statistics import Estimate


def sure(value: float, spread: float = 0.02) -> Estimate:
    return Estimate(value, value - spread, value + spread, 50)


def found(points: float = 0.2, permuted: float = 0.3, others: float = 0.1, **more: Estimate) -> dict[str, Estimate]:
    return {
        "points": sure(points),
        "comprehensiveness": sure(0.35),
        "permuted": sure(permuted),
        "uniform": sure(0.01),
        "other map": sure(others),
        "other map shares": sure(0.03),
    } | more


@pytest.mark.parametrize(
    ("numbers", "status"),
    [
        (found(), "explains"),
        (found(points=0.01), "does not explain"),  # the interval reaches 0
        (found(points=-0.2), "does not explain"),
        (found(permuted=0.04), "points"),  # nothing hangs on it
        (found(permuted=0.04, uniform=sure(0.4)), "explains"),  # one way of moving is enough
        (found(others=0.94), "points"),
        (found(others=0.49), "points"),  # it may be half of the cases
        (found(points=0.01, permuted=0.0, others=1.0), "does not explain"),
        (found(precision=sure(0.6), true=sure(0.5)), "explains"),
        (found(precision=sure(0.1), true=sure(0.01)), "does not explain"),  # it misses what is known to decide
    ],
)
def test_a_map_explains_that_points_that_counts_and_that_is_the_only_one(
    numbers: dict[str, Estimate], status: str
) -> None:
    for kind in ("head", "layer"):
        verdict = judge("pooling", kind, numbers)
        assert (verdict.map, verdict.kind, verdict.status) == ("pooling", kind, status)


def test_a_method_can_do_no_more_than_point() -> None:
    assert judge("rollout", "method", {"points": sure(0.2), "comprehensiveness": sure(0.3)}).status == "points"
    assert (
        judge("rollout", "method", {"points": sure(0.0), "comprehensiveness": sure(0.3)}).status == "does not explain"
    )


def test_words_say_the_numbers() -> None:
    words = judge("pooling", "layer", found(points=0.0, permuted=0.013, others=0.94)).words
    assert words == (
        "This map does not explain the decision: without its best words 35% of the probability is gone, no more than "
        "without as many at random (0% [-2%, +2%]); the output hardly moves (1.3%) when the words exchange their "
        "weights; a map sharing 3% with it gives the same output in 94% of cases."
    )
    known = judge("pooling", "layer", found(precision=sure(0.1), true=sure(0.01))).words
    assert known.startswith(
        "This map does not explain the decision: 10% of the words that it holds most important are known to decide, no "
        "more than at random (9%); without its best words 35%"
    )
    assert judge("pooling", "layer", found()).words.startswith("This map explains the decision: without its best words")
    assert "in only 10% of cases" in judge("pooling", "layer", found()).words


def test_where_no_other_map_was_ever_found() -> None:
    numbers = found(others=0.0)
    del numbers["other map shares"]
    verdict = judge("pooling", "layer", numbers)
    assert verdict.status == "explains" and verdict.words.endswith("; no very different map gives the same output.")


def test_of_few_examples_nothing_is_said() -> None:
    few = Estimate(0.9, None, None, 2)
    for numbers in ({}, {"points": few, "comprehensiveness": few}):
        assert judge("a", "method", numbers) == Verdict("a", "method", "not known", "Too few examples to say anything.")


def test_every_status_has_a_badge() -> None:
    assert set(BADGES) == {"explains", "points", "does not explain", "not known"} and all(BADGES.values())
