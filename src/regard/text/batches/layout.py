"""Rows put together from parts, a special token or a stretch of a column each, and padded on the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.text.store.columns import Columns, Flat
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True, eq=False)
class Laid:
    """Rows laid out: `ids` (B, T) with T at least 1, `lengths` (B,), and where each part begins, (B,) each."""

    ids: np.ndarray
    lengths: np.ndarray
    begins: tuple[np.ndarray, ...]

    @property
    def real(self) -> np.ndarray:
        """(B, T): no padding here."""
        return np.arange(self.ids.shape[1]) < self.lengths[:, None]

    def after(self, part: int) -> np.ndarray:
        """(B, T): 1 from this part on, 0 before it and in padding; the segments of [CLS] a [SEP] b [SEP] by b."""
        columns = np.arange(self.ids.shape[1])
        return ((columns >= self.begins[part][:, None]) & self.real).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Stretch:
    """For each row, `lengths` of the numbers `ids`, from `starts` on."""

    ids: np.ndarray
    starts: np.ndarray  # (B,)
    lengths: np.ndarray  # (B,)


def pad_parts(parts: Sequence[int | Stretch], rows: int, pad: int) -> Laid:
    """The parts of each row one after the other, then padding.

    >>> pad_parts([cls, stretch(columns["text"], rows), sep], len(rows), pad).ids         # [CLS] text [SEP]
    """
    sizes = [part.lengths if isinstance(part, Stretch) else np.ones(rows, dtype=np.int64) for part in parts]
    begins = np.cumsum([np.zeros(rows, dtype=np.int64), *sizes], axis=0)  # (parts + 1, B)
    ids = np.full((rows, max(1, int(begins[-1].max(initial=0)))), pad, dtype=np.int64)
    for part, begin in zip(parts, begins, strict=False):
        if isinstance(part, Stretch):
            row, place = places(part.lengths)
            ids[row, begin[row] + place] = part.ids[part.starts[row] + place]
        else:
            ids[np.arange(rows), begin] = part
    return Laid(ids, begins[-1], tuple(begins[:-1]))


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


def check(special: SpecialIds, *roles: str, where: str) -> None:
    """Refuse what is no set of special ids, such as the tokenizer itself, or one that lacks a role."""
    if not hasattr(special, "need"):
        came = f"special of type {type(special).__name__}"
        raise SettingError(came, "the special ids of a tokenizer", where=where, advice="Pass tokenizer.special.")
    for role in roles:
        special.need(role)


def with_special(texts: Sequence[Stretch], special: SpecialIds) -> list[int | Stretch]:
    """The parts of a row: [CLS], and each text with [SEP] behind it."""
    return [special.need("cls"), *(part for text in texts for part in (text, special.need("sep")))]


def stretch(column: Flat, rows: np.ndarray, limit: int | np.ndarray | None = None) -> Stretch:
    """The sequences of these rows, each cut to its first `limit` numbers."""
    starts = np.where(rows > 0, column.ends[rows - 1], 0)  # not column.lengths, which reads all the ends
    lengths = column.ends[rows] - starts
    return Stretch(column.ids, starts, lengths if limit is None else np.minimum(lengths, limit))


class SingleText:
    """What collates of [CLS] text [SEP] share: the lengths of their rows, and how many the limit cuts short."""

    columns: Columns
    limit: int | None

    @cached_property
    def lengths(self) -> np.ndarray:  # (n,)
        return np.minimum(self.columns["text"].lengths, self._room) + 2

    @cached_property
    def truncated(self) -> int:
        return int((self.columns["text"].lengths > self._room).sum())

    @cached_property
    def _room(self) -> int:
        return room(self.limit, 2, type(self).__name__)


def shorten(first: np.ndarray, second: np.ndarray, room: int) -> tuple[np.ndarray, np.ndarray]:
    """How much is kept of two texts in `room` places: the longer one gives way, at its end (BERT)."""
    kept = np.minimum(first, np.maximum(room - room // 2, room - second))
    return kept, np.minimum(second, room - kept)


def room(limit: int | None, specials: int, where: str) -> int:
    """The places a limit leaves beside the special tokens."""
    if limit is None:
        return np.iinfo(np.int64).max // 4
    if limit <= specials:
        raise SettingError(f"limit={limit}", f"more than the {specials} special tokens of a row", where=where)
    return limit - specials


def tensor(values: np.ndarray) -> torch.Tensor:
    """A copy, of integers as int64: a batch shares no memory with the columns or the plan it was cut from."""
    dtype = np.float32 if np.issubdtype(values.dtype, np.floating) else np.int64
    return torch.from_numpy(np.array(values, dtype=dtype, order="C"))


def places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The row of every number of a batch, and its place in the row."""
    row = np.repeat(np.arange(len(lengths)), lengths)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
