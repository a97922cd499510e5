"""One decision of a model: the tokens that it reads, which of them may be removed, and what is known of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from regard.text import Labelled, Translation

Example = str | tuple[str, str] | Labelled | Translation
"""A text; two texts, or a sentence and its translation; the same with what is known of them."""

SHORTEST = 3  # tokens that are read before a next token is worth asking for


@dataclass(frozen=True)
class Row:
    """What a model is given: ids of the tokens to be explained, those `free` to be removed, `segments` where a model
    has them, and what it has `written` before it decides. `unknown`: words outside the vocabulary by their numbers,
    of the whole text, whatever is removed."""

    ids: tuple[int, ...]
    free: tuple[bool, ...]
    segments: tuple[int, ...] = ()
    written: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()

    def keeping(self, kept: Sequence[bool]) -> Row:
        """The same without the tokens that are not kept."""

        def some(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(value for value, keep in zip(values, kept, strict=True) if keep)

        free = tuple(value for value, keep in zip(self.free, kept, strict=True) if keep)
        return replace(self, ids=some(self.ids), free=free, segments=some(self.segments) if self.segments else ())

    def without(self, gone: Iterable[int]) -> Row:
        """The same without the tokens at these positions."""
        left = set(gone)
        return self.keeping([at not in left for at in range(len(self.ids))])


@dataclass(frozen=True)
class Case:
    """A decision of example `number`; `expected`: the class or token that would be right; `evidence`: the tokens that
    decide, where that is known."""

    number: int
    row: Row
    tokens: tuple[str, ...]
    expected: int | None = None
    evidence: frozenset[int] | None = None


@dataclass(frozen=True)
class ReadText:
    """A text as a model reads it: the row, its tokens as the vocabulary spells them, and for each token the number of
    its word in text.split() of the first text, -1 where there is none."""

    row: Row
    tokens: tuple[str, ...]
    words: tuple[int, ...] = ()

    def class_case(self, example: Example, number: int, class_id: Callable[[str], int | None]) -> list[Case]:
        """The class of the text; a Labelled example says which one is right, and perhaps which words decide."""
        if not isinstance(example, Labelled):
            return [Case(number, self.row, self.tokens)]
        evidence = tokens_of(self.words, example.evidence)
        return [Case(number, self.row, self.tokens, class_id(example.label), evidence)]

    def next_token_case(self, number: int, chance: Random) -> list[Case]:
        """The text is cut at some token: what comes there is the decision, and what stands before it is read."""
        ids = self.row.ids
        if len(ids) <= SHORTEST:
            return []
        cut = chance.randrange(SHORTEST, len(ids))
        begun = self.row.keeping([at < cut for at in range(len(ids))])
        asks = replace(begun, free=(*begun.free[:-1], False))  # the decision is read from the last one
        return [Case(number, asks, self.tokens[:cut], ids[cut])]

    def masked_token_case(self, number: int, chance: Random, mask: int, spelled: str) -> list[Case]:
        """The token behind the mask in the text or, where there is none, some token of it, masked."""
        ids, tokens, expected = list(self.row.ids), list(self.tokens), None
        if mask not in ids:
            places = [at for at, free in enumerate(self.row.free) if free]
            if not places:
                return []
            at = chance.choice(places)
            expected, ids[at], tokens[at] = ids[at], mask, spelled
        free = tuple(may and token != mask for may, token in zip(self.row.free, ids, strict=True))
        return [Case(number, replace(self.row, ids=tuple(ids), free=free), tuple(tokens), expected)]


def texts_of(example: Example) -> tuple[str, str | None]:
    """The text of an example, and its second text or its translation."""
    if isinstance(example, Labelled):
        return example.text, example.other
    if isinstance(example, Translation):
        return example.source, example.target
    return (example, None) if isinstance(example, str) else example


_WORD = re.compile(r"\S+")


def words_at(text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """The number in text.split() of the word in which each stretch of characters begins; -1 where there is none."""
    spans = [found.span() for found in _WORD.finditer(text)]
    numbers = []
    for start, end in offsets:
        where = next((n for n, (a, b) in enumerate(spans) if a <= start < b and end > start), -1)
        numbers.append(where)
    return numbers


def tokens_of(words: Sequence[int], wanted: Iterable[int] | None) -> frozenset[int] | None:
    """The tokens that lie in the wanted words."""
    if wanted is None:
        return None
    which = set(wanted)
    return frozenset(at for at, word in enumerate(words) if word in which)
