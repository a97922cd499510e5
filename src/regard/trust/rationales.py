"""Is it in the tokens? What is left of a decision without the tokens a map holds most important, and with them alone.

DeYoung et al. 2020 (ERASER): comprehensiveness = p - p without the rationale, sufficiency = p - p with it alone, each a
mean over rationales of several sizes (AOPC). A good map has a high first and a low second one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from random import Random

import torch
from torch import Tensor

from regard.adapters.case import Row
from regard.trust.answers import Answers

FAINT = 0.1  # of what an even map gives to each token
SIZES = (0.01, 0.05, 0.1, 0.2, 0.5)  # of the tokens that may be taken away


def ranked(scores: Tensor, row: Row) -> tuple[list[int], list[float]]:
    """The tokens that may be taken away, from the highest score (S,) to the lowest, and what each has.

    A token that has less than a tenth of what an even map would give it is not named by the map: it counts as 0, and
    those stand in no order but that of chance. Else a map with all its weight on [CLS] would still point somewhere.
    """
    values, chance = scores.tolist(), Random(repr(row.ids))
    least = FAINT * sum(map(abs, values)) / max(1, len(values))
    free = [at for at, may in enumerate(row.free) if may]
    faint = {at: chance.random() for at in free if abs(values[at]) < least}
    order = sorted(free, key=lambda at: (0.0, faint[at]) if at in faint else (-values[at], at))
    return order, [0.0 if at in faint else values[at] for at in order]


def rationale(scores: Tensor, row: Row, size: float) -> list[int]:
    """The tokens with the highest scores (S,), so large a share of those that may be taken away, and at least one."""
    order, _ = ranked(scores, row)
    return order[: max(1, ceil(size * len(order) - 1e-9))]


def erasing(
    answers: Answers,
    row: Row,
    chosen: int,
    p: float,
    maps: Mapping[str, Tensor],
    sizes: Sequence[float] = SIZES,
) -> dict[str, tuple[float, float]]:
    """Comprehensiveness and sufficiency of each map (S,) of one text, of which the model chose a class with p."""
    wanted: list[Row] = []
    for scores in maps.values():
        for size in sizes:
            inside = set(rationale(scores, row, size))
            wanted.append(row.without(inside))
            outside = [at for at, may in enumerate(row.free) if may and at not in inside]
            wanted.append(row.without(outside))
    left = answers(wanted)[:, chosen].view(len(maps), len(sizes), 2)
    means = (p - left).mean(1).tolist()
    return {name: (means[at][0], means[at][1]) for at, name in enumerate(maps)}


def planted(scores: Tensor, row: Row, evidence: frozenset[int]) -> dict[str, float]:
    """How well a map finds the tokens that are known to decide.

    precision, recall: of the tokens that hold half of what the map gives to the tokens that may be taken away;
    first: whether its best token is one of them; average: the mean precision at each of them, down its order.
    """
    order, values = ranked(scores, row)
    hits = [at in evidence for at in order]
    found = sum(hits)
    mass = torch.tensor([max(0.0, value) for value in values]).cumsum(0)
    half = 1 + int((mass < mass[-1] / 2).sum()) if len(order) else 0
    ranks = [number for number, hit in enumerate(hits, 1) if hit]
    return {
        "precision": sum(hits[:half]) / max(1, half),
        "recall": sum(hits[:half]) / max(1, found),
        "first": float(hits[0]) if hits else 0.0,
        "average": sum((number + 1) / rank for number, rank in enumerate(ranks)) / max(1, found),
    }
