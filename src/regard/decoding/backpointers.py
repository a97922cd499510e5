"""Backpointers of a search: every step records its tokens and their parents; texts are traced back at the end.

A layout is the order of the hypotheses after a step. Each token of layout t points to its parent in layout t - 1;
layout 0 is the rows that the search starts with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.decoding.search import Hypothesis


class Leaf(NamedTuple):
    """The end of a text: after `depth` tokens, in `slot` of that layout."""

    depth: int
    slot: int
    end_log_prob: float | None = None  # ln p of its end token, if it has one
    score: float | None = None  # None: the sum of all ln p


@dataclass
class Backpointers:
    """The record of a search: for each step, tensors (N,) of its layout, and weights (N', S) of the one before."""

    attention: bool
    tokens: list[Tensor] = field(default_factory=list)
    parents: list[Tensor] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)

    def add_attention(self, weights: Tensor | None) -> None:
        """Record the attention of a step, in the layout that it starts with."""
        if self.attention and weights is not None:
            self.weights.append(weights)

    def add_step(self, tokens: Tensor, parents: Tensor, log_probs: Tensor) -> None:
        """Record the tokens of a step, in the layout that it ends with."""
        self.tokens.append(tokens)
        self.parents.append(parents)
        self.log_probs.append(log_probs)

    def trace(self, leaves: Sequence[Leaf]) -> list[Hypothesis]:
        """The texts that end at these leaves, with the attention of their steps."""
        depths = np.array([leaf.depth for leaf in leaves], dtype=np.int64)
        at = np.array([leaf.slot for leaf in leaves], dtype=np.int64)
        steps = int(depths.max(initial=0))
        tokens, parents, log_probs = (_to_arrays(one[:steps]) for one in (self.tokens, self.parents, self.log_probs))
        ids = np.zeros((len(leaves), steps), dtype=np.int64)
        logs = np.zeros((len(leaves), steps))
        indices = np.zeros((len(leaves), steps + 1), dtype=np.int64)  # in the layout that each step starts with
        indices[np.arange(len(leaves)), depths] = at
        for step in range(steps - 1, -1, -1):
            longer = depths > step
            index = at[longer]
            ids[longer, step], logs[longer, step] = tokens[step][index], log_probs[step][index]
            at[longer] = parents[step][index]
            indices[longer, step] = at[longer]
        counts = depths + np.array([leaf.end_log_prob is not None for leaf in leaves], dtype=np.int64)
        weights = self._attention(indices, counts)
        return [
            _hypothesis(ids[number, : leaf.depth].tolist(), logs[number, : leaf.depth].tolist(), leaf, weights[number])
            for number, leaf in enumerate(leaves)
        ]

    def _attention(self, indices: np.ndarray, counts: np.ndarray) -> Sequence[Tensor | None]:
        """For each text its weights (count, S): row t is the attention of the step that generated token t."""
        steps = int(counts.max(initial=0))
        if not self.weights or not steps:
            return [None] * len(counts)
        width = max(
            weights.size(-1) for weights in self.weights[:steps]
        )  # a language model attends to more positions at each step
        rows = torch.from_numpy(indices).to(self.weights[0].device)
        pages = [
            pad(weights[rows[:, step]], (0, width - weights.size(-1)))
            for step, weights in enumerate(self.weights[:steps])
        ]
        stacked = torch.stack(pages, 1).cpu()  # (texts, steps, S); beyond the count of a text it is meaningless
        return [one[:count].clone() for one, count in zip(stacked, counts.tolist(), strict=True)]


def _hypothesis(tokens: list[int], log_probs: list[float], leaf: Leaf, weights: Tensor | None) -> Hypothesis:
    if leaf.end_log_prob is not None:
        log_probs = [*log_probs, leaf.end_log_prob]
    score = sum(log_probs) if leaf.score is None else leaf.score
    return Hypothesis(tokens, log_probs, leaf.end_log_prob is not None, score, weights)


def _to_arrays(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """A list of tensors as arrays, copied from the device at once."""
    if not tensors:
        return []
    joined = torch.cat(list(tensors)).cpu().numpy()
    return np.split(joined, np.cumsum([len(tensor) for tensor in tensors])[:-1])
