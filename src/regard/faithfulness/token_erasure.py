"""Leave-one-out, comprehensiveness and sufficiency: what a model predicts when tokens are removed from the text.

Leave-one-out (Jain & Wallace 2019, algorithm 1): the tokens that attention ranks highest should be those whose removal
changes the output most; agreement is Kendall's tau. Rationales (DeYoung et al. 2020, ERASER): comprehensiveness = p - p
without the rationale, sufficiency = p - p with the rationale only, each averaged over several sizes (AOPC). A good map
has a high comprehensiveness and a low sufficiency. Where the deciding tokens are known: precision and recall.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from random import Random

import torch
from torch import Tensor

from regard.adapters import InputRow, ModelAdapter
from regard.inspection import kendall_tau, tvd

MAX_BATCH_TOKENS = 4096  # padding included


class PredictionCache:
    """p (C,) of rows; each row is run once, until `clear`. `rows_run`: how many were."""

    def __init__(self, adapter: ModelAdapter) -> None:
        self.adapter, self.rows_run = adapter, 0
        self._probs: dict[InputRow, Tensor] = {}

    def __call__(self, rows: Sequence[InputRow]) -> Tensor:
        """p (n, C) of each row."""
        new = sorted({row for row in rows if row not in self._probs}, key=lambda row: (len(row.ids), row.ids))
        for some in _batches(new):
            with torch.no_grad():
                probs = self.adapter.log_probs(some).exp()
            self.rows_run += len(some)
            self._probs.update(zip(some, probs, strict=True))
        return torch.stack([self._probs[row] for row in rows])

    def clear(self) -> None:
        self._probs.clear()


def _batches(rows: Sequence[InputRow]) -> list[list[InputRow]]:
    """Rows in order of length, in batches of at most MAX_BATCH_TOKENS."""
    batches: list[list[InputRow]] = []
    for row in rows:
        if batches and (len(batches[-1]) + 1) * len(row.ids) <= MAX_BATCH_TOKENS:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def leave_one_out(predict: PredictionCache, rows: Sequence[InputRow], probs: Tensor) -> Tensor:
    """How much the output changes, in total variation distance, when a token is removed: (B, S), 0 for tokens that
    cannot be removed.

    probs (B, C): p of the whole texts.
    """
    positions = [(row, at) for row, one in enumerate(rows) for at, removable in enumerate(one.removable) if removable]
    shorter = predict([rows[row].without([at]) for row, at in positions])
    found = probs.new_zeros(len(rows), max(len(row.ids) for row in rows))
    for (row, at), p in zip(positions, shorter, strict=True):
        found[row, at] = tvd(p, probs[row])
    return found


def kendall_agreements(
    maps: Mapping[str, Tensor], references: Mapping[str, Tensor], removable: Sequence[bool]
) -> Tensor:
    """Kendall's tau of every map (S,) of one text with every reference (S,), both by absolute value, over the removable
    tokens: (maps, references)."""
    chosen = torch.tensor(removable).nonzero().squeeze(-1)
    stacked = torch.stack([x[chosen].abs() for x in maps.values()])
    return torch.stack([kendall_tau(stacked, other[chosen].abs()) for other in references.values()], -1)


NEGLIGIBLE_SHARE = 0.1  # of the weight that a uniform map gives to each token
RATIONALE_SIZES = (0.01, 0.05, 0.1, 0.2, 0.5)  # shares of the removable tokens


def rank_removable(scores: Tensor, row: InputRow) -> tuple[list[int], list[float]]:
    """The removable tokens, from the highest score (S,) to the lowest, and their scores.

    A token with less than a tenth of its weight under a uniform map counts as 0, and such tokens are in random order.
    Otherwise a map with all its weight on [CLS] would still rank the words.
    """
    values, rng = scores.tolist(), Random(repr(row.ids))
    least = NEGLIGIBLE_SHARE * sum(map(abs, values)) / max(1, len(values))
    removable = [at for at, may in enumerate(row.removable) if may]
    negligible = {at: rng.random() for at in removable if abs(values[at]) < least}
    order = sorted(removable, key=lambda at: (0.0, negligible[at]) if at in negligible else (-values[at], at))
    return order, [0.0 if at in negligible else values[at] for at in order]


def top_rationale(scores: Tensor, row: InputRow, size: float) -> list[int]:
    """The tokens with the highest scores (S,): this share of the removable ones, and at least one."""
    order, _ = rank_removable(scores, row)
    return order[: max(1, ceil(size * len(order) - 1e-9))]


def rationale_scores(
    predict: PredictionCache,
    row: InputRow,
    predicted: int,
    p: float,
    maps: Mapping[str, Tensor],
    sizes: Sequence[float] = RATIONALE_SIZES,
) -> dict[str, tuple[float, float]]:
    """Comprehensiveness and sufficiency of each map (S,) of one text, for the predicted class and its probability p."""
    erased: list[InputRow] = []
    for scores in maps.values():
        for size in sizes:
            inside = set(top_rationale(scores, row, size))
            erased.append(row.without(inside))
            outside = [at for at, may in enumerate(row.removable) if may and at not in inside]
            erased.append(row.without(outside))
    left = predict(erased)[:, predicted].view(len(maps), len(sizes), 2)
    means = (p - left).mean(1).tolist()
    return {name: (means[at][0], means[at][1]) for at, name in enumerate(maps)}


def ground_truth_scores(scores: Tensor, row: InputRow, evidence: frozenset[int]) -> dict[str, float]:
    """How well a map finds the tokens that are known to decide.

    precision, recall    of the top tokens that hold half of the map's mass on the removable tokens
    precision_at_1       whether the top token is one of the deciding ones
    average_precision    the mean of the precisions at the rank of each deciding token
    """
    order, values = rank_removable(scores, row)
    hits = [at in evidence for at in order]
    found = sum(hits)
    mass = torch.tensor([max(0.0, value) for value in values]).cumsum(0)
    half = 1 + int((mass < mass[-1] / 2).sum()) if len(order) else 0
    ranks = [number for number, hit in enumerate(hits, 1) if hit]
    return {
        "precision": sum(hits[:half]) / max(1, half),
        "recall": sum(hits[:half]) / max(1, found),
        "precision_at_1": float(hits[0]) if hits else 0.0,
        "average_precision": sum((number + 1) / rank for number, rank in enumerate(ranks)) / max(1, found),
    }
