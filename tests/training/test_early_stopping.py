"""What follows from the few numbers that a checkpoint keeps."""

import json
from math import inf, nan

import pytest

from regard.training.early_stopping import Progress


def progress(better: str, *values: float) -> Progress:
    made = Progress("score", better)  # type: ignore[arg-type]
    for number, value in enumerate(values, start=1):
        made.history.append((10 * number, {"score": value}))
    made.step = 10 * len(values)
    return made


@pytest.mark.parametrize(
    ("better", "values", "best", "stale"),
    [
        ("lower", (3.0, 1.0, 2.0), 20, 1),
        ("higher", (3.0, 1.0, 2.0), 10, 2),
        ("lower", (1.0, 1.0), 10, 1),  # the first one of equals
        ("higher", (nan, 0.5, nan), 20, 1),
        ("lower", (nan, nan), None, 2),
        ("lower", (inf, 5.0), 20, 0),
        ("lower", (), None, 0),
    ],
)
def test_the_best_evaluation(better: str, values: tuple[float, ...], best: int | None, stale: int) -> None:
    made = progress(better, *values)
    assert (made.best_step, made.evaluations_since_best) == (best, stale)
    assert made.best_metrics == ({} if best is None else {"score": values[best // 10 - 1]})


def test_lower_is_better_for_whoever_watches() -> None:
    assert progress("higher", 0.1, 0.9).monitored == [-0.1, -0.9]
    assert progress("lower", 0.1, 0.9).monitored == [0.1, 0.9]


def test_it_comes_back_from_json() -> None:
    made = progress("higher", 0.5, 0.7)
    made.tokens, made.seconds, made.skipped = 99, 1.5, 2
    again = Progress("score", "higher")
    again.restore(json.loads(json.dumps(made.scalars())))
    assert again == made
    assert again.is_evaluated
    again.step += 1
    assert not again.is_evaluated
