"""What a training will take: counted, and for activations compared with what a step really keeps."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.training.optimisers import SGD
from regard.training.recipe import MovingAverage, TrainSettings
from regard.training.resource_estimate import estimate_resources, padded_size, total_steps
from regard.training.tasks.language import BlockBatches, BuiltInText, GPTModel, LanguageRecipe


@pytest.fixture
def language() -> LanguageRecipe:
    return LanguageRecipe(
        name="small",
        data=BuiltInText(examples=20, valid=0),
        model=GPTModel(layers=2, heads=2, width=16),
        batches=BlockBatches(sequence_length=32, rows=8),
    )


def test_activations_are_near_what_a_step_keeps(language: LanguageRecipe, tmp_path: Path) -> None:
    prepared = language.prepare(tmp_path)
    told = estimate_resources(prepared)
    sizes: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    batch = max(prepared.train, key=padded_size)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = prepared.objective.loss(prepared.model, batch, None)
    own = {one.untyped_storage().data_ptr() for one in prepared.model.parameters()}
    kept = sum(size for place, size in sizes.items() if place not in own)
    del loss
    assert told.activations == pytest.approx(kept, rel=0.25)


def test_memory_is_counted_by_what_is_kept(language: LanguageRecipe, tmp_path: Path) -> None:
    adam = estimate_resources(language.prepare(tmp_path))
    parameters = sum(one.numel() for one in language.prepare(tmp_path).model.parameters())
    assert adam.parameters == parameters
    assert (adam.weights, adam.gradients, adam.optimiser, adam.weight_average) == tuple(
        4 * parameters * n for n in (1, 1, 2, 0)
    )
    plain = language.model_copy(update={"optimiser": SGD(), "weight_average": MovingAverage()})
    sgd = estimate_resources(plain.prepare(tmp_path))
    assert (sgd.optimiser, sgd.weight_average) == (0, 4 * parameters)


def test_estimating_leaves_chance_alone(language: LanguageRecipe, tmp_path: Path) -> None:
    before = torch.get_rng_state()
    estimate_resources(language.prepare(tmp_path))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(("steps", "accumulate", "expected"), [(7, 1, 7), ("2 epochs", 1, 2.0), ("1.5 epochs", 3, 0.5)])
def test_steps_of_epochs(
    steps: int | str, accumulate: int, expected: float, language: LanguageRecipe, tmp_path: Path
) -> None:
    recipe = language.model_copy(update={"train": TrainSettings(steps=steps, accumulate=accumulate)})
    batches = recipe.prepare(tmp_path).train
    assert total_steps(recipe, batches) == (7 if steps == 7 else max(1, round(expected * len(batches))))
