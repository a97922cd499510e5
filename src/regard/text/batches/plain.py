"""Collators of plain and of tagged texts; out-of-vocabulary (OOV) words come with their characters, for ELMo."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from regard.text.batches.batch import PlainBatch, SpelledTaggedBatch
from regard.text.batches.collate import TagCollator, data_fingerprint
from regard.text.batches.layout import SingleTextCollator, pad_parts, require_roles, slice_rows, to_tensor, with_special
from regard.text.batches.seeded_rng import Epoch
from regard.text.store.oov_fields import OOV, oov_words
from regard.text.tokenizers.char_ids import spell_words

if TYPE_CHECKING:
    from regard.text.store.columns import Columns
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True, eq=False)
class PlainCollator(SingleTextCollator):
    """Collates plain texts: [CLS] text [SEP]. `vocabulary`: its size, where the columns have OOV spellings."""

    columns: Columns
    special: SpecialIds
    vocabulary: int
    max_length: int | None = None

    def __post_init__(self) -> None:
        require_roles(self.special, "pad", "cls", "sep", where="PlainCollator")

    @cached_property
    def fingerprint(self) -> str:
        names = ("text", OOV) if OOV in self.columns else ("text",)
        return data_fingerprint(self.columns, names, self.max_length)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> PlainBatch:
        text = slice_rows(self.columns["text"], rows, self._max_text)
        padded = pad_parts(with_special([text], self.special), len(rows), self.special.need("pad"))
        ids, spellings = _number_oov(self.columns, rows, padded.ids, self.special.unknown, self.vocabulary)
        return PlainBatch(to_tensor(rows), to_tensor(ids), to_tensor(padded.lengths), spellings)

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self.lengths[rows].sum()) - len(rows)


@dataclass(frozen=True, eq=False)
class SpelledTagCollator(SingleTextCollator):
    """TagCollator, with the spellings of OOV words where the columns have them."""

    columns: Columns
    special: SpecialIds
    vocabulary: int
    max_length: int | None = None

    @cached_property
    def tag(self) -> TagCollator:
        return TagCollator(self.columns, self.special, self.max_length)

    @cached_property
    def fingerprint(self) -> str:
        names = ("text", "tag", OOV) if OOV in self.columns else ("text", "tag")
        return data_fingerprint(self.columns, names, self.max_length)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> SpelledTaggedBatch:
        made = self.tag(rows, epoch)
        ids, spellings = _number_oov(self.columns, rows, made.inputs.numpy(), self.special.unknown, self.vocabulary)
        return SpelledTaggedBatch(made.indices, to_tensor(ids), made.lengths, made.tags, spellings)

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return self.tag.tokens(rows, epoch)


def _number_oov(
    columns: Columns, rows: np.ndarray, ids: np.ndarray, unknown: int | None, vocabulary: int
) -> tuple[np.ndarray, Tensor | None]:
    """ids (B, T) with OOV words numbered from the vocabulary size on, and their spellings."""
    if OOV not in columns:
        return ids, None
    numbers: dict[str, int] = {}
    numbered = ids.copy()
    for place, row in enumerate(rows.tolist()):
        at = np.flatnonzero(ids[place] == unknown)  # fewer than the row's OOV words where it was truncated
        words = oov_words(columns, row)[: len(at)] if len(at) else []
        numbered[place, at] = [vocabulary + numbers.setdefault(word, len(numbers)) for word in words]
    return numbered, spell_words(list(numbers))
