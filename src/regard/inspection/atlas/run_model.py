"""Run a model once over a text: the weights of every head at every place, and the tokens along both axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.adapters import ModelAdapter
from regard.attention import Attended, Observe, TapListener, listen, places_of
from regard.errors import SettingError
from regard.inspection.atlas.passages import Passage
from regard.inspection.record.collect import collect
from regard.inspection.record.collector import RecordSpec
from regard.inspection.record.token_axis import TokenAxis

STATISTICS_ONLY = RecordSpec(heads=())  # the record is used for its axes; the maps are captured beside it


@dataclass(frozen=True, eq=False)
class PlaceMaps:
    """The maps of one place: weights (H, T, S), float64, the visible keys of each query (T, S), and the tokens of both
    axes. `is_self`: queries and keys are the same tokens."""

    place: str
    layer: int
    is_self: bool
    queries: TokenAxis
    keys: TokenAxis
    weights: Tensor
    visible: Tensor


@dataclass(frozen=True, eq=False)
class _Call:
    weights: Tensor
    visible: Tensor


def run_passage(model: ModelAdapter, passage: Passage) -> Iterator[PlaceMaps]:
    """The maps of every place for one passage. Only one passage's maps are in memory."""
    heard: dict[str, list[_Call]] = {}

    def on_attention(place: str, got: Attended) -> None:
        heard.setdefault(place, []).append(_call(got))

    observe = Observe(weights=True, prepared=True)
    with listen(TapListener(places_of(model.model), observe, on_attention)):
        try:
            record = collect(model, passage.text, passage.other, spec=STATISTICS_ONLY)
        except SettingError as error:
            where = f"atlas, reading {passage.text[:40]!r}"
            advice = error.advice or "Longer texts can be truncated: max_words=N."
            raise error.replace(where=where, advice=advice) from None
    for place in record.places:
        if place.joined is not None:
            where = f"atlas, {place.name}"
            raise SettingError("Several sequences in one map", "places that attend to one text", where=where)
        all_calls = heard[place.owner]
        calls = _last_calls(list(all_calls), place.T) if place.call is None else [all_calls[place.call]]
        S = max(call.weights.size(-1) for call in calls)
        weights = torch.cat([pad(call.weights, (0, S - call.weights.size(-1))) for call in calls], -2)
        visible = torch.cat([pad(call.visible, (0, S - call.visible.size(-1))) for call in calls], -2)
        axes = record.axes[place.queries], record.axes[place.keys]
        yield PlaceMaps(place.name, place.layer, place.queries == place.keys, *axes, weights.double(), visible)


def _last_calls(calls: list[_Call], T: int) -> list[_Call]:
    """The calls of the last T queries: those before them belong to a search, or to an encoding of the pair."""
    found, count = [], 0
    while count < T:
        found.append(calls.pop())
        count += found[-1].weights.size(-2)
    return found[::-1]


def _call(got: Attended) -> _Call:
    assert got.weights is not None and got.prepared is not None
    weights = got.weights.detach().float().cpu()
    weights = weights.reshape(-1, *weights.shape[-2:])  # one text, so the leading dimensions are heads
    T, S = weights.shape[-2:]
    prepared = got.prepared
    rows, cols = prepared.index(slice(None), T), prepared.index(slice(None), S)
    allowed = prepared.allowed(rows, cols) & prepared.allowed_without_mask(rows, cols)
    visible = allowed.expand(*allowed.shape[:-2], T, S).reshape(-1, T, S).any(0).cpu()
    if prepared.bias is not None:  # masks that are written as huge negative numbers
        visible &= (weights > 0).any(0)
    return _Call(weights, visible)
