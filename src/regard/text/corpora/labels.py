"""Labelled corpora: text classification and regression from rows, tagged words in CoNLL format, and label sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from math import isfinite, nan
from typing import Any, ClassVar

import numpy as np

from regard.errors import CorpusError
from regard.text.corpora.corpus import Blank, RowCorpus, has_both_texts
from regard.text.corpora.lines import LineCorpus
from regard.text.corpora.tables import ColumnName, TableRow
from regard.text.examples import Labelled, Tagged
from regard.text.words import whitespace_words


@dataclass(frozen=True)
class Labels:
    """The class names, in order: a label's number is its index. The training data fix them.

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
            suggestion = f"Did you mean {near[0]!r}? " if near else ""
            raise CorpusError(
                f"The training data have no label {label!r}", where=where, advice=f"{suggestion}Known: {shown}."
            )
        return self._numbers[label]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest dtype that holds every label number."""
        return np.min_scalar_type(len(self.names) - 1)


@dataclass(frozen=True)
class Scale:
    """Standardised regression targets: labels as standard deviations (`std`) above the mean (`mean`).

    >>> Scale.of(["1", "3", "5"]).number("5")
    1.224744871391589
    """

    mean: float
    std: float
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)

    @classmethod
    def of(cls, labels: Iterable[str]) -> Scale:
        """The mean and the standard deviation of these labels; 1 if they are all equal."""
        values = np.array([_parse_number(label, "Scale") for label in labels])
        if not len(values):
            raise CorpusError("There are no labels", where="Scale")
        return cls(float(values.mean()), float(values.std()) or 1.0)

    @property
    def names(self) -> tuple[str, ...]:
        return (f"{self.mean!r} by {self.std!r}",)

    def number(self, label: str, where: str = "Scale") -> float:
        return (_parse_number(label, where) - self.mean) / self.std

    def value(self, number: float) -> float:
        """The label of a standardised number."""
        return self.mean + self.std * number


def _parse_number(label: str, where: str) -> float:
    try:
        value = float(label)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise CorpusError(f"label {label!r}", "a number", where=where)
    return value


@dataclass(slots=True)
class LabelledRows(RowCorpus):
    """Text classification from rows: one or two texts and a label; with `labels`, others are refused."""

    text: ColumnName = "text"
    label: ColumnName = "label"
    other: ColumnName | None = None
    labels: Labels | Scale | None = None
    evidence: ColumnName | None = None  # a column with the indices of the words that decide: "3 4"
    blank: Blank = "refuse"

    def __iter__(self) -> Iterator[Labelled]:
        for row in self.iterate_rows():
            names = (self.text,) if self.other is None else (self.text, self.other)
            texts = tuple(row.text(name) for name in names)
            label = _label(row, self.label)
            if self.labels is not None:
                self.labels.number(label, row.where)
            if has_both_texts(texts, [f"{row.where} ({name})" for name in names], self.blank, self.skipped_blanks):
                because = None if self.evidence is None else _evidence(row, self.evidence, texts[0])
                yield Labelled(texts[0], label, texts[1] if len(texts) > 1 else None, because)


@dataclass(slots=True)
class TagFile(LineCorpus):
    """Tagged words in CoNLL format: a word and its columns a line, a blank line after each sentence.

    `word` and `tag` number the columns (negative: from the right); columns are separated by tabs where a line has
    one, else by spaces. Lines that begin with `comment` and CoNLL's -DOCSTART- are skipped.
    """

    word: int = 0
    tag: int = -1
    labels: Labels | None = None
    comment: str | None = None
    max_words: int = 10_000  # of a sentence; more means that blank lines are missing

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
                if len(pairs) > self.max_words:
                    raise CorpusError(
                        f"The sentence has more than {self.max_words} words",
                        where=where,
                        advice="Put a blank line after each sentence.",
                    )
        yield from self._sentence(pairs)

    def _pair(self, cells: list[str], width: int, where: str) -> tuple[str, str]:
        if len(cells) != width:
            raise CorpusError(f"{len(cells)} columns", f"{width}, as on the first line", where=where)
        for column in (self.word, self.tag):
            if not -width <= column < width:
                raise CorpusError(f"There is no column {column}; the line has {width} columns", where=where)
        word, tag = cells[self.word], cells[self.tag]
        if not word.strip() or not tag.strip():
            raise CorpusError(f"word {word!r} with tag {tag!r}", "neither of them blank", where=where)
        if self.labels is not None:
            self.labels.number(tag, where)
        return word, tag

    @staticmethod
    def _sentence(pairs: list[tuple[str, str]]) -> Iterator[Tagged]:
        if pairs:
            words, tags = zip(*pairs, strict=True)
            yield Tagged(words, tags)


def _evidence(row: TableRow, name: ColumnName, text: str) -> tuple[int, ...]:
    words, numbers = len(whitespace_words(text)), row.text(name).split()
    if not all(number.isdecimal() and int(number) < words for number in numbers):
        raise CorpusError(f"{name!r} = {row.text(name)!r}", f"word indices below {words}", where=row.where)
    return tuple(map(int, numbers))


def _label(row: TableRow, name: ColumnName) -> str:
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
        raise CorpusError(f"{name!r} = {value!r}", "a label: text or an integer", where=row.where)
    return str(value)
