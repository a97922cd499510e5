"""The tokens that an adapter gave to a model: their text, their character spans, and their words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from regard.pictures import PatchGrid

Span = tuple[int, int]
NO_SPAN: Span = (-1, -1)  # of a token that is not in the text, such as [CLS]
NO_WORD = -1


class Piece(NamedTuple):
    """A token as it is shown, its span in the text of its axis, and the number of its word."""

    token: str
    span: Span = NO_SPAN
    word: int = NO_WORD


@dataclass
class TokenRow:
    """The tokens of a text, or of several in one row. Texts are joined by a line break, and their words numbered on.

    `optional`: left out of a record in which no place has its queries here. `grids`: which tokens are patches of
    pictures.
    """

    name: str
    text: str = ""
    tokens: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    segment: int = 0
    optional: bool = False
    grids: list[PatchGrid] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def next_word(self) -> int:
        """The number of the next word."""
        return 1 + max(self.words, default=-1)

    def add_special(self, *tokens: str) -> TokenRow:
        """Add tokens that are not in the text."""
        return self.add_pieces(Piece(token) for token in tokens)

    def add_text(self, text: str, pieces: Sequence[str], spans: Sequence[Span], words: Sequence[int]) -> TokenRow:
        """Add a text and its pieces, with the span and the word number of each."""
        return self.add_pieces(self.make_pieces(text, pieces, spans, words, self.next_word))

    def add_words(self, tokens: Sequence[str]) -> TokenRow:
        """Add tokens without a text, such as generated ones; each is a word of its own."""
        for token in tokens:
            start = len(self.text) + bool(self.text)
            self.text = f"{self.text} {token}" if self.text else token
            self.add_pieces([Piece(token, (start, start + len(token)), self.next_word)])
        return self

    def add_patches(self, grid: PatchGrid, of: str = "") -> TokenRow:
        """Add the patches of a picture that come next, in the order of their tokens. `of`: which of several it is."""
        place = {int(token): (row, col) for (row, col), token in np.ndenumerate(grid.tokens) if token >= 0}
        before = f"{of}, " if of else ""
        self.add_special(*(f"{before}patch {row},{col}" for _, (row, col) in sorted(place.items())))
        self.grids.append(grid)
        return self

    def next_segment(self) -> TokenRow:
        self.segment += 1
        return self

    def add_pieces(self, pieces: Iterable[Piece], segments: Sequence[int] | None = None) -> TokenRow:
        """Add pieces as they are; `segments`: of each of them, by default the current one."""
        for at, (token, span, word) in enumerate(pieces):
            self.tokens.append(token)
            self.spans.append(span)
            self.words.append(word)
            self.segment = self.segment if segments is None else segments[at]
            self.segments.append(self.segment)
        return self

    def make_pieces(
        self, text: str, pieces: Sequence[str], spans: Sequence[Span], words: Sequence[int], first: int
    ) -> list[Piece]:
        """Append a text and make its pieces, to be added afterwards; `first`: the number of its first word."""
        start = self.append_text(text)
        return [
            Piece(text[a:b] or piece, (start + a, start + b), first + word)
            for piece, (a, b), word in zip(pieces, spans, words, strict=True)
        ]

    def append_text(self, text: str) -> int:
        """Append a text to that of the row, and return its start."""
        if self.text:
            self.text += "\n"
        start = len(self.text)
        self.text += text
        return start
