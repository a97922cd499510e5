"""One place of a record: the statistics of its attention, and the queries and keys that any tile is recomputed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from regard.attention.normalise import Entmax, Normaliser, Softmax
from regard.attention.scores import soft_cap
from regard.errors import RecordError, ShapeError
from regard.inspection.record.mask_codec import BiasTerm, GaussianWindow, MaskSpans
from regard.inspection.record.quantize import Int16Tensor

Index = slice | Tensor


@dataclass(frozen=True, eq=False, repr=False)
class PlaceStatistics:
    """The statistics of every head that were observed while the model ran; exact, whether its map is stored or not.

    entropy (H, T), received (H, S), the k largest weights of each query (H, T, k) and their keys; the thumbnail
    (H, R, C), which is None where queries came one by one and no map is stored; and the share of an attention sink
    (H, T), where there is one.
    """

    entropy: Tensor
    received: Tensor
    top_values: Tensor
    top_indices: Tensor
    thumbnail: Tensor | None
    sink: Tensor | None = None

    def __repr__(self) -> str:
        heads, T = self.entropy.shape
        return f"PlaceStatistics({heads} heads, {T} queries, {self.received.size(-1)} keys)"


@dataclass(frozen=True, eq=False, repr=False)
class StoredQK:
    """The quantised queries and keys that the weights of some heads are recomputed from.

    `heads`: the heads of the place that are stored; number n of them has queries n and key head key_heads[n]. Scores
    are dot products, or with a `vector` (D,) additive ones; `cap` is their soft cap. `lse` (n, T) belongs to the
    quantised numbers, the keys without their centre: an offset that all keys share changes no weight (keys of capped
    scores have none). It includes the logit of a sink; with `alpha`, it is the threshold of an entmax.
    """

    heads: tuple[int, ...]
    key_heads: tuple[int, ...]
    queries: Int16Tensor
    keys: Int16Tensor
    vector: Tensor | None
    mask: MaskSpans
    bias: BiasTerm | None
    window: GaussianWindow | None
    lse: Tensor
    cap: float | None = None
    alpha: float | None = None

    def __repr__(self) -> str:
        return f"StoredQK(heads={self.heads}, queries={self.queries}, keys={self.keys})"

    def scores(self, number: int, rows: Tensor, cols: Tensor) -> Tensor:
        """The scores (t, s) of head heads[number], -inf where a query may not attend."""
        head = self.heads[number]
        scores = self.qk_scores(number, rows, cols)
        if self.bias is not None:
            scores = scores + self.bias.tile(head, rows, cols)
        if self.window is None and self.mask.covers(head, rows, cols):
            return scores
        allowed = self.mask.allowed(head, rows, cols)
        if self.window is not None:
            allowed = allowed & self.window.inside(head, rows, cols)
        return scores.masked_fill_(allowed.logical_not_(), -torch.inf)

    def qk_scores(self, number: int, rows: Index, cols: Index) -> Tensor:
        """The scores without mask and bias, the keys without their centre."""
        q, k = self.queries.offsets(number, rows), self.keys.offsets(self.key_heads[number], cols)
        if self.vector is None:
            return soft_cap(q @ k.mT, self.cap)
        return torch.tanh(q.unsqueeze(-2) + k.unsqueeze(-3)) @ self.vector

    @property
    def normaliser(self) -> Normaliser:
        """How scores and `lse` give weights."""
        return Softmax() if self.alpha is None else Entmax(self.alpha)

    def weights(self, number: int, rows: Tensor, cols: Tensor) -> Tensor:
        weights = self.normaliser.weights(self.scores(number, rows, cols), self.lse[number][rows])
        return weights if self.window is None else weights * self.window.factor(self.heads[number], rows, cols)


@dataclass(frozen=True, eq=False)
class StoredGradients:
    """The gradient of the model's output with respect to each weight: d target / d w_ij = output_grads_i . values_j.

    output_grads (n, T, D): gradients with respect to the attention output of each query; values (groups, S, D), of
    which head n has number value_heads[n]. A model that copies also uses its weights in other ways; those are left out.
    """

    output_grads: Int16Tensor
    values: Int16Tensor
    value_heads: tuple[int, ...]

    def tile(self, number: int, rows: Tensor, cols: Tensor) -> Tensor:
        """(t, s) of the stored head with this number."""
        return self.output_grads.values(number, rows) @ self.values.values(self.value_heads[number], cols).mT


@dataclass(frozen=True, eq=False, repr=False)
class PlaceRecord:
    """Attention at one place of a model: T queries along one axis attend to S keys along another, in each of `heads`.

    `queries` and `keys` are numbers of the record's axes. `stored` is None where only statistics are stored, and `why`
    has the reason. `value_norms` (H, S): the norm of each value after the output projection. `stored_gradients`: if
    requested. `module`: the module that attends, where it has another name: one that is called several times in a pass
    has a place for each `call`, counted from 0. `note`: what the map consists of, where it is not one sequence; where
    that is several `joined` ones, the queries of each see its own keys alone.
    """

    name: str
    layer: int
    kind: Literal["self", "cross"]
    queries: int
    keys: int
    heads: int
    statistics: PlaceStatistics
    stored: StoredQK | None
    why: str = ""
    value_norms: Tensor | None = None
    stored_gradients: StoredGradients | None = None
    module: str | None = None
    call: int | None = None
    joined: Literal["windows", "chunks"] | None = None
    note: str = ""

    def __repr__(self) -> str:
        stored = "statistics only" if self.stored is None else f"{len(self.stored.heads)} maps stored"
        return f"PlaceRecord({self.name!r}, {self.kind}, {self.heads} heads, {self.T} x {self.S}, {stored})"

    @property
    def owner(self) -> str:
        """The path of the module that attends."""
        return self.name if self.module is None else self.module

    @property
    def T(self) -> int:
        return self.statistics.entropy.size(-1)

    @property
    def S(self) -> int:
        return self.statistics.received.size(-1)

    def tile(self, head: int, rows: Index = slice(None), cols: Index = slice(None)) -> Tensor:
        """The weights (t, s) of these queries and keys in one head, recomputed from stored queries and keys."""
        stored, number = self.stored_head(head)
        return stored.weights(number, _positions(rows, self.T), _positions(cols, self.S))

    def gradient(self, head: int, rows: Index = slice(None), cols: Index = slice(None)) -> Tensor:
        """(t, s): the gradient of the model's output with respect to each weight; times the weight, its attribution."""
        _, number = self.stored_head(head)
        if self.stored_gradients is None:
            advice = "Ask for them when you look: gradient=True."
            raise RecordError("The record has no gradients", where=self.name, advice=advice)
        return self.stored_gradients.tile(number, _positions(rows, self.T), _positions(cols, self.S))

    def stored_head(self, head: int) -> tuple[StoredQK, int]:
        """The stored queries and keys, and the number of this head among them."""
        if not 0 <= head < self.heads:
            raise RecordError(f"head {head}", f"one from 0 to {self.heads - 1}", where=self.name)
        if self.stored is None:
            raise RecordError("The record has no map of this place", where=self.name, advice=self.why)
        if head not in self.stored.heads:
            stored = ", ".join(map(str, self.stored.heads))
            raise RecordError(f"The record has no map of head {head}", where=self.name, advice=f"Stored: {stored}.")
        return self.stored, self.stored.heads.index(head)


def _positions(index: Index, size: int) -> Tensor:
    if isinstance(index, slice):
        return torch.arange(size)[index]
    if index.dim() != 1:
        raise ShapeError(f"indices of shape {tuple(index.shape)}", "(n,)", where="tile")
    return index.long()
