"""Tokens removed from the text: leave-one-out, comprehensiveness and sufficiency of rationales, and known evidence.

Jain & Wallace 2019, algorithm 1: what attention holds most important ought to be what moves the output, by Kendall's
tau with gradients and with leaving one token out. DeYoung et al. 2020 (ERASER): comprehensiveness = p - p without the
rationale, sufficiency = p - p with it alone, each a mean over rationales of several sizes (AOPC). A good map has a high
first and a low second one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from random import Random

import torch
from torch import Tensor

from regard.adapters import ModelAdapter, Row
from regard.inspection import kendall_tau, tvd

TOKENS = 4096  # padding included, that are put to the model at once


class Answers:
    """p (C,) of rows; those that were asked before are remembered until `forget`."""

    def __init__(self, asker: ModelAdapter) -> None:
        self.asker, self.asked = asker, 0
        self._known: dict[Row, Tensor] = {}

    def __call__(self, rows: Sequence[Row]) -> Tensor:
        """p (n, C) of each row."""
        new = sorted({row for row in rows if row not in self._known}, key=lambda row: (len(row.ids), row.ids))
        for some in _batches(new):
            with torch.no_grad():
                said = self.asker.log_probs(some).exp()
            self.asked += len(some)
            self._known.update(zip(some, said, strict=True))
        return torch.stack([self._known[row] for row in rows])

    def forget(self) -> None:
        self._known.clear()


def _batches(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows in order of length, as many together as fit."""
    found: list[list[Row]] = []
    for row in rows:
        if found and (len(found[-1]) + 1) * len(row.ids) <= TOKENS:
            found[-1].append(row)
        else:
            found.append([row])
    return found


def left_out(answers: Answers, rows: Sequence[Row], said: Tensor) -> Tensor:
    """How far the output moves, by total variation, when a token is not there: (B, S), 0 where it has to stay.

    said (B, C): p as it is.
    """
    places = [(row, at) for row, one in enumerate(rows) for at, free in enumerate(one.free) if free]
    moved = answers([rows[row].without([at]) for row, at in places])
    found = said.new_zeros(len(rows), max(len(row.ids) for row in rows))
    for (row, at), p in zip(places, moved, strict=True):
        found[row, at] = tvd(p, said[row])
    return found


def agreements(maps: Mapping[str, Tensor], references: Mapping[str, Tensor], free: Sequence[bool]) -> Tensor:
    """Tau of every map (S,) of one text with every reference (S,), both by how much and not which way, over the tokens
    that may be taken away: (maps, references)."""
    chosen = torch.tensor(free).nonzero().squeeze(-1)
    stacked = torch.stack([x[chosen].abs() for x in maps.values()])
    return torch.stack([kendall_tau(stacked, other[chosen].abs()) for other in references.values()], -1)


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
