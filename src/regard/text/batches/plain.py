"""Batches of texts by themselves, and of tagged texts, whose words outside the vocabulary come with their spelling."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from regard.text.batches.batch import PlainBatch, SpelledTaggedBatch
from regard.text.batches.collate import Tag, data_fingerprint
from regard.text.batches.layout import SingleText, check, pad_parts, stretch, tensor, with_special
from regard.text.batches.seeded_rng import Epoch
from regard.text.store.oov_fields import outside_words
from regard.text.tokenizers.spelling import spelled_words

if TYPE_CHECKING:
    from regard.text.store.columns import Columns
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True, eq=False)
class Plain(SingleText):
    """[CLS] text [SEP]; a limit cuts the end off. `vocabulary`: its size, where the columns have "outside"."""

    columns: Columns
    special: SpecialIds
    vocabulary: int
    limit: int | None = None

    def __post_init__(self) -> None:
        check(self.special, "pad", "cls", "sep", where="Plain")

    @cached_property
    def fingerprint(self) -> str:
        names = ("text", "outside") if "outside" in self.columns else ("text",)
        return data_fingerprint(self.columns, names, self.limit)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> PlainBatch:
        text = stretch(self.columns["text"], rows, self._room)
        laid = pad_parts(with_special([text], self.special), len(rows), self.special.need("pad"))
        ids, spellings = _opened(self.columns, rows, laid.ids, self.special.unknown, self.vocabulary)
        return PlainBatch(tensor(rows), tensor(ids), tensor(laid.lengths), spellings)

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self.lengths[rows].sum()) - len(rows)


@dataclass(frozen=True, eq=False)
class TagSpelled(SingleText):
    """Tag, with spellings where the columns have "outside"."""

    columns: Columns
    special: SpecialIds
    vocabulary: int
    limit: int | None = None

    @cached_property
    def tag(self) -> Tag:
        return Tag(self.columns, self.special, self.limit)

    @cached_property
    def fingerprint(self) -> str:
        names = ("text", "tag", "outside") if "outside" in self.columns else ("text", "tag")
        return data_fingerprint(self.columns, names, self.limit)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> SpelledTaggedBatch:
        made = self.tag(rows, epoch)
        ids, spellings = _opened(self.columns, rows, made.inputs.numpy(), self.special.unknown, self.vocabulary)
        return SpelledTaggedBatch(made.indices, tensor(ids), made.lengths, made.tags, spellings)

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return self.tag.tokens(rows, epoch)


def _opened(
    columns: Columns, rows: np.ndarray, ids: np.ndarray, unknown: int | None, vocabulary: int
) -> tuple[np.ndarray, Tensor | None]:
    """ids (B, T) with every unknown word numbered from the size of the vocabulary on, and how those are spelled."""
    if "outside" not in columns:
        return ids, None
    numbers: dict[str, int] = {}
    opened = ids.copy()
    for place, row in enumerate(rows.tolist()):
        at = np.flatnonzero(ids[place] == unknown)  # fewer than the row has words outside, where it was cut
        words = outside_words(columns, row)[: len(at)] if len(at) else []
        opened[place, at] = [vocabulary + numbers.setdefault(word, len(numbers)) for word in words]
    return opened, spelled_words(list(numbers))
