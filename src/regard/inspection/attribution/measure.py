"""Attribution maps of a record by name: rollout, flow, relevance, norms, gradients, integrated-gradients,
value-zeroing.

[found] = measure("rollout", record)
found.values, found.axes                     # (R, C), and the tokens along both axes

Rollout, flow and relevance go through all layers; the others give a map for each place, its heads together. Those that
run the model again take a `Rerun`, which `regard.look` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.adapters import borrow_model
from regard.errors import SettingError, unknown
from regard.inspection.attribution.flow import flow
from regard.inspection.attribution.gradients import gradient_times_attention, integrated_gradients
from regard.inspection.attribution.norms import norm_based_attention
from regard.inspection.attribution.relevance import RelevanceLayer, relevance
from regard.inspection.attribution.rollout import rollout, rollout_layers, rollout_streams
from regard.inspection.attribution.value_zeroing import value_zeroing
from regard.inspection.attribution.word_pooling import pool_measure, word_texts
from regard.inspection.record.record import MeasureMap, Record
from regard.inspection.record.token_axis import TokenAxis

MAX_TOKENS = 512
FLOW_MAX_TOKENS = 32  # a maximum flow is computed for every two of them


@dataclass(frozen=True, eq=False)
class Rerun:
    """Runs the model of a record again over the same text: `target` returns the scalar that gradients are taken of,
    ln p of the model's output, with its graph; None where the model outputs no logits."""

    model: nn.Module
    target: Callable[[], Tensor | None]

    def expect_target(self) -> Tensor:
        found = self.target()
        if found is None:
            raise SettingError(
                f"A {type(self.model).__name__} outputs no logits to take gradients of",
                where="measure",
                advice="Use a model that predicts tokens or classes; rollout, flow and norms need no gradients.",
            )
        return found


def measure(name: str, record: Record, rerun: Rerun | None = None) -> list[MeasureMap]:
    """The maps of a measure between all tokens, one for each place or one for each axis of inputs."""
    expect_measures([name])
    longest = max((max(place.T, place.S) for place in record.places), default=0)
    if longest > MAX_TOKENS:
        raise SettingError(f"a text of {longest} tokens", f"at most {MAX_TOKENS} for a measure", where=name)
    title, compute = MEASURES[name]
    with nullcontext() if rerun is None else borrow_model(rerun.model, evaluate=True):
        return [
            MeasureMap(name, title, place, rows, cols, values.float().numpy(), _tokens(record, rows, cols))
            for place, rows, cols, values in compute(record, rerun)
        ]


def expect_measures(names: Iterable[str]) -> None:
    """Refuse an unknown measure."""
    for name in names:
        if name not in MEASURES:
            raise unknown(name, MEASURES, kind="measure", where="measure")


def pool_map_to_words(one: MeasureMap, axes: Sequence[TokenAxis]) -> MeasureMap:
    """The same map between words instead of tokens."""
    queries, keys = axes[one.rows], axes[one.cols]
    values = pool_measure(torch.from_numpy(one.values), keys, queries).numpy()
    return replace(one, values=values, axes=(tuple(word_texts(queries)), tuple(word_texts(keys))))


Maps = Iterator[tuple[str | None, int, int, Tensor]]
"""For each map its place, if it has one, the numbers of the axes of its rows and columns, and values (R, C); or those
of each head, (H, R, C)."""


def _rollout(record: Record, rerun: Rerun | None) -> Maps:
    layers = rollout_layers(record)
    for origin, shares in rollout(layers)[layers[-1].queries].items():
        yield None, record.places[-1].queries, origin, shares


def _flow(record: Record, rerun: Rerun | None) -> Maps:
    layers = rollout_layers(record)
    count = layers[-1].weights.size(0)
    rows = [flow(layers, token, max_tokens=FLOW_MAX_TOKENS) for token in range(count)]
    for origin in rows[0]:
        yield None, record.places[-1].queries, origin, torch.stack([row[origin] for row in rows])


