"""The task "translation": recurrent encoder-decoders with and without attention, and the Transformer."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.runs import TARGET_TOKENIZER
from regard.text import Batches, Columns, Tokenizer, TranslationBatch, TranslationCollator, TranslationFields
from regard.training.objectives.translation import TranslationObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import Count, LabelSmoothing
from regard.training.tasks.buckets import BucketBatches
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, make_tokenizer
from regard.training.tasks.translation.data import (
    BuiltInPairs,
    PairTable,
    ParallelFiles,
    cached_training_pairs,
    side_texts,
)
from regard.training.tasks.translation.models import AnyModel, BahdanauModel, PointerModel


class TranslationBatches(BucketBatches):
    """`tokens` bounds each side. `curriculum`: this share of the first epoch, its beginning, goes from short sentences
    to long ones (curriculum learning)."""

    tokens: Count = 2048
    max_length: Count | None = 256
    curriculum: Annotated[float, Field(ge=0, le=1)] = 0.0


class TranslationRecipe(Recipe):
    """A sentence translated into another language. Without `target_tokenizer` both sides share one vocabulary."""

    task: Literal["translation"] = "translation"
    data: Annotated[BuiltInPairs | ParallelFiles | PairTable, Field(discriminator="kind")] = BuiltInPairs()
    tokenizer: AnyTokenizer = SizedTokenizer()
    target_tokenizer: AnyTokenizer | None = None
    model: Annotated[AnyModel, Field(discriminator="kind")] = BahdanauModel()
    objective: LabelSmoothing = LabelSmoothing()
    batches: TranslationBatches = TranslationBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        source, target = self._tokenizers(folder)
        split = self.data.columns(folder, TranslationFields(source, target, isinstance(self.model, PointerModel)))
        cached_training_pairs.cache_clear()

        def batches(columns: Columns, rank: int, ranks: int) -> Batches[TranslationBatch]:
            collate = TranslationCollator(columns, source.special, target.special, self.batches.max_length)
            plan = self.batches.plan(collate.lengths, curriculum=self.batches.curriculum)
            return Batches(plan, collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, rank, ranks), split.valid
        held_out = "none" if valid is None else f"{len(valid):,}"
        words = f"{len(source):,}" if source is target else f"{len(source):,} and {len(target):,}"
        notes = [f"{len(split.train):,} training pairs, {held_out} for validation; a vocabulary of {words}"]
        if isinstance(train.collate, TranslationCollator) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training pairs cut to {self.batches.max_length} tokens")
        return PreparedTask(
            recipe=self,
            model=self.assemble(folder),
            objective=TranslationObjective(source, target, self.objective.label_smoothing),
            train=train,
            valid=None if valid is None else partial(batches, valid),
            notes=(*notes, *split.notes),
        )

    def _tokenizers(self, folder: Path) -> tuple[Tokenizer, Tokenizer]:
        if self.target_tokenizer is None:
            both = make_tokenizer(self.tokenizer, side_texts(self.data.training(), "source", "target"), folder)
            return both, both
        source = make_tokenizer(self.tokenizer, side_texts(self.data.training(), "source"), folder)
        target = side_texts(self.data.training(), "target")
        return source, make_tokenizer(self.target_tokenizer, target, folder, TARGET_TOKENIZER)
