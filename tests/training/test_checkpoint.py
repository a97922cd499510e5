"""When a checkpoint is due, and which checkpoints are kept."""

from __future__ import annotations

from regard.training.checkpoint import CheckpointSchedule


def test_a_checkpoint_is_due_at_the_interval_and_at_a_new_best() -> None:
    schedule = CheckpointSchedule(every=10, keep_last=2)
    assert [step for step in range(41) if schedule.is_due(step, best=15)] == [10, 15, 20, 30, 40]


def test_the_last_checkpoints_and_the_best_are_kept() -> None:
    schedule = CheckpointSchedule(every=10, keep_last=2)
    assert schedule.retained([10, 15, 20, 30], best=15) == {15, 20, 30}
    assert schedule.retained([10, 20, 30], best=None) == {20, 30}
    assert schedule.retained([20, 30], best=10) == {20, 30}  # the best one was lost


def test_one_regular_checkpoint_more_than_a_weight_average_takes_is_kept() -> None:
    schedule = CheckpointSchedule(every=10, keep_last=1, averaged=2)
    assert schedule.retained([10, 20, 30, 35, 40, 42], best=35) == {20, 30, 35, 40, 42}
