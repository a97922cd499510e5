"""Tokens of a text, or of several in one row, as a side of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from regard.inspection.record.sides import NO_WORD, NOWHERE, Side

Span = tuple[int, int]


@dataclass
class Row:
    """A side in the making. Texts are joined by a line break, and their words counted on."""

    name: str
    text: str = ""
    tokens: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    segment: int = 0

    def special(self, *tokens: str) -> Row:
        """Tokens that stand for nothing in the text."""
        for token in tokens:
            self._add(token, NOWHERE, NO_WORD)
        return self

    def part(self, text: str, pieces: Sequence[str], spans: Sequence[Span], words: Sequence[int]) -> Row:
        """A text and its pieces: where each stands in it, and the number of its word."""
        if self.text:
            self.text += "\n"
        start, first = len(self.text), 1 + max(self.words, default=-1)
        self.text += text
        for piece, (a, b), word in zip(pieces, spans, words, strict=True):
            self._add(text[a:b] or piece, (start + a, start + b), first + word)
        return self

    def written(self, tokens: Sequence[str]) -> Row:
        """Tokens of which no text is known but their spelling; each is a word of its own."""
        for token in tokens:
            start = len(self.text) + bool(self.text)
            self.text = f"{self.text} {token}" if self.text else token
            self._add(token, (start, start + len(token)), 1 + max(self.words, default=-1))
        return self

    def next_segment(self) -> Row:
        self.segment += 1
        return self

    def side(self) -> Side:
        segments = tuple(self.segments) if self.segment else None
        return Side(self.name, self.text, tuple(self.tokens), tuple(self.spans), tuple(self.words), segments)

    def _add(self, token: str, span: Span, word: int) -> None:
        self.tokens.append(token)
        self.spans.append(span)
        self.words.append(word)
        self.segments.append(self.segment)
