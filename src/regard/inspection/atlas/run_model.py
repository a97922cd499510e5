"""A text through a model once: the weights of every head at every place, and the words that they lie between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.adapters import ModelAdapter
from regard.attention import Attended, Listener, Observe, listening, places_of
from regard.errors import SettingError
from regard.inspection.atlas.examples import Passage
from regard.inspection.record.collect import RecordSpec, collect
from regard.inspection.record.token_axis import Side

STATISTICS = RecordSpec(heads=())  # a record of nothing but sides and statistics: the maps are heard beside it


@dataclass(frozen=True, eq=False)
class Seen:
    """One place: weights (H, T, S), float64, where each query may look (T, S), and the tokens of both sides. `within`:
    the queries and the keys are the same tokens."""

    place: str
    layer: int
    within: bool
    queries: Side
    keys: Side
    weights: Tensor
    visible: Tensor


@dataclass(frozen=True, eq=False)
class _Call:
    weights: Tensor
    visible: Tensor


def seen(subject: ModelAdapter, passage: Passage) -> Iterator[Seen]:
    """Every place at which the model attends while it reads a passage. One passage's maps are held, never more."""
    heard: dict[str, list[_Call]] = {}

    def hear(place: str, got: Attended) -> None:
        heard.setdefault(place, []).append(_call(got))

    with listening(Listener(places_of(subject.model), Observe(weights=True, prepared=True), hear)):
        try:
            record = collect(subject, passage.text, passage.other, spec=STATISTICS)
        except SettingError as error:
            where, advice = f"atlas, reading {passage.text[:40]!r}", error.advice or "Longer texts can be cut: words=N."
            raise SettingError(error.came, error.expected, where=where, advice=advice) from None
    for place in record.places:
        calls = _last(heard.pop(place.name), place.T)
        S = max(call.weights.size(-1) for call in calls)
        weights = torch.cat([pad(call.weights, (0, S - call.weights.size(-1))) for call in calls], -2)
        visible = torch.cat([pad(call.visible, (0, S - call.visible.size(-1))) for call in calls], -2)
        sides = record.sides[place.queries], record.sides[place.keys]
        yield Seen(place.name, place.layer, place.queries == place.keys, *sides, weights.double(), visible)


def _last(calls: list[_Call], T: int) -> list[_Call]:
    """The calls of the last T queries: a translator reads its pair, or searches, before it is looked at."""
    found, count = [], 0
    while count < T:
        found.append(calls.pop())
        count += found[-1].weights.size(-2)
    return found[::-1]


def _call(got: Attended) -> _Call:
    assert got.weights is not None and got.prepared is not None
    weights = got.weights.detach().float().cpu()
    weights = weights.reshape(-1, *weights.shape[-2:])  # one text, so what leads is heads
    T, S = weights.shape[-2:]
    prepared = got.prepared
    rows, cols = prepared.index(slice(None), T), prepared.index(slice(None), S)
    shown = prepared.allowed(rows, cols) & prepared.shown(rows, cols)
    visible = shown.expand(*shown.shape[:-2], T, S).reshape(-1, T, S).any(0).cpu()
    if prepared.bias is not None:  # masks that others write as huge negative numbers
        visible &= (weights > 0).any(0)
    return _Call(weights, visible)
