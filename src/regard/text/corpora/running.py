"""Plain text as it runs on: every line with its end, blank ones too, for models that learn where lines break."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from regard.text.corpora.lines import LineCorpus
from regard.text.examples import Document

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
