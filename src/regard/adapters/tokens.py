"""The tokens along one axis of an attention map: their spelling, where they stand in the text, and in which word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Span = tuple[int, int]
NOWHERE: Span = (-1, -1)  # a token that stands nowhere in the text, such as [CLS]
NO_WORD = -1


class Piece(NamedTuple):
    """A token as it is shown, where it stands in the text of its axis, and the number of its word."""

    token: str
    span: Span = NOWHERE
    word: int = NO_WORD


@dataclass
class TokenRow:
    """Tokens of a text, or of several in one row. Texts are joined by a line break, and their words counted on.

    `optional`: left out of a record in which no place attends from it.
    """

    name: str
    text: str = ""
    tokens: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    segment: int = 0
    optional: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def next_word(self) -> int:
        """The number of the next word."""
        return 1 + max(self.words, default=-1)

    def special(self, *tokens: str) -> TokenRow:
        """Tokens that stand for nothing in the text."""
        return self.add(Piece(token) for token in tokens)

    def part(self, text: str, pieces: Sequence[str], spans: Sequence[Span], words: Sequence[int]) -> TokenRow:
        """A text and its pieces: where each stands in it, and the number of its word."""
        return self.add(self.pieces_of(text, pieces, spans, words, self.next_word))

    def written(self, tokens: Sequence[str]) -> TokenRow:
        """Tokens of which no text is known but their spelling; each is a word of its own."""
        for token in tokens:
            start = len(self.text) + bool(self.text)
            self.text = f"{self.text} {token}" if self.text else token
            self.add([Piece(token, (start, start + len(token)), self.next_word)])
        return self

    def next_segment(self) -> TokenRow:
        self.segment += 1
        return self

    def add(self, pieces: Iterable[Piece], segments: Sequence[int] | None = None) -> TokenRow:
        """Pieces as they are; `segments`: of each of them, by default the current one."""
        for at, (token, span, word) in enumerate(pieces):
            self.tokens.append(token)
            self.spans.append(span)
            self.words.append(word)
            self.segment = self.segment if segments is None else segments[at]
            self.segments.append(self.segment)
        return self

    def pieces_of(
        self, text: str, pieces: Sequence[str], spans: Sequence[Span], words: Sequence[int], first: int
    ) -> list[Piece]:
        """The pieces of a text that is joined to the row now, ready to be added; `first`: the number of its first
        word."""
        start = self.join(text)
        return [
            Piece(text[a:b] or piece, (start + a, start + b), first + word)
            for piece, (a, b), word in zip(pieces, spans, words, strict=True)
        ]

    def join(self, text: str) -> int:
        """Join a text to that of the row; where it begins."""
        if self.text:
            self.text += "\n"
        start = len(self.text)
        self.text += text
        return start
