"""Steps whose outcome is asked for while the next one is under way: nobody can tell them from those waited for.

A GPU does this by itself; here the CPU's optimisers, which leave weights alone in the same way, are told to.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import SettingError, TrainingError
from regard.training.distributed import DistributedModel, World
from regard.training.events.event import Evaluated, Saved, Skipped, Trained
from regard.training.recipe import Recipe
from regard.training.step import TrainStep
from training.little import little, reading, recipe
from training.test_loop import Died, Heard, die_at, poisoned, resumed, same, trained


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainStep, "_skips_on_device", True)


def events(heard: Heard) -> list[Any]:
    """All but times, memory, and when a thread has saved something."""
    plain = [vars(event) | {"kind": type(event)} for event in heard.events if type(event) is not Saved]
    unsteady = ("seconds", "tokens_per_second", "memory", "facts")
    return [{name: value for name, value in one.items() if name not in unsteady} for one in plain]


def outcome(monkeypatch: pytest.MonkeyPatch, ahead: bool, plan: Recipe, folder: Path) -> tuple[Any, Any]:
    with monkeypatch.context() as patched:
        patched.setattr(TrainStep, "_skips_on_device", ahead)
        heard = Heard()
        found = trained(poisoned(plan) if plan.train.nonfinite == "skip" else little(plan), folder, heard, 16)
        return found, events(heard)


PLANS: dict[str, dict[str, Any]] = {
    "plain": {},
    "told at each step": {"log": {"every": 1}},
    "told seldom": {"log": {"every": 5}, "evaluate": {"every": 7}, "checkpoint": {"every": 4}},
    "accumulated": {"train": {"accumulate": 2}},
    "moving average": {"weight_average": {"kind": "ema", "decay": 0.9}},
    "skipping": {"train": {"nonfinite": "skip"}, "log": {"every": 1}},
    "momentum": {"optimiser": {"kind": "sgd", "momentum": 0.9}},
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_weights_and_events_are_the_same(plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    whole = recipe(**plan)
    waited, told = outcome(monkeypatch, False, whole, tmp_path / "waited")
    found, heard = outcome(monkeypatch, True, whole, tmp_path / "late")
    assert same(found, waited) and heard == told


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("plan", [{}, {"train": {"accumulate": 3}}], ids=["plain", "accumulated"])
@pytest.mark.parametrize("make", [little, reading])
def test_a_training_that_died_and_resumed_ends_as_one_that_lived(make: Any, plan: Any, tmp_path: Path) -> None:
    whole = trained(make(recipe(**plan)), tmp_path / "whole")
    for step, kind in ((2, Trained), (8, Evaluated), (10, Trained)):
        folder = tmp_path / f"died at {step}"
        with pytest.raises(Died):
            trained(make(recipe(**plan)), folder, Heard(die_at(step, kind)))
        torch.manual_seed(99)
        assert same(resumed(make(recipe(**plan)), folder), whole)


@pytest.mark.usefixtures("late")
def test_a_step_that_stops_the_training_is_undone_with_the_one_after_it(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="has a loss of nan") as caught:
        trained(poisoned(recipe()), tmp_path)
    with pytest.raises(TrainingError) as again:  # at once
        resumed(poisoned(recipe()), tmp_path)
    assert str(again.value) == str(caught.value)
    assert same(resumed(little(), tmp_path), trained(little(), tmp_path / "whole"))


@pytest.mark.usefixtures("late")
def test_skips_are_counted_under_their_own_numbers(tmp_path: Path) -> None:
    heard = Heard()
    found = trained(poisoned(recipe(train={"nonfinite": "skip"})), tmp_path, heard, 16)
    assert [event.count for event in heard.of(Skipped)] == [1, 2]
    assert all(bool(tensor.isfinite().all()) for tensor in found.values())


@pytest.mark.parametrize("world", [World(), World(0, 2, torch.device("cuda", 0))], ids=["cpu", "several"])
def test_graphs_want_one_gpu(world: World) -> None:
    with pytest.raises(SettingError, match=r"train.compile: got train.compile = 'graphs' on \d x c.*expected one proc"):
        DistributedModel(little().model, world, cuda_graphs=True)
