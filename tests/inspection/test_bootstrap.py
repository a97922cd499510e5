"""Bootstrap intervals have their nominal coverage; decisions of one example count once."""

from __future__ import annotations

from collections.abc import Callable
from math import nan
from statistics import NormalDist

import numpy as np
import pytest
import torch

from regard.errors import SettingError
from regard.inspection.bootstrap import (
    CONFIDENCE_LEVEL,
    MIN_EXAMPLES,
    STANDARD_ERRORS,
    Bootstrap,
    ConfidenceInterval,
    percentile_interval,
    poisson_counts,
)

REPEATS = 400
Draw = Callable[[np.random.Generator, int], np.ndarray]

DATA: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, n: rng.normal(2.0, 3.0, n), 2.0),
    "skewed": (lambda rng, n: rng.exponential(1.0, n), 1.0),
    "0 or 1": (lambda rng, n: (rng.random(n) < 0.4).astype(float), 0.4),
}


def coverage(bootstrap: Bootstrap, draw: Callable[[], np.ndarray], truth: float) -> float:
    """How often the interval holds the truth."""
    inside = 0
    for _ in range(REPEATS):
        found = bootstrap.mean(draw().tolist())
        assert found is not None and found.low is not None and found.high is not None
        assert found.low <= found.value <= found.high
        inside += found.low <= truth <= found.high
    return inside / REPEATS


@pytest.mark.parametrize("count", [10, 30, 100])
@pytest.mark.parametrize("name", DATA)
def test_intervals_have_their_nominal_coverage(name: str, count: int) -> None:
    draw, truth = DATA[name]
    rng = np.random.default_rng(count)
    found = coverage(Bootstrap(list(range(count)), 400), lambda: draw(rng, count), truth)
    assert 0.90 <= found <= 0.985, found


@pytest.mark.parametrize("count", [12, 40])
def test_decisions_of_one_example_are_resampled_together(count: int) -> None:
    """Four decisions of each example, nearly the same: taken one by one they would seem far surer than they are."""
    rng = np.random.default_rng(count)
    groups = [number for number in range(count) for _ in range(4)]

    def draw() -> np.ndarray:
        return np.repeat(rng.normal(1.0, 1.0, count), 4) + rng.normal(0.0, 0.1, 4 * count)

    together = coverage(Bootstrap(groups, 400), draw, 1.0)
    apart = coverage(Bootstrap(list(range(4 * count)), 400), draw, 1.0)
    assert together >= 0.90 and apart < 0.80


def test_examples_with_more_decisions_count_for_more() -> None:
    """The mean is over decisions; only the chance is that of the examples."""
    found = Bootstrap([0, 0, 0, 1, 2]).mean([1.0, 1.0, 1.0, 0.0, 0.0])
    assert found is not None and found.value == pytest.approx(0.6) and found.count == 3


def test_the_same_seed_the_same_interval() -> None:
    values = np.random.default_rng(0).normal(size=20).tolist()
    first, again, other = (Bootstrap(list(range(20)), seed=seed).mean(values) for seed in (1, 1, 2))
    assert first == again and first != other


def test_more_examples_and_less_certainty_make_it_narrower() -> None:
    def wide(count: int, level: float = 0.95) -> float:
        values = np.random.default_rng(0).normal(size=count).tolist()
        found = Bootstrap(list(range(count)), level=level).mean(values)
        assert found is not None and found.low is not None and found.high is not None
        return found.high - found.low

    assert wide(200) < wide(50) < wide(10) and wide(50, 0.8) < wide(50, 0.95) < wide(50, 0.99)


def test_unknown_values_are_left_out() -> None:
    draws = Bootstrap([0, 1, 2, 3])
    assert draws.mean([None, None, nan, None]) is None
    some = draws.mean([1.0, None, 2.0, nan])
    assert some == ConfidenceInterval(1.5, None, None, 2)
    assert some.count < MIN_EXAMPLES
    three = draws.mean([1.0, None, 2.0, 3.0])
    assert three is not None and three.value == 2.0 and three.low is not None and 1.0 <= three.low < 2.0


def test_constant_values_have_a_zero_width_interval() -> None:
    assert Bootstrap(list(range(9))).mean([0.25] * 9) == ConfidenceInterval(0.25, 0.25, 0.25, 9)


def test_formatting() -> None:
    assert str(ConfidenceInterval(0.5, 0.25, 0.756, 9)) == "0.50 [0.25, 0.76]"
    assert str(ConfidenceInterval(0.5, None, None, 2)) == "0.50"
    with pytest.raises(SettingError, match="no examples"):
        Bootstrap([])


def test_poisson_counts_belong_to_the_example() -> None:
    assert poisson_counts(5, 0, 200).equal(poisson_counts(5, 0, 200))
    assert not poisson_counts(5, 0, 200).equal(poisson_counts(6, 0, 200))
    many = torch.stack([poisson_counts(number, 0, 200) for number in range(400)]).double()
    assert float(many.mean()) == pytest.approx(1, abs=0.02)
    assert float(many.var()) == pytest.approx(1, abs=0.03)


def test_the_percentile_interval_leaves_out_a_twentieth_half_at_each_end() -> None:
    resampled = torch.arange(201.0, dtype=torch.float64)
    resampled[7] = float("nan")  # does not count
    low, high = percentile_interval(torch.stack([resampled, 2 * resampled], dim=-1))
    known = resampled[~resampled.isnan()].numpy()
    assert low.tolist() == pytest.approx([np.quantile(known, 0.025), 2 * np.quantile(known, 0.025)])
    assert high.tolist() == pytest.approx([np.quantile(known, 0.975), 2 * np.quantile(known, 0.975)])
    assert pytest.approx(2 * NormalDist().inv_cdf((1 + CONFIDENCE_LEVEL) / 2), abs=1e-3) == STANDARD_ERRORS
