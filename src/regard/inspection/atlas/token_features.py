"""Features of the words along both axes of a map: word class, frequency, distance, and gold alignments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.adapters import NO_SPAN
from regard.inspection.atlas.passages import Nouns, Passage
from regard.inspection.atlas.word_statistics import WordStatistics, guess_nouns, is_function
from regard.inspection.attribution.word_pooling import pool_to_words
from regard.inspection.record.token_axis import TokenAxis
from regard.text import Span, tokenize_words, whitespace_words, word_indices

SPECIAL, SIGN, WORD = range(3)  # special tokens, punctuation, words


@dataclass(frozen=True, eq=False)
class WordUnits:
    """The words, punctuation marks and special tokens of an axis, N of them, in its order.

    unit_of_token (T,)   the unit of each token
    lower, texts         their texts, lower-cased and as they are
    kinds (N,)           SPECIAL, SIGN or WORD
    segments (N,)        which text
    positions (N,)       the number of the unit in its text
    spans                their characters in the axis's text
    """

    unit_of_token: Tensor
    lower: tuple[str, ...]
    texts: tuple[str, ...]
    kinds: Tensor
    segments: Tensor
    positions: Tensor
    spans: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.lower)

    @property
    def is_word(self) -> Tensor:
        """(N,): which units are words."""
        return self.kinds == WORD

    @property
    def membership(self) -> Tensor:
        """(N, T): 1 at the tokens of a unit."""
        tokens = len(self.unit_of_token)
        return torch.zeros(len(self), tokens, dtype=torch.float64).index_put_(
            (self.unit_of_token, torch.arange(tokens)), torch.ones((), dtype=torch.float64)
        )


def units_of(axis: TokenAxis) -> WordUnits:
    """Words and punctuation apart, whatever the tokenizer calls a word; a token that is not in the text is a unit."""
    words = tokenize_words(axis.text)
    segments = axis.segments or (0,) * len(axis)
    of_word = word_indices(words, axis.spans)
    found: dict[tuple[int, int, int], int] = {}
    unit_of_token, spans, texts, own = [], [], [], []
    for at, (token, span, word) in enumerate(zip(axis.tokens, axis.spans, of_word, strict=True)):
        single = span == NO_SPAN or word >= len(words)
        key = (segments[at], -1 if single else word, at if single else 0)
        if key not in found:
            found[key] = len(found)
            spans.append(span if single else words[word])
            texts.append(token if single else axis.text[slice(*words[word])])
            own.append(segments[at])
        unit_of_token.append(found[key])
    kinds = [_kind(text, span) for text, span in zip(texts, spans, strict=True)]
    return WordUnits(
        torch.tensor(unit_of_token, dtype=torch.long),
        tuple(text.lower() for text in texts),
        tuple(texts),
        torch.tensor(kinds, dtype=torch.long),
        torch.tensor(own, dtype=torch.long),
        torch.tensor(_positions(own), dtype=torch.long),
        tuple(spans),
    )


def pool_to_units(weights: Tensor, queries: WordUnits, keys: WordUnits) -> Tensor:
    """weights (H, T, S) between tokens, float64: (H, units, units), summed *to* and averaged *from* the tokens of a
    word (Clark et al. 2019)."""
    return pool_to_words(weights, keys.unit_of_token.tolist(), queries.unit_of_token.tolist())


def find_nouns(
    axis: TokenAxis, units: WordUnits, passage: Passage, rule: Callable[[Sequence[str]], list[bool]]
) -> Tensor:
    """(N,): which units are nouns or names, by the tags of the passage, or by a rule without them."""
    found = torch.zeros(len(units), dtype=torch.bool)
    known: dict[int, bool] = {}
    for text, tags, last in ((passage.text, passage.nouns[0], False), (passage.other, passage.nouns[1], True)):
        start = -1 if text is None else axis.text.rfind(text) if last else axis.text.find(text)
        if tags is not None and start >= 0:
            known |= _tags_by_unit(tags, start, units)
    guessed: dict[int, bool] = {}
    for segment in units.segments.unique().tolist():
        own = [at for at in range(len(units)) if units.segments[at] == segment and units.kinds[at] != SPECIAL]
        guessed |= dict(zip(own, rule([units.texts[at] for at in own]), strict=True))
    for at in range(len(units)):
        found[at] = units.kinds[at] == WORD and known.get(at, guessed.get(at, False))
    return found


def _tags_by_unit(nouns: Nouns, start: int, units: WordUnits) -> dict[int, bool]:
    """The tags of the units that begin inside a tagged word."""
    tags = [(a + start, b + start, noun) for (a, b), noun in nouns]
    found = {}
    for at, (begin, _) in enumerate(units.spans):
        inside = [noun for a, b, noun in tags if a <= begin < b]
        if inside:
            found[at] = inside[0]
    return found


def _kind(text: str, span: Span) -> int:
    if span == NO_SPAN:
        return SPECIAL
    return WORD if any(sign.isalnum() for sign in text) else SIGN


def _positions(segments: Sequence[int]) -> list[int]:
    counts: dict[int, int] = {}
    found = []
    for segment in segments:
        found.append(counts.get(segment, 0))
        counts[segment] = found[-1] + 1
    return found


NEAREST = 8  # distances that are classes of their own; larger ones are in ever wider classes
_EDGES = torch.tensor([-32, -16, *range(-NEAREST, NEAREST + 2), 16, 32])
DISTANCES = len(_EDGES) + 1
CLASSES = 3  # function words, nouns and names, others
RARITY_CLASSES = 3  # one word in a thousand, in ten thousand, rarer
KINDS = 2 * DISTANCES * CLASSES * CLASSES * RARITY_CLASSES


@dataclass(frozen=True, eq=False)
class MapFeatures:
    """The words along both axes of a map, and the visible keys of each query (T, S). `is_self`: both axes are the
    same; `gold` (units, units): aligned words, if known."""

    queries: WordUnits
    keys: WordUnits
    is_self: bool
    visible: Tensor
    query_nouns: Tensor
    key_nouns: Tensor
    statistics: WordStatistics
    gold: Tensor | None = None
    probe: bool = False

    @cached_property
    def visible_words(self) -> Tensor:
        """(units, units): the other words that each word may attend to."""
        visible = self.queries.membership @ self.visible.double() @ self.keys.membership.mT > 0
        words = self.queries.is_word[:, None] & self.keys.is_word
        return visible & words & ~self.same

    @cached_property
    def same(self) -> Tensor:
        """(units, units): the same word in the same place."""
        if not self.is_self:
            return torch.zeros(len(self.queries), len(self.keys), dtype=torch.bool)
        return torch.eye(len(self.queries), dtype=torch.bool)

    @cached_property
    def other_text(self) -> Tensor:
        """(units, units): whether the key is in another text than the query."""
        if not self.is_self:
            return torch.ones(len(self.queries), len(self.keys), dtype=torch.bool)
        return self.queries.segments[:, None] != self.keys.segments

    @cached_property
    def distance(self) -> Tensor:
        """(units, units): the number of words from the query to the key; across two texts, from the corresponding
        position."""
        here, there = self.queries.positions[:, None], self.keys.positions
        if self.is_self:
            return there - here
        stretch = max(1, len(self.keys) - 1) / max(1, len(self.queries) - 1)
        return there - (here * stretch).round().long()

    @cached_property
    def kinds(self) -> Tensor:
        """(units, units): the number of a pair's kind: one text or two, the distance, the class of the query, the class
        and the rarity of the key. Pairs of one kind differ only in which words they are."""
        far = torch.bucketize(self.distance, _EDGES, right=True)
        of_query = _classes(self.queries, self.query_nouns)[:, None]
        of_key = _classes(self.keys, self.key_nouns) * RARITY_CLASSES + _rarities(self.keys, self.statistics)
        return ((self.other_text.long() * DISTANCES + far) * CLASSES + of_query) * CLASSES * RARITY_CLASSES + of_key


def map_features(
    axes: tuple[TokenAxis, TokenAxis], is_self: bool, visible: Tensor, passage: Passage, statistics: WordStatistics
) -> MapFeatures:
    """The features of a place's query axis and key axis."""
    queries, keys = (units_of(axis) for axis in axes)
    ours, theirs = (
        find_nouns(axis, own, passage, guess_nouns) for axis, own in zip(axes, (queries, keys), strict=True)
    )
    gold = None if is_self else _gold(axes, (queries, keys), passage)
    return MapFeatures(queries, keys, is_self, visible, ours, theirs, statistics, gold, passage.probe)


