"""Attribution maps of a record by name: rollout, flow, norms, gradients, integrated gradients, value zeroing.

[found] = measure("rollout", record)
found.values, found.axes                     # (R, C), and the tokens along both

Rollout and flow go through all layers at once; the others give a map for each place, its heads taken together. Those
that need the model take a `Rerun`, which `regard.look` makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.adapters import borrowed
from regard.errors import SettingError, unknown
from regard.inspection.attribution.flow import flow
from regard.inspection.attribution.gradients import gradient_times_attention, integrated_gradients
from regard.inspection.attribution.norms import norm_based
from regard.inspection.attribution.rollout import layers_of, rollout
from regard.inspection.attribution.value_zeroing import value_zeroing
from regard.inspection.attribution.word_pooling import of_words, shown
from regard.inspection.record.record import MeasureMap, Record
from regard.inspection.record.token_axis import Side

LONGEST = 512  # tokens
FLOW_LONGEST = 32  # tokens; a flow is computed for every two of them


@dataclass(frozen=True, eq=False)
class Rerun:
    """The model of a record, and what runs it once more over the same text: it returns the number that gradients are
    taken of, ln p of what the model says, with its graph; None where the model says nothing."""

    model: nn.Module
    target: Callable[[], Tensor | None]

    def said(self) -> Tensor:
        found = self.target()
        if found is None:
            raise SettingError(
                f"a {type(self.model).__name__} that outputs no logits",
                "a model that predicts tokens or classes",
                where="measure",
                advice="Gradients are taken of ln p of what a model predicts; rollout, flow and norms need none.",
            )
        return found


def measure(name: str, record: Record, rerun: Rerun | None = None) -> list[MeasureMap]:
    """The maps of a measure, one for each place or one for each axis of inputs, between all tokens."""
    expect_measures([name])
    longest = max((max(place.T, place.S) for place in record.places), default=0)
    if longest > LONGEST:
        raise SettingError(f"a text of {longest} tokens", f"at most {LONGEST} for a measure", where=name)
    title, compute = MEASURES[name]
    with nullcontext() if rerun is None else borrowed(rerun.model, evaluate=True):
        return [
            MeasureMap(name, title, place, rows, cols, values.float().numpy(), _tokens(record, rows, cols))
            for place, rows, cols, values in compute(record, rerun)
        ]


def expect_measures(names: Iterable[str]) -> None:
    """Refuse a name that no measure has."""
    for name in names:
        if name not in MEASURES:
            raise unknown(name, MEASURES, kind="measure", where="measure")


def pooled(one: MeasureMap, sides: Sequence[Side]) -> MeasureMap:
    """The same map between words instead of pieces."""
    queries, keys = sides[one.rows], sides[one.cols]
    values = of_words(torch.from_numpy(one.values), keys, queries).numpy()
    return replace(one, values=values, axes=(tuple(shown(queries)), tuple(shown(keys))))


Found = Iterator[tuple[str | None, int, int, Tensor]]
"""For each map its place, if it has one, the numbers of the sides along its rows and columns, and values (R, C)."""


def _rollout(record: Record, rerun: Rerun | None) -> Found:
    layers = layers_of(record)
    for origin, shares in rollout(layers)[layers[-1].queries].items():
        yield None, record.places[-1].queries, origin, shares


def _flow(record: Record, rerun: Rerun | None) -> Found:
    layers = layers_of(record)
    count = layers[-1].weights.size(0)
    rows = [flow(layers, token, most=FLOW_LONGEST) for token in range(count)]
    for origin in rows[0]:
        yield None, record.places[-1].queries, origin, torch.stack([row[origin] for row in rows])


def _norms(record: Record, rerun: Rerun | None) -> Found:
    kept = [place for place in record.places if place.value_norms is not None]
    if not kept:
        came = "a model whose output matrices, which join the heads, are not known"
        raise SettingError(came, "one with multi-head attention", where="norms")
    for place in kept:
        yield place.name, place.queries, place.keys, norm_based(place)


def _gradients(record: Record, rerun: Rerun | None) -> Found:
    if all(place.slopes is not None for place in record.places):
        for place in record.places:
            heads = [place.tile(head) * place.gradient(head) for head in range(place.heads)]
            yield place.name, place.queries, place.keys, torch.stack(heads).sum(0)
        return
    again = _expected(rerun, "gradients")
    yield from _by_place(record, gradient_times_attention(again.model, again.said, _names(record)))


def _integrated(record: Record, rerun: Rerun | None) -> Found:
    again = _expected(rerun, "integrated-gradients")
    yield from _by_place(record, integrated_gradients(again.model, again.said, _names(record)))


def _zeroing(record: Record, rerun: Rerun | None) -> Found:
    again = _expected(rerun, "value-zeroing")
    for name, shares in value_zeroing(again.model, again.target, _names(record)).items():
        place = record.place(name)
        yield name, place.queries, place.keys, shares[0]


def _by_place(record: Record, found: dict[str, Tensor]) -> Found:
    """Maps (1, H, T, S) of a single text, summed over the heads."""
    for name, values in found.items():
        place = record.place(name)
        yield name, place.queries, place.keys, values[0].sum(0).detach().cpu()


def _names(record: Record) -> list[str]:
    return [place.name for place in record.places]


def _expected(rerun: Rerun | None, where: str) -> Rerun:
    if rerun is None:
        raise SettingError("a record without its model", "a view that regard.look made", where=where)
    return rerun


def _tokens(record: Record, rows: int, cols: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return record.sides[rows].tokens, record.sides[cols].tokens


MEASURES: dict[str, tuple[str, Callable[[Record, Rerun | None], Found]]] = {
    "rollout": ("Attention rollout", _rollout),
    "flow": ("Attention flow", _flow),
    "norms": ("Value-weighted attention", _norms),
    "gradients": ("Attention x gradient", _gradients),
    "integrated-gradients": ("Integrated gradients", _integrated),
    "value-zeroing": ("Value zeroing", _zeroing),
}
