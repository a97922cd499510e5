"""The task "masked": BERT pre-training by masked language modelling and next-sentence prediction."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from regard.models import MaskedLM
from regard.models.config import BertActivation, BertConfig, SizeName
from regard.text import (
    FIRST,
    FIRST_STOP,
    SECOND,
    SECOND_STOP,
    Batches,
    Columns,
    Document,
    DocumentFields,
    Epoch,
    MaskedBatch,
    Masking,
    MaskingCollator,
    NextSentenceCollator,
    NextSentencePairs,
    Pieces,
    Store,
    TextDocuments,
    WholeWords,
    encode_columns,
    grammar,
    whitespace_words,
)
from regard.training.objectives.mlm import MaskedLMObjective, unigram_log_probs
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import Count, Fraction, InputPath, Positive, RecipeSection
from regard.training.tasks.buckets import BucketBatches
from regard.training.tasks.holdout import Split, first_held_out, slice_rows
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, make_tokenizer


class BuiltInDocuments(RecipeSection):
    """Stories of the built-in grammar, about the same people each, and reviews: opinions about the same two things.

    `reviews`: the share of documents that are reviews; the labels of their opinions are not used.
    """

    kind: Literal["built-in"] = "built-in"
    language: Literal["english", "french"] = "english"
    examples: Count = 8000
    reviews: Fraction = 0.5
    valid: Annotated[int, Field(ge=0)] = 300
    seed: Annotated[int, Field(ge=0)] = 0

    def training(self) -> Iterator[str]:
        return chain.from_iterable(one.sentences for one in self._generate("train", self.examples))

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        valid = encode_columns(self._generate("valid", self.valid), fields) if self.valid else None
        return Split(encode_columns(self._generate("train", self.examples), fields), valid)

    def _generate(self, split: str, count: int) -> Iterator[Document]:
        french = self.language == "french"
        reviews = min(count - 1, round(self.reviews * count))
        yield from grammar.GeneratedCorpus(
            grammar.document_french if french else grammar.document, count - reviews, split, self.seed
        )
        if reviews:
            yield from grammar.GeneratedCorpus(
                grammar.review_french if french else grammar.review, reviews, split, self.seed
            )


class DocumentFile(RecipeSection):
    """Plain text, each line a sentence, blank lines between documents.

    `valid`: a file, or the share of the documents of `train` to hold out, its last ones.
    """

    kind: Literal["text"] = "text"
    train: InputPath
    valid: InputPath | Fraction = 0.1

    def training(self) -> Iterator[str]:
        documents = iter(TextDocuments(self.train))
        if isinstance(self.valid, float):
            documents = islice(documents, self._first(sum(1 for _ in TextDocuments(self.train))))
        return chain.from_iterable(one.sentences for one in documents)

    def columns(self, folder: Path, fields: DocumentFields) -> Split:
        full = Store.build(folder / "data" / "train.store", TextDocuments(self.train), fields)
        if not isinstance(self.valid, float):
            return Split(full, Store.build(folder / "data" / "valid.store", TextDocuments(self.valid), fields))
        assert full.documents is not None
        count = len(full.documents) - 1
        first = self._first(count)
        return Split(_slice_documents(full, 0, first), _slice_documents(full, first, count) if first < count else None)

    def _first(self, count: int) -> int:
        """The number of the first document that is held out."""
        assert isinstance(self.valid, float)
        return first_held_out(count, self.valid, [self.train])


class BertSizeSettings(RecipeSection):
    """A published size by name; `layers`, `width` and `heads` override it. Texts are cut at `max_positions` tokens.

    The rest is BERT's by default: `feedforward_dim` (4 x width), `activation`, the number of `segments` (texts of a
    row), and `eps` of the layer norms.
    """

    size: SizeName = BertConfig.size
    layers: Count | None = BertConfig.layers
    width: Count | None = BertConfig.width
    heads: Count | None = BertConfig.heads
    max_positions: Count = BertConfig.max_positions
    dropout: Fraction = BertConfig.dropout
    feedforward_dim: Count | None = BertConfig.feedforward_dim
    activation: BertActivation = BertConfig.activation
    segments: Annotated[int, Field(ge=0)] = BertConfig.segments
    eps: Positive = BertConfig.eps

    def max_length(self, setting: int | None) -> int:
        """The longest row: the number of positions, or less where batches.max_length says so."""
        return self.max_positions if setting is None else min(setting, self.max_positions)


class MaskedLMModel(BertSizeSettings):
    """BERT with an output layer over the vocabulary for masked tokens, and a classifier of sentence pairs."""

    kind: Literal["bert"] = "bert"


class MaskingSettings(RecipeSection):
    """`mask_rate`: the share of tokens that are masked, single pieces or whole words (`units`, whole-word masking).

    Of these, `mask_token_rate` become the mask token and `random_token_rate` a random token; the rest stay unchanged.
    """

    mask_rate: Fraction = Masking.mask_rate
    mask_token_rate: Annotated[float, Field(ge=0, le=1)] = Masking.mask_token_rate
    random_token_rate: Annotated[float, Field(ge=0, le=1)] = Masking.random_token_rate
    units: Literal["pieces", "words"] = "pieces"


class MaskedLMBatches(RecipeSection):
    """Pairs of texts, half of which follow each other, or single sentences; at most `tokens` a batch with padding.

    `max_length`: of a row; by default as many tokens as the model has positions.
    """

    texts: Literal["pairs", "single"] = "pairs"
    tokens: Count = 4096
    max_length: Count | None = None


class MaskedLMRecipe(Recipe):
    """Masked tokens, and whether one text follows another."""

    task: Literal["masked"] = "masked"
    data: Annotated[BuiltInDocuments | DocumentFile, Field(discriminator="kind")] = BuiltInDocuments()
    tokenizer: AnyTokenizer = SizedTokenizer()
    model: MaskedLMModel = MaskedLMModel()
    objective: MaskingSettings = MaskingSettings()
    batches: MaskedLMBatches = MaskedLMBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        max_length = self.model.max_length(self.batches.max_length)
        tokenizer = make_tokenizer(self.tokenizer, self.data.training(), folder)
        whole_words, pairs = self.objective.units == "words", self.batches.texts == "pairs"
        split = self.data.columns(folder, DocumentFields(tokenizer, words=whitespace_words if whole_words else None))
        masking = Masking(
            tokenizer.special,
            len(tokenizer),
            mask_rate=self.objective.mask_rate,
            mask_token_rate=self.objective.mask_token_rate,
            random_token_rate=self.objective.random_token_rate,
            units=WholeWords() if whole_words else Pieces(),
        )

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[MaskedBatch]:
            if pairs:
                plan = NextSentencePairs(columns, max_length, self.batches.tokens)
                return Batches(
                    plan, NextSentenceCollator(columns, masking), self.train.seed, rank, ranks, self.train.prefetch
                )
            collate = MaskingCollator(columns, masking, max_length)
            nonempty = np.flatnonzero(collate.lengths > 2)  # blank texts have no tokens
            buckets = BucketBatches(tokens=self.batches.tokens).plan(collate.lengths, nonempty)
            return Batches(buckets, collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, rank, ranks), split.valid
        weight = (
            _masked_per_pair(train.plan, self.train.seed, self.objective.mask_rate)
            if isinstance(train.plan, NextSentencePairs)
            else None
        )
        held_out = "none" if valid is None else f"{len(valid):,}"
        sizes = f"{len(split.train):,} training sentences, {held_out} for validation"
        model, common = self.assemble(folder), unigram_log_probs(split.train["text"], len(tokenizer))
        assert isinstance(model, MaskedLM)
        model.lm_head.bias.data.copy_(common)  # token frequencies are counted, not learned
        return PreparedTask(
            recipe=self,
            model=model,
            objective=MaskedLMObjective(tokenizer, common, weight),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(f"{sizes}; a vocabulary of {len(tokenizer):,}", *split.notes),
        )


def _masked_per_pair(plan: NextSentencePairs, seed: int, rate: float) -> float:
    """The average number of masked tokens in a pair."""
    pairs = plan.pairs(Epoch(seed))
    return rate * float((pairs[:, FIRST_STOP] - pairs[:, FIRST] + pairs[:, SECOND_STOP] - pairs[:, SECOND]).mean())


def _slice_documents(columns: Columns, start: int, stop: int) -> Columns:
    """The columns of these documents alone."""
    assert columns.documents is not None
    bounds = np.asarray(columns.documents[start : stop + 1])
    return Columns(slice_rows(columns, int(bounds[0]), int(bounds[-1])).fields, bounds - bounds[0])
