"""Tables: rows of named values from TSV, CSV and JSON lines files (gzip too), or from any iterable of dicts.

TableFile("train.tsv")                  # format by the file's ending; header in the first row
TableFile("train.csv", header=None)     # columns are numbered: 0, 1, ...
DictRows(datasets.load_dataset(...))    # or any list of dicts
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
from regard.text.corpora.lines import MAX_LINE, DecodeErrors, Line, Lines, SkippedLines

Format = Literal["tsv", "csv", "jsonl"]
FORMATS: tuple[Format, ...] = ("tsv", "csv", "jsonl")
ColumnName = str | int  # of a column: its header, or its number from 0


@dataclass(frozen=True, slots=True)
class TableRow:
    """The values of one row, and its location (path:line, or row n)."""

    values: Mapping[Any, Any]
    where: str

    def get(self, name: ColumnName) -> Any:
        """The value in a column; an unknown column is an error with the nearest name."""
        if name not in self.values:
            raise unknown(name, map(str, self.values), kind="column", where=self.where, error=CorpusError)
        return self.values[name]

    def text(self, name: ColumnName) -> str:
        """The value in a column, which must be text."""
        value = self.get(name)
        if not isinstance(value, str):
            given = f"{name!r} = {json.dumps(value, default=repr)[:60]} ({type(value).__name__})"
            raise CorpusError(given, "text", where=self.where)
        try:
            value.encode()
        except UnicodeEncodeError as error:  # JSON escapes can spell a lone surrogate, which UTF-8 cannot encode
            problem = f"{name!r} is not valid Unicode: a lone surrogate, {value[error.start]!r}, at {error.start}"
            raise CorpusError(problem, where=self.where) from error
        return value


@dataclass(slots=True)
class TableFile:
    """The rows of a TSV (no quoting), CSV (quoted as the csv module reads it) or JSON-lines file."""

    path: Path
    format: Format | None = None  # by the file's ending
    header: Literal["first"] | Sequence[str] | None = "first"  # or the names; None: columns are numbered
    max_line: int = MAX_LINE
    errors: DecodeErrors = "strict"
    _lines: Lines = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.path = Path(self.path)
        self._lines = Lines(self.path, self.max_line, self.errors)
        self.format = self.format or _format_from_ending(self.path)
        if self.format not in FORMATS:
            raise unknown(self.format, FORMATS, kind="format", where="TableFile")

    @property
    def sources(self) -> tuple[Path, ...]:
        return (self.path,)

    @property
    def skipped(self) -> SkippedLines:
        """What the latest pass skipped."""
        return self._lines.skipped

    def __iter__(self) -> Iterator[TableRow]:
        return self._objects() if self.format == "jsonl" else self._cells()

    def _objects(self) -> Iterator[TableRow]:
        for number, text in self._lines:
            if text.strip():
                yield TableRow(_parse_object(text, f"{self.path}:{number}"), f"{self.path}:{number}")

    def _cells(self) -> Iterator[TableRow]:
        records = _CsvRecords(self._lines) if self.format == "csv" else _tsv_records(self._lines)
        names = self._given_names()
        for number, cells in records:
            where = f"{self.path}:{number}"
            if names is None:
                names = tuple(cells) if self.header == "first" else tuple(range(len(cells)))
                _check_distinct(names, where)
                if self.header == "first":
                    continue
            if len(cells) != len(names):
                raise CorpusError(f"{len(cells)} fields", f"{len(names)} ({', '.join(map(str, names))})", where=where)
            yield TableRow(dict(zip(names, cells, strict=True)), where)

    def _given_names(self) -> tuple[ColumnName, ...] | None:
        return None if self.header is None or self.header == "first" else tuple(self.header)


@dataclass(slots=True)
class DictRows:
    """Rows from any iterable of dicts, such as a Hugging Face dataset; re-iterable if that is."""

    rows: Iterable[Mapping[str, Any]] = field(repr=False)
    name: str = "rows"
    skipped: SkippedLines = field(default_factory=SkippedLines, init=False, repr=False)  # always none
    _spent: bool = field(default=False, init=False, repr=False)

    @classmethod
    def load_dataset(cls, name: str, split: str = "train", **settings: Any) -> DictRows:
        """A Hugging Face dataset by its name: the only function here that downloads."""
        try:
            from datasets import load_dataset  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise SettingError(
                f"Loading the dataset {name!r} needs the package `datasets`",
                where="DictRows.load_dataset",
                advice="pip install 'regard[datasets]'",
            ) from error
        return cls(load_dataset(name, split=split, **settings), name=f"{name}[{split}]")

    @property
    def sources(self) -> tuple[Path, ...]:
        return ()

    def __iter__(self) -> Iterator[TableRow]:
        if self._spent:
            problem = "An iterator can be read only once, and this is the second pass"
            raise CorpusError(problem, where=self.name, advice="Pass list(rows).")
        self._spent = isinstance(self.rows, Iterator)
        for number, values in enumerate(self.rows):
            where = f"{self.name}, row {number}"
            if not isinstance(values, Mapping):
                raise CorpusError(f"a row of type {type(values).__name__}", "a dict", where=where)
            yield TableRow(values, where)


RowSource = str | os.PathLike[str] | TableFile | DictRows | Iterable[Mapping[str, Any]]


def open_rows(source: RowSource) -> TableFile | DictRows:
    """The rows of a path (format by its ending), a TableFile, DictRows, or an iterable of dicts."""
    if isinstance(source, (TableFile, DictRows)):
        return source
    if isinstance(source, (str, os.PathLike)):
        return TableFile(Path(source))
    return DictRows(source)


def _format_from_ending(path: Path) -> Format:
    ending = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    known: dict[str, Format] = {"tsv": "tsv", "tab": "tsv", "csv": "csv", "jsonl": "jsonl", "ndjson": "jsonl"}
    if ending not in known:
        raise SettingError(
            f"{path}",
            f"a file that ends in {', '.join(f'.{name}' for name in known)} (or these with .gz)",
            where="TableFile",
            advice='Rename it, or set the format in Python: TableFile(path, format="tsv").',
        )
    return known[ending]


def _parse_object(text: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise CorpusError(f"Invalid JSON: {error.msg} at column {error.colno}", where=where) from error
    if not isinstance(found, dict):
        raise CorpusError(f"JSON of type {type(found).__name__}", "an object, {...}", where=where)
    return found


def _tsv_records(lines: Iterable[Line]) -> Iterator[tuple[int, list[str]]]:
    for number, text in lines:
        if text.strip(" "):
            yield number, text.split("\t")


class _CsvRecords:
    """CSV records with the number of their first line; a quoted field may contain line ends."""

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
        previous = csv.field_size_limit(self.lines.max_line)  # so that an unclosed quote cannot swallow the file
        try:
            return next(reader, None)
        except csv.Error as error:
            raise CorpusError(
                f"Invalid CSV: {error}", where=f"{self.lines.path}:{self.first}", advice="Is a quote not closed?"
            ) from error
        finally:
            csv.field_size_limit(previous)

    def _texts(self) -> Iterator[str]:
        for number, text in self.lines:
            if self.first is not None and number != self.last + 1:
                where = f"{self.lines.path}:{self.last + 1}"
                raise CorpusError(f"A quoted field contains {self.lines.too_long_message}", where=where)
            self.first = number if self.first is None else self.first
            self.last = number
            yield text + "\n"


def _check_distinct(names: Sequence[ColumnName], where: str) -> None:
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise CorpusError(
            f"The header has column {twice[0]!r} twice", where=where, advice="Give each column its own name."
        )
