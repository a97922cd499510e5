"""Attention rollout (Abnar & Zuidema 2020) through residual streams: how much of each input token is left in an output
token.

A = (W + I) / 2, since half of a vector is what it was before; rollout = A_L ... A_2 A_1. The tokens of one text are a
stream that goes up through the layers. Self-attention leads from the stream to itself, one layer lower; cross-attention
keeps a part of each vector and takes a part from the stream of the other text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RecordError, SettingError, ShapeError
from regard.inspection.record.place import Place
from regard.inspection.record.record import Record


@dataclass(frozen=True, eq=False)
class RolloutLayer:
    """Attention weights (..., T, S) of one place, the mean over its heads, and the streams of its queries and keys."""

    weights: Tensor
    queries: int = 0
    keys: int = 0


def layers_of(record: Record, places: Sequence[str] | None = None) -> list[RolloutLayer]:
    """The places of a record, all or the named ones, in model order, as layers in float64.

    A stream goes by the number of a side (token axis) of the record.
    """
    wanted = None if places is None else {record.place(name).name for name in places}
    same = _streams(record)
    found = [
        (place, same.get(place.queries, place.queries), same.get(place.keys, place.keys))
        for place in record.places
        if wanted is None or place.name in wanted
    ]
    if not found:
        raise RecordError("no places", "at least one", where="layers_of")
    lengths: dict[int, int] = {}
    for place, queries, keys in found:
        for stream, count in ((queries, place.T), (keys, place.S)):
            if lengths.setdefault(stream, count) != count:
                came = f"{count} tokens at {place.name}"
                raise RecordError(came, f"{lengths[stream]}, as at the other places", where="layers_of")
    return [RolloutLayer(mean_weights(place), queries, keys) for place, queries, keys in found]


def mean_weights(place: Place) -> Tensor:
    """The mean of the weights over all heads of a place, (T, S), in float64."""
    total = torch.zeros(place.T, place.S, dtype=torch.float64)
    for head in range(place.heads):
        total += place.tile(head)
    return total / place.heads


def expect_layers(layers: Sequence[RolloutLayer], residual: float, where: str) -> dict[int, int]:
    """The number of tokens of each stream, if the layers fit together and `residual` is a share."""
    if not 0 <= residual <= 1:
        raise SettingError(f"residual={residual}", "a share from 0 to 1", where=where)
    if not layers:
        raise SettingError("no layers", "at least one", where=where)
    sizes: dict[int, int] = {}
    for layer in layers:
        for stream, count in zip((layer.queries, layer.keys), layer.weights.shape[-2:], strict=True):
            if sizes.setdefault(stream, count) != count:
                came = f"a layer {tuple(layer.weights.shape)}"
                raise ShapeError(came, f"{sizes[stream]} tokens of stream {stream}, as before it", where=where)
    return sizes


def _streams(record: Record) -> dict[int, int]:
    """The side that stands for a stream, for every other side of it.

    A decoder writes tokens that stand one position further than those it reads: two sides, but one stream. So are the
    queries of cross-attention and the tokens of the self-attention just before it, where there are as many of them and
    they are not those that cross-attention looks at.
    """
    same: dict[int, int] = {}
    alone = {side for place in record.places if place.kind == "self" for side in (place.queries, place.keys)}
    before: Place | None = None
    for place in record.places:
        if place.kind == "self":
            before = place
            if place.queries != place.keys:
                same[place.queries] = place.keys
        elif place.queries not in alone and before is not None and before.T == place.T and before.keys != place.keys:
            same[place.queries] = before.keys
    return same


Shares = dict[int, dict[int, Tensor]]
"""By stream, and by the stream of the inputs: how much of each input is in each vector, (..., T, N)."""


def rollout(layers: Sequence[RolloutLayer], residual: float = 0.5) -> Shares:
    """What the vectors of every stream are made of after these layers, first to last.

    `residual`: what share of a vector is what it was before. The shares of a vector, over all inputs, sum to one; a
    query that attends to nothing stays as it was.
    """
    sizes, lead = expect_layers(layers, residual, "rollout"), layers[0].weights.shape[:-2]
    first = layers[0].weights
    found: Shares = {
        stream: {stream: torch.eye(size, dtype=first.dtype, device=first.device).expand(*lead, size, size)}
        for stream, size in sizes.items()
    }
    for layer in layers:
        before, below = found[layer.queries], found[layer.keys]
        total = residual + (1 - residual) * layer.weights.sum(-1, keepdim=True)
        total = total.masked_fill(total == 0, 1.0)
        found[layer.queries] = {
            origin: _mixed(before.get(origin), below.get(origin), layer.weights, residual) / total
            for origin in {**before, **below}
        }
    return found


def _mixed(before: Tensor | None, below: Tensor | None, weights: Tensor, residual: float) -> Tensor:
    """residual * before + (1 - residual) * weights @ below, of which one may be nothing."""
    if below is None:
        assert before is not None
        return residual * before
    come = (1 - residual) * (weights @ below)
    return come if before is None else residual * before + come
