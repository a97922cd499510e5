"""Plain text files: documents of sentences (TextDocuments), or raw text with its line ends (RawText)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regard.text.corpora.lines import LineCorpus
from regard.text.examples import Document


@dataclass(slots=True)
class TextDocuments(LineCorpus):
    """Plain text: each line a sentence, blank lines between documents.

    A document of more than `max_characters` is split, so that a file without blank lines needs constant memory.
    """

    max_characters: int = 1_000_000

    def __iter__(self) -> Iterator[Document]:
        sentences: list[str] = []
        size = 0
        for _, text in self._lines:
            sentence = text.strip()
            if sentences and (not sentence or size + len(sentence) > self.max_characters):
                yield Document(tuple(sentences))
                sentences, size = [], 0
            if sentence:
                sentences.append(sentence)
                size += len(sentence) + 1
        if sentences:
            yield Document(tuple(sentences))


PORTION_SIZE = 1 << 16  # characters


@dataclass(slots=True)
class RawText(LineCorpus):
    """Raw text for language models: its lines joined are the file, with every line end written "\\n".

    It comes in documents of some 65,000 characters, only to keep memory constant; no line is too long.
    """

    max_line: int = PORTION_SIZE

    def __iter__(self) -> Iterator[Document]:
        lines: list[str] = []
        size = 0
        for text in self.lines():
            if size + len(text) > PORTION_SIZE and lines:
                yield Document(tuple(lines))
                lines, size = [], 0
            lines.append(text)
            size += len(text)
        if lines:
            yield Document(tuple(lines))

    def lines(self) -> Iterator[str]:
        """Every line with its line end; one of more than `max_line` characters in pieces."""
        return self._lines.pieces()
