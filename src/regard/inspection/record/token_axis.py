"""The tokens along one side of a map: their spelling, where they stand in the text, and in which word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from regard.errors import RecordError


@dataclass(frozen=True)
class Side:
    """`tokens` as one shows them; `spans`: where each stands in `text`, [start, stop) in characters; `words`: which
    word each belongs to. A token that stands nowhere in the text, such as [CLS], has NOWHERE and NO_WORD.
    `segments`: 0 and 1 where two texts stand in one row."""

    name: str
    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[int, ...]
    segments: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        sizes = {len(self.tokens), len(self.spans), len(self.words)} | (
            set() if self.segments is None else {len(self.segments)}
        )
        if len(sizes) != 1:
            raise RecordError(f"tokens, spans and words of {sorted(sizes)}", "one of each a token", where=self.name)

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def bare(cls, name: str, tokens: Sequence[str], words: Sequence[int] | None = None) -> Side:
        """Tokens of no text that anyone knows: each is its own word, and they stand side by side."""
        at, spans = 0, []
        for token in tokens:
            spans.append((at, at + len(token)))
            at += len(token) + 1
        own = tuple(range(len(tokens))) if words is None else tuple(words)
        return cls(name, " ".join(tokens), tuple(tokens), tuple(spans), own)

    def told(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "name": self.name,
            "text": self.text,
            "tokens": self.tokens,
            "spans": self.spans,
            "words": self.words,
            "segments": self.segments,
        }

    @classmethod
    def read(cls, told: dict[str, Any]) -> Side:
        segments = told.get("segments")
        return cls(
            told["name"],
            told["text"],
            tuple(told["tokens"]),
            tuple((start, stop) for start, stop in told["spans"]),
            tuple(told["words"]),
            None if segments is None else tuple(segments),
        )
