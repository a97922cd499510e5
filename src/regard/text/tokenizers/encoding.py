"""The pieces of a text: their ids, their spelling, where they stand in the text as it came, and in which word."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cached_property

from tokenizers import Encoding as RawEncoding

from regard.text.words import Span, Splitter, numbers


class Encoding:
    """The pieces of one text, piece by piece; what nobody asks for is never computed."""

    def __init__(self, text: str, raw: RawEncoding, spell: Callable[[int], str], splitter: Splitter) -> None:
        self.text, self._raw, self._spell, self._splitter = text, raw, spell, splitter

    @cached_property
    def ids(self) -> list[int]:
        """The number of each piece in the vocabulary."""
        ids: list[int] = self._raw.ids
        return ids

    @cached_property
    def pieces(self) -> list[str]:
        """The spelling of each piece in the vocabulary."""
        return [self._spell(number) for number in self.ids]

    @cached_property
    def offsets(self) -> list[Span]:
        """Where each piece stands in the text as it came, without the space before it: text[start:end].

        A piece that is nothing but space keeps it; one that stands for no character of the text is empty. Where the
        normal form puts marks on one letter in another order, they are counted in the order of the text.
        """
        spans = _widened(self.text, self._raw.offsets)
        return [_trimmed(self.text, span, piece) for span, piece in zip(spans, self.pieces, strict=True)]

    @cached_property
    def words(self) -> list[int]:
        """The number of the word each piece lies in; space counts with the word that follows it."""
        return numbers(self._splitter(self.text), self.offsets)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return f"<Encoding {self.pieces}>"


def _widened(text: str, offsets: list[Span]) -> list[Span]:
    """Let each piece reach over the characters that were composed into its last one; the library forgets them."""
    if unicodedata.is_normalized("NFC", text):
        return offsets
    nexts = [start for start, _ in offsets[1:]] + [len(text)]
    return [(a, b + _reach(text[b:after])) for (a, b), after in zip(offsets, nexts, strict=True)]


def _reach(gap: str) -> int:
    """How many characters stand before the first space of a gap between two pieces."""
    return next((at for at, sign in enumerate(gap) if sign.isspace()), len(gap))


def _trimmed(text: str, span: Span, piece: str) -> Span:
    """A stretch without the space before it; to a piece that begins with a space, a literal ▁ is one too."""
    start, end = span
    space = _SPACE_OR_SIGN if piece.startswith("▁") else _SPACE
    bare = space.sub("", text[start:end])
    if piece == "▁" and bare:
        return start, start  # the space that stands before every text, and is no character of it
    return (end - len(bare), end) if bare else span


_SPACE = re.compile(r"^\s+")
_SPACE_OR_SIGN = re.compile(r"^[\s▁]+")
