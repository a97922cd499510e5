"""The parts of a training's state, each on its own: optimisers, random states, copies, what is carried."""

import random

import numpy as np
import pytest
import torch
from torch import nn

from regard.errors import SettingError
from regard.training import optimisers
from regard.training.checkpoint import PerRank
from regard.training.distributed import World
from regard.training.optimisers import SGD, AdamW
from regard.training.random_state import RandomState, preserved_rng, seed_everything
from regard.training.run_writer import HostStaging
from regard.training.state import CarriedState, TrainingState
from training.little import Bag, little, recipe

CPU = torch.device("cpu")


def draws() -> tuple[float, float, float]:
    return float(torch.rand(())), float(np.random.rand()), random.random()


def test_random_states_come_back_from_a_checkpoint() -> None:
    seed_everything(3, 4, 0)
    np.random.normal()  # numpy keeps the second of two normal numbers for later
    random.gauss(0, 1)  # and so does Python
    kept = RandomState.capture(CPU).to_per_rank()
    first = draws(), np.random.normal(), random.gauss(0, 1)
    seed_everything(9, 9, 9)
    RandomState.from_per_rank(PerRank(dict(kept.scalars), dict(kept.tensors))).restore(CPU)
    assert (draws(), np.random.normal(), random.gauss(0, 1)) == first


def test_chance_depends_on_seed_step_and_rank() -> None:
    seen = set()
    for numbers in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)):
        seed_everything(*numbers)
        seen.add(draws())
        seed_everything(*numbers)
        assert draws() in seen
    assert len(seen) == 4


def test_what_happens_undisturbed_leaves_no_trace() -> None:
    seed_everything(1, 0, 0)
    expected = draws()
    seed_everything(1, 0, 0)
    with pytest.raises(ZeroDivisionError):
        _careless()
    assert draws() == expected


def _careless() -> None:
    with preserved_rng(CPU):
        draws()
        raise ZeroDivisionError


@pytest.mark.parametrize("section", [AdamW(), SGD(), SGD(momentum=0.9, nesterov=True)])
def test_an_optimiser_remembers_again(section: AdamW | SGD) -> None:
    models = Bag(), Bag()
    models[1].load_state_dict(models[0].state_dict())
    first = optimisers.make_optimiser(section, models[0])
    for number in range(3):
        _step(models[0], first, number)
    models[1].load_state_dict(models[0].state_dict())
    second = optimisers.make_optimiser(section, models[1])
    scalars = optimisers.state_scalars(first, models[0])
    tensors = optimisers.empty_state_tensors(scalars, models[1])
    assert tensors.keys() == optimisers.state_tensors(first, models[0]).keys()
    for name, tensor in optimisers.state_tensors(first, models[0]).items():
        tensors[name].copy_(tensor)
    optimisers.restore(second, models[1], scalars, tensors)
    for model, optimiser in zip(models, (first, second), strict=True):
        _step(model, optimiser, 7)
    assert all(torch.equal(one, other) for one, other in zip(*(m.parameters() for m in models), strict=True))


def _step(model: nn.Module, optimiser: torch.optim.Optimizer, number: int) -> None:
    model.eval()
    model(torch.full((2, 3), 4 + number)).square().sum().backward()
    optimiser.step()
    optimiser.zero_grad()


def test_matrices_decay_and_vectors_do_not() -> None:
    model = Bag()
    optimiser = optimisers.make_optimiser(AdamW(weight_decay=0.3), model)
    decays = {id(one): group["weight_decay"] for group in optimiser.param_groups for one in group["params"]}
    assert all(decays[id(one)] == (0.3 if one.dim() > 1 else 0.0) for one in model.parameters())
    assert len(decays) == len(list(model.parameters()))


def test_copies_are_ones_own_and_their_memory_is_taken_again() -> None:
    staging, tensor = HostStaging(), torch.arange(4.0)
    first = staging.copies({"a": tensor})["a"]
    tensor += 1
    assert first.tolist() == [0, 1, 2, 3]
    second = staging.copies({"a": tensor})["a"]
    assert second.data_ptr() == first.data_ptr() and second.tolist() == [1, 2, 3, 4]
    assert staging.copies({"a": torch.zeros(2, dtype=torch.int64)})["a"].tolist() == [0, 0]


def test_what_is_carried_goes_with_its_rows() -> None:
    carried = CarriedState(torch.tensor([4, 7, 9]), {"state": torch.tensor([[40.0], [70.0], [90.0]])})

    class Rows:
        def __init__(self, *rows: int) -> None:
            self.indices = torch.tensor(rows)

    assert carried.for_batch(Rows(9, 4))["state"].tolist() == [[90.0], [40.0]]  # type: ignore[arg-type, index]
    assert carried.for_batch(Rows(4, 7, 9))["state"] is carried.tensors["state"]  # type: ignore[arg-type, index]
    assert carried.for_batch(Rows(4, 5)) is None  # type: ignore[arg-type]


def test_shards_and_a_scaled_loss_do_not_go_together() -> None:
    plan = recipe(train={"shard": "fsdp", "precision": "fp16"})
    with pytest.raises(SettingError, match="bf16 or float32"):
        TrainingState(little(plan), World(rank=0, ranks=2))
