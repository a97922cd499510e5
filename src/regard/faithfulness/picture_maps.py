"""Attribution maps of a classifier of pictures: one number a patch, from attention and from what it is compared with.

    found = picture_maps(PatchClassifier(model, logits, grid, readout=0), pixels, label)    # name -> (rows, cols)

Attention, norms and rollout do not know for which class they are asked; gradients, relevance and integrated gradients
do. Larger numbers support the class more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from regard.adapters import borrow_model
from regard.errors import PlaceError, SettingError, ShapeError
from regard.inspection import RelevanceLayer, RolloutLayer, attention_gradients, relevance, rollout
from regard.pictures import PatchGrid

PICTURE_METHODS = ("attention", "rollout", "gradient x attention", "relevance", "integrated gradients", "random")
INTEGRATION_STEPS = 16


@dataclass(frozen=True, eq=False)
class PatchClassifier:
    """A model that classifies pictures by attention over their patches.

    logits   runs the model: pixels (B, 3, H, W) -> logits (B, classes)
    grid     the tokens of the patches
    readout  the token that the class is read from, such as 0 for a class token; None: the mean over all patches
    places   the attention modules in order, as a pattern of `capture`
    """

    model: nn.Module
    logits: Callable[[Tensor], Tensor]
    grid: PatchGrid
    readout: int | None = 0
    places: str = "*"

    def score(self, pixels: Tensor, label: int) -> Tensor:
        """The logit of a class, summed over the pictures."""
        found = self.logits(pixels)
        if found.dim() != 2 or not 0 <= label < found.size(1):
            raise ShapeError(f"logits {tuple(found.shape)} for class {label}", "(B, classes)", where="picture_maps")
        return found[:, label].sum()


def picture_maps(classifier: PatchClassifier, pixels: Tensor, label: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The maps (rows, cols) of every method, for one picture (1, 3, H, W) and one class."""
    if pixels.dim() != 4 or pixels.size(0) != 1:
        raise ShapeError(f"pixels {tuple(pixels.shape)}", "one picture (1, 3, H, W)", where="picture_maps")
    grid = classifier.grid
    with borrow_model(classifier.model, evaluate=True, through_regard=True):
        found = attention_gradients(classifier.model, lambda: classifier.score(pixels, label), classifier.places)
        if not found:
            raise PlaceError("The model has no attention", where="picture_maps")
        weights = [one[0].double() for one, _ in found.values()]
        products = [(one * grad)[0].double() for one, grad in found.values()]
        path = integrated_pixels(classifier, pixels, label)
    of_tokens = {
        "attention": _row(weights[-1].mean(0), classifier),
        "rollout": _row(rollout([RolloutLayer(one.mean(0)) for one in weights])[0][0], classifier),
        "gradient x attention": _row(torch.stack([one.sum(0) for one in products]).sum(0), classifier),
        "relevance": _row(relevance([RelevanceLayer(one) for one in products])[0][0], classifier),
    }
    maps = {name: grid.values(values.detach().cpu().numpy()) for name, values in of_tokens.items()}
    maps["integrated gradients"] = sum_by_patch(path, grid)
    maps["random"] = np.random.default_rng(seed).random((grid.rows, grid.cols))
    return maps


def _row(shares: Tensor, classifier: PatchClassifier) -> Tensor:
    """The row of the token that decides, or the mean over all patches, of a map (T, T)."""
    if classifier.readout is not None:
        return shares[classifier.readout]
    tokens = classifier.grid.tokens
    patches = torch.from_numpy(tokens[tokens >= 0])
    return (shares[patches] - torch.diag(shares.diagonal())[patches]).mean(0)


def integrated_pixels(
    classifier: PatchClassifier, pixels: Tensor, label: int, steps: int = INTEGRATION_STEPS
) -> Tensor:
    """Integrated gradients (Sundararajan et al. 2017) of the pixels, (H, W), from a picture of their mean colour."""
    if steps < 1:
        raise SettingError(f"steps={steps}", "1 or more", where="integrated_pixels")
    blank = mean_colour(pixels)
    at, share = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(pixels)
    for point, part in zip((at + 1) / 2, share / 2, strict=True):
        here = (blank + float(point) * (pixels - blank)).detach().requires_grad_()
        with torch.enable_grad():
            (grad,) = torch.autograd.grad(classifier.score(here, label), here)
        total += float(part) * grad
    return ((pixels - blank) * total).sum(1)[0].detach()


def sum_by_patch(values: Tensor, grid: PatchGrid) -> np.ndarray:
    """The sum of numbers of pixels (H, W) over each patch, (rows, cols); a pixel on an edge goes to both in part."""
    flat = np.asarray(values.double().cpu())
    height, width = flat.shape
    left, top, right, bottom = grid.box
    down = _overlaps(height, np.linspace(top * height, bottom * height, grid.rows + 1))
    across = _overlaps(width, np.linspace(left * width, right * width, grid.cols + 1))
    return down @ flat @ across.T


def _overlaps(size: int, edges: np.ndarray) -> np.ndarray:
    """How much of each pixel (columns) lies between two edges (rows)."""
    pixels = np.arange(size)
    upper, lower = np.minimum(edges[1:, None], pixels + 1), np.maximum(edges[:-1, None], pixels)
    return np.clip(upper - lower, 0.0, 1.0)


def mean_colour(pixels: Tensor) -> Tensor:
    """A picture of the mean colour of each picture (B, 3, H, W)."""
    return pixels.mean((-2, -1), keepdim=True).expand_as(pixels)


def blank_patches(pixels: Tensor, grid: PatchGrid, patches: np.ndarray) -> Tensor:
    """The picture with these patches, booleans (rows, cols), in its mean colour."""
    height, width = pixels.shape[-2:]
    left, top, right, bottom = grid.box
    down = np.linspace(top * height, bottom * height, grid.rows + 1).round().astype(int)
    across = np.linspace(left * width, right * width, grid.cols + 1).round().astype(int)
    hidden = torch.zeros(height, width, dtype=torch.bool)
    for row, col in np.argwhere(patches):
        hidden[down[row] : down[row + 1], across[col] : across[col + 1]] = True
    return torch.where(hidden.to(pixels.device), mean_colour(pixels), pixels)
