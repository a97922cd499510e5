"""Training on a GPU: the same as on the CPU to tolerance, in every precision, saved there and resumed here and back."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[1]))  # where pytest is run without the project's settings
from regard.errors import TrainingError
from regard.runs.weights import weights_of
from regard.training.distributed import World
from regard.training.events.event import Ended, Event, Trained
from regard.training.loop import Loop
from regard.training.objectives.base import Carry, Loss
from regard.training.recipe import PreparedTask, Recipe
from regard.training.run_writer import RunWriter
from training.little import Guess, little, recipe

pytestmark = pytest.mark.gpu

GPU = World(device=torch.device("cuda", 0))


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)


def trained(
    plan: Recipe, world: World, folder: Path | None = None, steps: int = 12, resume: bool = False
) -> tuple[dict[str, Tensor], list[Event]]:
    prepared = little(plan)
    prepared.model.dropout.p = 0.0  # the two devices have chance of their own
    if plan.train.compile:
        prepared.model.compile()
    heard = Heard()
    loop = Loop(prepared, steps, world, None if folder is None else RunWriter(folder, world, plan), [heard])
    (loop.resume if resume else loop.start)()
    loop.run()
    return {name: tensor.cpu().clone() for name, tensor in weights_of(prepared.model).items()}, heard.events


def close(one: dict[str, Tensor], other: dict[str, Tensor], tolerance: float) -> None:
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=tolerance)


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
@pytest.mark.parametrize("average", ["none", "ema"])
def test_a_gpu_trains_as_a_cpu(precision: str, average: str) -> None:
    """The rate is 1e-3, so weights move by at most 12e-3; a tenth of a step's worth is tolerated in half precision."""
    plain = recipe(weight_average={"kind": average})
    found, events = trained(recipe(weight_average={"kind": average}, train={"precision": precision}), GPU)
    close(trained(plain, World())[0], found, 1e-5 if precision == "float32" else 2e-3)
    assert isinstance(events[-1], Ended)
    assert next(event for event in events if isinstance(event, Trained)).memory > 0


def test_a_checkpoint_goes_from_one_device_to_the_other(tmp_path: Path) -> None:
    whole, _ = trained(recipe(), World())
    trained(recipe(), GPU, tmp_path, steps=5)
    trained(recipe(), World(), tmp_path, steps=9, resume=True)
    close(whole, trained(recipe(), GPU, tmp_path, resume=True)[0], 1e-5)


@pytest.mark.parametrize("precision", ["float32", "fp16"])
def test_resuming_on_a_gpu_goes_on_with_its_random_states(precision: str, tmp_path: Path) -> None:
    """With dropout: the random state of the device is kept too."""

    def run(folder: Path, steps: int, resume: bool) -> dict[str, Tensor]:
        plan = recipe(train={"precision": precision})
        prepared = little(plan)
        loop = Loop(prepared, steps, GPU, RunWriter(folder, GPU, plan))
        (loop.resume if resume else loop.start)()
        loop.run()
        return {name: tensor.cpu().clone() for name, tensor in weights_of(prepared.model).items()}

    whole = run(tmp_path / "whole", 12, False)
    run(tmp_path / "cut", 6, False)
    torch.cuda.manual_seed(99)
    close(whole, run(tmp_path / "cut", 12, True), 1e-6)


def test_a_compiled_model_trains_the_same() -> None:
    close(trained(recipe(), GPU)[0], trained(recipe(train={"compile": True}), GPU)[0], 1e-4)


def test_an_out_of_memory_error_names_the_shape() -> None:
    class Greedy(Guess):
        def loss(self, model: torch.nn.Module, batch: object, carry: Carry | None) -> Loss:
            torch.empty(2**45, device="cuda")
            raise AssertionError

    base = little()
    with pytest.raises(TrainingError, match="Out of memory with a LabelledBatch"):
        Loop(PreparedTask(base.recipe, base.model, Greedy(), base.train, None), 3, GPU).run()
