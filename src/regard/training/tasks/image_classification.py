"""The task "image-classification": a class for each picture."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from regard.errors import SettingError
from regard.pictures import ImageLabelBatch, ImageLabelCollator, ImageStore
from regard.text import Batches, Labels
from regard.training.objectives.image_classification import ImageClassificationObjective
from regard.training.recipe import PreparedTask, Recipe
from regard.training.section import LabelSmoothing
from regard.training.tasks.image_data import (
    AnyAugment,
    ImageBatches,
    ImageFolderData,
    LabelledImageTable,
    LabelledScenes,
    NoAugment,
    augment_of,
)
from regard.training.tasks.image_models import ImageClassifierModel


class ImageClassificationRecipe(Recipe):
    """A class for each picture. The run's recipe lists the classes, in order: data.labels."""

    task: Literal["image-classification"] = "image-classification"
    data: Annotated[LabelledScenes | ImageFolderData | LabelledImageTable, Field(discriminator="kind")] = (
        LabelledScenes()
    )
    augment: AnyAugment = NoAugment()
    model: ImageClassifierModel = ImageClassifierModel()
    objective: LabelSmoothing = LabelSmoothing()
    batches: ImageBatches = ImageBatches()

    def prepare(self, folder: Path, rank: int = 0, ranks: int = 1) -> PreparedTask:
        split = self.data.stores(folder)
        given = self.data.labels
        labels = Labels.of(split.train.texts) if given is None else Labels(tuple(given))
        if len(labels) < 2 or len(set(labels.names)) < len(labels):
            problem = f"The classes are {', '.join(labels.names) or 'none'}: two different ones or more are needed"
            raise SettingError(problem, where="data.labels")
        recipe = self.model_copy(update={"data": self.data.model_copy(update={"labels": list(labels.names)})})
        augment = augment_of(self.augment, self.data.size)

        def batches(store: ImageStore, train: bool, rank: int, ranks: int) -> Batches[ImageLabelBatch]:
            collate = ImageLabelCollator(store, labels, augment if train else None)
            return Batches(self.batches.plan(len(store)), collate, self.train.seed, rank, ranks, self.train.prefetch)

        train, valid = batches(split.train, True, rank, ranks), split.valid
        for store in (split.train, valid):  # labels that the recipe does not list are refused now
            for label in dict.fromkeys(() if store is None else store.texts):
                labels.number(label, "data")
        return PreparedTask(
            recipe=recipe,
            model=recipe.assemble(folder),
            objective=ImageClassificationObjective(labels, self.objective.label_smoothing),
            train=train,
            valid=None if valid is None else partial(batches, valid, False),
            notes=(*split.notes, f"{len(labels)} classes: {', '.join(labels.names)}"),
        )
