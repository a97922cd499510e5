"""From example numbers to batches, for the tasks whose rows are single examples: Translate, Label, Tag, Answer.

Each knows the `lengths` its rows will have, special tokens included, for Buckets to plan by; and how many examples its
`limit` cuts short: `truncated`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from regard.errors import SettingError
from regard.text.batches.batch import AnswerBatch, LabelledBatch, TaggedBatch, TranslationBatch
from regard.text.batches.layout import SingleText, check, pad_parts, room, shorten, stretch, tensor, with_special
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED

if TYPE_CHECKING:
    from regard.text.store.columns import Columns
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True, eq=False)
class Translate:
    """Translation pairs. `limit`: the most positions of a side, its added token included; longer texts lose their end.

    `target_special`: the ids of the target's tokenizer, where it is not the source's.
    """

    columns: Columns
    special: SpecialIds
    target_special: SpecialIds | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        check(self.special, "pad", "end", where="Translate")
        check(self.target_special or self.special, "pad", "start", "end", where="Translate")
        room(self.limit, 1, "Translate")

    @cached_property
    def lengths(self) -> np.ndarray:  # (n, 2)
        return np.minimum(self._whole, self._room) + 1

    @cached_property
    def truncated(self) -> int:
        return int((self._whole > self._room).any(1).sum())

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, ("source", "target"), self.limit)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> TranslationBatch:
        ours, theirs = self.special, self.target_special or self.special
        x, y = (stretch(self.columns[side], rows, self._room) for side in ("source", "target"))
        source = pad_parts([x, ours.need("end")], len(rows), ours.need("pad"))
        entering = pad_parts([theirs.need("start"), y], len(rows), theirs.need("pad"))
        leaving = pad_parts([y, theirs.need("end")], len(rows), IGNORED)
        return TranslationBatch(
            indices=tensor(rows),
            source=tensor(source.ids),
            source_lengths=tensor(source.lengths),
            target_in=tensor(entering.ids),
            target_out=tensor(leaving.ids),
            target_lengths=tensor(leaving.lengths),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self.lengths[rows, 1].sum())

    @cached_property
    def _room(self) -> int:
        return room(self.limit, 1, "Translate")

    @cached_property
    def _whole(self) -> np.ndarray:
        return np.stack([self.columns["source"].lengths, self.columns["target"].lengths], axis=1)


@dataclass(frozen=True, eq=False)
class Label:
    """[CLS] text [SEP], or [CLS] text [SEP] other [SEP] where the columns have "other"; the longer one gives way."""

    columns: Columns
    special: SpecialIds
    limit: int | None = None

    def __post_init__(self) -> None:
        check(self.special, "pad", "cls", "sep", where="Label")

    @cached_property
    def lengths(self) -> np.ndarray:  # (n,)
        return np.sum(self._kept, axis=0) + self._specials

    @cached_property
    def truncated(self) -> int:
        return int((np.sum(self._kept, axis=0) < np.sum(self._whole, axis=0)).sum())

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, (*self._sides, "label"), self.limit)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> LabelledBatch:
        texts = [
            stretch(self.columns[side], rows, kept[rows]) for side, kept in zip(self._sides, self._kept, strict=True)
        ]
        laid = pad_parts(with_special(texts, self.special), len(rows), self.special.need("pad"))
        labels = self.columns["label"]
        return LabelledBatch(
            indices=tensor(rows),
            inputs=tensor(laid.ids),
            lengths=tensor(laid.lengths),
            segments=tensor(laid.after(3) if len(texts) == 2 else np.zeros_like(laid.ids)),
            labels=tensor(labels.ids[labels.ends[rows] - 1]),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return len(rows)

    @cached_property
    def _sides(self) -> tuple[str, ...]:
        return ("text", "other") if "other" in self.columns else ("text",)

    @property
    def _specials(self) -> int:
        return 1 + len(self._sides)

    @cached_property
    def _whole(self) -> tuple[np.ndarray, ...]:
        return tuple(self.columns[side].lengths for side in self._sides)

    @cached_property
    def _kept(self) -> tuple[np.ndarray, ...]:
        places = room(self.limit, self._specials, "Label")
        return shorten(*self._whole, places) if len(self._whole) == 2 else (np.minimum(self._whole[0], places),)


@dataclass(frozen=True, eq=False)
class Tag(SingleText):
    """[CLS] pieces [SEP] with the tag of each word at its first piece; a limit cuts the end off, tags and all."""

    columns: Columns
    special: SpecialIds
    limit: int | None = None

    def __post_init__(self) -> None:
        check(self.special, "pad", "cls", "sep", where="Tag")

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, ("text", "tag"), self.limit)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> TaggedBatch:
        text, tags = (stretch(self.columns[name], rows, self._room) for name in ("text", "tag"))
        laid = pad_parts(with_special([text], self.special), len(rows), self.special.need("pad"))
        return TaggedBatch(
            indices=tensor(rows),
            inputs=tensor(laid.ids),
            lengths=tensor(laid.lengths),
            tags=tensor(pad_parts([IGNORED, tags, IGNORED], len(rows), IGNORED).ids),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        tags = pad_parts([stretch(self.columns["tag"], rows, self._room)], len(rows), IGNORED)
        return int((tags.ids != IGNORED).sum())


@dataclass(frozen=True, eq=False)
class Answer:
    """[CLS] question [SEP] passage [SEP] with the answer's place; a limit cuts the end of the passage off.

    An answer that is cut off with it is `lost`: refused, or left out by planning over `kept` alone.

    >>> collate = Answer(columns, special, limit=384, cut_off="leave out")
    >>> plan = Buckets(collate.lengths, budget=8192, among=collate.kept)          # len(collate.lost) are left out
    """

    columns: Columns
    special: SpecialIds
    limit: int | None = None
    cut_off: Literal["refuse", "leave out"] = "refuse"

    def __post_init__(self) -> None:
        check(self.special, "pad", "cls", "sep", where="Answer")
        if self.cut_off not in ("refuse", "leave out"):
            raise SettingError(f"cut_off={self.cut_off!r}", "'refuse' or 'leave out'", where="Answer")
        if len(self.lost) and self.cut_off == "refuse":
            raise SettingError(
                f"{len(self.lost)} answers cut off by limit={self.limit}, the first in example {self.lost[0]}",
                "every answer within it",
                where="Answer",
                advice="Raise the limit, or pass cut_off='leave out' and plan among collate.kept.",
            )

    @cached_property
    def lengths(self) -> np.ndarray:  # (n,)
        return self.columns["question"].lengths + self._kept_passage + 3

    @cached_property
    def truncated(self) -> int:
        return int((self.columns["passage"].lengths > self._kept_passage).sum())

    @cached_property
    def lost(self) -> np.ndarray:
        """The numbers of the examples whose answer is cut off."""
        return np.flatnonzero(self._spans[:, 1] >= self._kept_passage)

    @cached_property
    def kept(self) -> np.ndarray:
        """The numbers of all other examples."""
        return np.flatnonzero(self._spans[:, 1] < self._kept_passage)

    @cached_property
    def fingerprint(self) -> str:
        return data_fingerprint(self.columns, ("question", "passage", "span"), self.limit)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> AnswerBatch:
        spans, kept = self._spans[rows], self._kept_passage[rows]
        if (spans[:, 1] >= kept).any():
            row = rows[(spans[:, 1] >= kept).argmax()]
            raise SettingError(f"example {row}, its answer cut off", "examples of collate.kept", where="Answer")
        question, passage = stretch(self.columns["question"], rows), stretch(self.columns["passage"], rows, kept)
        laid = pad_parts(with_special([question, passage], self.special), len(rows), self.special.need("pad"))
        return AnswerBatch(
            indices=tensor(rows),
            inputs=tensor(laid.ids),
            lengths=tensor(laid.lengths),
            segments=tensor(laid.after(3)),
            starts=tensor(laid.begins[3] + spans[:, 0]),
            ends=tensor(laid.begins[3] + spans[:, 1]),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return len(rows)

    @cached_property
    def _spans(self) -> np.ndarray:  # (n, 2)
        return np.asarray(self.columns["span"].ids, dtype=np.int64).reshape(-1, 2)

    @cached_property
    def _kept_passage(self) -> np.ndarray:  # (n,); a question longer than the limit leaves nothing
        left = room(self.limit, 3, "Answer") - self.columns["question"].lengths
        return np.clip(self.columns["passage"].lengths, 0, np.maximum(left, 0))


def data_fingerprint(columns: Columns, names: tuple[str, ...], limit: int | None) -> str:
    """The fingerprint of these columns under this limit."""
    return fingerprint(*(part for name in names for part in (name, columns[name].ids, columns[name].ends)), limit)
