"""What every reader of a corpus is: examples again and again, the files they come from, and what was left out.

RowCorpus is what the readers of rows share.
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
from regard.text.corpora.lines import Skipped
from regard.text.corpora.tables import AnyRows, Row, Rows, Table, rows_of

Example_co = TypeVar("Example_co", covariant=True)


class Corpus(Protocol[Example_co]):
    """Examples, again and again; `sources` are the files they come from, `skipped` what the latest pass left out."""

    def __iter__(self) -> Iterator[Example_co]: ...

    @property
    def sources(self) -> tuple[Path, ...]: ...

    @property
    def skipped(self) -> Skipped: ...


@dataclass(frozen=True, slots=True)
class Chain(Generic[Example_co]):
    """Corpora of one kind, one after another."""

    corpora: tuple[Corpus[Example_co], ...]

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(path for corpus in self.corpora for path in corpus.sources)

    @property
    def skipped(self) -> Skipped:
        return reduce(or_, (corpus.skipped for corpus in self.corpora), Skipped())

    def __iter__(self) -> Iterator[Example_co]:
        return chain.from_iterable(self.corpora)


Blank = Literal["refuse", "skip"]  # what to do with an example one side of which is blank


@dataclass(slots=True)
class RowCorpus:
    """What the readers of rows share: where the rows come from, and what was left out."""

    rows: AnyRows
    _rows: Table | Rows = field(init=False, repr=False)
    blanks: Skipped = field(default_factory=Skipped, init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = rows_of(self.rows)

    @property
    def sources(self) -> tuple[Path, ...]:
        return self._rows.sources

    @property
    def skipped(self) -> Skipped:
        return self._rows.skipped | self.blanks

    def each(self) -> Iterator[Row]:
        """The rows of one more pass."""
        self.blanks = Skipped()
        yield from self._rows


def both_there(texts: tuple[str, ...], where: list[str], blank: Blank, skipped: Skipped) -> bool:
    """Whether every text of an example says something; all blank is skipped, half blank as `blank` says."""
    if blank not in ("refuse", "skip"):
        raise unknown(blank, ("refuse", "skip"), kind="blank", where=where[0])
    empty = [not text.strip() for text in texts]
    if not any(empty):
        return True
    place = where[empty.index(True)]
    if not all(empty) and blank == "refuse":
        advice = 'Fill it, or leave such examples out with blank="skip".'
        raise CorpusError("a blank text whose counterpart is not blank", "text", where=place, advice=advice)
    skipped.add(place, "blank")
    return False
