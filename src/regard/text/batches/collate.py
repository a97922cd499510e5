"""Collators, from example numbers to padded batches: translation, classification, tagging, question answering.

Each has the `lengths` of its rows, special tokens included, for Buckets to plan with, and the number of examples that
`max_length` truncates: `truncated`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from regard.errors import SettingError, unknown
from regard.text.batches.batch import AnswerBatch, LabelledBatch, TaggedBatch, TranslationBatch
from regard.text.batches.layout import (
    SingleTextCollator,
    pad_parts,
    require_roles,
    slice_rows,
    text_limit,
    to_tensor,
    truncate_pair,
    with_special,
)
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED

if TYPE_CHECKING:
    from regard.text.store.columns import Columns
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True, eq=False)
class TranslationCollator:
    """Collates translation pairs. `max_length`: of each side, with its added token; longer texts are truncated.

    `target_special`: the special ids of the target tokenizer, if it differs from the source's.
    """

    columns: Columns
    special: SpecialIds
    target_special: SpecialIds | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        require_roles(self.special, "pad", "end", where="TranslationCollator")
        require_roles(self.target_special or self.special, "pad", "start", "end", where="TranslationCollator")
        text_limit(self.max_length, 1, "TranslationCollator")

    @cached_property
    def lengths(self) -> np.ndarray:  # (n, 2)
        return np.minimum(self._full_lengths, self._max_text) + 1

    @cached_property
    def truncated(self) -> int:
        return int((self._full_lengths > self._max_text).any(1).sum())

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, ("source", "target"), self.max_length)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> TranslationBatch:
        source_ids, target_ids = self.special, self.target_special or self.special
        x, y = (slice_rows(self.columns[side], rows, self._max_text) for side in ("source", "target"))
        source = pad_parts([x, source_ids.need("end")], len(rows), source_ids.need("pad"))
        target_in = pad_parts([target_ids.need("start"), y], len(rows), target_ids.need("pad"))
        target_out = pad_parts([y, target_ids.need("end")], len(rows), IGNORED)
        return TranslationBatch(
            indices=to_tensor(rows),
            source=to_tensor(source.ids),
            source_lengths=to_tensor(source.lengths),
            target_in=to_tensor(target_in.ids),
            target_out=to_tensor(target_out.ids),
            target_lengths=to_tensor(target_out.lengths),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self.lengths[rows, 1].sum())

    @cached_property
    def _max_text(self) -> int:
        return text_limit(self.max_length, 1, "TranslationCollator")

    @cached_property
    def _full_lengths(self) -> np.ndarray:
        return np.stack([self.columns["source"].lengths, self.columns["target"].lengths], axis=1)


@dataclass(frozen=True, eq=False)
class LabelCollator:
    """Collates labelled texts: [CLS] text [SEP], or [CLS] text [SEP] other [SEP]; the longer text is truncated."""

    columns: Columns
    special: SpecialIds
    max_length: int | None = None

    def __post_init__(self) -> None:
        require_roles(self.special, "pad", "cls", "sep", where="LabelCollator")

    @cached_property
    def lengths(self) -> np.ndarray:  # (n,)
        return np.sum(self._kept_lengths, axis=0) + self._special_count

    @cached_property
    def truncated(self) -> int:
        return int((np.sum(self._kept_lengths, axis=0) < np.sum(self._full_lengths, axis=0)).sum())

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, (*self._sides, "label"), self.max_length)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> LabelledBatch:
        texts = [
            slice_rows(self.columns[side], rows, kept[rows])
            for side, kept in zip(self._sides, self._kept_lengths, strict=True)
        ]
        padded = pad_parts(with_special(texts, self.special), len(rows), self.special.need("pad"))
        labels = self.columns["label"]
        return LabelledBatch(
            indices=to_tensor(rows),
            inputs=to_tensor(padded.ids),
            lengths=to_tensor(padded.lengths),
            segments=to_tensor(padded.segment_ids(3) if len(texts) == 2 else np.zeros_like(padded.ids)),
            labels=to_tensor(labels.ids[labels.ends[rows] - 1]),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return len(rows)

    @cached_property
    def _sides(self) -> tuple[str, ...]:
        return ("text", "other") if "other" in self.columns else ("text",)

    @property
    def _special_count(self) -> int:
        return 1 + len(self._sides)

    @cached_property
    def _full_lengths(self) -> tuple[np.ndarray, ...]:
        return tuple(self.columns[side].lengths for side in self._sides)

    @cached_property
    def _kept_lengths(self) -> tuple[np.ndarray, ...]:
        places = text_limit(self.max_length, self._special_count, "LabelCollator")
        return (
            truncate_pair(*self._full_lengths, places)
            if len(self._full_lengths) == 2
            else (np.minimum(self._full_lengths[0], places),)
        )


@dataclass(frozen=True, eq=False)
class TagCollator(SingleTextCollator):
    """Collates tagged words: [CLS] pieces [SEP], each word's tag at its first piece; longer texts are truncated."""

    columns: Columns
    special: SpecialIds
    max_length: int | None = None

    def __post_init__(self) -> None:
        require_roles(self.special, "pad", "cls", "sep", where="TagCollator")

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, ("text", "tag"), self.max_length)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> TaggedBatch:
        text, tags = (slice_rows(self.columns[name], rows, self._max_text) for name in ("text", "tag"))
        padded = pad_parts(with_special([text], self.special), len(rows), self.special.need("pad"))
        return TaggedBatch(
            indices=to_tensor(rows),
            inputs=to_tensor(padded.ids),
            lengths=to_tensor(padded.lengths),
            tags=to_tensor(pad_parts([IGNORED, tags, IGNORED], len(rows), IGNORED).ids),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        tags = pad_parts([slice_rows(self.columns["tag"], rows, self._max_text)], len(rows), IGNORED)
        return int((tags.ids != IGNORED).sum())


@dataclass(frozen=True, eq=False)
class AnswerCollator:
    """Collates questions: [CLS] question [SEP] passage [SEP] with the answer span; `max_length` truncates the passage.

    An example whose answer is truncated is refused, or left out: plan with the `answerable` examples alone.

    >>> collate = AnswerCollator(columns, special, max_length=384, cut_off="leave out")
    >>> plan = Buckets(collate.lengths, budget=8192, subset=collate.answerable)  # the others: collate.truncated_answers
    """

    columns: Columns
    special: SpecialIds
    max_length: int | None = None
    cut_off: Literal["refuse", "leave out"] = "refuse"

    def __post_init__(self) -> None:
        require_roles(self.special, "pad", "cls", "sep", where="AnswerCollator")
        if self.cut_off not in ("refuse", "leave out"):
            raise unknown(self.cut_off, ("refuse", "leave out"), kind="value of cut_off", where="AnswerCollator")
        if len(self.truncated_answers) and self.cut_off == "refuse":
            raise SettingError(
                f"max_length={self.max_length} cuts off some answers ({len(self.truncated_answers)}), the first in "
                f"example {self.truncated_answers[0]}",
                where="AnswerCollator",
                advice="Raise max_length, or pass cut_off='leave out' and plan with subset=collate.answerable.",
            )

    @cached_property
    def lengths(self) -> np.ndarray:  # (n,)
        return self.columns["question"].lengths + self._passage_lengths + 3

    @cached_property
    def truncated(self) -> int:
        return int((self.columns["passage"].lengths > self._passage_lengths).sum())

    @cached_property
    def truncated_answers(self) -> np.ndarray:
        """The numbers of the examples whose answer `max_length` cuts off."""
        return np.flatnonzero(self._spans[:, 1] >= self._passage_lengths)

    @cached_property
    def answerable(self) -> np.ndarray:
        """The numbers of all other examples."""
        return np.flatnonzero(self._spans[:, 1] < self._passage_lengths)

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, ("question", "passage", "span"), self.max_length)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> AnswerBatch:
        spans, kept = self._spans[rows], self._passage_lengths[rows]
        if (spans[:, 1] >= kept).any():
            row = rows[(spans[:, 1] >= kept).argmax()]
            raise SettingError(
                f"The answer of example {row} is cut off",
                where="AnswerCollator",
                advice="Plan with collate.answerable.",
            )
        question, passage = slice_rows(self.columns["question"], rows), slice_rows(self.columns["passage"], rows, kept)
        padded = pad_parts(with_special([question, passage], self.special), len(rows), self.special.need("pad"))
        return AnswerBatch(
            indices=to_tensor(rows),
            inputs=to_tensor(padded.ids),
            lengths=to_tensor(padded.lengths),
            segments=to_tensor(padded.segment_ids(3)),
            starts=to_tensor(padded.part_starts[3] + spans[:, 0]),
            ends=to_tensor(padded.part_starts[3] + spans[:, 1]),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return len(rows)

    @cached_property
    def _spans(self) -> np.ndarray:  # (n, 2)
        return np.asarray(self.columns["span"].ids, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def _passage_lengths(self) -> np.ndarray:  # (n,); a question longer than max_length leaves nothing
        left = text_limit(self.max_length, 3, "AnswerCollator") - self.columns["question"].lengths
        return np.clip(self.columns["passage"].lengths, 0, np.maximum(left, 0))


def data_fingerprint(columns: Columns, names: tuple[str, ...], max_length: int | None) -> str:
    """The fingerprint of these columns and `max_length`."""
    return fingerprint(*(part for name in names for part in (name, columns[name].ids, columns[name].ends)), max_length)
