"""Plain text files: as documents of sentences (Documents), or as they run on, with every line end (Running)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regard.text.corpora.lines import LineCorpus
from regard.text.examples import Document


@dataclass(slots=True)
class Documents(LineCorpus):
    """Plain text: each line a sentence, blank lines between documents.

    A document that grows beyond `longest` characters is cut there and goes on as the next one, so that a file without
    blank lines needs no more memory than that.
    """

    longest: int = 1_000_000

    def __iter__(self) -> Iterator[Document]:
        sentences: list[str] = []
        size = 0
        for _, text in self._lines:
            sentence = text.strip()
            if sentences and (not sentence or size + len(sentence) > self.longest):
                yield Document(tuple(sentences))
                sentences, size = [], 0
            if sentence:
                sentences.append(sentence)
                size += len(sentence) + 1
        if sentences:
            yield Document(tuple(sentences))


PORTION = 1 << 16  # characters


@dataclass(slots=True)
class Running(LineCorpus):
    """One text from beginning to end: its lines put together are the file, with every line end written "\\n".

    It comes in documents of some 65,000 characters, for no other reason than that nobody holds it whole.
    """

    def __iter__(self) -> Iterator[Document]:
        lines: list[str] = []
        size = 0
        for text in self.lines():
            if size + len(text) > PORTION and lines:
                yield Document(tuple(lines))
                lines, size = [], 0
            lines.append(text)
            size += len(text)
        if lines:
            yield Document(tuple(lines))

    def lines(self) -> Iterator[str]:
        """Every line with its end."""
        for _, text in self._lines:
            yield text + "\n"
