"""Test cases of the audit: a decision of a model, its input tokens, which of them may be removed, and the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random

from regard.text import Labelled, Translation

Example = str | tuple[str, str] | Labelled | Translation
"""A text; two texts, or a sentence and its translation; the same with labels or links."""

MIN_PREFIX = 3  # tokens before a next token that the model is asked for


@dataclass(frozen=True)
class InputRow:
    """One input of a model.

    ids          the tokens to be explained
    removable    which of them may be removed
    segments     where the model has segment embeddings
    decoder_ids  the tokens that the decoder has before it decides
    oov_ids      words outside the vocabulary, of the whole text, whatever is removed
    """

    ids: tuple[int, ...]
    removable: tuple[bool, ...]
    segments: tuple[int, ...] = ()
    decoder_ids: tuple[int, ...] = ()
    oov_ids: tuple[int, ...] = ()

    def keep(self, kept: Sequence[bool]) -> InputRow:
        """The same row with these tokens alone."""

        def some(values: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(value for value, keep in zip(values, kept, strict=True) if keep)

        removable = tuple(value for value, keep in zip(self.removable, kept, strict=True) if keep)
        segments = some(self.segments) if self.segments else ()
        return replace(self, ids=some(self.ids), removable=removable, segments=segments)

    def without(self, removed: Iterable[int]) -> InputRow:
        """The same row without the tokens at these positions."""
        positions = set(removed)
        return self.keep([at not in positions for at in range(len(self.ids))])


@dataclass(frozen=True)
class Case:
    """A decision about example `number`; `expected`: the right class or token; `evidence`: the tokens that decide, if
    known."""

    number: int
    row: InputRow
    tokens: tuple[str, ...]
    expected: int | None = None
    evidence: frozenset[int] | None = None


@dataclass(frozen=True)
class EncodedText:
    """A text as a model reads it: the row, its tokens as the vocabulary spells them, and for each token the number of
    its word in text.split() of the first text, -1 if none."""

    row: InputRow
    tokens: tuple[str, ...]
    words: tuple[int, ...] = ()

    def class_case(self, example: Example, number: int, class_id: Callable[[str], int | None]) -> list[Case]:
        """The class of the text; a Labelled example has the right one, and perhaps the words that decide."""
        if not isinstance(example, Labelled):
            return [Case(number, self.row, self.tokens)]
        evidence = tokens_of_words(self.words, example.evidence)
        return [Case(number, self.row, self.tokens, class_id(example.label), evidence)]

    def next_token_case(self, number: int, rng: Random) -> list[Case]:
        """The next token after a random prefix of the text."""
        ids = self.row.ids
        if len(ids) <= MIN_PREFIX:
            return []
        cut = rng.randrange(MIN_PREFIX, len(ids))
        prefix = self.row.keep([at < cut for at in range(len(ids))])
        row = replace(prefix, removable=(*prefix.removable[:-1], False))  # the decision is read from the last token
        return [Case(number, row, self.tokens[:cut], ids[cut])]

    def masked_token_case(self, number: int, rng: Random, mask: int, mask_token: str) -> list[Case]:
        """The token behind the mask in the text or, where there is none, a random token of it, masked."""
        ids, tokens, expected = list(self.row.ids), list(self.tokens), None
        if mask not in ids:
            candidates = [at for at, removable in enumerate(self.row.removable) if removable]
            if not candidates:
                return []
            at = rng.choice(candidates)
            expected, ids[at], tokens[at] = ids[at], mask, mask_token
        removable = tuple(may and token != mask for may, token in zip(self.row.removable, ids, strict=True))
        return [Case(number, replace(self.row, ids=tuple(ids), removable=removable), tuple(tokens), expected)]


def texts_of(example: Example) -> tuple[str, str | None]:
    """The text of an example, and its second text or its translation."""
    if isinstance(example, Labelled):
        return example.text, example.other
    if isinstance(example, Translation):
        return example.source, example.target
    return (example, None) if isinstance(example, str) else example


_WORD = re.compile(r"\S+")


def word_ids_at(text: str, offsets: Sequence[tuple[int, int]]) -> list[int]:
    """For each character span the number in text.split() of the word in which it begins; -1 if none."""
    spans = [found.span() for found in _WORD.finditer(text)]
    numbers = []
    for start, end in offsets:
        word = next((n for n, (a, b) in enumerate(spans) if a <= start < b and end > start), -1)
        numbers.append(word)
    return numbers


def tokens_of_words(words: Sequence[int], wanted: Iterable[int] | None) -> frozenset[int] | None:
    """The positions of the tokens that belong to the wanted words."""
    if wanted is None:
        return None
    which = set(wanted)
    return frozenset(at for at, word in enumerate(words) if word in which)
