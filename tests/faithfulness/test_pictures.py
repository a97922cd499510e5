"""Maps of pictures and their scores: completeness, planted truth, and scores by hand."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import ViTConfig, ViTForImageClassification

from regard.errors import ShapeError
from regard.faithfulness.picture_maps import (
    PICTURE_METHODS,
    PatchClassifier,
    blank_patches,
    integrated_pixels,
    mean_colour,
    picture_maps,
    sum_by_patch,
)
from regard.faithfulness.picture_scores import (
    blanking_drop,
    gold_patches,
    mass_accuracy,
    pointing,
    rank_accuracy,
    score_maps,
    sensitivity,
    top_patches,
)
from regard.pictures import PatchGrid

GRID = PatchGrid.raster(4, 4, first=1)


@pytest.fixture(scope="module")
def vit() -> nn.Module:
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        num_labels=3,
    )  # fmt: skip
    return ViTForImageClassification(config).eval()


@pytest.fixture
def classifier(vit: nn.Module) -> PatchClassifier:
    return PatchClassifier(vit, lambda x: vit(x).logits, GRID)


def picture(seed: int = 0) -> Tensor:
    return torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def test_every_method_gives_a_map_of_patches_and_restores_the_model(classifier: PatchClassifier) -> None:
    model = classifier.model.train()
    found = picture_maps(classifier, picture(), 1)
    assert tuple(found) == PICTURE_METHODS
    assert all(one.shape == (4, 4) and np.isfinite(one).all() for one in found.values())
    assert model.training and all(weight.grad is None for weight in model.parameters())
    again = picture_maps(classifier, picture(), 1)
    assert all(np.array_equal(one, again[name]) for name, one in found.items())


def test_what_depends_on_the_class(classifier: PatchClassifier) -> None:
    first, second = (picture_maps(classifier, picture(), label) for label in (0, 2))
    for name in PICTURE_METHODS:
        same = name in ("attention", "rollout", "random")
        assert (sensitivity(first[name], second[name]) == 0) == same, name


def test_integrated_gradients_are_complete(classifier: PatchClassifier) -> None:
    found = integrated_pixels(classifier, picture(), 1, steps=64)
    with torch.no_grad():
        change = classifier.score(picture(), 1) - classifier.score(mean_colour(picture()), 1)
    torch.testing.assert_close(found.sum(), change, atol=1e-4, rtol=1e-3)
    np.testing.assert_allclose(sum_by_patch(found, GRID).sum(), float(change), atol=1e-4)


def test_the_mean_of_patches_as_readout(vit: nn.Module) -> None:
    found = picture_maps(PatchClassifier(vit, lambda x: vit(x).logits, GRID, readout=None), picture(), 0)
    assert all(np.isfinite(one).all() for one in found.values())


@pytest.mark.parametrize("size", [32, 30, 7])
def test_sums_by_patch_keep_the_total(size: int) -> None:
    values = picture(1)[0, 0][:size, :size]
    found = sum_by_patch(values, PatchGrid.raster(4, 4))
    np.testing.assert_allclose(found.sum(), float(values.double().sum()))
    if size == 32:
        np.testing.assert_allclose(found, values.unflatten(0, (4, 8)).unflatten(2, (4, 8)).sum((1, 3)), atol=1e-5)


def test_blank_patches_are_blank_and_nothing_else() -> None:
    hidden = np.zeros((4, 4), bool)
    hidden[1, 2] = True
    found = blank_patches(picture(), GRID, hidden)
    inside = found[0, :, 8:16, 16:24]
    assert torch.equal(inside, mean_colour(picture())[0, :, 8:16, 16:24])
    assert int((found != picture()).any(1).sum()) == 64


class OnePatch(nn.Module):
    """A classifier of class 0 whose logit is the brightness of one patch."""

    def forward(self, pixels: Tensor) -> Tensor:
        bright = pixels[:, :, 8:16, 16:24].mean((1, 2, 3))
        return torch.stack([4 * bright, -4 * bright], 1)


def test_planted_truth() -> None:
    planted = PatchClassifier(OnePatch(), OnePatch(), PatchGrid.raster(4, 4))
    pixels = picture()
    pixels[:, :, 8:16, 16:24] += 2
    region = np.zeros((32, 32), bool)
    region[8:16, 16:24] = True
    gold = gold_patches(planted.grid, region)
    values = sum_by_patch(integrated_pixels(planted, pixels, 0), planted.grid)
    assert score_maps({"it": values}, gold)["it"] == {"pointing": 1.0, "mass": pytest.approx(1), "rank": 1.0}
    assert blanking_drop(planted, pixels, 0, gold) > 0.2
    assert blanking_drop(planted, pixels, 0, ~gold & (np.arange(16).reshape(4, 4) < 3)) == pytest.approx(0, abs=0.05)


def test_scores_by_hand() -> None:
    values = np.array([[4.0, 1.0], [3.0, -2.0]])
    gold = np.array([[False, True], [True, False]])
    assert pointing(values, gold) == 0
    assert mass_accuracy(values, gold) == 0.5
    assert rank_accuracy(values, gold) == 0.5
    assert top_patches(np.array([2.0, 1.0, 1.0, 0.0]), 2).tolist() == [1.0, 0.5, 0.5, 0.0]
    even = np.ones((2, 2))
    assert pointing(even, gold) == rank_accuracy(even, gold) == mass_accuracy(-even, gold) == 0.5


def test_gold_patches_of_small_and_large_regions() -> None:
    region = np.zeros((32, 32), bool)
    region[7:9, 7:9] = True  # a little of four patches
    assert gold_patches(GRID, region).sum() == 4
    region[:] = False
    region[0:16, 0:4] = True  # half of two
    assert np.argwhere(gold_patches(GRID, region)).tolist() == [[0, 0], [1, 0]]
    with pytest.raises(ShapeError, match="empty region"):
        gold_patches(GRID, np.zeros((32, 32), bool))


def test_sensitivity_is_a_share() -> None:
    first, second = np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]])
    assert sensitivity(first, second) == pytest.approx(1)
    assert sensitivity(first, 3 * first) == 0
    by_hand = (log(4 / 3) + 0.5 * log(2 / 3) + 0.5 * log(2)) / 2 / log(2)
    assert sensitivity(first, np.array([[1.0, 1.0]])) == pytest.approx(by_hand)
    assert sensitivity(-first, np.ones((1, 2))) == 0  # nothing supports the class: an even map


def test_complaints(classifier: PatchClassifier) -> None:
    with pytest.raises(ShapeError, match="one picture"):
        picture_maps(classifier, torch.zeros(2, 3, 32, 32), 0)
    with pytest.raises(ShapeError, match="class 7"):
        picture_maps(classifier, picture(), 7)
