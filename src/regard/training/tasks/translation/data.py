"""The section [data] of the task "translation": sentence pairs to train on, and pairs held out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.text import Corpus, Parallel, Translation, TranslationFields, Translations, columns_of, grammar
from regard.training.recipe import Count, InputPath, Section, Share
from regard.training.tasks.holdout import Split, kept_back, stored


class BuiltInPairs(Section):
    """Pairs of the built-in grammar, from English into French or back."""

    kind: Literal["built-in"] = "built-in"
    direction: Literal["en-fr", "fr-en"] = "en-fr"
    examples: Count = 40_000
    valid: Annotated[int, Field(ge=0)] = 500
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[Translation]:
        return iter(drawn_once(self))

    def columns(self, folder: Path, fields: TranslationFields) -> Split:
        valid = columns_of(self.drawn("valid", self.valid), fields) if self.valid else None
        return Split(columns_of(self.training(), fields), valid)

    def drawn(self, split: str, count: int) -> Iterator[Translation]:
        """So many pairs of a split of the grammar: train, valid, test or names."""
        for pair in grammar.Drawn(grammar.translation, count, split, self.seed):
            yield pair if self.direction == "en-fr" else turned(pair)


@lru_cache(maxsize=1)
def drawn_once(data: BuiltInPairs) -> list[Translation]:
    """The pairs to train on, for the tokenizers and the columns, which all go through them. Whoever is done with them
    clears this cache."""
    return list(data.drawn("train", data.examples))


class InFiles(Section):
    """Two files whose lines translate each other.

    `valid_source` and `valid_target`: files of their own; without them, the share `valid` of the pairs is held out, the
    last ones. A pair with one side blank is left out.
    """

    kind: Literal["parallel"] = "parallel"
    source: InputPath
    target: InputPath
    valid_source: InputPath | None = None
    valid_target: InputPath | None = None
    valid: Share = 0.05

    def training(self) -> Iterator[Translation]:
        return but_the_held_out(self._read(self.source, self.target), self._other or self.valid)

    def columns(self, folder: Path, fields: TranslationFields) -> Split:
        return stored(folder, self._read(self.source, self.target), self._other or self.valid, fields)

    @property
    def _other(self) -> Parallel | None:
        if self.valid_source is None or self.valid_target is None:
            return None
        return self._read(self.valid_source, self.valid_target)

    def _read(self, source: Path, target: Path) -> Parallel:
        return Parallel(source, target, blank="skip")


class Table(Section):
    """Pairs from two columns of TSV, CSV or JSON-lines files; `valid` as for classification."""

    kind: Literal["table"] = "table"
    train: InputPath
    valid: InputPath | Share = 0.05
    source: str = "source"
    target: str = "target"

    def training(self) -> Iterator[Translation]:
        return but_the_held_out(self._read(self.train), self._other)

    def columns(self, folder: Path, fields: TranslationFields) -> Split:
        return stored(folder, self._read(self.train), self._other, fields)

    @property
    def _other(self) -> Translations | float:
        return self.valid if isinstance(self.valid, float) else self._read(self.valid)

    def _read(self, path: Path) -> Translations:
        return Translations(path, self.source, self.target, blank="skip")


def but_the_held_out(pairs: Corpus[Translation], valid: object) -> Iterator[Translation]:
    """The pairs that are trained on: all, or without the last share of them."""
    if not isinstance(valid, float):
        return iter(pairs)
    return islice(iter(pairs), kept_back(sum(1 for _ in pairs), valid, pairs.sources))


def texts(pairs: Iterable[Translation], *sides: Literal["source", "target"]) -> Iterator[str]:
    """One side of the pairs, or both in turn."""
    return (getattr(pair, side) for pair in pairs for side in sides)


def turned(pair: Translation) -> Translation:
    """The same pair the other way round."""
    links = None if pair.links is None else tuple(sorted((j, i) for i, j in pair.links))
    return Translation(pair.target, pair.source, links)
