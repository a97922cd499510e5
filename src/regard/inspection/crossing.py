"""Where a model that translates looks across, from the words that it writes to those that it reads: weights by place.

Ours are read in batches, step by step, as `Translator.read` does; those of transformers one pair at a time, by `look`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.adapters.base import ModelAdapter
from regard.adapters.tokens import NO_WORD
from regard.attention.hearing import Heard, capture
from regard.attention.observe import Observe
from regard.decoding.translate import Tell, Translator
from regard.errors import PlaceError, SettingError
from regard.inspection.measures.norms import sent_norms
from regard.inspection.record.collect import RecordSpec, collect

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Crossing:
    """One pair at one place: weights (H, T, S) of the step that writes each token of the target, its end among them;
    norms (H, S), how long the vector is that each token of the source sends. `targets` and `sources`: the word that
    each row and each column belongs to, NO_WORD where it is none."""

    weights: Tensor
    norms: Tensor
    targets: list[int]
    sources: list[int]


Crossings = dict[str, Crossing]
"""By place."""


def across(subject: ModelAdapter, pair: Pair) -> list[str]:
    """The places where what is written looks at what is read, first layer first. `pair`: any, to see it look."""
    if subject.kind != "translates":
        came = f"{subject.name}, which {subject.kind}"
        raise SettingError(came, "a model that translates", where="align")
    record = collect(subject, *pair, spec=RecordSpec(heads=()))
    return [place.name for place in record.places if place.kind == "cross"]


def own_place(subject: ModelAdapter, places: Sequence[str]) -> str:
    """The place that a translator of ours tells about itself; of others, the last one."""
    return places[subject.alignment_place]


def crossings(
    subject: ModelAdapter, pairs: Sequence[Pair], places: Sequence[str], tell: Tell = lambda more: None
) -> Iterator[tuple[int, Crossings]]:
    """What was seen at these places, for each pair by its number, in no certain order."""
    translator = subject.batch_translator()
    if translator is not None:
        yield from _of_ours(translator, pairs, places, tell)
        return
    for number, (source, target) in enumerate(pairs):
        sources, targets = subject.word_numbers(source, target)
        record = collect(subject, source, target, spec=RecordSpec(list(places)))
        found = {}
        for name in places:
            place = record.place(name)
            weights = torch.stack([place.tile(head) for head in range(place.heads)])
            if place.value_norms is None:
                raise PlaceError(f"{name}, whose values are not known", "a place that kept their norms", where="align")
            found[name] = Crossing(weights, place.value_norms, targets, sources)
        yield number, found
        tell(1)


def _of_ours(
    translator: Translator, pairs: Sequence[Pair], places: Sequence[str], tell: Tell
) -> Iterator[tuple[int, Crossings]]:
    given = [translator.source.encode(source) for source, _ in pairs]
    asked = [translator.target.encode(target) for _, target in pairs]
    # longest first, as `read` would sort them: the rows of a batch are then these pairs in order
    order = sorted(range(len(pairs)), key=lambda row: -len(given[row]))
    for first in range(0, len(order), translator.rows):
        rows = order[first : first + translator.rows]
        with capture(translator.model, list(places), Observe(weights=True, values=True)) as heard:
            translator.read([pairs[row] for row in rows])
        for at, row in enumerate(rows):
            T, S = len(asked[row]) + 1, len(given[row]) + 1  # with their ends
            words = ([*asked[row].words, NO_WORD], [*given[row].words, NO_WORD])
            yield row, {place: Crossing(*_heard(translator.model, heard, place, at, T, S), *words) for place in places}
        tell(len(rows))


def _heard(model: Any, heard: Heard, place: str, row: int, T: int, S: int) -> tuple[Tensor, Tensor]:
    """Weights (H, T, S) and norms (H, S) of one row of a batch that was read step by step."""
    calls = heard.calls(place)[:T]
    weights = torch.cat([_by_head(call.weights[row]) for call in calls if call.weights is not None], 1)[..., :S]
    values = calls[0].values
    assert values is not None
    own = _by_head(values[row])[:, :S].float().cpu()
    norms = sent_norms(model, place, own, weights.size(0))
    return weights.float().cpu(), norms


def _by_head(x: Tensor) -> Tensor:
    """(N, D) of a single head, or (H, N, D), as the latter."""
    return x.unsqueeze(0) if x.dim() == 2 else x
