"""One place of a record: what was attended there, and what any part of its map is computed from again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.errors import RecordError, ShapeError
from regard.inspection.record.mask_codec import Added, Local, Sight
from regard.inspection.record.quantize import Fixed

Where = slice | Tensor


@dataclass(frozen=True, eq=False)
class Statistics:
    """What was observed while the model ran, of every head: exact, whatever was kept.

    entropy (H, T), received (H, S), the k largest weights of each query (H, T, k) and their keys, and the map shrunk to
    (H, R, C); `thumbnail` is None where queries came one by one and nothing was kept.
    """

    entropy: Tensor
    received: Tensor
    top_values: Tensor
    top_indices: Tensor
    thumbnail: Tensor | None


@dataclass(frozen=True, eq=False)
class Kept:
    """What the weights of some heads are computed from.

    `heads`: which of the place's; number n of them asks with queries n and looks at key head key_heads[n]. Scores are
    dot products, or with a `vector` (D,) additive ones. `lse` (n, T) belongs to the numbers as they are kept, the keys
    without their centre: an offset that is the same for all keys changes no weight.
    """

    heads: tuple[int, ...]
    key_heads: tuple[int, ...]
    queries: Fixed
    keys: Fixed
    vector: Tensor | None
    sight: Sight
    added: Added | None
    local: Local | None
    lse: Tensor

    def scores(self, number: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(t, s) of head heads[number], -inf where a query may not look."""
        head = self.heads[number]
        scores = self.compared(number, rows, cols)
        if self.added is not None:
            scores = scores + self.added.tile(head, rows, cols)
        if self.local is None and self.sight.all_of(head, rows, cols):
            return scores
        allowed = self.sight.allowed(head, rows, cols)
        if self.local is not None:
            allowed = allowed & self.local.inside(head, rows, cols)
        return scores.masked_fill_(allowed.logical_not_(), -torch.inf)

    def compared(self, number: int, rows: Where, cols: Where) -> Tensor:
        """Queries against keys alone, the keys without their centre."""
        q, k = self.queries.offsets(number, rows), self.keys.offsets(self.key_heads[number], cols)
        if self.vector is None:
            return q @ k.mT
        return torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) @ self.vector

    def weights(self, number: int, rows: Tensor, cols: Tensor) -> Tensor:
        lse = self.lse[number][rows].unsqueeze(-1)
        logs = self.scores(number, rows, cols).sub_(lse.masked_fill(lse == -torch.inf, 0.0))
        weights = logs.clamp_(max=0.0).exp_()
        return weights if self.local is None else weights * self.local.gain(self.heads[number], rows, cols)


@dataclass(frozen=True, eq=False)
class Slopes:
    """How a weight matters to what the model said, through the average: d said / d w_ij = asks_i . sends_j.

    asks: the gradient by what a query gets, sends: the value of a key; (n, T, D) and (groups, S, D), of the heads that
    were kept. A model that copies uses its weights in another way too.
    """

    asks: Fixed
    sends: Fixed
    groups: tuple[int, ...]

    def tile(self, number: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(t, s) of the head with this number among those that were kept."""
        return self.asks.values(number, rows) @ self.sends.values(self.groups[number], cols).mT


@dataclass(frozen=True, eq=False)
class Place:
    """Attention at one point of a model: T queries of one side look at S keys of another, in each of `heads`.

    `queries` and `keys` are numbers of the record's sides. `kept` is None where nothing but statistics was kept, and
    `why` says the reason. `value_norms` (H, S): how long the vector is that a key sends, transformed, into the stream.
    `slopes`: gradients, where they were asked for.
    """

    name: str
    layer: int
    kind: Literal["self", "cross"]
    queries: int
    keys: int
    heads: int
    statistics: Statistics
    kept: Kept | None
    why: str = ""
    value_norms: Tensor | None = None
    slopes: Slopes | None = None

    @property
    def T(self) -> int:
        return self.statistics.entropy.size(-1)

    @property
    def S(self) -> int:
        return self.statistics.received.size(-1)

    def tile(self, head: int, rows: Where = slice(None), cols: Where = slice(None)) -> Tensor:
        """The weights (t, s) of these queries and keys in one head, computed again from what was kept."""
        kept, number = self.number(head)
        return kept.weights(number, _index(rows, self.T), _index(cols, self.S))

    def gradient(self, head: int, rows: Where = slice(None), cols: Where = slice(None)) -> Tensor:
        """(t, s): how what the model said changes with each weight; times the weight, what that weight did for it."""
        _, number = self.number(head)
        if self.slopes is None:
            advice = "Ask for gradients when you look: gradient=True."
            raise RecordError(f"gradients of {self.name}", "a place that kept some", where="gradient", advice=advice)
        return self.slopes.tile(number, _index(rows, self.T), _index(cols, self.S))

    def number(self, head: int) -> tuple[Kept, int]:
        """What was kept, and the number of this head in it."""
        if not 0 <= head < self.heads:
            raise RecordError(f"head {head}", f"one of the {self.heads} heads of {self.name}", where="tile")
        if self.kept is None:
            raise RecordError(f"a tile of {self.name}", "a place that kept more than statistics", advice=self.why)
        if head not in self.kept.heads:
            held = ", ".join(map(str, self.kept.heads))
            raise RecordError(f"a tile of head {head} of {self.name}", f"one of the heads that were kept: {held}")
        return self.kept, self.kept.heads.index(head)


def _index(where: Where, size: int) -> Tensor:
    if isinstance(where, slice):
        return torch.arange(size)[where]
    if where.dim() != 1:
        raise ShapeError(f"indices of shape {tuple(where.shape)}", "(n,)", where="tile")
    return where.long()
