"""The section [data] of the task "translation": sentence pairs for training and validation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.text import Corpus, ParallelCorpus, Translation, TranslationFields, TranslationRows, encode_columns, grammar
from regard.training.section import Count, Fraction, InputPath, RecipeSection
from regard.training.tasks.holdout import Split, first_held_out, store_split


class BuiltInPairs(RecipeSection):
    """Pairs of the built-in grammar, from English into French or back."""

    kind: Literal["built-in"] = "built-in"
    direction: Literal["en-fr", "fr-en"] = "en-fr"
    examples: Count = 40_000
    valid: Annotated[int, Field(ge=0)] = 500
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[Translation]:
        return iter(cached_training_pairs(self))

    def columns(self, folder: Path, fields: TranslationFields) -> Split:
        valid = encode_columns(self.generate("valid", self.valid), fields) if self.valid else None
        return Split(encode_columns(self.training(), fields), valid)

    def generate(self, split: str, count: int) -> Iterator[Translation]:
        """`count` pairs of a split of the grammar: train, valid, test or names."""
        for pair in grammar.GeneratedCorpus(grammar.translation, count, split, self.seed):
            yield pair if self.direction == "en-fr" else swap_sides(pair)


@lru_cache(maxsize=1)
def cached_training_pairs(data: BuiltInPairs) -> list[Translation]:
    """The training pairs, which are read for each tokenizer and for the columns; `prepare` clears this cache."""
    return list(data.generate("train", data.examples))


class ParallelFiles(RecipeSection):
    """Two files whose lines translate each other.

    `valid_source` and `valid_target`: the validation files; without them, the share `valid` of the pairs is held out,
    the last ones. A pair with a blank side is skipped.
    """

    kind: Literal["parallel"] = "parallel"
    source: InputPath
    target: InputPath
    valid_source: InputPath | None = None
    valid_target: InputPath | None = None
    valid: Fraction = 0.05

    def training(self) -> Iterator[Translation]:
        return without_held_out(self._read(self.source, self.target), self._valid or self.valid)

    def columns(self, folder: Path, fields: TranslationFields) -> Split:
        return store_split(folder, self._read(self.source, self.target), self._valid or self.valid, fields)

    @property
    def _valid(self) -> ParallelCorpus | None:
        if self.valid_source is None or self.valid_target is None:
            return None
        return self._read(self.valid_source, self.valid_target)

    def _read(self, source: Path, target: Path) -> ParallelCorpus:
        return ParallelCorpus(source, target, blank="skip")


class PairTable(RecipeSection):
    """Pairs from two columns of TSV, CSV or JSON-lines files; `valid` as for classification."""

    kind: Literal["table"] = "table"
    train: InputPath
    valid: InputPath | Fraction = 0.05
    source: str = "source"
    target: str = "target"

    def training(self) -> Iterator[Translation]:
        return without_held_out(self._read(self.train), self._valid)

    def columns(self, folder: Path, fields: TranslationFields) -> Split:
        return store_split(folder, self._read(self.train), self._valid, fields)

    @property
    def _valid(self) -> TranslationRows | float:
        return self.valid if isinstance(self.valid, float) else self._read(self.valid)

    def _read(self, path: Path) -> TranslationRows:
        return TranslationRows(path, self.source, self.target, blank="skip")


def without_held_out(pairs: Corpus[Translation], valid: object) -> Iterator[Translation]:
    """The training pairs: all, or without the last share of them."""
    if not isinstance(valid, float):
        return iter(pairs)
    return islice(iter(pairs), first_held_out(sum(1 for _ in pairs), valid, pairs.sources))


def side_texts(pairs: Iterable[Translation], *sides: Literal["source", "target"]) -> Iterator[str]:
    """One side of the pairs, or both in turn."""
    return (getattr(pair, side) for pair in pairs for side in sides)


def swap_sides(pair: Translation) -> Translation:
    """The same pair in the other direction."""
    links = None if pair.links is None else tuple(sorted((j, i) for i, j in pair.links))
    return Translation(pair.target, pair.source, links)
