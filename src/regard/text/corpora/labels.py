"""Labelled examples: texts with a label, words with a tag each, and the fixed list of names behind both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from math import isfinite, nan
from typing import Any, ClassVar

import numpy as np

from regard.errors import CorpusError
from regard.text.corpora.corpus import Blank, RowCorpus, both_there
from regard.text.corpora.lines import LineCorpus
from regard.text.corpora.tables import Name, Row
from regard.text.examples import Labelled, Tagged
from regard.text.words import spaced


@dataclass(frozen=True)
class Labels:
    """The names of the classes, in order: a label's number is its place here. They are fixed by the training data.

    >>> Labels.of(["pos", "neg", "pos"]).number("pos")
    1
    """

    names: tuple[str, ...]

    @classmethod
    def of(cls, labels: Iterable[str]) -> Labels:
        return cls(tuple(sorted(set(labels))))

    def number(self, label: str, where: str = "Labels") -> int:
        if label not in self._numbers:
            near = get_close_matches(label, self.names, n=1)
            shown = ", ".join(self.names[:20]) + (", ..." if len(self.names) > 20 else "")
            raise CorpusError(
                f"label {label!r}",
                f"one seen in training: {shown}",
                where=where,
                advice=f"Did you mean {near[0]!r}?" if near else "",
            )
        return self._numbers[label]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def dtype(self) -> np.dtype[Any]:
        """What holds the number of any of them."""
        return np.min_scalar_type(len(self.names) - 1)


@dataclass(frozen=True)
class Scale:
    """Labels that are numbers themselves, as a model is taught them: so many spreads above the centre.

    >>> Scale.of(["1", "3", "5"]).number("5")
    1.224744871391589
    """

    center: float
    spread: float
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @classmethod
    def of(cls, labels: Iterable[str]) -> Scale:
        """By the mean of these labels and their standard deviation, or 1 where they do not differ."""
        values = np.array([_value(label, "Scale") for label in labels])
        if not len(values):
            raise CorpusError("no labels", "numbers", where="Scale")
        return cls(float(values.mean()), float(values.std()) or 1.0)

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{self.center!r} by {self.spread!r}",)

    def number(self, label: str, where: str = "Scale") -> float:
        return (_value(label, where) - self.center) / self.spread

    def value(self, number: float) -> float:
        """The label that this number stands for."""
        return self.center + self.spread * number


def _value(label: str, where: str) -> float:
    try:
        value = float(label)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise CorpusError(f"label {label!r}", "a number", where=where)
    return value


@dataclass(slots=True)
class Classified(RowCorpus):
    """One or two texts and their label from columns of rows; with `labels`, one that is not among them is refused."""

    text: Name = "text"
    label: Name = "label"
    other: Name | None = None
    labels: Labels | Scale | None = None
    evidence: Name | None = None  # a column with the numbers of the words that decide: "3 4"
    blank: Blank = "refuse"

    def __iter__(self) -> Iterator[Labelled]:
        for row in self.each():
            names = (self.text,) if self.other is None else (self.text, self.other)
            texts = tuple(row.text(name) for name in names)
            label = _label(row, self.label)
            if self.labels is not None:
                self.labels.number(label, row.where)
            if both_there(texts, [f"{row.where} ({name})" for name in names], self.blank, self.blanks):
                because = None if self.evidence is None else _evidence(row, self.evidence, texts[0])
                yield Labelled(texts[0], label, texts[1] if len(texts) > 1 else None, because)


@dataclass(slots=True)
class TagFile(LineCorpus):
    """Words with tags as CoNLL writes them: a word a line, its columns apart, a blank line after each sentence.

    `word` and `tag` number the columns (negative: from the right); columns are separated by tabs where a line has
    one, else by spaces. Lines that begin with `comment` and CoNLL's -DOCSTART- are passed over.
    """

    word: int = 0
    tag: int = -1
    labels: Labels | None = None
    comment: str | None = None
    longest: int = 10_000  # words of a sentence; more means that blank lines are missing

    def __iter__(self) -> Iterator[Tagged]:
        pairs: list[tuple[str, str]] = []
        width: int | None = None
        for number, text in self._lines:
            where = f"{self._lines.path}:{number}"
            if not text.strip():
                yield from self._sentence(pairs)
                pairs = []
            elif not (text.startswith("-DOCSTART-") or (self.comment and text.startswith(self.comment))):
                cells = text.split("\t") if "\t" in text else text.split()
                width = len(cells) if width is None else width
                pairs.append(self._pair(cells, width, where))
                if len(pairs) > self.longest:
                    came = f"a sentence of more than {self.longest} words"
                    raise CorpusError(came, "a blank line after each sentence", where=where)
        yield from self._sentence(pairs)

    def _pair(self, cells: list[str], width: int, where: str) -> tuple[str, str]:
        if len(cells) != width:
            raise CorpusError(f"{len(cells)} columns", f"{width}, as on the first line", where=where)
        for column in (self.word, self.tag):
            if not -width <= column < width:
                raise CorpusError(f"no column {column}", f"one of {width}", where=where)
        word, tag = cells[self.word], cells[self.tag]
        if not word.strip() or not tag.strip():
            raise CorpusError(f"word {word!r} with tag {tag!r}", "a word and a tag", where=where)
        if self.labels is not None:
            self.labels.number(tag, where)
        return word, tag

    @staticmethod
    def _sentence(pairs: list[tuple[str, str]]) -> Iterator[Tagged]:
        if pairs:
            words, tags = zip(*pairs, strict=True)
            yield Tagged(words, tags)


def _evidence(row: Row, name: Name, text: str) -> tuple[int, ...]:
    words, numbers = len(spaced(text)), row.text(name).split()
    if not all(number.isdecimal() and int(number) < words for number in numbers):
        raise CorpusError(f"{name!r} = {row.text(name)!r}", f"numbers of words below {words}", where=row.where)
    return tuple(map(int, numbers))


def _label(row: Row, name: Name) -> str:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise CorpusError(f"{name!r} = {value!r}", "a label: text or an integer", where=row.where)
    return str(value)
