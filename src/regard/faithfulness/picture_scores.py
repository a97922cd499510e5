"""How well maps of pictures point at what is known to decide: scores against gold regions, and interventions on them.

The gold patches of a region are those that it fills by at least GOLD_SHARE, or else the one that it fills most.

pointing     the pointing game (Zhang et al. 2018): whether the largest value lies in a gold patch
mass         relevance mass accuracy (Arras et al. 2022): the share of the positive values that lies in gold patches
rank         relevance rank accuracy: of the k largest values, the share in gold patches, of which there are k
drop         comprehensiveness: how far the class's probability falls when the patches of the k largest values are blank
sensitivity  how far the map for one class is from that for another: Jensen-Shannon divergence / ln 2, from 0 to 1
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from regard.errors import ShapeError
from regard.faithfulness.picture_maps import PatchClassifier, blank_patches
from regard.pictures import PatchGrid

GOLD_SHARE = 0.25


def gold_patches(grid: PatchGrid, region: np.ndarray) -> np.ndarray:
    """The patches of a region (H, W), booleans (rows, cols)."""
    filled = grid.mass(region)
    if not region.any():
        raise ShapeError("an empty region", "one with pixels", where="gold_patches")
    found = filled >= GOLD_SHARE
    return found if found.any() else filled == filled.max()


def pointing(values: np.ndarray, gold: np.ndarray) -> float:
    """Whether the largest value is in the region; of equally large ones their share."""
    return float(gold[values == values.max()].mean())


def mass_accuracy(values: np.ndarray, gold: np.ndarray) -> float:
    """The share of the positive values in the region; a map without any tells nothing, as an even one."""
    positive = np.clip(values, 0.0, None)
    total = positive.sum()
    return float(positive[gold].sum() / total) if total > 0 else float(gold.mean())


def rank_accuracy(values: np.ndarray, gold: np.ndarray) -> float:
    """Of as many of the largest values as the region has patches, the share in the region; ties count in part."""
    return float((top_patches(values, int(gold.sum())) * gold).sum() / gold.sum())


def top_patches(values: np.ndarray, count: int) -> np.ndarray:
    """How far each patch is among the `count` largest, 0 to 1: equal values share what is left for them."""
    last = np.sort(values, axis=None)[-count]
    above, equal = values > last, values == last
    return above + equal * (count - above.sum()) / equal.sum()


def sensitivity(first: np.ndarray, second: np.ndarray) -> float:
    """The Jensen-Shannon divergence of the positive parts of two maps, over its largest value ln 2."""
    shares = []
    for values in (first, second):
        positive = np.clip(values, 0.0, None).ravel()
        total = positive.sum()
        shares.append(positive / total if total > 0 else np.full(positive.size, 1 / positive.size))
    middle = (shares[0] + shares[1]) / 2
    return sum(float((p[p > 0] * np.log(p[p > 0] / middle[p > 0])).sum()) for p in shares) / 2 / float(np.log(2))


def score_maps(maps: Mapping[str, np.ndarray], gold: np.ndarray) -> dict[str, dict[str, float]]:
    """The scores of every map against the region, by method."""
    scores = {"pointing": pointing, "mass": mass_accuracy, "rank": rank_accuracy}
    return {method: {name: score(values, gold) for name, score in scores.items()} for method, values in maps.items()}


@torch.no_grad()
def blanking_drop(classifier: PatchClassifier, pixels: Tensor, label: int, patches: np.ndarray) -> float:
    """How far the probability of a class falls when these patches, booleans (rows, cols), are blank."""
    both = torch.cat([pixels, blank_patches(pixels, classifier.grid, patches)])
    whole, some = classifier.logits(both).double().softmax(-1)[:, label].tolist()
    return float(whole - some)
