"""One example of each task, as text: the values that corpora yield and tokenizers encode."""

from __future__ import annotations

from dataclasses import dataclass

IGNORED = -100  # a target without loss (ignore_index of torch's cross_entropy); the tag of pieces that begin no word
Links = tuple[tuple[int, int], ...]  # (word of the source, word of the target), counted from 0, in order


@dataclass(frozen=True, slots=True)
class Translation:
    """A sentence and its translation; `links` are its gold word alignments, where known.

    >>> Translation("He hit me .", "Il m' a frappé .", ((0, 0), (1, 2), (1, 3), (2, 1), (3, 4)))
    """

    source: str
    target: str
    links: Links | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A text of one or more sentences (or lines) that belong together, in order."""

    sentences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    """One or two texts and their label; `evidence` are the words of `text` that decide it, where known."""

    text: str
    label: str
    other: str | None = None
    evidence: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tagged:
    """The words of a sentence, with a tag each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """A question, a passage, and the answer as a span of the passage: passage[start:end]."""

    question: str
    passage: str
    start: int
    end: int

    @property
    def answer(self) -> str:
        return self.passage[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Sense:
    """An ambiguous word, number `index` of text.split(), and its sense there."""

    text: str
    index: int
    word: str
    sense: str
