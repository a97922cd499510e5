"""Attention rollout (Abnar & Zuidema 2020) through residual streams: the share of each input token in an output token.

A = (W + I) / 2, where I is the residual connection (its share `residual` is 0.5 here and in page/static/rollout.js);
rollout = A_L ... A_2 A_1. The tokens of one text are a residual stream through the layers. Self-attention goes from the
stream to itself, one layer lower; cross-attention retains a part of each vector and takes a part from the stream of the
other text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RecordError, SettingError, ShapeError
from regard.inspection.record.place import PlaceRecord
from regard.inspection.record.record import Record


@dataclass(frozen=True, eq=False, repr=False)
class RolloutLayer:
    """Attention weights (..., T, S) of one place, the mean over its heads, and the streams of its queries and keys."""

    weights: Tensor
    queries: int = 0
    keys: int = 0

    def __repr__(self) -> str:
        return f"RolloutLayer({tuple(self.weights.shape)}, queries={self.queries}, keys={self.keys})"


def rollout_layers(record: Record, places: Sequence[str] | None = None) -> list[RolloutLayer]:
    """The places of a record, all or the named ones, in model order, as layers in float64.

    A stream has the number of one of its axes in the record.
    """
    wanted = None if places is None else {record.place(name).name for name in places}
    same = rollout_streams(record)
    found = [
        (place, same.get(place.queries, place.queries), same.get(place.keys, place.keys))
        for place in record.places
        if wanted is None or place.name in wanted
    ]
    if not found:
        raise RecordError("There are no places to roll attention out over", where="rollout_layers")
    lengths: dict[int, int] = {}
    for place, queries, keys in found:
        if place.joined == "windows":
            advice = "Windows move from layer to layer, so a position is not the same token in all of them."
            raise RecordError(f"{place.name} attends in windows", where="rollout_layers", advice=advice)
        for stream, count in ((queries, place.T), (keys, place.S)):
            if lengths.setdefault(stream, count) != count:
                came = f"{count} tokens at {place.name}"
                raise RecordError(came, f"{lengths[stream]}, as at the other places", where="rollout_layers")
    return [RolloutLayer(mean_weights(place), queries, keys) for place, queries, keys in found]


def mean_weights(place: PlaceRecord) -> Tensor:
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
        raise SettingError("There are no layers", where=where)
    sizes: dict[int, int] = {}
    for layer in layers:
        for stream, count in zip((layer.queries, layer.keys), layer.weights.shape[-2:], strict=True):
            if sizes.setdefault(stream, count) != count:
                came = f"a layer {tuple(layer.weights.shape)}"
                raise ShapeError(came, f"{sizes[stream]} tokens of stream {stream}, as before it", where=where)
    return sizes


def rollout_streams(record: Record) -> dict[int, int]:
    """For each axis that is not the first of its residual stream, the axis that is.

    The output tokens of a decoder are its input tokens shifted by one: two axes, but one stream. So are the queries of
    cross-attention and the tokens of the self-attention just before it, where there are as many of them and they are
    not the keys of the cross-attention.
    """
    same: dict[int, int] = {}
    self_axes = {axis for place in record.places if place.kind == "self" for axis in (place.queries, place.keys)}
    before: PlaceRecord | None = None
    for place in record.places:
        if place.kind == "self":
            before = place
            if place.queries != place.keys:
                same[place.queries] = place.keys
        elif (
            place.queries not in self_axes and before is not None and before.T == place.T and before.keys != place.keys
        ):
            same[place.queries] = before.keys
    return same


RolloutShares = dict[int, dict[int, Tensor]]
"""By stream, and by the stream of the inputs: the share of each input in each vector, (..., T, N)."""


def rollout(layers: Sequence[RolloutLayer], residual: float = 0.5) -> RolloutShares:
    """The composition of the vectors of every stream after these layers, first to last.

    `residual`: the share of a vector that bypasses attention. The shares of a vector, over all inputs, sum to one; a
    query that attends to nothing stays as it was.
    """
    sizes, lead = expect_layers(layers, residual, "rollout"), layers[0].weights.shape[:-2]
    first = layers[0].weights
    found: RolloutShares = {
        stream: {stream: torch.eye(size, dtype=first.dtype, device=first.device).expand(*lead, size, size)}
        for stream, size in sizes.items()
    }
    for layer in layers:
        before, below = found[layer.queries], found[layer.keys]
        total = residual + (1 - residual) * layer.weights.sum(-1, keepdim=True)
        total = total.masked_fill(total == 0, 1.0)
        found[layer.queries] = {
            origin: _mix(before.get(origin), below.get(origin), layer.weights, residual) / total
            for origin in {**before, **below}
        }
    return found


def _mix(before: Tensor | None, below: Tensor | None, weights: Tensor, residual: float) -> Tensor:
    """residual * before + (1 - residual) * weights @ below, either of which may be None (zero)."""
    if below is None:
        assert before is not None
        return residual * before
    attended = (1 - residual) * (weights @ below)
    return attended if before is None else residual * before + attended
