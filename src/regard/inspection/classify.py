"""What a classifier says of texts: each label, and how likely it holds it; or the number that it estimates.

>>> Classifier.of("runs/bert-classifier")(["Even though the film was bad , the meal was good ."])[0].label
'positive'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.adapters import ClassifierAdapter, run_adapter
from regard.errors import SettingError

ROWS = 32  # texts read at once


@dataclass(frozen=True)
class Classified:
    """The likeliest label of a text, and the probability of each; where labels are numbers, the one estimated."""

    label: str | float
    probabilities: dict[str, float]


@dataclass(frozen=True, eq=False)
class Classifier:
    """A trained classifier, whose adapter knows the names of its classes or the scale of its numbers."""

    adapter: ClassifierAdapter

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Classifier:
        """The model of a run folder."""
        return cls(run_adapter(run, ClassifierAdapter, "classification"))

    @torch.no_grad()
    def __call__(self, texts: Sequence[str], others: Sequence[str] | None = None) -> list[Classified]:
        """A label for each text, or for each pair of a text and another."""
        if others is not None and len(others) != len(texts):
            raise SettingError(f"{len(texts)} texts and {len(others)} others", "as many of each", where="classify")
        encode, found = self.adapter.tokenizer.ids_batch, []
        for first in range(0, len(texts), ROWS):
            some = slice(first, first + ROWS)
            rows = self.adapter.rows(encode(texts[some]), None if others is None else encode(others[some]), "classify")
            found += [self._told(said) for said in self.adapter.model(*rows).float()]
        return found

    def _told(self, said: Tensor) -> Classified:
        """said (outputs,): logits of the classes, or a number in spreads."""
        judged = self.adapter.judged(said)
        if "estimate" in judged:
            return Classified(judged["estimate"], {})
        named = dict(judged["classes"])
        return Classified(max(named, key=named.__getitem__), named)
