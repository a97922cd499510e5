"""Sentences in another language: the task "translation"."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.runs import TARGET_TOKENIZER
from regard.text import Batches, Columns, Tokenizer, Translate, TranslationBatch, TranslationFields
from regard.training.objectives.translation import PredictTarget
from regard.training.recipe import Count, Prepared, Recipe, Section
from regard.training.tasks.batching import in_buckets
from regard.training.tasks.smoothing import Smoothing
from regard.training.tasks.tokenizers import AnyTokenizer, Sized, tokenizer_of
from regard.training.tasks.translation.data import BuiltInPairs, InFiles, Table, drawn_once, texts
from regard.training.tasks.translation.models import AnyModel, BahdanauModel, PointerModel


class Batching(Section):
    """Pairs of like length: padding included, at most `tokens` on each side; texts are cut at `limit` tokens.

    `rising`: this share of the first epoch, its beginning, goes from short sentences to long ones.
    """

    tokens: Count = 2048
    rows: Count | None = None
    limit: Count | None = 256
    rising: Annotated[float, Field(ge=0, le=1)] = 0.0


class Translation(Recipe):
    """A sentence in another language. Without `target_tokenizer` both sides share one vocabulary."""

    task: Literal["translation"] = "translation"
    data: Annotated[BuiltInPairs | InFiles | Table, Field(discriminator="kind")] = BuiltInPairs()
    tokenizer: AnyTokenizer = Sized()
    target_tokenizer: AnyTokenizer | None = None
    model: Annotated[AnyModel, Field(discriminator="kind")] = BahdanauModel()
    objective: Smoothing = Smoothing()
    batches: Batching = Batching()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> Prepared:
        source, target = self._learned(folder)
        split = self.data.columns(folder, TranslationFields(source, target, isinstance(self.model, PointerModel)))
        drawn_once.cache_clear()

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[TranslationBatch]:
            collate = Translate(columns, source.special, target.special, self.batches.limit)
            rising = self.batches.rising
            plan = in_buckets(collate.lengths, self.batches, self.batches.rows, rising=rising)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.ahead)

        train, valid = batches(split.train, rank, ranks), split.valid
        held = "none" if valid is None else f"{len(valid):,}"
        words = f"{len(source):,}" if source is target else f"{len(source):,} and {len(target):,}"
        notes = [f"{len(split.train):,} training pairs, {held} for validation; a vocabulary of {words}"]
        if isinstance(train.collate, Translate) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training pairs cut to {self.batches.limit} tokens")
        return Prepared(
            recipe=self,
            model=self.assemble(folder),
            objective=PredictTarget(source, target, self.objective.smoothing),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _learned(self, folder: Path) -> tuple[Tokenizer, Tokenizer]:
        if self.target_tokenizer is None:
            both = tokenizer_of(self.tokenizer, texts(self.data.training(), "source", "target"), folder)
            return both, both
        source = tokenizer_of(self.tokenizer, texts(self.data.training(), "source"), folder)
        target = texts(self.data.training(), "target")
        return source, tokenizer_of(self.target_tokenizer, target, folder, TARGET_TOKENIZER)
