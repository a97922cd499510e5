"""Learning-rate schedules with warmup: constant, linear, cosine, inverse square root, Noam, reduce on plateau.

A schedule is a factor on the optimiser's learning rate, a pure function of the step and the evaluations so far: it has
no state, so a resumed training continues exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import cos, inf, pi, sqrt
from typing import Annotated, Literal, assert_never

from pydantic import Field

from regard.training.section import Count, Fraction, RecipeSection


class ConstantSchedule(RecipeSection):
    kind: Literal["constant"] = "constant"
    warmup: Annotated[int, Field(ge=0)] = 0


class LinearSchedule(RecipeSection):
    kind: Literal["linear"] = "linear"
    warmup: Annotated[int, Field(ge=0)] = 0
    floor: Fraction = 0.0


class CosineSchedule(RecipeSection):
    kind: Literal["cosine"] = "cosine"
    warmup: Annotated[int, Field(ge=0)] = 0
    floor: Fraction = 0.0


class InverseRootSchedule(RecipeSection):
    kind: Literal["inverse-root"] = "inverse-root"
    warmup: Count = 4000


class NoamSchedule(RecipeSection):
    kind: Literal["noam"] = "noam"
    width: Count = 512
    warmup: Count = 4000


class PlateauSchedule(RecipeSection):
    kind: Literal["plateau"] = "plateau"
    warmup: Annotated[int, Field(ge=0)] = 0
    patience: Count = 3
    factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    floor: Fraction = 0.0


ScheduleSettings = (
    ConstantSchedule | LinearSchedule | CosineSchedule | InverseRootSchedule | NoamSchedule | PlateauSchedule
)

Schedule = Callable[[int, Sequence[float]], float]
"""(step, monitored) -> factor. `step`: the one about to be taken, counted from 1; `monitored`: the monitored metric of
each evaluation so far, lower is better."""


def make_schedule(section: ScheduleSettings, steps: int) -> Schedule:
    """The schedule of a recipe, for training runs of this many steps.

    >>> factor_at = make_schedule(LinearSchedule(warmup=100), steps=1000)
    >>> factor_at(50, []), factor_at(100, []), factor_at(1000, [])
    (0.5, 1.0, 0.0)
    """
    return partial(factor, section, steps)


def factor(section: ScheduleSettings, steps: int, step: int, monitored: Sequence[float]) -> float:
    """The factor at one step: linear warmup to 1 at step `warmup`, then the decay of the schedule's kind.

    A training shorter than its warmup only warms up.
    """
    match section:
        case ConstantSchedule(warmup=warmup):
            return _warmup(step, warmup)
        case LinearSchedule(warmup=warmup, floor=floor):
            return _decay(step, warmup, steps, floor, lambda done: 1 - done)
        case CosineSchedule(warmup=warmup, floor=floor):
            return _decay(step, warmup, steps, floor, lambda done: (1 + cos(pi * done)) / 2)
        case InverseRootSchedule(warmup=warmup):
            return _warmup(step, warmup) if step <= warmup else sqrt(warmup / step)
        case NoamSchedule(width=width, warmup=warmup):  # Vaswani et al. 2017, equation 3
            return float(width**-0.5 * min(step**-0.5, step * warmup**-1.5))
        case PlateauSchedule(warmup=warmup, floor=floor):
            return _warmup(step, warmup) * max(section.factor ** num_drops(monitored, section.patience), floor)
        case _:
            assert_never(section)


def num_drops(monitored: Sequence[float], patience: int) -> int:
    """How often `patience` evaluations in a row brought no new best; the count starts again after each drop.

    >>> num_drops([3.0, 2.0, 2.5, 2.0, 2.1], patience=2)  # 2.5 and 2.0 do not beat 2.0: a drop; 2.1 counts from 1 again
    1
    """
    best, waited, drops = inf, 0, 0
    for value in monitored:
        if value < best:  # False for NaN
            best, waited = value, 0
        else:
            waited += 1
        if waited == patience:
            waited, drops = 0, drops + 1
    return drops


def _warmup(step: int, warmup: int) -> float:
    return min(1.0, step / max(warmup, 1))


def _decay(step: int, warmup: int, steps: int, floor: float, shape: Callable[[float], float]) -> float:
    """From 1 at the end of the warmup, or at the first step, to `floor` at step `steps` and after it.

    `shape`: falls from 1 to 0 while the share of the decay that is done goes from 0 to 1.
    """
    peak = max(warmup, 1)
    if step <= peak:
        return _warmup(step, warmup)
    if step >= steps:
        return floor
    return floor + (1 - floor) * shape((step - peak) / (steps - peak))
