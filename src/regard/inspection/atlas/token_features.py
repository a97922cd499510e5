"""Features of the words along both sides of a map: what they are, where they stand, and how they belong together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.adapters import NOWHERE
from regard.inspection.atlas.examples import Nouns, Passage
from regard.inspection.atlas.lexicon import Lexicon, is_function, nouns
from regard.inspection.attribution.word_pooling import between_words
from regard.inspection.record.token_axis import Side
from regard.text import Span, numbers, separated, spaced

SPECIAL, SIGN, WORD = range(3)  # what stands for nothing in the text, punctuation, words


@dataclass(frozen=True, eq=False)
class Units:
    """The words, signs and special tokens of a side, in its order.

    of_token (T,): the unit of each token. spelled: in small letters; shown: as they stand. kinds, segments, order (N,):
    SPECIAL, SIGN or WORD; which text; the number of the unit in its text. spans: where each stands in the side's text.
    """

    of_token: Tensor
    spelled: tuple[str, ...]
    shown: tuple[str, ...]
    kinds: Tensor
    segments: Tensor
    order: Tensor
    spans: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.spelled)

    @property
    def words(self) -> Tensor:
        """(N,): which units are words."""
        return self.kinds == WORD

    @property
    def inside(self) -> Tensor:
        """(N, T): 1 at the tokens of a unit."""
        return torch.zeros(len(self), len(self.of_token), dtype=torch.float64).index_put_(
            (self.of_token, torch.arange(len(self.of_token))), torch.ones((), dtype=torch.float64)
        )


def units_of(side: Side) -> Units:
    """Words and punctuation apart, whatever the tokenizer takes for a word; what stands nowhere is a unit by itself."""
    words = separated(side.text)
    segments = side.segments or (0,) * len(side)
    of_word = numbers(words, side.spans)
    found: dict[tuple[int, int, int], int] = {}
    of_token, spans, spelled, own = [], [], [], []
    for at, (token, span, word) in enumerate(zip(side.tokens, side.spans, of_word, strict=True)):
        alone = span == NOWHERE or word >= len(words)
        key = (segments[at], -1 if alone else word, at if alone else 0)
        if key not in found:
            found[key] = len(found)
            spans.append(span if alone else words[word])
            spelled.append(token if alone else side.text[slice(*words[word])])
            own.append(segments[at])
        of_token.append(found[key])
    kinds = [_kind(text, span) for text, span in zip(spelled, spans, strict=True)]
    return Units(
        torch.tensor(of_token, dtype=torch.long),
        tuple(text.lower() for text in spelled),
        tuple(spelled),
        torch.tensor(kinds, dtype=torch.long),
        torch.tensor(own, dtype=torch.long),
        torch.tensor(_order(own), dtype=torch.long),
        tuple(spans),
    )


def between_units(weights: Tensor, queries: Units, keys: Units) -> Tensor:
    """weights (H, T, S) between tokens, float64: (H, units, units), summed *to* and averaged *from* the pieces of a
    word (Clark et al. 2019)."""
    return between_words(weights, keys.of_token.tolist(), queries.of_token.tolist())


def nouns_of(side: Side, units: Units, passage: Passage, rule: Callable[[Sequence[str]], list[bool]]) -> Tensor:
    """(N,): which units are nouns or names, as the passage knows, or by a rule where it does not."""
    found = torch.zeros(len(units), dtype=torch.bool)
    known: dict[int, bool] = {}
    for text, tags, last in ((passage.text, passage.nouns[0], False), (passage.other, passage.nouns[1], True)):
        start = -1 if text is None else side.text.rfind(text) if last else side.text.find(text)
        if tags is not None and start >= 0:
            known |= _by_start(tags, start, units)
    guessed: dict[int, bool] = {}
    for segment in units.segments.unique().tolist():
        own = [at for at in range(len(units)) if units.segments[at] == segment and units.kinds[at] != SPECIAL]
        guessed |= dict(zip(own, rule([units.shown[at] for at in own]), strict=True))
    for at in range(len(units)):
        found[at] = units.kinds[at] == WORD and known.get(at, guessed.get(at, False))
    return found


def _by_start(nouns: Nouns, start: int, units: Units) -> dict[int, bool]:
    """What is known of the units that begin inside a tagged word."""
    tags = [(a + start, b + start, noun) for (a, b), noun in nouns]
    found = {}
    for at, (begin, _) in enumerate(units.spans):
        inside = [noun for a, b, noun in tags if a <= begin < b]
        if inside:
            found[at] = inside[0]
    return found


def _kind(text: str, span: Span) -> int:
    if span == NOWHERE:
        return SPECIAL
    return WORD if any(sign.isalnum() for sign in text) else SIGN


def _order(segments: Sequence[int]) -> list[int]:
    counts: dict[int, int] = {}
    found = []
    for segment in segments:
        found.append(counts.get(segment, 0))
        counts[segment] = found[-1] + 1
    return found


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
