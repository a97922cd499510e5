"""Sentence pairs: from two files line by line, or from two columns of rows; with word links where they are known."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from regard.errors import CorpusError
from regard.text.corpora.corpus import Blank, RowCorpus, both_there
from regard.text.corpora.lines import LIMIT, Lines, Skipped, Undecodable
from regard.text.corpora.tables import Name
from regard.text.examples import Links, Translation
from regard.text.words import spaced


@dataclass(slots=True)
class Parallel:
    """Two files whose lines translate each other, and perhaps a third with the word links of each pair (`0-0 1-2`).

    A pair of blank lines is skipped, as is one with a line too long; half a pair is refused unless `blank="skip"`.
    """

    source: str | os.PathLike[str]
    target: str | os.PathLike[str]
    links: str | os.PathLike[str] | None = None
    blank: Blank = "refuse"
    limit: int = LIMIT
    errors: Undecodable = "strict"
    skipped: Skipped = field(default_factory=Skipped, init=False)

    @property
    def sources(self) -> tuple[Path, ...]:
        return tuple(Path(path) for path in (self.source, self.target, self.links) if path is not None)

    def __iter__(self) -> Iterator[Translation]:
        self.skipped = Skipped()
        files = [Lines(path, self.limit, self.errors) for path in self.sources]
        for number, texts in enumerate(_abreast(files), start=1):
            if None in texts:
                self.skipped.add(f"{self.sources[texts.index(None)]}:{number}", files[0].too_long)
                continue
            source, target, *links = (text or "" for text in texts)
            where = [f"{path}:{number}" for path in self.sources]
            if both_there((source, target), where[:2], self.blank, self.skipped):
                found = parse_links(links[0], source, target, where[2]) if links else None
                yield Translation(source, target, found)


@dataclass(slots=True)
class Translations(RowCorpus):
    """Sentence pairs from two columns of rows; `links` names a column of word links, where there is one."""

    source: Name = "source"
    target: Name = "target"
    links: Name | None = None
    blank: Blank = "refuse"

    def __iter__(self) -> Iterator[Translation]:
        for row in self.each():
            pair = row.text(self.source), row.text(self.target)
            where = [f"{row.where} ({name})" for name in (self.source, self.target)]
            if both_there(pair, where, self.blank, self.blanks):
                found = None if self.links is None else parse_links(row.text(self.links), *pair, row.where)
                yield Translation(*pair, found)


def parse_links(text: str, source: str, target: str, where: str) -> Links:
    """Pharaoh links, `0-0 1-2`, each checked against the words of its pair."""
    sizes = len(spaced(source)), len(spaced(target))
    links = set()
    for one in text.split():
        left, dash, right = one.partition("-")
        if not (dash and left.isdecimal() and right.isdecimal()):
            raise CorpusError(f"link {one!r}", "i-j: the numbers of two words, from 0", where=where)
        link = int(left), int(right)
        for word, words, side in zip(link, sizes, ("source", "target"), strict=True):
            if word >= words:
                raise CorpusError(f"link {one!r}", f"a word of the {side} below {words}", where=where)
        links.add(link)
    return tuple(sorted(links))


def _abreast(files: list[Lines]) -> Iterator[list[str | None]]:
    """A line of each file at a time; files of different lengths are refused where the shorter one ends."""
    over: Any = object()
    for number, lines in enumerate(zip_longest(*(file.every() for file in files), fillvalue=over), start=1):
        if over in lines:
            short = files[lines.index(over)].path
            long = next(file.path for file, line in zip(files, lines, strict=True) if line is not over)
            raise CorpusError(
                f"the end of the file after line {number - 1}",
                f"a line for {long}:{number}",
                where=f"{short}:{number - 1}",
                advice=f"{short} and {long} must have as many lines.",
            )
        yield [line[1] for line in lines]
