"""Classification with a trained run: the most likely label of each text or picture, or the number of a regression.

>>> Classifier.of("runs/bert-classifier")(["Even though the film was bad , the meal was good ."])[0].label
'positive'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.adapters import ClassifierAdapter, ImageClassifierAdapter, run_adapter
from regard.errors import SettingError

ROWS = 32  # texts in a batch


@dataclass(frozen=True, repr=False)
class ClassifiedText:
    """The likeliest label of a text or picture, and the probability of each; where labels are numbers, the estimate."""

    label: str | float
    probabilities: dict[str, float]

    def __repr__(self) -> str:
        shown = f", p={self.probabilities[self.label]:.3f}" if isinstance(self.label, str) else ""
        return f"ClassifiedText({self.label!r}{shown})"


@dataclass(frozen=True, eq=False)
class Classifier:
    """A trained classifier, whose adapter has the names of its classes or the scale of its numbers."""

    adapter: ClassifierAdapter

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Classifier:
        """The model of a run folder."""
        return cls(run_adapter(run, ClassifierAdapter, "classification"))

    @torch.no_grad()
    def __call__(self, texts: Sequence[str], others: Sequence[str] | None = None) -> list[ClassifiedText]:
        """A label for each text, or for each pair of a text and another."""
        if others is not None and len(others) != len(texts):
            raise SettingError(f"{len(texts)} texts and {len(others)} others", "as many of each", where="classify")
        encode, found = self.adapter.tokenizer.ids_batch, []
        for first in range(0, len(texts), ROWS):
            some = slice(first, first + ROWS)
            seconds = None if others is None else encode(others[some])
            inputs = self.adapter.build_inputs(encode(texts[some]), seconds, "classify")
            found += [self._classified(logits) for logits in self.adapter.model(*inputs).float()]
        return found

    def _classified(self, logits: Tensor) -> ClassifiedText:
        """logits (C,) of the classes, or a number in standard deviations (1,)."""
        found = self.adapter.interpret_logits(logits)
        if "estimate" in found:
            return ClassifiedText(found["estimate"], {})
        probabilities = dict(found["classes"])
        return ClassifiedText(max(probabilities, key=probabilities.__getitem__), probabilities)


@dataclass(frozen=True, eq=False)
class PictureClassifier:
    """A trained image classifier, whose adapter has the names of its classes."""

    adapter: ImageClassifierAdapter

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> PictureClassifier:
        """The model of a run folder."""
        return cls(run_adapter(run, ImageClassifierAdapter, "image-classification"))

    @property
    def size(self) -> int:
        """The side of the pictures that the model takes."""
        return int(self.adapter.model.encoder.size)

    @torch.no_grad()
    def __call__(self, pictures: Sequence[np.ndarray]) -> list[ClassifiedText]:
        """The class of each picture, uint8 (H, W, 3) of any size."""
        found = []
        for picture in pictures:
            shares = dict(self.adapter.probabilities(self.adapter.model(self.adapter.pixels(picture))[0]))
            found.append(ClassifiedText(max(shares, key=shares.__getitem__), shares))
        return found
