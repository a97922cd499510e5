"""The corpus protocol: re-iterable examples, their source files, and the lines skipped.

RowCorpus is the base class of the readers of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from operator import or_
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

from regard.errors import CorpusError, unknown
from regard.text.corpora.lines import SkippedLines
from regard.text.corpora.tables import DictRows, RowSource, TableFile, TableRow, open_rows

Example_co = TypeVar("Example_co", covariant=True)


class Corpus(Protocol[Example_co]):
    """Re-iterable examples; `sources` are their files, `skipped` what the latest pass skipped."""

    def __iter__(self) -> Iterator[Example_co]: ...

    @property
    def sources(self) -> tuple[Path, ...]: ...

    @property
    def skipped(self) -> SkippedLines: ...


@dataclass(frozen=True, slots=True)
class Chain(Generic[Example_co]):
    """The concatenation of corpora of one kind."""

    corpora: tuple[Corpus[Example_co], ...]

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(path for corpus in self.corpora for path in corpus.sources)

    @property
    def skipped(self) -> SkippedLines:
        return reduce(or_, (corpus.skipped for corpus in self.corpora), SkippedLines())

    def __iter__(self) -> Iterator[Example_co]:
        return chain.from_iterable(self.corpora)


Blank = Literal["refuse", "skip"]  # what to do with an example with one blank side


@dataclass(slots=True)
class RowCorpus:
    """The base class of the readers of rows: where the rows come from, and what was skipped."""

    rows: RowSource = field(repr=False)
    _rows: TableFile | DictRows = field(init=False)
    skipped_blanks: SkippedLines = field(default_factory=SkippedLines, init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = open_rows(self.rows)

    @property
    def sources(self) -> tuple[Path, ...]:
        return self._rows.sources

    @property
    def skipped(self) -> SkippedLines:
        return self._rows.skipped | self.skipped_blanks

    def iterate_rows(self) -> Iterator[TableRow]:
        """The rows, in a new pass."""
        self.skipped_blanks = SkippedLines()
        yield from self._rows


def has_both_texts(texts: tuple[str, ...], where: list[str], blank: Blank, skipped: SkippedLines) -> bool:
    """Whether both texts have content; two blank ones are skipped, one blank one is handled as `blank` says."""
    if blank not in ("refuse", "skip"):
        raise unknown(blank, ("refuse", "skip"), kind="value of blank", where=where[0])
    empty = [not text.strip() for text in texts]
    if not any(empty):
        return True
    place = where[empty.index(True)]
    if not all(empty) and blank == "refuse":
        advice = 'Fill it in, or skip such examples with blank="skip".'
        raise CorpusError("The text is blank, but its counterpart is not", where=place, advice=advice)
    skipped.add(place, "blank")
    return False
