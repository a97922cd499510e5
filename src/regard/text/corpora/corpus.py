"""What every reader is: examples again and again, the files they come from, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import or_
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from regard.text.corpora.lines import Skipped

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
