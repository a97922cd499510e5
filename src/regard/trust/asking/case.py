"""One decision of a model: the tokens that it reads, which of them may be taken away, and what is known of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from torch import Tensor, nn

from regard.text.examples import Labelled, Translation

Example = str | tuple[str, str] | Labelled | Translation
"""A text; two texts, or a sentence and its translation; the same with what is known of them."""


@dataclass(frozen=True)
class Row:
    """What a model is given: ids of the tokens to be explained, those `free` to be taken away, `segments` where a model
    knows such, and what it has `written` before it decides. `unknown`: words outside the vocabulary by their numbers,
    of the whole text, whatever is taken away."""

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
        """The same without the tokens at these places."""
        left = set(gone)
        return self.keeping([at not in left for at in range(len(self.ids))])


@dataclass(frozen=True)
class Case:
    """A decision of example `number`; `expected`: the class or token that would be right; `evidence`: the tokens that
    decide, where somebody knows."""

    number: int
    row: Row
    tokens: tuple[str, ...]
    expected: int | None = None
    evidence: frozenset[int] | None = None


class Asker(Protocol):
    """A model that can be asked for decisions."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str:
        """What is decided, in words: a class, the next word."""

    def cases(self, example: Example, number: int, chance: Random) -> list[Case]:
        """The decisions that an example is good for."""

    def say(self, rows: Sequence[Row]) -> Tensor:
        """ln p (B, C) of every class or token."""

    def ids(self, rows: Sequence[Row]) -> Tensor:
        """(B, S), padded: what the model looks up vectors for."""

    def looks_at_text(self, place: str) -> bool:
        """Whether the keys of a place are the tokens of the rows."""

    def asks_from_text(self, place: str) -> bool:
        """Whether the queries of a place are tokens of the rows, too."""

    def decider(self, place: str, rows: Sequence[Row]) -> list[int] | None:
        """The query that each decision is read from at this place; None: no single one."""

    def called(self, number: int) -> str:
        """The name of a class or token."""


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
