"""The loop: what it computes, what it does between steps, and that an interruption changes not one bit."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.errors import RunError, SettingError, TrainingError
from regard.runs.weights import load_weights, weights_of
from regard.training.distributed import World
from regard.training.events.event import Ended, Evaluated, Event, Resumed, Skipped, Started, Trained
from regard.training.failures import read_batch
from regard.training.loop import Loop
from regard.training.objectives.base import Carry, Loss
from regard.training.recipe import PreparedTask, Recipe
from regard.training.run_writer import RunWriter
from training.little import Bag, Guess, little, reading, recipe

Weights = dict[str, Tensor]


class Heard:
    """Keeps every event; `at` is called with each of them."""

    def __init__(self, at: Callable[[Event], None] = lambda event: None) -> None:
        self.events: list[Event] = []
        self.at = at

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        self.at(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if type(event) is kind]


class Died(Exception):
    """Stands for the end of the process."""


def loop_of(prepared: PreparedTask, folder: Path | None = None, heard: Heard | None = None, steps: int = 12) -> Loop:
    writer = None if folder is None else RunWriter(folder, World(), prepared.recipe)
    return Loop(prepared, steps, World(), writer, [heard] if heard else [])


def trained(prepared: PreparedTask, folder: Path | None = None, heard: Heard | None = None, steps: int = 12) -> Weights:
    loop = loop_of(prepared, folder, heard, steps)
    loop.start()
    loop.run()
    return {name: tensor.clone() for name, tensor in weights_of(prepared.model).items()}


def resumed(prepared: PreparedTask, folder: Path, heard: Heard | None = None, steps: int = 12) -> Weights:
    loop = loop_of(prepared, folder, heard, steps)
    loop.resume()
    loop.run()
    return {name: tensor.clone() for name, tensor in weights_of(prepared.model).items()}


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def die_at(step: int, kind: type[Event]) -> Callable[[Event], None]:
    def at(event: Event) -> None:
        if isinstance(event, kind) and event.step == step:
            raise Died

    return at


PLANS: dict[str, dict[str, Any]] = {
    "plain": {},
    "momentum": {"optimiser": {"kind": "sgd", "momentum": 0.9}},
    "accumulated": {"train": {"accumulate": 3}},
    "moving average": {"weight_average": {"kind": "ema", "decay": 0.9}},
    "mean of the last": {"weight_average": {"kind": "last", "count": 2}},
    "plateau": {"schedule": {"kind": "plateau", "patience": 1}, "evaluate": {"every": 1}},
    "bf16": {"train": {"precision": "bf16"}},
    "fp16": {"train": {"precision": "fp16"}},
    "batches ahead": {"train": {"prefetch": 3}},
}


@pytest.mark.parametrize(
    ("make", "plan"),
    [*((little, plan) for plan in PLANS.values()), (reading, {}), (reading, PLANS["accumulated"])],
    ids=[*PLANS, "recurrent", "recurrent and accumulated"],
)
def test_a_training_that_died_and_resumed_ends_as_one_that_lived(
    make: Callable[[Recipe], PreparedTask], plan: dict[str, Any], tmp_path: Path
) -> None:
    whole = trained(make(recipe(**plan)), tmp_path / "whole")
    for step, kind in ((2, Trained), (8, Evaluated), (10, Trained)):
        folder = tmp_path / f"died at {step}"
        with pytest.raises(Died):
            trained(make(recipe(**plan)), folder, Heard(die_at(step, kind)))
        torch.manual_seed(99)  # another process has other random states
        assert same(resumed(make(recipe(**plan)), folder), whole)
        kept = [make(recipe(**plan)).model for _ in range(2)]
        for model, where in zip(kept, (folder, tmp_path / "whole"), strict=True):
            load_weights(model, where)
        assert same(weights_of(kept[0]), weights_of(kept[1]))


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a compiler")
def test_a_compiled_model_trains_and_resumes_the_same(tmp_path: Path) -> None:
    def compiled(dropout: float = 0.2) -> PreparedTask:
        made = little()
        made.model.dropout.p = dropout
        made.model.compile()
        return made

    plain = little()
    plain.model.dropout.p = 0.0  # compiled code draws its chance in another order
    expected = trained(plain, tmp_path / "plain")
    for name, tensor in trained(compiled(0.0), tmp_path / "undropped").items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=1e-5)
    whole = trained(compiled(), tmp_path / "whole")
    with pytest.raises(Died):
        trained(compiled(), tmp_path / "cut", Heard(die_at(8, Evaluated)))
    assert same(resumed(compiled(), tmp_path / "cut"), whole)


def test_resuming_what_is_finished_changes_nothing(tmp_path: Path) -> None:
    whole = trained(little(), tmp_path)
    heard = Heard()
    assert same(resumed(little(), tmp_path, heard), whole)
    assert not heard.of(Trained)
    assert heard.of(Ended)[0].reason == "finished"


def test_starting_over_checkpoints_is_refused(tmp_path: Path) -> None:
    trained(little(), tmp_path)
    with pytest.raises(RunError, match=r"has checkpoints already.*Loop.resume continues from them"):
        trained(little(), tmp_path)


def test_more_steps_can_be_asked_for_later(tmp_path: Path) -> None:
    whole = trained(little(recipe(train={"steps": 20})), tmp_path / "whole", steps=20)
    trained(little(recipe(train={"steps": 9})), tmp_path / "first", steps=9)
    assert same(resumed(little(recipe(train={"steps": 20})), tmp_path / "first", steps=20), whole)


def test_evaluating_and_sampling_disturb_nothing(tmp_path: Path) -> None:
    often = trained(little(recipe(evaluate={"every": 1, "samples": 5, "generations": 10})))
    never = little()
    alone = PreparedTask(never.recipe, never.model, never.objective, never.train, None)
    assert same(trained(alone), often)


def test_accumulated_batches_are_one_large_batch() -> None:
    """Without dropout; the batches of 4 rows, 15 to an epoch, are taken five at a time, and all at once by hand."""
    prepared = little(
        recipe(train={"accumulate": 5, "clip": None}, optimiser={"kind": "sgd", "weight_decay": 0.0}), rows=4
    )
    prepared.model.dropout.p = 0.0
    by_hand = Bag()
    by_hand.load_state_dict(prepared.model.state_dict())
    by_hand.dropout.p = 0.0
    optimiser = torch.optim.SGD(by_hand.parameters(), 0.1)
    every = list(little(rows=4).train)
    for start in (0, 5, 10):
        some = every[start : start + 5]
        total = sum(Guess().loss(by_hand, batch, None).total for batch in some)
        optimiser.zero_grad()
        (total / sum(batch.tokens for batch in some)).backward()
        optimiser.step()
    found = trained(prepared, steps=3)
    for name, tensor in weights_of(by_hand).items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-5, atol=1e-6)


def test_the_loop_does_what_a_loop_written_by_hand_does() -> None:
    prepared, by_hand = little(recipe(schedule={"kind": "linear", "warmup": 4})), little()
    torch.manual_seed(0)
    loop = loop_of(prepared)
    loop.start()
    random = torch.get_rng_state()
    loop.run()
    torch.set_rng_state(random)
    matrices = [one for one in by_hand.model.parameters() if one.dim() > 1]
    vectors = [one for one in by_hand.model.parameters() if one.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, fused=True)
    step = 0
    while step < 12:
        for batch in by_hand.train:
            step += 1
            loss = Guess().loss(by_hand.model, batch, None).total * (1 / batch.tokens)
            loss.backward()
            nn.utils.clip_grad_norm_(by_hand.model.parameters(), 1.0)
            for group in optimiser.param_groups:
                group["lr"] = 1e-3 * (step / 4 if step <= 4 else (12 - step) / 8)
            optimiser.step()
            optimiser.zero_grad()
            if step == 12:
                break
    for name, tensor in weights_of(by_hand.model).items():
        torch.testing.assert_close(dict(prepared.model.named_parameters())[name], tensor, rtol=1e-6, atol=1e-7)


def test_the_moving_average_is_what_is_evaluated_and_kept(tmp_path: Path) -> None:
    plan = recipe(weight_average={"kind": "ema", "decay": 0.5}, train={"steps": 3}, evaluate={"every": 3})
    prepared, seen, heard = little(plan), [], Heard()
    average = {name: tensor.clone() for name, tensor in weights_of(prepared.model).items()}
    heard.at = lambda event: (
        seen.append({name: tensor.clone() for name, tensor in weights_of(prepared.model).items()})
        if isinstance(event, Trained)
        else None
    )
    plan = plan.model_copy(update={"log": plan.log.model_copy(update={"every": 1})})
    trained(PreparedTask(plan, prepared.model, prepared.objective, prepared.train, prepared.valid), tmp_path, heard, 3)
    for step, weights in enumerate(seen, start=1):
        share = max(0.5, 1 / (step + 1))
        average = {name: average[name] + share * (weights[name] - average[name]) for name in average}
    kept = little().model
    load_weights(kept, tmp_path)
    for name, tensor in weights_of(kept).items():
        torch.testing.assert_close(tensor, average[name])
    assert not same(weights_of(kept), seen[-1])


def test_the_mean_of_the_last_checkpoints_is_kept(tmp_path: Path) -> None:
    plan = recipe(weight_average={"kind": "last", "count": 3}, checkpoint={"every": 1}, log={"every": 1})
    prepared, seen = little(plan), []
    heard = Heard(
        lambda event: (
            seen.append({name: tensor.double() for name, tensor in weights_of(prepared.model).items()})
            if isinstance(event, Trained)
            else None
        )
    )
    trained(prepared, tmp_path, heard)
    kept = little().model
    load_weights(kept, tmp_path)
    for name, tensor in weights_of(kept).items():
        torch.testing.assert_close(tensor.double(), sum(one[name] for one in seen[-3:]) / 3, rtol=1e-6, atol=1e-7)
    assert heard.of(Ended)[0].metrics.keys() == {"loss", "accuracy"}


def test_the_best_weights_are_kept_even_if_they_get_worse_later(tmp_path: Path) -> None:
    plan = recipe(
        optimiser={"kind": "sgd", "learning_rate": 3.0}, train={"steps": 30}, evaluate={"every": 2, "monitor": "loss"}
    )
    heard = Heard()
    trained(little(plan), tmp_path, heard, 30)
    losses = {event.step: event.metrics["loss"] for event in heard.of(Evaluated)}
    best = min(losses, key=lambda step: losses[step])
    assert best != 30
    assert [event.step for event in heard.of(Evaluated) if event.best][-1] == best
    again = little(plan)
    load_weights(again.model, tmp_path)
    loop = loop_of(again)
    assert loop.evaluator is not None
    assert loop.evaluator.evaluate(again.model).metrics["loss"] == pytest.approx(losses[best])
    assert f"step-{best:08d}" in os.listdir(tmp_path / "state")


def test_patience_ends_the_training(tmp_path: Path) -> None:
    plan = recipe(
        optimiser={"kind": "sgd", "learning_rate": 1e-30}, evaluate={"every": 2, "patience": 3, "monitor": "accuracy"}
    )
    heard = Heard()
    trained(little(plan), tmp_path, heard, 100)
    assert heard.of(Ended)[0].reason == "stopped early"
    assert heard.of(Ended)[0].step == 8  # the best at 2, then three that are no better


def test_events_come_in_order_and_count_right(tmp_path: Path) -> None:
    heard = Heard()
    trained(little(), tmp_path, heard)
    assert isinstance(heard.events[0], Started)
    assert isinstance(heard.events[-1], Ended)
    assert [event.step for event in heard.of(Trained)] == [2, 4, 6, 8, 10, 12]
    assert [event.step for event in heard.of(Evaluated)] == [4, 8, 12]
    assert heard.of(Trained)[-1].tokens == sum(batch.tokens for batch in [*little().train][:8]) + sum(
        batch.tokens for batch in _epoch(1)[:4]
    )
    again = Heard()
    resumed(little(), tmp_path, again)
    assert isinstance(again.events[0], Resumed) and again.events[0].step == 12


def _epoch(number: int) -> list[Any]:
    batches = little().train
    for _ in range(number):
        list(batches)
    return list(batches)


def test_texts_are_graded_and_sampled(tmp_path: Path) -> None:
    heard = Heard()
    trained(little(recipe(evaluate={"generations": 5, "samples": 2, "monitor": "length"})), tmp_path, heard)
    event = heard.of(Evaluated)[0]
    assert event.metrics["length"] > 0
    assert event.signatures == {"length": "mean|characters"}
    assert len(event.samples) == 2


def test_a_metric_that_is_not_measured_is_refused() -> None:
    with pytest.raises(SettingError, match=r"evaluate\.generations above 0"):
        trained(little(recipe(evaluate={"monitor": "length"})))
    with pytest.raises(SettingError, match="Did you mean 'accuracy'"):
        trained(little(recipe(evaluate={"monitor": "acuracy"})))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_ends(number: signal.Signals, tmp_path: Path) -> None:
    whole = trained(little(), tmp_path / "whole")
    heard = Heard(lambda event: os.kill(os.getpid(), number) if type(event) is Trained and event.step == 4 else None)
    before = signal.getsignal(number)
    trained(little(), tmp_path / "cut", heard)
    assert signal.getsignal(number) is before
    ended = heard.of(Ended)[0]
    assert (ended.reason, ended.step) == ("interrupted", 4)
    assert same(resumed(little(), tmp_path / "cut"), whole)


class Poisoned(Guess):
    """The loss of the batches with some row is no number."""

    def __init__(self, row: int, value: float = float("nan")) -> None:
        self.row, self.value = row, value

    def loss(self, model: nn.Module, batch: Any, carry: Carry | None) -> Loss:
        total = super().loss(model, batch, carry).total
        return Loss(total * self.value if self.row in batch.indices else total)


def poisoned(plan: Recipe, row: int = 7) -> PreparedTask:
    base = little(plan)
    return PreparedTask(plan, base.model, Poisoned(row), base.train, base.valid)


def test_a_loss_that_is_no_number_stops_and_keeps_the_batch(tmp_path: Path) -> None:
    heard = Heard()
    with pytest.raises(
        TrainingError, match=r"Step (\d+) has a loss of nan, with a LabelledBatch of \d+ rows"
    ) as caught:
        trained(poisoned(recipe()), tmp_path, heard)
    [path] = (tmp_path / "faults").iterdir()
    assert str(path) in str(caught.value)
    batch = read_batch(path)
    assert 7 in batch.indices
    assert torch.isnan(Poisoned(7).loss(little().model, batch, None).total)
    with pytest.raises(TrainingError, match="a loss of nan"):  # again, at once
        resumed(poisoned(recipe()), tmp_path)
    # mended, it goes on as if nothing had been
    assert same(resumed(little(), tmp_path), trained(little(), tmp_path / "whole"))


def test_steps_that_are_no_number_can_be_skipped(tmp_path: Path) -> None:
    plan = recipe(train={"nonfinite": "skip", "steps": 16})
    heard = Heard()
    found = trained(poisoned(plan), tmp_path, heard, 16)
    assert all(bool(tensor.isfinite().all()) for tensor in found.values())
    assert [event.count for event in heard.of(Skipped)] == [1, 2]  # once an epoch
    assert heard.of(Ended)[0].step == 16
    assert same(resumed(poisoned(plan), tmp_path, steps=16), found)


def test_a_training_that_only_skips_gives_up(tmp_path: Path) -> None:
    class Hopeless(Guess):
        def loss(self, model: nn.Module, batch: Any, carry: Carry | None) -> Loss:
            return Loss(super().loss(model, batch, carry).total * float("inf"))

    base = little(recipe(train={"nonfinite": "skip"}, evaluate={"every": 1000}))
    with pytest.raises(TrainingError, match="100 steps in a row"):
        trained(PreparedTask(base.recipe, base.model, Hopeless(), base.train, None), tmp_path, steps=1000)


def test_an_out_of_memory_error_names_the_shape(tmp_path: Path) -> None:
    class Greedy(Guess):
        def loss(self, model: nn.Module, batch: Any, carry: Carry | None) -> Loss:
            torch.empty(2**60)
            raise AssertionError

    base = little()
    with pytest.raises(TrainingError, match=r"Out of memory with a LabelledBatch of \d rows \(inputs \d x \d"):
        trained(PreparedTask(base.recipe, base.model, Greedy(), base.train, None), tmp_path)


def test_an_epoch_without_batches_is_refused() -> None:
    base = little()
    with pytest.raises(SettingError, match="training data gives no batches"):
        trained(PreparedTask(base.recipe, base.model, base.objective, _Nothing(), None))  # type: ignore[arg-type]


class _Nothing:
    epoch = 0

    def __iter__(self) -> Any:
        return iter(())

    def state_dict(self) -> dict[str, int]:
        return {}


def test_a_recipe_without_a_task_of_ours_says_so(tmp_path: Path) -> None:
    for ask in (recipe().prepare, recipe().assemble):
        with pytest.raises(SettingError, match=r"Task .little.*Pass a PreparedTask to Loop"):
            ask(tmp_path)
