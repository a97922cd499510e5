"""Plain text as documents: sentences on lines of their own, blank lines between documents."""

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
