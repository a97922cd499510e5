"""The task "captioning": a sentence that describes a picture."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.pictures import CaptionBatch, CaptionCollator, ImageStore
from regard.text import Batches
from regard.training.objectives.captioning import CaptioningObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import LabelSmoothing
from regard.training.tasks.image_data import (
    AnyAugment,
    CaptionBatches,
    CaptionedScenes,
    CaptionTable,
    NoAugment,
    augment_of,
)
from regard.training.tasks.image_models import RecurrentCaptionerModel, TransformerCaptionerModel
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, make_tokenizer


class CaptioningSettings(LabelSmoothing):
    """`doubly_stochastic`: the weight of the penalty sum_i (1 - sum_t a_ti)^2 on the attention to each place i."""

    doubly_stochastic: Annotated[float, Field(ge=0)] = 0.0


class CaptioningRecipe(Recipe):
    """A caption for each picture."""

    task: Literal["captioning"] = "captioning"
    data: Annotated[CaptionedScenes | CaptionTable, Field(discriminator="kind")] = CaptionedScenes()
    augment: AnyAugment = NoAugment()
    tokenizer: AnyTokenizer = SizedTokenizer()
    model: Annotated[RecurrentCaptionerModel | TransformerCaptionerModel, Field(discriminator="kind")] = (
        RecurrentCaptionerModel()
    )
    objective: CaptioningSettings = CaptioningSettings()
    batches: CaptionBatches = CaptionBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        split = self.data.stores(folder)
        tokenizer = make_tokenizer(self.tokenizer, split.train.texts, folder)
        augment = augment_of(self.augment, self.data.size)

        def batches(store: ImageStore, train: bool, rank: int, ranks: int) -> Batches[CaptionBatch]:
            collate = CaptionCollator(store, tokenizer, self.batches.max_length, augment if train else None)
            return Batches(self.batches.plan(len(store)), collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, True, rank, ranks), split.valid
        notes = [f"a vocabulary of {len(tokenizer):,}"]
        if isinstance(train.collate, CaptionCollator) and train.collate.truncated:
            notes.append(f"{train.collate.truncated:,} training captions cut to {self.batches.max_length} tokens")
        has_regions = valid is not None and valid.packed_regions is not None
        objective = self.objective
        return PreparedTask(
            recipe=self,
            model=self.assemble(folder),
            objective=CaptioningObjective(
                tokenizer, objective.label_smoothing, objective.doubly_stochastic, has_regions
            ),
            train=train,
            valid=None if valid is None else partial(batches, valid, False),
            notes=(*split.notes, *notes),
        )
