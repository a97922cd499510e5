"""How the learning rate goes: a factor on the optimiser's rate, a pure function of the step and of what was evaluated.

Because nothing is remembered between calls, a resumed training goes on exactly as one that never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import cos, inf, pi, sqrt
from typing import assert_never

from regard.training.recipe import Constant, Cosine, InverseRoot, Linear, Noam, Plateau

Schedule = Callable[[int, Sequence[float]], float]
"""(step, watched) -> factor. `step`: the one about to be done, counted from 1; `watched`: one value for each evaluation
so far, lower is better."""
Kind = Constant | Linear | Cosine | InverseRoot | Noam | Plateau


def schedule(section: Kind, steps: int) -> Schedule:
    """The schedule that a recipe's section describes, for a training of so many steps.

    >>> rate = schedule(Linear(warmup=100), steps=1000)
    >>> rate(50, []), rate(100, []), rate(1000, [])
    (0.5, 1.0, 0.0)
    """
    return partial(factor, section, steps)


def factor(section: Kind, steps: int, step: int, watched: Sequence[float]) -> float:
    """The factor of one step: it climbs to 1 at step `warmup`, and then goes the way of its kind.

    A training too short for its warm-up climbs to its end.
    """
    match section:
        case Constant(warmup=warmup):
            return _climb(step, warmup)
        case Linear(warmup=warmup, floor=floor):
            return _fall(step, warmup, steps, floor, lambda gone: 1 - gone)
        case Cosine(warmup=warmup, floor=floor):
            return _fall(step, warmup, steps, floor, lambda gone: (1 + cos(pi * gone)) / 2)
        case InverseRoot(warmup=warmup):
            return _climb(step, warmup) if step <= warmup else sqrt(warmup / step)
        case Noam(
            width=width, warmup=warmup
        ):  # Vaswani et al. 2017, equation 3: the optimiser's rate is a factor on it
            return float(width**-0.5 * min(step**-0.5, step * warmup**-1.5))
        case Plateau(warmup=warmup, floor=floor):
            return _climb(step, warmup) * max(section.factor ** drops(watched, section.patience), floor)
        case _:
            assert_never(section)


def drops(watched: Sequence[float], patience: int) -> int:
    """How often `patience` evaluations in a row brought no new best; the count starts anew after each time.

    >>> drops([3.0, 2.0, 2.5, 2.0, 2.1], patience=2)  # 2.5 and 2.0 are no better than 2.0; then 2.1 is the first again
    1
    """
    best, waited, dropped = inf, 0, 0
    for value in watched:
        if value < best:  # nan never is
            best, waited = value, 0
        else:
            waited += 1
        if waited == patience:
            waited, dropped = 0, dropped + 1
    return dropped


def _climb(step: int, warmup: int) -> float:
    return min(1.0, step / max(warmup, 1))


def _fall(step: int, warmup: int, steps: int, floor: float, shape: Callable[[float], float]) -> float:
    """From 1 at the end of the warm-up, or at the first step, to the floor at step `steps`; there it stays.

    `shape` says how: from 1 to 0 while the share of the way that is gone goes from 0 to 1.
    """
    peak = max(warmup, 1)
    if step <= peak:
        return _climb(step, warmup)
    if step >= steps:
        return floor
    return floor + (1 - floor) * shape((step - peak) / (steps - peak))
