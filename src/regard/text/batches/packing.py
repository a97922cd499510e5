"""Sequence packing: several short texts in one row with hardly any padding, kept apart by documents and positions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from regard.errors import SettingError, unknown
from regard.text.batches.batch import NO_DOCUMENT, PackedBatch
from regard.text.batches.layout import rows_and_columns, to_tensor
from regard.text.batches.plan import LazySequence, fingerprint
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED

if TYPE_CHECKING:
    from regard.text.store.columns import Columns

TEXT, FIRST, LENGTH = range(3)  # a piece of text TEXT: LENGTH tokens from token FIRST on
LONG_SHARE = 8  # texts longer than an eighth of a row are placed first, in order of length; the others in random order


@dataclass(frozen=True, eq=False)
class Packing:
    """A batch plan of packed rows: `size` positions filled with texts, `rows` rows a batch; repacked every epoch.

    `lengths`: (n,), special tokens included, as `collate.lengths` gives them. A text longer than a row is cut into
    pieces of `size` tokens and a shorter one, each with its own positions and attention; or refused.

    >>> collate = PackingCollator(columns, size=512, end=tokenizer.special.need("end"))
    >>> plan = Packing(collate.lengths, size=512, rows=8)
    >>> plan.fill_rate(Epoch(seed=0))              # the share of positions that hold a token
    """

    lengths: np.ndarray
    size: int
    rows: int
    too_long: Literal["cut", "refuse"] = "cut"

    def __post_init__(self) -> None:
        if self.too_long not in ("cut", "refuse"):
            raise unknown(self.too_long, ("cut", "refuse"), kind="value of too_long", where="Packing")
        if self.size < 1 or self.rows < 1:
            raise SettingError(f"size={self.size}, rows={self.rows}", "at least 1 of each", where="Packing")
        if not np.any(self.lengths):
            raise SettingError("There are no tokens to pack: every text is empty", where="Packing")
        long = np.flatnonzero(np.asarray(self.lengths) > self.size)
        if len(long) and self.too_long == "refuse":
            raise SettingError(
                f"Some texts ({len(long)}) are longer than a row of {self.size} tokens, such as text {long[0]} with "
                f"{self.lengths[long[0]]}",
                where="Packing",
                advice="Raise size, or pass too_long='cut'.",
            )

    def __call__(self, epoch: Epoch) -> Sequence[np.ndarray]:
        """Batches (rows, pieces, 3): TEXT, FIRST, LENGTH of the pieces of each row, LENGTH 0 where there are fewer."""
        rng = epoch.rng("packing")
        owner, count = self._placed(rng)
        order = np.lexsort((rng.permutation(len(owner)), rng.permutation(count)[owner]))
        pieces = self._pieces[order]  # row by row, the rows in their new order
        places_of_row = np.flatnonzero(np.diff(owner[order], prepend=-1, append=-1))

        def batch(number: int) -> np.ndarray:
            ends = places_of_row[number * self.rows : (number + 1) * self.rows + 1]
            row, place = rows_and_columns(np.diff(ends))
            table = np.zeros((len(ends) - 1, int(np.diff(ends).max()), 3), dtype=np.int64)
            table[row, place] = pieces[ends[0] : ends[-1]]
            return table

        return LazySequence(-(-count // self.rows), batch)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint("packing", np.asarray(self.lengths), self.size, self.rows)

    def fill_rate(self, epoch: Epoch) -> float:
        """The share of an epoch's positions that hold a token."""
        _, count = self._placed(epoch.rng("packing"))
        return int(np.sum(self.lengths)) / (count * self.size)

    @cached_property
    def _pieces(self) -> np.ndarray:
        """(pieces, 3): every text, the long ones cut."""
        lengths = np.asarray(self.lengths, dtype=np.int64)
        text, number = rows_and_columns(-(-lengths // self.size))
        first = number * self.size
        return np.stack([text, first, np.minimum(lengths[text] - first, self.size)], axis=1)

    def _placed(self, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """The row of each piece, and how many rows there are."""
        sizes = self._pieces[:, LENGTH]
        order = rng.permutation(len(sizes))
        first = np.where(sizes * LONG_SHARE > self.size, -sizes, 0)[order]
        order = order[np.argsort(first, kind="stable")]
        rows, count = best_fit(sizes[order].tolist(), self.size)
        owner = np.empty(len(sizes), dtype=np.int64)
        owner[order] = rows
        return owner, count


def best_fit(sizes: Iterable[int], room: int) -> tuple[list[int], int]:
    """Best-fit bin packing: each size in turn goes into the fullest row that holds it; the row of each, and the count.

    `open_rows` is a number whose bit r is set when some row has exactly r places left; its lowest bit from the size
    on is the best fit, so a placement takes constant time in the number of rows.
    """
    by_room: list[list[int]] = [[] for _ in range(room + 1)]
    open_rows, count, placed = 0, 0, []
    for size in sizes:
        fitting = open_rows >> size
        if fitting:
            left = size + (fitting & -fitting).bit_length() - 1
            row = by_room[left].pop()
            if not by_room[left]:
                open_rows ^= 1 << left
        else:
            left, row, count = room, count, count + 1
        placed.append(row)
        if left > size:
            by_room[left - size].append(row)
            open_rows |= 1 << (left - size)
    return placed, count


@dataclass(frozen=True, eq=False)
class PackingCollator:
    """The collator of Packing: next-token batches. `start` and `end`: ids added around every text, where given.

    Every token is an input once, and a target once, except the first of each text (its start token, where given).
    """

    columns: Columns
    size: int
    start: int | None = None
    end: int | None = None
    pad: int = 0

    @cached_property
    def lengths(self) -> np.ndarray:  # (n,)
        return self.columns["text"].lengths + (self.start is not None) + (self.end is not None)

    @cached_property
    def fingerprint(self) -> str:
        text = self.columns["text"]
        return fingerprint(text.ids, text.ends, self.size, self.start, self.end)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> PackedBatch:
        lengths = rows[..., LENGTH]  # (B, pieces)
        if lengths.size and (longest := int(lengths.sum(1).max())) > self.size:
            raise SettingError(f"a row of {longest} tokens", f"at most size={self.size}", where="PackingCollator")
        piece, position = rows_and_columns(lengths.reshape(-1))  # of every token of the batch
        row, number = np.divmod(piece, max(1, lengths.shape[1]))
        column = (np.cumsum(lengths, axis=1) - lengths)[row, number] + position
        text, place = rows[row, number, TEXT], rows[row, number, FIRST] + position
        shape = (len(rows), self.size)
        inputs, targets = np.full(shape, self.pad), np.full(shape, IGNORED)
        documents, positions = np.full(shape, NO_DOCUMENT), np.zeros(shape, dtype=np.int64)
        inputs[row, column], targets[row, column] = self._token(text, place), self._token(text, place + 1)
        documents[row, column], positions[row, column] = number, position
        return PackedBatch(
            indices=to_tensor(rows[:, 0, TEXT]),
            inputs=to_tensor(inputs),
            targets=to_tensor(targets),
            documents=to_tensor(documents),
            positions=to_tensor(positions),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        lengths = rows[..., LENGTH]
        ends_text = (rows[..., FIRST] + lengths == self.lengths[rows[..., TEXT]]) & (lengths > 0)
        return int(lengths.sum() - ends_text.sum())

    def _token(self, text: np.ndarray, place: np.ndarray) -> np.ndarray:
        """The token at this place of each text, special tokens counted; IGNORED after its end."""
        column = self.columns["text"]
        starts = np.where(text > 0, column.ends[text - 1], 0)
        inner = place - (self.start is not None)
        size = column.ends[text] - starts
        tokens = np.full(len(text), IGNORED)
        tokens[inner < 0] = IGNORED if self.start is None else self.start
        tokens[inner == size] = IGNORED if self.end is None else self.end
        within = (inner >= 0) & (inner < size)
        tokens[within] = column.ids[(starts + inner)[within]]
        return tokens
