"""What a classifier says of texts: each label, and how likely it holds it; or the number that it estimates.

>>> Classifier.of("runs/bert-classifier")(["Even though the film was bad , the meal was good ."])[0].label
'positive'
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.inspection.rows import rows_of
from regard.models.heads import OnText
from regard.runs.run import Run
from regard.text.corpora.labels import Labels, Scale
from regard.text.tokenizers.tokenizer import Tokenizer

ROWS = 32  # texts read at once


@dataclass(frozen=True)
class Classified:
    """The likeliest label of a text, and the probability of each; where labels are numbers, the one estimated."""

    label: str | float
    probabilities: dict[str, float]


@dataclass(frozen=True, eq=False)
class Classifier:
    """A trained classifier with its tokenizer and the names of its classes, or the scale of its numbers."""

    model: nn.Module
    tokenizer: Tokenizer
    labels: Labels | Scale

    @classmethod
    def of(cls, run: str | os.PathLike[str]) -> Classifier:
        """The model of a run folder."""
        opened = Run.open(run)
        opened.expect_task("classification")
        assert opened.labels is not None
        return cls(opened.model(), opened.tokenizer, opened.labels)

    @torch.no_grad()
    def __call__(self, texts: Sequence[str], others: Sequence[str] | None = None) -> list[Classified]:
        """A label for each text, or for each pair of a text and another."""
        if others is not None and len(others) != len(texts):
            raise SettingError(f"{len(texts)} texts and {len(others)} others", "as many of each", where="classify")
        longest = self.model.reading.bert.longest if isinstance(self.model, OnText) else None
        device = next(self.model.parameters()).device
        found = []
        for first in range(0, len(texts), ROWS):
            some = slice(first, first + ROWS)
            seconds = [None] * len(texts[some]) if others is None else self.tokenizer.ids_batch(others[some])
            ids = self.tokenizer.ids_batch(texts[some])
            rows = rows_of(ids, seconds, self.tokenizer.special, longest, "classify").to(device)
            found += [self._told(said) for said in self.model(*rows).float()]
        return found

    def _told(self, said: Tensor) -> Classified:
        """said (outputs,): logits of the classes, or a number in spreads."""
        if isinstance(self.labels, Scale):
            return Classified(self.labels.value(float(said)), {})
        named = dict(zip(self.labels.names, said.softmax(-1).tolist(), strict=True))
        return Classified(max(named, key=named.__getitem__), named)
