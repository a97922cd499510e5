"""Each word from those before it and from those after it: the task "contextual", which teaches ELMo."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from regard.models.config import ELMoConfig, InputName
from regard.text import (
    Batches,
    Columns,
    Document,
    DocumentFields,
    Documents,
    Plain,
    PlainBatch,
    SpelledDocuments,
    columns_of,
    grammar,
)
from regard.training.objectives.elmo import PredictNeighbours
from regard.training.recipe import Count, InputPath, Prepared, Recipe, Section, Share
from regard.training.tasks.batching import in_buckets
from regard.training.tasks.holdout import Split, kept_back, stored
from regard.training.tasks.smoothing import Smoothing
from regard.training.tasks.tokenizers import AnyTokenizer, Sized, tokenizer_of


class BuiltInSentences(Section):
    """Sentences of the built-in grammar, words and signs apart: single ones, or those of stories."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["sentence", "sentence_french", "document", "document_french"] = "sentence"
    examples: Count = 8000
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[str]:
        return (line for one in self._drawn("train", self.examples) for line in one.sentences)

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        valid = columns_of(self._drawn("valid", self.valid), fields) if self.valid else None
        return Split(columns_of(self._drawn("train", self.examples), fields), valid)

    def _drawn(self, split: str, count: int) -> Iterator[Document]:
        french = self.view.endswith("french")
        if self.view.startswith("document"):
            yield from grammar.Drawn(grammar.document_french if french else grammar.document, count, split, self.seed)
            return
        for pair in grammar.Drawn(grammar.translation, count, split, self.seed):
            yield Document((pair.target if french else pair.source,))


class TextFile(Section):
    """Plain text, each line a row; blank lines count for nothing.

    `valid`: a file of its own, or the share of the lines of `train` to hold out, the last ones.
    """

    kind: Literal["text"] = "text"
    train: InputPath
    valid: InputPath | Share = 0.1

    def training(self) -> Iterator[str]:
        lines = _lines(self.train)
        if not isinstance(self.valid, float):
            return lines
        return islice(lines, kept_back(sum(1 for _ in _lines(self.train)), self.valid, [self.train]))

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else Documents(self.valid)
        return stored(folder, Documents(self.train), valid, fields)


class Elmo(Section):
    """Two stacks of `layers` LSTMs, `width` wide each.

    `input`: a vector for each token, or made of its characters, so that words outside the vocabulary have one too.
    """

    kind: Literal["elmo"] = "elmo"
    input: InputName = ELMoConfig.input
    width: Count = ELMoConfig.width
    layers: Count = ELMoConfig.layers
    dropout: Share = ELMoConfig.dropout


class Batching(Section):
    """Rows of like length, padding included at most `tokens` and `rows` a batch; texts are cut at `limit` tokens."""

    tokens: Count = 2048
    rows: Count | None = None
    limit: Count | None = 256


class Contextual(Recipe):
    """Words in context: what stands after each, and what stood before it."""

    task: Literal["contextual"] = "contextual"
    data: Annotated[BuiltInSentences | TextFile, Field(discriminator="kind")] = BuiltInSentences()
    tokenizer: AnyTokenizer = Sized()
    model: Elmo = Elmo()
    objective: Smoothing = Smoothing()
    batches: Batching = Batching()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        tokenizer = tokenizer_of(self.tokenizer, self.data.training(), folder)
        fields = SpelledDocuments if self.model.input == "characters" else DocumentFields
        split = self.data.columns(folder, fields(tokenizer))

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[PlainBatch]:
            collate = Plain(columns, tokenizer.special, len(tokenizer), self.batches.limit)
            some = np.flatnonzero(collate.lengths > 2)  # a text of nothing but space has no tokens
            plan = in_buckets(collate.lengths, self.batches, self.batches.rows, some)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.ahead)

        train, valid = batches(split.train, rank, ranks), split.valid
        held = "none" if valid is None else f"{len(valid):,}"
        notes = [f"{len(split.train):,} training texts, {held} for validation; a vocabulary of {len(tokenizer):,}"]
        if isinstance(train.collate, Plain) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training texts cut to {self.batches.limit} tokens")
        return Prepared(
            recipe=self,
            model=self.assemble(folder),
            objective=PredictNeighbours(tokenizer, self.objective.smoothing),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )


def _lines(path: Path) -> Iterator[str]:
    return chain.from_iterable(document.sentences for document in Documents(path))
