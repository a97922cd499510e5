"""Parallel corpora: sentence pairs from two files or two columns, with Pharaoh word alignments where known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard.errors import CorpusError
from regard.text.corpora.corpus import Blank, RowCorpus, has_both_texts
from regard.text.corpora.lines import MAX_LINE, DecodeErrors, Lines, SkippedLines
from regard.text.corpora.tables import ColumnName
from regard.text.examples import Links, Translation
from regard.text.words import whitespace_words


@dataclass(slots=True)
class ParallelCorpus:
    """A parallel corpus of two files, line by line; `links`: a file of word alignments in Pharaoh format (`0-0 1-2`).

    A pair of blank lines or with an overlong line is skipped; a pair with one blank line is refused unless
    `blank="skip"`.
    """

    source: str | os.PathLike[str]
    target: str | os.PathLike[str]
    links: str | os.PathLike[str] | None = None
    blank: Blank = "refuse"
    max_line: int = MAX_LINE
    errors: DecodeErrors = "strict"
    skipped: SkippedLines = field(default_factory=SkippedLines, init=False)

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(Path(path) for path in (self.source, self.target, self.links) if path is not None)

    def __iter__(self) -> Iterator[Translation]:
        self.skipped = SkippedLines()
        files = [Lines(path, self.max_line, self.errors) for path in self.sources]
        for number, texts in enumerate(_zip_lines(files), start=1):
            if None in texts:
                self.skipped.add(f"{self.sources[texts.index(None)]}:{number}", files[0].too_long_message)
                continue
            source, target, *links = (text or "" for text in texts)
            where = [f"{path}:{number}" for path in self.sources]
            if has_both_texts((source, target), where[:2], self.blank, self.skipped):
                found = parse_links(links[0], source, target, where[2]) if links else None
                yield Translation(source, target, found)


@dataclass(slots=True)
class TranslationRows(RowCorpus):
    """Sentence pairs from two columns of rows; `links`: the column of Pharaoh word alignments, if any."""

    source: ColumnName = "source"
    target: ColumnName = "target"
    links: ColumnName | None = None
    blank: Blank = "refuse"

    def __iter__(self) -> Iterator[Translation]:
        for row in self.iterate_rows():
            pair = row.text(self.source), row.text(self.target)
            where = [f"{row.where} ({name})" for name in (self.source, self.target)]
            if has_both_texts(pair, where, self.blank, self.skipped_blanks):
                found = None if self.links is None else parse_links(row.text(self.links), *pair, row.where)
                yield Translation(*pair, found)


def parse_links(text: str, source: str, target: str, where: str) -> Links:
    """Parse word alignments in Pharaoh format, `0-0 1-2`, and check them against the words of the pair."""
    sizes = len(whitespace_words(source)), len(whitespace_words(target))
    links = set()
    for one in text.split():
        left, dash, right = one.partition("-")
        if not (dash and left.isdecimal() and right.isdecimal()):
            raise CorpusError(f"link {one!r}", "i-j, two word indices from 0", where=where)
        link = int(left), int(right)
        for word, words, side in zip(link, sizes, ("source", "target"), strict=True):
            if word >= words:
                raise CorpusError(f"link {one!r}", f"a {side} word below {words}", where=where)
        links.add(link)
    return tuple(sorted(links))


def _zip_lines(files: list[Lines]) -> Iterator[list[str | None]]:
    """The files line by line, side by side; files of different lengths are refused."""
    over: Any = object()
    for number, lines in enumerate(zip_longest(*(file.all_lines() for file in files), fillvalue=over), start=1):
        if over in lines:
            short = files[lines.index(over)].path
            long = next(file.path for file, line in zip(files, lines, strict=True) if line is not over)
            raise CorpusError(
                f"The file ends after line {number - 1}, but {long} has more lines",
                where=f"{short}:{number - 1}",
                advice="Parallel files must have the same number of lines.",
            )
        yield [line[1] for line in lines]
