"""The task "pointing": which part of a picture a phrase refers to (phrase grounding)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

from regard.pictures import ImageStore, PointingBatch, PointingCollator
from regard.text import Batches
from regard.training.objectives.pointing import PointingObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.tasks.image_data import ImageBatches, PhraseScenes
from regard.training.tasks.image_models import PhrasePointerModel
from regard.training.tasks.tokenizers import AnyTokenizer, SizedTokenizer, make_tokenizer


class PointingRecipe(Recipe):
    """A distribution over the patches of a picture for each phrase, trained on the regions of built-in scenes."""

    task: Literal["pointing"] = "pointing"
    data: PhraseScenes = PhraseScenes()
    tokenizer: AnyTokenizer = SizedTokenizer()
    model: PhrasePointerModel = PhrasePointerModel()
    batches: ImageBatches = ImageBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        split = self.data.stores(folder)
        tokenizer = make_tokenizer(self.tokenizer, split.train.texts, folder)

        def batches(store: ImageStore, rank: int, ranks: int) -> Batches[PointingBatch]:
            plan = self.batches.plan(len(store))
            return Batches(plan, PointingCollator(store, tokenizer), self.train.seed, rank, ranks, self.train.prefetch)

        valid = split.valid
        return PreparedTask(
            recipe=self,
            model=self.assemble(folder),
            objective=PointingObjective(tokenizer),
            train=batches(split.train, rank, ranks),
            valid=None if valid is None else partial(batches, valid),
            notes=(*split.notes, f"a vocabulary of {len(tokenizer):,}"),
        )
