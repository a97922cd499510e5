"""Word maps of sentence pairs: the cross-attention of a model made to write a given translation, pooled to words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from regard.adapters import NO_WORD, ModelAdapter
from regard.attention import Heard, Observe, capture
from regard.decoding import Tell, Translator
from regard.errors import PlaceError, SettingError
from regard.inspection.alignment.evaluate import Agreement, Gold, evaluate_links
from regard.inspection.alignment.links import THRESHOLD, balanced, links_of
from regard.inspection.attribution.norms import sent_norms
from regard.inspection.attribution.word_pooling import between_words
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


By = Literal["raw", "norm"]
BOTH: tuple[By, By] = ("raw", "norm")


@dataclass(frozen=True)
class Reading:
    """What is read as the map of a pair.

    place   such as "decoder.1.cross"
    heads   some of its heads; all of them by default. Several are averaged.
    by      "raw": the weights; "norm": weights times the norm of what each source token sends (Kobayashi et al. 2020)
    shift   the row of a target word is the step that has just read it; without, the step that is about to write it,
            which does not know the word yet (Chen et al. 2020)
    """

    place: str
    heads: tuple[int, ...] | None = None
    by: By = "raw"
    shift: bool = False

    @classmethod
    def at(cls, said: str, by: By = "raw", shift: bool = False) -> Reading:
        """A place as it is written: "decoder.1.cross", or with heads "decoder.1.cross/0,3"."""
        place, slash, heads = said.partition("/")
        numbers = heads.split(",")
        if slash and not all(number.isdecimal() for number in numbers):
            raise SettingError(f"heads {heads!r}", "numbers, as in decoder.1.cross/0,3", where="place")
        return cls(place, tuple(map(int, numbers)) if slash else None, by, shift)

    @property
    def spelled(self) -> str:
        """The place with its heads, as `at` takes it."""
        return self.place if self.heads is None else f"{self.place}/{','.join(map(str, self.heads))}"

    def __str__(self) -> str:
        return f"{self.spelled}, {self.by}{', shifted' if self.shift else ''}"


def word_maps(
    subject: ModelAdapter, pairs: Sequence[Pair], readings: Sequence[Reading], tell: Tell = lambda more: None
) -> list[list[Tensor]]:
    """For each reading, the map (target words, source words) of each pair; the model runs once for all readings."""
    places = list(dict.fromkeys(reading.place for reading in readings))
    found: list[list[Tensor]] = [[torch.empty(0)] * len(pairs) for _ in readings]
    for number, seen in crossings(subject, pairs, places, tell):
        for maps, reading in zip(found, readings, strict=True):
            maps[number] = word_map(seen[reading.place], reading)
    return found


def word_map(seen: Crossing, reading: Reading) -> Tensor:
    """(target words, source words) of one pair, as a reading has it."""
    heads = list(range(len(seen.weights))) if reading.heads is None else list(reading.heads)
    if any(head >= len(seen.weights) for head in heads):
        came = f"head {max(heads)} of {reading.place}"
        raise SettingError(came, f"heads below {len(seen.weights)}", where="Reading")
    weights = seen.weights[heads]
    if reading.by == "norm":
        sent = weights * seen.norms[heads].unsqueeze(1)
        total = sent.sum(-1, keepdim=True)
        weights = sent / total.masked_fill(total == 0, 1.0)
    matrix = weights.mean(0)[int(reading.shift) :]
    rows = [row for row, word in enumerate(seen.targets) if word != NO_WORD and row < len(matrix)]
    cols = [col for col, word in enumerate(seen.sources) if word != NO_WORD]
    return between_words(
        matrix[rows][:, cols], [seen.sources[col] for col in cols], [seen.targets[row] for row in rows]
    )


def best_reading(
    subject: ModelAdapter,
    pairs: Sequence[Pair],
    gold: Sequence[Gold],
    like: Reading | None = None,
    shares: Callable[[Tensor], Tensor] = balanced,
    threshold: float = THRESHOLD,
) -> tuple[Reading, Agreement]:
    """The place, whole or a single head of it, whose links agree best with gold ones; read as `like` is, or else in
    every way. Of equals the first."""
    readings = _candidates(subject, pairs, like)
    best: tuple[Reading, Agreement] | None = None
    for reading, maps in zip(readings, word_maps(subject, pairs, readings), strict=True):
        got = evaluate_links((links_of(shares(matrix), threshold) for matrix in maps), gold)
        if best is None or got.aer < best[1].aer:
            best = reading, got
    assert best is not None
    return best


def _candidates(subject: ModelAdapter, pairs: Sequence[Pair], like: Reading | None) -> list[Reading]:
    if not pairs:
        raise SettingError("no pairs", "some with gold links, to choose a place by", where="best_reading")
    places = across(subject, pairs[0])
    ways = [Reading("", by=by, shift=shift) for by in BOTH for shift in (False, True)]
    [(_, seen)] = crossings(subject, pairs[:1], places)
    found = []
    for way in ways if like is None else [like]:
        for place in places:
            count = len(seen[place].weights)
            single = [(head,) for head in range(count)] if count > 1 else []
            found += [replace(way, place=place, heads=heads) for heads in (None, *single)]
    return found