def _classes(units: WordUnits, noun: Tensor) -> Tensor:
    found = [0 if is_function(word) else 2 for word in units.lower]
    return torch.tensor(found, dtype=torch.long).masked_fill(noun, 1)


def _rarities(units: WordUnits, statistics: WordStatistics) -> Tensor:
    rates = [statistics.frequency(word) for word in units.lower]
    return torch.tensor([0 if rate >= 1e-3 else 1 if rate >= 1e-4 else 2 for rate in rates], dtype=torch.long)


def _gold(axes: tuple[TokenAxis, TokenAxis], units: tuple[WordUnits, WordUnits], passage: Passage) -> Tensor | None:
    """Gold links between the words of a translation (queries) and its source (keys)."""
    if passage.links is None or passage.other is None:
        return None
    numbers = [_word_ids(axis, own, text) for axis, own, text in zip(axes, units, passage.texts[::-1], strict=True)]
    if None in numbers:
        return None
    targets, sources = (torch.tensor(number) for number in numbers)
    found = torch.zeros(len(targets), len(sources), dtype=torch.bool)
    for source, target in passage.links:
        found |= (targets == target)[:, None] & (sources == source)
    return found


def _word_ids(axis: TokenAxis, units: WordUnits, text: str) -> list[int] | None:
    """For each unit the number of its whitespace-separated word, or -1; None where the axis has another text."""
    start = axis.text.find(text)
    if start < 0:
        return None
    words = [(a + start, b + start) for a, b in whitespace_words(text)]
    return [next((n for n, (a, b) in enumerate(words) if a <= begin < b), -1) for begin, _ in units.spans]
