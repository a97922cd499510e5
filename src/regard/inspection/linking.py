"""Links read off a chosen place of a model: by its weights or by norms, where a word is written or where it is read.

[maps] = word_maps(adapter("runs/transformer"), pairs, [Reading.at("decoder.1.cross", shift=True)])
links_of(balanced(maps[0]))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from regard.adapters.base import ModelAdapter
from regard.adapters.tokens import NO_WORD
from regard.decoding.translate import Tell
from regard.errors import SettingError
from regard.inspection.alignment import THRESHOLD, Agreement, Gold, balanced, links_of, measure
from regard.inspection.crossing import Crossing, Pair, across, crossings
from regard.inspection.measures.words import between_words

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
        got = measure((links_of(shares(matrix), threshold) for matrix in maps), gold)
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
