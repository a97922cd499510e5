"""The task "contextual": a bidirectional language model (ELMo), which learns vectors of words in context."""

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
    OovDocumentFields,
    PlainBatch,
    PlainCollator,
    TextDocuments,
    encode_columns,
    grammar,
)
from regard.training.objectives.bilm import BiLMObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import Count, Fraction, InputPath, LabelSmoothing, RecipeSection
from regard.training.tasks.buckets import BucketBatches
from regard.training.tasks.holdout import Split, first_held_out, store_split
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, make_tokenizer


class BuiltInSentences(RecipeSection):
    """Tokenized sentences of the built-in grammar: single ones, or those of stories."""

    kind: Literal["built-in"] = "built-in"
    view: Literal["sentence", "sentence_french", "document", "document_french"] = "sentence"
    examples: Count = 8000
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[str]:
        return (line for one in self._generate("train", self.examples) for line in one.sentences)

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        valid = encode_columns(self._generate("valid", self.valid), fields) if self.valid else None
        return Split(encode_columns(self._generate("train", self.examples), fields), valid)

    def _generate(self, split: str, count: int) -> Iterator[Document]:
        french = self.view.endswith("french")
        if self.view.startswith("document"):
            yield from grammar.GeneratedCorpus(
                grammar.document_french if french else grammar.document, count, split, self.seed
            )
            return
        for pair in grammar.GeneratedCorpus(grammar.translation, count, split, self.seed):
            yield Document((pair.target if french else pair.source,))


class SentenceFile(RecipeSection):
    """Plain text, a row from each line; blank lines are ignored.

    `valid`: a file, or the share of the lines of `train` to hold out, its last ones.
    """

    kind: Literal["text"] = "text"
    train: InputPath
    valid: InputPath | Fraction = 0.1

    def training(self) -> Iterator[str]:
        lines = _lines(self.train)
        if not isinstance(self.valid, float):
            return lines
        return islice(lines, first_held_out(sum(1 for _ in _lines(self.train)), self.valid, [self.train]))

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        valid = self.valid if isinstance(self.valid, float) else TextDocuments(self.valid)
        return store_split(folder, TextDocuments(self.train), valid, fields)


class ElmoModel(RecipeSection):
    """Two stacks of `layers` LSTMs, forward and backward, each `width` wide.

    `input`: an embedding for each token, or a CNN over its characters, which covers words outside the vocabulary.
    """

    kind: Literal["elmo"] = "elmo"
    input: InputName = ELMoConfig.input
    width: Count = ELMoConfig.width
    layers: Count = ELMoConfig.layers
    dropout: Fraction = ELMoConfig.dropout


class ContextualBatches(BucketBatches):
    tokens: Count = 2048
    max_length: Count | None = 256


class ContextualRecipe(Recipe):
    """The word after, and the word before, each position of a text."""

    task: Literal["contextual"] = "contextual"
    data: Annotated[BuiltInSentences | SentenceFile, Field(discriminator="kind")] = BuiltInSentences()
    tokenizer: AnyTokenizer = SizedTokenizer()
    model: ElmoModel = ElmoModel()
    objective: LabelSmoothing = LabelSmoothing()
    batches: ContextualBatches = ContextualBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        tokenizer = make_tokenizer(self.tokenizer, self.data.training(), folder)
        fields = OovDocumentFields if self.model.input == "characters" else DocumentFields
        split = self.data.columns(folder, fields(tokenizer))

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[PlainBatch]:
            collate = PlainCollator(columns, tokenizer.special, len(tokenizer), self.batches.max_length)
            nonempty = np.flatnonzero(collate.lengths > 2)  # blank texts have no tokens
            plan = self.batches.plan(collate.lengths, nonempty)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, rank, ranks), split.valid
        held_out = "none" if valid is None else f"{len(valid):,}"
        notes = [f"{len(split.train):,} training texts, {held_out} for validation; a vocabulary of {len(tokenizer):,}"]
        if isinstance(train.collate, PlainCollator) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training texts cut to {self.batches.max_length} tokens")
        return PreparedTask(
            recipe=self,
            model=self.assemble(folder),
            objective=BiLMObjective(tokenizer, self.objective.label_smoothing),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )


def _lines(path: Path) -> Iterator[str]:
    return chain.from_iterable(document.sentences for document in TextDocuments(path))
