"""Padding: rows joined from special tokens and slices of columns, padded on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.text.store.columns import Columns, RaggedArray
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True, eq=False)
class PaddedRows:
    """Padded rows: `ids` (B, T) with T at least 1, `lengths` (B,), and where each part starts, (B,) each."""

    ids: np.ndarray
    lengths: np.ndarray
    part_starts: tuple[np.ndarray, ...]

    @property
    def is_token(self) -> np.ndarray:
        """(B, T): not padding."""
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]

    def segment_ids(self, part: int) -> np.ndarray:
        """(B, T): 1 from this part on, 0 before it and in padding; for [CLS] a [SEP] b [SEP], part 3 is b."""
        columns = np.arange(self.ids.shape[1])
        return ((columns >= self.part_starts[part][:, None]) & self.is_token).astype(np.int64)


@dataclass(frozen=True, eq=False)
class RowSlices:
    """A slice of the flat array `ids` for each row: `lengths` of them from `starts` on."""

    ids: np.ndarray
    starts: np.ndarray  # (B,)
    lengths: np.ndarray  # (B,)


def pad_parts(parts: Sequence[int | RowSlices], rows: int, pad: int) -> PaddedRows:
    """The parts of each row one after the other, then padding.

    >>> pad_parts([cls, slice_rows(columns["text"], rows), sep], len(rows), pad).ids      # [CLS] text [SEP]
    """
    sizes = [part.lengths if isinstance(part, RowSlices) else np.ones(rows, dtype=np.int64) for part in parts]
    begins = np.cumsum([np.zeros(rows, dtype=np.int64), *sizes], axis=0)  # (parts + 1, B)
    ids = np.full((rows, max(1, int(begins[-1].max(initial=0)))), pad, dtype=np.int64)
    for part, begin in zip(parts, begins, strict=False):
        if isinstance(part, RowSlices):
            row, place = rows_and_columns(part.lengths)
            ids[row, begin[row] + place] = part.ids[part.starts[row] + place]
        else:
            ids[np.arange(rows), begin] = part
    return PaddedRows(ids, begins[-1], tuple(begins[:-1]))


def pad_rows(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device | None = None, left: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of ids as one tensor (B, T), padded on the right or the left, and their lengths (B,).

    >>> pad_rows([[5, 6], [7]], pad=0)
    (tensor([[5, 6],
            [7, 0]]), tensor([2, 1]))
    """
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    fill = [[pad] * (longest - length) for length in lengths]
    padded = [[*more, *row] if left else [*row, *more] for row, more in zip(rows, fill, strict=True)]
    ids = torch.tensor(padded, dtype=torch.long, device=device).view(len(rows), longest)
    return ids, torch.tensor(lengths, dtype=torch.long, device=device)


def require_roles(special: SpecialIds, *roles: str, where: str) -> None:
    """Check that `special` is a SpecialIds (not the tokenizer itself) and has these roles."""
    if not hasattr(special, "need"):
        given = f"special of type {type(special).__name__}"
        raise SettingError(given, "the special ids of a tokenizer", where=where, advice="Pass tokenizer.special.")
    for role in roles:
        special.need(role)


def with_special(texts: Sequence[RowSlices], special: SpecialIds) -> list[int | RowSlices]:
    """The parts of a row with special tokens: [CLS], then each text and a [SEP]."""
    return [special.need("cls"), *(part for text in texts for part in (text, special.need("sep")))]


def slice_rows(column: RaggedArray, rows: np.ndarray, max_length: int | np.ndarray | None = None) -> RowSlices:
    """The sequences of these rows, each truncated to its first `max_length` ids."""
    starts = np.where(rows > 0, column.ends[rows - 1], 0)  # not column.lengths, which reads all the ends
    lengths = column.ends[rows] - starts
    return RowSlices(column.ids, starts, lengths if max_length is None else np.minimum(lengths, max_length))


class SingleTextCollator:
    """The base of collators of [CLS] text [SEP]: the row lengths, and how many texts `max_length` truncates."""

    columns: Columns
    max_length: int | None

    @cached_property
    def lengths(self) -> np.ndarray:  # (n,)
        return np.minimum(self.columns["text"].lengths, self._max_text) + 2

    @cached_property
    def truncated(self) -> int:
        return int((self.columns["text"].lengths > self._max_text).sum())

    @cached_property
    def _max_text(self) -> int:
        return text_limit(self.max_length, 2, type(self).__name__)


def truncate_pair(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """The lengths of two texts truncated to `room` tokens together: the longer one loses its end (BERT)."""
    kept = np.minimum(first, np.maximum(room - room // 2, room - second))
    return kept, np.minimum(second, room - kept)


def text_limit(max_length: int | None, specials: int, where: str) -> int:
    """The tokens that `max_length` leaves for text, after the special tokens."""
    if max_length is None:
        return np.iinfo(np.int64).max // 4
    if max_length <= specials:
        raise SettingError(f"max_length={max_length}", f"more than the {specials} special tokens of a row", where=where)
    return max_length - specials


def to_tensor(values: np.ndarray) -> torch.Tensor:
    """A copy, of integers as int64: a batch shares no memory with the columns or the plan it comes from."""
    dtype = np.float32 if np.issubdtype(values.dtype, np.floating) else np.int64
    return torch.from_numpy(np.array(values, dtype=dtype, order="C"))


def rows_and_columns(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row and the column of every id of a batch."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
