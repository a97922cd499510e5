"""The token axis of a stored map: the text of its tokens, their character spans, and their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.adapters import TokenRow
from regard.errors import RecordError
from regard.pictures import PatchGrid


@dataclass(frozen=True, repr=False)
class TokenAxis:
    """`tokens` as they are shown; `spans`: the characters of each in `text`, [start, stop); `words`: the number of the
    word of each. A token that is not in the text, such as [CLS], has NO_SPAN and NO_WORD. `segments`: 0 and 1 where
    there are two texts in one row. `numbered`: positions that are not tokens of a text. `grids`:
    the tokens that are patches of pictures."""

    name: str
    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[int, ...]
    segments: tuple[int, ...] | None = None
    numbered: bool = False
    grids: tuple[PatchGrid, ...] = ()

    def __post_init__(self) -> None:
        sizes = {len(self.tokens), len(self.spans), len(self.words)} | (
            set() if self.segments is None else {len(self.segments)}
        )
        if len(sizes) != 1:
            raise RecordError(f"tokens, spans and words of {sorted(sizes)}", "one of each a token", where=self.name)

    def __repr__(self) -> str:
        text = self.text if len(self.text) <= 40 else f"{self.text[:39]}…"
        return f"TokenAxis({self.name!r}, {text!r}, {len(self)} tokens)"

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def summary(self) -> str:
        """How many tokens of what; positions without a text are named so already."""
        return self.name if self.numbered else f"{len(self)} tokens of {self.name}"

    @classmethod
    def from_tokens(
        cls, name: str, tokens: Sequence[str], words: Sequence[int] | None = None, numbered: bool = False
    ) -> TokenAxis:
        """Tokens without a text: each is its own word, and their text is they themselves, joined by spaces."""
        at, spans = 0, []
        for token in tokens:
            spans.append((at, at + len(token)))
            at += len(token) + 1
        own = tuple(range(len(tokens))) if words is None else tuple(words)
        return cls(name, " ".join(tokens), tuple(tokens), tuple(spans), own, numbered=numbered)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "text": self.text,
            "tokens": self.tokens,
            "spans": self.spans,
            "words": self.words,
            "segments": self.segments,
            **({"numbered": True} if self.numbered else {}),
            **({"grids": [grid.to_dict() for grid in self.grids]} if self.grids else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenAxis:
        segments = data.get("segments")
        return cls(
            data["name"],
            data["text"],
            tuple(data["tokens"]),
            tuple((start, stop) for start, stop in data["spans"]),
            tuple(data["words"]),
            None if segments is None else tuple(segments),
            data.get("numbered", False),
            tuple(PatchGrid.from_dict(grid) for grid in data.get("grids", ())),
        )


def to_token_axis(row: TokenRow) -> TokenAxis:
    """The tokens of an adapter as an axis of a record."""
    segments = tuple(row.segments) if row.segment else None
    tokens, spans, words = tuple(row.tokens), tuple(row.spans), tuple(row.words)
    return TokenAxis(row.name, row.text, tokens, spans, words, segments, grids=tuple(row.grids))
