"""Two rows of words that look at each other, with all that patterns ask about them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.inspection.patterns.lexicon import Lexicon
from regard.inspection.patterns.nouns import is_function, nouns
from regard.inspection.patterns.passages import Passage
from regard.inspection.patterns.units import Units, nouns_of, units_of
from regard.inspection.record.sides import Side
from regard.text.words import spaced

NEAREST = 8  # distances that are told apart one by one; from there on in ever wider groups
_EDGES = torch.tensor([-32, -16, *range(-NEAREST, NEAREST + 2), 16, 32])
DISTANCES = len(_EDGES) + 1
CLASSES = 3  # function words, nouns and names, others
RARITIES = 3  # of a word in a thousand, in ten thousand, rarer
KINDS = 2 * DISTANCES * CLASSES * CLASSES * RARITIES


@dataclass(frozen=True, eq=False)
class Scene:
    """The words along both sides of a map, and where queries may look (T, S). `within`: both sides are the same."""

    queries: Units
    keys: Units
    within: bool
    visible: Tensor
    query_nouns: Tensor
    key_nouns: Tensor
    lexicon: Lexicon
    gold: Tensor | None = None  # (units, units): which words answer to each other, where somebody knows
    probe: bool = False

    @cached_property
    def seen(self) -> Tensor:
        """(units, units): where a word may look at a word, itself left out."""
        any_ = self.queries.inside @ self.visible.double() @ self.keys.inside.mT > 0
        words = self.queries.words[:, None] & self.keys.words
        return any_ & words & ~self.same

    @cached_property
    def same(self) -> Tensor:
        """(units, units): the same word in the same place."""
        if not self.within:
            return torch.zeros(len(self.queries), len(self.keys), dtype=torch.bool)
        return torch.eye(len(self.queries), dtype=torch.bool)

    @cached_property
    def apart(self) -> Tensor:
        """(units, units): whether the key stands in another text than the query."""
        if not self.within:
            return torch.ones(len(self.queries), len(self.keys), dtype=torch.bool)
        return self.queries.segments[:, None] != self.keys.segments

    @cached_property
    def distance(self) -> Tensor:
        """(units, units): how many words the key stands after the query; across two texts, after the place in the one
        that the query has in the other."""
        here, there = self.queries.order[:, None], self.keys.order
        if self.within:
            return there - here
        stretch = max(1, len(self.keys) - 1) / max(1, len(self.queries) - 1)
        return there - (here * stretch).round().long()

    @cached_property
    def kinds(self) -> Tensor:
        """(units, units): the number of a pair's kind: in one text or two, how far apart, what the query is, what the
        key is and how rare. Pairs of one kind differ in nothing but which words they are."""
        far = torch.bucketize(self.distance, _EDGES, right=True)
        of_query = _classes(self.queries, self.query_nouns)[:, None]
        of_key = _classes(self.keys, self.key_nouns) * RARITIES + _rarities(self.keys, self.lexicon)
        return ((self.apart.long() * DISTANCES + far) * CLASSES + of_query) * CLASSES * RARITIES + of_key


def scene_of(sides: tuple[Side, Side], within: bool, visible: Tensor, passage: Passage, lexicon: Lexicon) -> Scene:
    """The scene of a place's sides, those that ask and those that are looked at."""
    queries, keys = (units_of(side) for side in sides)
    ours, theirs = (nouns_of(side, own, passage, nouns) for side, own in zip(sides, (queries, keys), strict=True))
    gold = None if within else _gold(sides, (queries, keys), passage)
    return Scene(queries, keys, within, visible, ours, theirs, lexicon, gold, passage.probe)


def _classes(units: Units, noun: Tensor) -> Tensor:
    found = [0 if is_function(word) else 2 for word in units.spelled]
    return torch.tensor(found, dtype=torch.long).masked_fill(noun, 1)


def _rarities(units: Units, lexicon: Lexicon) -> Tensor:
    rates = [lexicon.frequency(word) for word in units.spelled]
    return torch.tensor([0 if rate >= 1e-3 else 1 if rate >= 1e-4 else 2 for rate in rates], dtype=torch.long)


def _gold(sides: tuple[Side, Side], units: tuple[Units, Units], passage: Passage) -> Tensor | None:
    """Gold links between the words of a translation (queries) and its source (keys)."""
    if passage.links is None or passage.other is None:
        return None
    numbers = [_spaced(side, own, text) for side, own, text in zip(sides, units, passage.texts[::-1], strict=True)]
    if None in numbers:
        return None
    targets, sources = (torch.tensor(number) for number in numbers)
    found = torch.zeros(len(targets), len(sources), dtype=torch.bool)
    for source, target in passage.links:
        found |= (targets == target)[:, None] & (sources == source)
    return found


def _spaced(side: Side, units: Units, text: str) -> list[int] | None:
    """For each unit the number of the word between spaces that it is in, or -1; None where the text is not there."""
    start = side.text.find(text)
    if start < 0:
        return None
    words = [(a + start, b + start) for a, b in spaced(text)]
    return [next((n for n, (a, b) in enumerate(words) if a <= begin < b), -1) for begin, _ in units.spans]
