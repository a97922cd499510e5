"""Rows of named values: from TSV, CSV and JSON-lines files (gzip too), or from any iterable of dicts.

Table("train.tsv")                      # by the file's ending; header in the first row
Table("train.csv", header=None)         # columns are numbered: 0, 1, ...
Rows(datasets.load_dataset(...))        # or any list of dicts
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from regard.errors import CorpusError, SettingError, unknown
from regard.text.corpora.lines import LIMIT, Line, Lines, Skipped, Undecodable

Format = Literal["tsv", "csv", "jsonl"]
FORMATS: tuple[Format, ...] = ("tsv", "csv", "jsonl")
Name = str | int  # of a column: what the header says, or its number from 0


@dataclass(frozen=True, slots=True)
class Row:
    """The values of one row, and where it came from (path:line, or row n)."""

    values: Mapping[Any, Any]
    where: str

    def get(self, name: Name) -> Any:
        """The value in a column, or an error that lists the columns there are."""
        if name not in self.values:
            raise CorpusError(
                f"no column {name!r}", f"one of {', '.join(repr(known) for known in self.values)}", where=self.where
            )
        return self.values[name]

    def text(self, name: Name) -> str:
        """The value in a column, which must be text."""
        value = self.get(name)
        if not isinstance(value, str):
            came = f"{name!r} = {json.dumps(value, default=repr)[:60]} ({type(value).__name__})"
            raise CorpusError(came, "text", where=self.where)
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON can spell what no file can hold
            came = f"{name!r} with half a character, {value[error.start]!r} at {error.start}"
            raise CorpusError(came, "valid Unicode", where=self.where) from error
        return value


@dataclass(slots=True)
class Table:
    """The rows of a TSV (no quoting), CSV (quoted as the csv module reads it) or JSON-lines file."""

    path: Path
    format: Format | None = None  # by the file's ending
    header: Literal["first"] | Sequence[str] | None = "first"  # or the names; None where columns go by number
    limit: int = LIMIT
    errors: Undecodable = "strict"
    _lines: Lines = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        self._lines = Lines(self.path, self.limit, self.errors)
        self.format = self.format or _format(self.path)
        if self.format not in FORMATS:
            raise unknown(self.format, FORMATS, kind="format", where="Table")

    @property
    def sources(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def skipped(self) -> Skipped:
        """What the latest pass left out."""
        return self._lines.skipped

    def __iter__(self) -> Iterator[Row]:
        return self._objects() if self.format == "jsonl" else self._cells()

    def _objects(self) -> Iterator[Row]:
        for number, text in self._lines:
            if text.strip():
                yield Row(_object(text, f"{self.path}:{number}"), f"{self.path}:{number}")

    def _cells(self) -> Iterator[Row]:
        records = _Quoted(self._lines) if self.format == "csv" else _plain(self._lines)
        names = self._given_names()
        for number, cells in records:
            where = f"{self.path}:{number}"
            if names is None:
                names = tuple(cells) if self.header == "first" else tuple(range(len(cells)))
                _distinct(names, where)
                if self.header == "first":
                    continue
            if len(cells) != len(names):
                raise CorpusError(f"{len(cells)} fields", f"{len(names)} ({', '.join(map(str, names))})", where=where)
            yield Row(dict(zip(names, cells, strict=True)), where)

    def _given_names(self) -> tuple[Name, ...] | None:
        return None if self.header is None or self.header == "first" else tuple(self.header)


@dataclass(slots=True)
class Rows:
    """Rows out of anything that yields dicts, such as a Hugging Face data set; iterable again if that is."""

    rows: Iterable[Mapping[str, Any]]
    name: str = "rows"
    skipped: Skipped = field(default_factory=Skipped, init=False, repr=False)  # always none
    _spent: bool = field(default=False, init=False, repr=False)

    @classmethod
    def named(cls, name: str, split: str = "train", **settings: Any) -> Rows:
        """A Hugging Face data set by its name; this is the only thing here that downloads anything."""
        try:
            from datasets import load_dataset  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise SettingError(
                f"the data set {name!r} without the package `datasets`",
                "the package, to load it",
                where="Rows.named",
                advice="pip install 'regard[datasets]'",
            ) from error
        return cls(load_dataset(name, split=split, **settings), name=f"{name}[{split}]")

    @property
    def sources(self) -> tuple[Path, ...]:
        return ()

    def __iter__(self) -> Iterator[Row]:
        if self._spent:
            came = "a second pass over an iterator, which can be read once"
            raise CorpusError(came, "a list or a data set", where=self.name, advice="Give list(rows).")
        self._spent = isinstance(self.rows, Iterator)
        for number, values in enumerate(self.rows):
            where = f"{self.name}, row {number}"
            if not isinstance(values, Mapping):
                raise CorpusError(f"a row of type {type(values).__name__}", "a dict", where=where)
            yield Row(values, where)


AnyRows = str | os.PathLike[str] | Table | Rows | Iterable[Mapping[str, Any]]


def rows_of(source: AnyRows) -> Table | Rows:
    """Rows from whatever was given: a path (read by its ending), a Table, Rows, or an iterable of dicts."""
    if isinstance(source, (Table, Rows)):
        return source
    if isinstance(source, (str, os.PathLike)):
        return Table(Path(source))
    return Rows(source)


def _format(path: Path) -> Format:
    ending = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    known: dict[str, Format] = {"tsv": "tsv", "tab": "tsv", "csv": "csv", "jsonl": "jsonl", "ndjson": "jsonl"}
    if ending not in known:
        raise SettingError(
            f"{path}",
            f"a file that ends in {', '.join(f'.{name}' for name in known)} (or these with .gz)",
            where="Table",
            advice='Give it such a name, or say what it is in Python: Table(path, format="tsv").',
        )
    return known[ending]


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise CorpusError(f"{error.msg} at column {error.colno}", "JSON", where=where) from error
    if not isinstance(found, dict):
        raise CorpusError(f"JSON of type {type(found).__name__}", "an object: {...}", where=where)
    return found


def _plain(lines: Iterable[Line]) -> Iterator[tuple[int, list[str]]]:
    for number, text in lines:
        if text.strip(" "):
            yield number, text.split("\t")


class _Quoted:
    """CSV records with the number of the line each begins on; a quoted field may hold line ends."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.first: int | None = None  # line of the record that is being read
        self.last = 0

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(self._texts(), strict=True)
        while True:
            self.first = None
            cells = self._next(reader)
            if cells is None:
                return
            if cells:
                yield self.first or 1, cells

    def _next(self, reader: Iterator[list[str]]) -> list[str] | None:
        usual = csv.field_size_limit(self.lines.limit)  # so that a quote left open cannot swallow the file
        try:
            return next(reader, None)
        except csv.Error as error:
            raise CorpusError(
                f"{error}", "CSV", where=f"{self.lines.path}:{self.first}", advice="Is a quote left open?"
            ) from error
        finally:
            csv.field_size_limit(usual)

    def _texts(self) -> Iterator[str]:
        for number, text in self.lines:
            if self.first is not None and number != self.last + 1:
                where = f"{self.lines.path}:{self.last + 1}"
                raise CorpusError(f"{self.lines.too_long} inside a quoted field", "a shorter one", where=where)
            self.first = number if self.first is None else self.first
            self.last = number
            yield text + "\n"


def _distinct(names: Sequence[Name], where: str) -> None:
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise CorpusError(f"column {twice[0]!r} twice in the header", "a name for each column", where=where)