def _relevance(record: Record, rerun: Rerun | None) -> Maps:
    streams = rollout_streams(record)
    layers = [
        RelevanceLayer(values.double(), streams.get(queries, queries), streams.get(keys, keys))
        for _, queries, keys, values in _weight_gradients(record, rerun, "relevance")
    ]
    for origin, shares in relevance(layers)[layers[-1].queries].items():
        yield None, record.places[-1].queries, origin, shares


def _norms(record: Record, rerun: Rerun | None) -> Maps:
    known = [place for place in record.places if place.value_norms is not None]
    if not known:
        problem = "The output projections of this model are not known"
        raise SettingError(problem, where="norms", advice="Norm-based attention needs multi-head attention.")
    for place in known:
        yield place.name, place.queries, place.keys, norm_based_attention(place)


def _gradients(record: Record, rerun: Rerun | None) -> Maps:
    for name, queries, keys, values in _weight_gradients(record, rerun, "gradients"):
        yield name, queries, keys, values.sum(0)


def _weight_gradients(record: Record, rerun: Rerun | None, where: str) -> Maps:
    """Weight x gradient of every head, (H, T, S), of each place: stored ones, or those of another run."""
    if all(place.stored_gradients is not None for place in record.places):
        for place in record.places:
            heads = [place.tile(head) * place.gradient(head) for head in range(place.heads)]
            yield place.name, place.queries, place.keys, torch.stack(heads)
        return
    again = _expect_rerun(rerun, where)
    found = gradient_times_attention(again.model, again.expect_target, _place_names(record))
    for place in record.places:
        yield place.name, place.queries, place.keys, found[place.name][0].detach().cpu()


def _integrated(record: Record, rerun: Rerun | None) -> Maps:
    again = _expect_rerun(rerun, "integrated-gradients")
    yield from _by_place(record, integrated_gradients(again.model, again.expect_target, _place_names(record)))


def _zeroing(record: Record, rerun: Rerun | None) -> Maps:
    again = _expect_rerun(rerun, "value-zeroing")
    for name, shares in value_zeroing(again.model, again.target, _place_names(record)).items():
        place = record.place(name)
        yield name, place.queries, place.keys, shares[0]


def _by_place(record: Record, found: dict[str, Tensor]) -> Maps:
    """Maps (1, H, T, S) of a single text, summed over the heads."""
    for name, values in found.items():
        place = record.place(name)
        yield name, place.queries, place.keys, values[0].sum(0).detach().cpu()


def _place_names(record: Record) -> list[str]:
    """The places, each of which must be the only sequence of the only call of its module."""
    for place in record.places:
        if place.call is not None or place.joined is not None:
            what = "one of several calls of its module" if place.joined is None else "several sequences joined"
            raise SettingError(
                f"{place.name} is {what}, and this measure changes one map of each module",
                where="measure",
                advice="Look with gradient=True for weight x gradient, or use norms.",
            )
    return [place.name for place in record.places]


def _expect_rerun(rerun: Rerun | None, where: str) -> Rerun:
    if rerun is None:
        problem = "This measure runs the model again, but a record alone has no model"
        raise SettingError(problem, where=where, advice="Compute it from the view that regard.look returned.")
    return rerun


def _tokens(record: Record, rows: int, cols: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return record.axes[rows].tokens, record.axes[cols].tokens


MEASURES: dict[str, tuple[str, Callable[[Record, Rerun | None], Maps]]] = {
    "rollout": ("Attention rollout", _rollout),
    "flow": ("Attention flow", _flow),
    "relevance": ("Relevance", _relevance),
    "norms": ("Value-weighted attention", _norms),
    "gradients": ("Attention x gradient", _gradients),
    "integrated-gradients": ("Integrated gradients", _integrated),
    "value-zeroing": ("Value zeroing", _zeroing),
}
