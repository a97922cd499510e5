"""The way back through a search: every step leaves its tokens and where they came from; texts are read at the end.

A layout is the order of the hypotheses after a step. Step t writes tokens of layout t, each of which points at its
parent in layout t - 1; layout 0 are the rows that the search began with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.decoding.search import Written


class Leaf(NamedTuple):
    """Where a text ends: after `depth` tokens, at `place` of that layout."""

    depth: int
    place: int
    closing: float | None = None  # ln p of its end token, if it has one
    score: float | None = None  # None: the sum of all ln p


@dataclass
class Trail:
    """What the steps of a search left: for each, tensors (N,) of its layout, and weights (N', S) of the one before."""

    attention: bool
    tokens: list[Tensor] = field(default_factory=list)
    parents: list[Tensor] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)

    def saw(self, weights: Tensor | None) -> None:
        """Keep the attention that a step paid, in the layout that it began with."""
        if self.attention and weights is not None:
            self.weights.append(weights)

    def grew(self, tokens: Tensor, parents: Tensor, log_probs: Tensor) -> None:
        """Keep what a step wrote, in the layout that it ends with."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        self.log_probs.append(log_probs)

    def texts(self, leaves: Sequence[Leaf]) -> list[Written]:
        """The texts that end there, with the attention of their steps."""
        depths = np.array([leaf.depth for leaf in leaves], dtype=np.int64)
        at = np.array([leaf.place for leaf in leaves], dtype=np.int64)
        steps = int(depths.max(initial=0))
        columns = (_pages(kept[:steps]) for kept in (self.tokens, self.parents, self.log_probs))
        tokens, parents, log_probs = columns
        ids = np.zeros((len(leaves), steps), dtype=np.int64)
        said = np.zeros((len(leaves), steps))
        places = np.zeros((len(leaves), steps + 1), dtype=np.int64)  # in the layout that each step began with
        places[np.arange(len(leaves)), depths] = at
        for step in range(steps - 1, -1, -1):
            there = depths > step
            here = at[there]
            ids[there, step], said[there, step] = tokens[step][here], log_probs[step][here]
            at[there] = parents[step][here]
            places[there, step] = at[there]
        counts = depths + np.array([leaf.closing is not None for leaf in leaves], dtype=np.int64)
        seen = self._seen(places, counts)
        return [
            _written(ids[number, : leaf.depth].tolist(), said[number, : leaf.depth].tolist(), leaf, seen[number])
            for number, leaf in enumerate(leaves)
        ]

    def _seen(self, places: np.ndarray, counts: np.ndarray) -> Sequence[Tensor | None]:
        """For each text its weights (count, S): row t is what the step that wrote token t looked at."""
        steps = int(counts.max(initial=0))
        if not self.weights or not steps:
            return [None] * len(counts)
        width = max(weights.size(-1) for weights in self.weights[:steps])  # a text that is read on grows
        rows = torch.from_numpy(places).to(self.weights[0].device)
        pages = [
            pad(weights[rows[:, step]], (0, width - weights.size(-1)))
            for step, weights in enumerate(self.weights[:steps])
        ]
        whole = torch.stack(pages, 1).cpu()  # (texts, steps, S); what is beyond the count of a text is nobody's
        return [one[:count].clone() for one, count in zip(whole, counts.tolist(), strict=True)]


def _written(tokens: list[int], log_probs: list[float], leaf: Leaf, weights: Tensor | None) -> Written:
    if leaf.closing is not None:
        log_probs = [*log_probs, leaf.closing]
    score = sum(log_probs) if leaf.score is None else leaf.score
    return Written(tokens, log_probs, leaf.closing is not None, score, weights)


def _pages(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Tensors of a list as arrays, all brought from their device at once."""
    if not tensors:
        return []
    whole = torch.cat(list(tensors)).cpu().numpy()
    return np.split(whole, np.cumsum([len(tensor) for tensor in tensors])[:-1])
