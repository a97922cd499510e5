"""Language models read a stream: all texts end to end, cut into lanes that go on from batch to batch, or into blocks.

A stream of L tokens has L - 1 targets, all but its first token, and each is a target exactly once an epoch. Nothing is
copied: a block reads its own stretch of the (memory-mapped) ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import SettingError
from regard.text.batches.batch import NOWHERE, BlockBatch
from regard.text.batches.layout import tensor
from regard.text.batches.plan import Computed, fingerprint
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED

if TYPE_CHECKING:
    from regard.text.store.columns import Columns


@dataclass(frozen=True, eq=False)
class Stream:
    """The ids of all texts end to end; with an `end` id, one before the first text and one after each.

    Stream.plain(columns) has nothing between texts, and its first token is nobody's target.
    Stream.lines(columns, end) closes every line, as for an LSTM on the Penn Treebank.
    Stream.documents(columns, end) closes every document, as for GPT.
    With an end id every token of every text is a target, and so is each text's end; the opening one is not.
    """

    ids: np.ndarray
    ends: np.ndarray  # (texts,): where each text ends in `ids`; may be memory-mapped too
    end: int | None = None

    @classmethod
    def plain(cls, columns: Columns, field: str = "text") -> Stream:
        return cls(columns[field].stream, columns[field].ends)

    @classmethod
    def lines(cls, columns: Columns, end: int, field: str = "text") -> Stream:
        return cls(columns[field].stream, columns[field].ends, end)

    @classmethod
    def documents(cls, columns: Columns, end: int, field: str = "text") -> Stream:
        if columns.documents is None:
            raise SettingError(
                "columns without documents",
                "columns of Document examples",
                where="Stream.documents",
                advice="Stream.lines takes every entry as a text of its own.",
            )
        until = np.asarray(columns.documents[1:])
        ends = columns[field].ends
        return cls(columns[field].stream, np.where(until > 0, ends[np.maximum(until, 1) - 1], 0), end)

    def __len__(self) -> int:
        return len(self.ids) if self.end is None else len(self.ids) + len(self.ends) + 1

    def read(self, places: np.ndarray) -> np.ndarray:
        """The tokens (rows, T) at these places of the stream."""
        if self.end is None:
            return self.ids[places].astype(np.int64)
        texts = self.texts(places)
        ends = self._openings(texts) == places
        inner = np.where(ends, 0, places - texts - 1)  # texts + 1 end tokens stand before it
        words = self.ids[inner].astype(np.int64) if len(self.ids) else inner
        return np.where(ends, self.end, words)

    def texts(self, places: np.ndarray) -> np.ndarray:
        """The number of the text at each place, (rows, T) in rising order; an end token counts to the text it opens."""
        edges = places[:, [0, -1]]
        outer = self._search(edges, np.zeros_like(edges), np.full_like(edges, len(self.ends)))
        return self._search(places, outer[:, :1], outer[:, 1:])  # few texts lie between the ends of a row

    def _search(self, places: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The last text from low to high that opens at the place or before it: bisection, all places at once."""
        while (low < high).any():
            middle = (low + high + 1) // 2
            opened = self._openings(middle) <= places
            low, high = np.where(opened, middle, low), np.where(opened, high, middle - 1)
        return np.broadcast_to(low, places.shape)

    def _openings(self, texts: np.ndarray) -> np.ndarray:
        """The place of the end token in front of each text; the last one, with no text behind it, closes the stream."""
        return np.where(texts > 0, self.ends[texts - 1], 0) + texts

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.ids, len(self.ends), self.ends[:: max(1, len(self.ends) // 1024)], self.end)


@dataclass(frozen=True, eq=False)
class Lanes:
    """A plan for recurrent models: the stream cut into `lanes` of equal length (to one token), read side by side.

    Each batch is the next `size` columns of every lane, so a row goes on where it ended in the batch before; the same
    in every epoch. Rank r reads lanes r::ranks throughout. After a change of ranks a rank finds the states of its
    lanes by their numbers, `batch.indices`.
    """

    stream: Stream
    size: int
    lanes: int

    def __post_init__(self) -> None:
        _at_least_one("Lanes", size=self.size, lanes=self.lanes)
        if self.lanes > len(self.stream) - 1:
            raise SettingError(
                f"lanes={self.lanes}", f"at most {len(self.stream) - 1}, the targets of the stream", where="Lanes"
            )

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint("lanes", len(self.stream), self.size, self.lanes)

    def __call__(self, epoch: Epoch) -> Sequence[np.ndarray]:
        cuts = 1 + np.arange(self.lanes + 1) * (len(self.stream) - 1) // self.lanes
        longest = int(np.diff(cuts).max())

        def batch(number: int) -> np.ndarray:
            starts = cuts[:-1] + number * self.size
            stops = np.minimum(starts + self.size, cuts[1:])
            return _rows(np.arange(self.lanes), np.minimum(starts, stops), stops, carried=number > 0)

        return Computed(-(-longest // self.size), batch)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A plan for Transformers: blocks of `size` targets in random order, `rows` a batch; other cuts in every epoch.

    The first and the last block of the stream are shorter where the cuts ask for it.
    """

    stream: Stream
    size: int
    rows: int

    def __post_init__(self) -> None:
        _at_least_one("Blocks", size=self.size, rows=self.rows)
        if len(self.stream) < 2:
            raise SettingError(f"a stream of {len(self.stream)} tokens", "at least 2", where="Blocks")

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint("blocks", len(self.stream), self.size, self.rows)

    def __call__(self, epoch: Epoch) -> Sequence[np.ndarray]:
        random = epoch.random("blocks")
        last = len(self.stream)
        shift = 1 - int(random.integers(self.size))  # where block 0 would start; the first target is at place 1
        order = random.permutation(-(-(last - shift) // self.size))

        def batch(number: int) -> np.ndarray:
            blocks = order[number * self.rows : (number + 1) * self.rows]
            starts = shift + blocks * self.size
            return _rows(blocks, np.maximum(starts, 1), np.minimum(starts + self.size, last), carried=False)

        return Computed(-(-len(order) // self.rows), batch)


@dataclass(frozen=True, eq=False)
class Read:
    """The collate of Lanes and Blocks: inputs, and their successors as targets. `pad` fills rows that end earlier."""

    stream: Stream
    pad: int = 0

    @cached_property
    def fingerprint(self) -> str:
        return self.stream.fingerprint

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> BlockBatch:
        _, starts, stops, carried = rows.T
        columns = np.arange(max(1, int((stops - starts).max(initial=0))) + 1)
        places = np.minimum(starts[:, None] - 1 + columns, stops[:, None] - 1)  # (B, T + 1)
        real = columns[1:] <= (stops - starts)[:, None]  # (B, T)
        tokens = self.stream.read(places)
        documents = None if self.stream.end is None else np.where(real, self.stream.texts(places[:, :-1]), NOWHERE)
        return BlockBatch(
            indices=tensor(rows[:, 0]),
            inputs=tensor(np.where(real, tokens[:, :-1], self.pad)),
            targets=tensor(np.where(real, tokens[:, 1:], IGNORED)),
            documents=None if documents is None else tensor(documents),
            carried=bool(carried.any()),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int((rows[:, 2] - rows[:, 1]).sum())


def _rows(numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray, carried: bool) -> np.ndarray:
    """(B, 4): the number of the lane or block, the places of its first target and after its last, and `carried`."""
    return np.stack([numbers, starts, stops, np.full(len(numbers), int(carried))], axis=1)


def _at_least_one(where: str, **settings: int) -> None:
    for name, value in settings.items():
        if value < 1:
            raise SettingError(f"{name}={value}", "at least 1", where=where)
