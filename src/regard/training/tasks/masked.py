"""Hidden tokens and next sentences: the task "masked", which pre-trains BERT."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from regard.models import MaskedLM
from regard.text import (
    A_STOP,
    B_STOP,
    A,
    B,
    Batches,
    Columns,
    Document,
    DocumentFields,
    Documents,
    Epoch,
    Fill,
    FillPairs,
    MaskedBatch,
    Masking,
    Pairs,
    Pieces,
    Store,
    WholeWords,
    columns_of,
    grammar,
    spaced,
)
from regard.training.objectives.mlm import GuessHidden, unigram
from regard.training.recipe import Count, InputPath, Prepared, Recipe, Section, Share
from regard.training.tasks.batching import in_buckets
from regard.training.tasks.bert_size import Sizes
from regard.training.tasks.holdout import Split, kept_back, rows
from regard.training.tasks.tokenizers import AnyTokenizer, Sized, tokenizer_of


class BuiltInDocuments(Section):
    """Stories of the built-in grammar, about the same people each, and reviews: opinions about the same two things.

    `reviews`: so many of the documents are reviews, without the labels of their opinions.
    """

    kind: Literal["built-in"] = "built-in"
    language: Literal["english", "french"] = "english"
    examples: Count = 8000
    reviews: Share = 0.5
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[str]:
        return chain.from_iterable(one.sentences for one in self._drawn("train", self.examples))

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        valid = columns_of(self._drawn("valid", self.valid), fields) if self.valid else None
        return Split(columns_of(self._drawn("train", self.examples), fields), valid)

    def _drawn(self, split: str, count: int) -> Iterator[Document]:
        french = self.language == "french"
        reviews = min(count - 1, round(self.reviews * count))
        yield from grammar.Drawn(
            grammar.document_french if french else grammar.document, count - reviews, split, self.seed
        )
        if reviews:
            yield from grammar.Drawn(grammar.review_french if french else grammar.review, reviews, split, self.seed)


class TextFile(Section):
    """Plain text, each line a sentence, blank lines between documents.

    `valid`: a file of its own, or the share of the documents of `train` to hold out, the last ones.
    """

    kind: Literal["text"] = "text"
    train: InputPath
    valid: InputPath | Share = 0.1

    def training(self) -> Iterator[str]:
        documents = iter(Documents(self.train))
        if isinstance(self.valid, float):
            documents = islice(documents, self._first(sum(1 for _ in Documents(self.train))))
        return chain.from_iterable(one.sentences for one in documents)

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        whole = Store.build(folder / "data" / "train.store", Documents(self.train), fields)
        if not isinstance(self.valid, float):
            return Split(whole, Store.build(folder / "data" / "valid.store", Documents(self.valid), fields))
        assert whole.documents is not None
        count = len(whole.documents) - 1
        first = self._first(count)
        return Split(_documents(whole, 0, first), _documents(whole, first, count) if first < count else None)

    def _first(self, count: int) -> int:
        """The number of the first document that is held out."""
        assert isinstance(self.valid, float)
        return kept_back(count, self.valid, [self.train])


class Model(Sizes):
    """BERT, with a vocabulary layer for hidden tokens and a classifier of pairs."""

    kind: Literal["bert"] = "bert"


class Masks(Section):
    """Which tokens are hidden, `rate` of them, single pieces or whole words: `masked` of those behind the mask token,
    `random` of them behind another word; the rest stay as they are."""

    rate: Share = 0.15
    masked: Annotated[float, Field(ge=0, le=1)] = 0.8
    random: Annotated[float, Field(ge=0, le=1)] = 0.1
    units: Literal["pieces", "words"] = "pieces"


class Batching(Section):
    """Pairs of texts of which half follow each other, or single sentences; padding included at most `tokens` a batch.

    `limit`: of a row; by default as many tokens as there are positions.
    """

    texts: Literal["pairs", "single"] = "pairs"
    tokens: Count = 4096
    limit: Count | None = None


class Masked(Recipe):
    """What is hidden in a text, and which texts follow each other."""

    task: Literal["masked"] = "masked"
    data: Annotated[BuiltInDocuments | TextFile, Field(discriminator="kind")] = BuiltInDocuments()
    tokenizer: AnyTokenizer = Sized()
    model: Model = Model()
    objective: Masks = Masks()
    batches: Batching = Batching()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        limit = self.model.limit(self.batches.limit)
        tokenizer = tokenizer_of(self.tokenizer, self.data.training(), folder)
        whole, pairs = self.objective.units == "words", self.batches.texts == "pairs"
        split = self.data.columns(folder, DocumentFields(tokenizer, words=spaced if whole else None))
        masking = Masking(
            tokenizer.special,
            len(tokenizer),
            **self.objective.model_dump(exclude={"units"}),
            units=WholeWords() if whole else Pieces(),
        )

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[MaskedBatch]:
            if pairs:
                plan = Pairs(columns, limit, self.batches.tokens)
                return Batches(plan, FillPairs(columns, masking), self.train.seed, rank, ranks, self.train.ahead)
            fill = Fill(columns, masking, limit)
            some = np.flatnonzero(fill.lengths > 2)  # a text of nothing but space has no tokens
            short = in_buckets(fill.lengths, self.batches, among=some)
            return Batches(short, fill, self.train.seed, rank, ranks, self.train.ahead)

        train, valid = batches(split.train, rank, ranks), split.valid
        weight = _hidden(train.plan, self.train.seed, self.objective.rate) if isinstance(train.plan, Pairs) else None
        held = "none" if valid is None else f"{len(valid):,}"
        notes = [f"{len(split.train):,} training sentences, {held} for validation; a vocabulary of {len(tokenizer):,}"]
        model, common = self.assemble(folder), unigram(split.train["text"], len(tokenizer))
        assert isinstance(model, MaskedLM)
        model.guess.bias.data.copy_(common)  # how common each token is need not be learned: it was counted
        return Prepared(
            recipe=self,
            model=model,
            objective=GuessHidden(tokenizer, common, weight),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )


def _hidden(plan: Pairs, seed: int, rate: float) -> float:
    """How many tokens of a pair are hidden, on average."""
    made = plan.made(Epoch(seed))
    return rate * float((made[:, A_STOP] - made[:, A] + made[:, B_STOP] - made[:, B]).mean())


def _documents(columns: Columns, start: int, stop: int) -> Columns:
    """These documents, as columns of their own."""
    assert columns.documents is not None
    bounds = np.asarray(columns.documents[start : stop + 1])
    return Columns(rows(columns, int(bounds[0]), int(bounds[-1])).fields, bounds - bounds[0])
