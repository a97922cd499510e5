"""Schedules: pure, continuous, never negative, and each the curve it is named after."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, strategies as st

from regard.training.schedules import (
    ConstantSchedule,
    CosineSchedule,
    InverseRootSchedule,
    LinearSchedule,
    NoamSchedule,
    PlateauSchedule,
    ScheduleSettings,
    make_schedule,
    num_drops,
)

WARMUPS = st.integers(0, 60)
FLOORS = st.floats(0, 0.99)
PLATEAUS = st.builds(
    PlateauSchedule, warmup=WARMUPS, patience=st.integers(1, 4), factor=st.floats(0.01, 0.99), floor=st.floats(0, 0.99)
)
FALLING = st.one_of(
    st.builds(LinearSchedule, warmup=WARMUPS, floor=FLOORS),
    st.builds(CosineSchedule, warmup=WARMUPS, floor=FLOORS),
)
KINDS = st.one_of(
    FALLING,
    st.builds(ConstantSchedule, warmup=WARMUPS),
    st.builds(InverseRootSchedule, warmup=st.integers(1, 60)),
    st.builds(NoamSchedule, width=st.integers(1, 1024), warmup=st.integers(1, 60)),
    PLATEAUS,
)
WATCHED = st.lists(st.one_of(st.floats(), st.integers(0, 3).map(float)), max_size=12)


@given(KINDS, st.integers(1, 120), st.integers(1, 200), WATCHED)
def test_a_factor_is_between_0_and_1(kind: ScheduleSettings, steps: int, step: int, watched: list[float]) -> None:
    assert 0 <= make_schedule(kind, steps)(step, watched) <= 1


@given(KINDS, st.integers(1, 120), WATCHED)
def test_resumed_equals_uninterrupted(kind: ScheduleSettings, steps: int, watched: list[float]) -> None:
    """Whatever was asked before, in whatever order, a step has the factor it has."""
    went = make_schedule(kind, steps)
    onward = [went(step, watched) for step in range(1, steps + 1)]
    assert [make_schedule(kind, steps)(step, watched) for step in range(steps, 0, -1)][::-1] == onward


@given(KINDS, st.integers(1, 120), WATCHED)
def test_one_rise_and_then_no_more(kind: ScheduleSettings, steps: int, watched: list[float]) -> None:
    factors = [make_schedule(kind, steps)(step, watched) for step in range(1, steps + 20)]
    summit = max(kind.warmup, 1)
    assert factors[:summit] == sorted(factors[:summit])
    assert factors[summit - 1 :] == sorted(factors[summit - 1 :], reverse=True)


@given(KINDS.filter(lambda kind: not isinstance(kind, NoamSchedule)))
def test_the_warm_up_is_a_straight_line_to_1(kind: ScheduleSettings) -> None:
    went = make_schedule(kind, 1000)
    for step in range(1, kind.warmup + 1):
        assert went(step, []) == step / kind.warmup
    assert went(max(kind.warmup, 1), []) == 1


@given(KINDS, st.integers(1000, 2000))
def test_nothing_jumps(kind: ScheduleSettings, steps: int) -> None:
    """Between neighbouring steps a factor changes by no more than its steepest line: the warm-up's, or the fall's."""
    went = make_schedule(kind, steps)
    peak = max(kind.warmup, 1)
    steepest = max(1 / peak, math.pi / 2 / (steps - peak))
    for step in range(1, peak + 50):
        assert abs(went(step + 1, []) - went(step, [])) <= steepest + 1e-12


@given(FALLING, st.integers(100, 200))
def test_the_floor_is_reached_at_the_last_step_and_kept(kind: LinearSchedule | CosineSchedule, steps: int) -> None:
    went = make_schedule(kind, steps)
    assert went(steps - 1, []) > went(steps, []) == went(steps + 1, []) == went(10 * steps, []) == kind.floor


def test_half_way_down() -> None:
    for kind in (LinearSchedule(warmup=100, floor=0.2), CosineSchedule(warmup=100, floor=0.2)):
        assert make_schedule(kind, 300)(200, []) == pytest.approx(0.6)
    assert make_schedule(CosineSchedule(), 401)(101, []) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_a_single_step_is_done_at_full_rate() -> None:
    assert [
        make_schedule(kind, 1)(1, [])
        for kind in (LinearSchedule(), CosineSchedule(), ConstantSchedule(), PlateauSchedule())
    ] == [1, 1, 1, 1]


def test_a_training_shorter_than_its_warm_up_climbs_to_its_end() -> None:
    assert [make_schedule(CosineSchedule(warmup=10), 4)(step, []) for step in range(1, 5)] == [0.1, 0.2, 0.3, 0.4]


def test_inverse_root() -> None:
    went = make_schedule(InverseRootSchedule(warmup=100), 10_000)
    assert (went(50, []), went(100, []), went(400, []), went(10_000, [])) == (0.5, 1, 0.5, 0.1)


def test_noam_is_the_published_formula() -> None:
    """The base model of Vaswani et al.: width 512, 4000 steps of warm-up; the peak is at step 4000."""
    went = make_schedule(NoamSchedule(width=512, warmup=4000), 100_000)
    assert went(1, []) == pytest.approx(512**-0.5 * 4000**-1.5)
    assert went(4000, []) == pytest.approx(512**-0.5 * 4000**-0.5)
    assert went(100_000, []) == pytest.approx(512**-0.5 * 100_000**-0.5)
    for step in (10, 4000, 70_000):  # the inverse root, up to its height
        assert went(step, []) / went(4000, []) == pytest.approx(make_schedule(InverseRootSchedule(), 100_000)(step, []))


def test_a_plateau_by_hand() -> None:
    """Patience 2, factor 1/2, floor 0.2, as the evaluations come in."""
    table = [  # value, factor afterwards
        (5.0, 1.0),  # the first is a new best
        (4.0, 1.0),
        (4.0, 1.0),  # equal is not better: one
        (4.5, 0.5),  # two: a drop, and the count starts anew
        (4.1, 0.5),  # one
        (3.9, 0.5),  # a new best
        (math.nan, 0.5),  # no number is never better: one
        (4.0, 0.25),  # two
        (4.0, 0.25),
        (4.0, 0.2),  # 0.125 is under the floor
        (1.0, 0.2),  # a new best never brings the rate back
    ]
    went = make_schedule(PlateauSchedule(patience=2, factor=0.5, floor=0.2), 1000)
    assert went(100, []) == 1
    for seen in range(len(table)):
        assert went(100, [value for value, _ in table[: seen + 1]]) == table[seen][1]


def test_a_plateau_during_warm_up_lowers_the_line() -> None:
    went = make_schedule(PlateauSchedule(warmup=10, patience=1, factor=0.5), 1000)
    assert (went(5, [1.0, 2.0]), went(10, [1.0, 2.0]), went(11, [1.0, 2.0])) == (0.25, 0.5, 0.5)


@given(PLATEAUS, st.lists(st.floats(-5, 5) | st.integers(0, 3).map(float), max_size=40))
def test_a_plateau_is_torchs(kind: PlateauSchedule, watched: list[float]) -> None:
    """torch drops after more than `patience` bad evaluations, we after as many as it says."""
    optimiser = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser,
        factor=kind.factor,
        patience=kind.patience - 1,
        threshold=0,
        threshold_mode="abs",
        min_lr=kind.floor,
        eps=0,
    )
    ours = make_schedule(kind, 10_000)
    for seen, value in enumerate(watched, start=1):
        theirs.step(value)
        assert ours(5000, watched[:seen]) == pytest.approx(optimiser.param_groups[0]["lr"], rel=1e-9)


@given(st.lists(st.floats(allow_nan=False)), st.integers(1, 5))
def test_drops_count_runs_without_a_best(watched: list[float], patience: int) -> None:
    """The same count from the other side: positions of new bests cut the history into waits."""
    bests = [i for i, value in enumerate(watched) if value < min([math.inf, *watched[:i]])]
    ends = [*bests, len(watched)]
    waits = [ends[0], *(later - earlier - 1 for earlier, later in pairwise(ends))]
    assert num_drops(watched, patience) == sum(wait // patience for wait in waits)
