"""Language model batches: a token stream, cut into lanes for truncated backpropagation (BPTT), or into blocks.

A stream of L tokens has L - 1 targets, all but its first token, and each is a target exactly once an epoch. Nothing is
copied: a block reads its segment of the (memory-mapped) ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import SettingError
from regard.text.batches.batch import NO_DOCUMENT, BlockBatch
from regard.text.batches.layout import to_tensor
from regard.text.batches.plan import LazySequence, fingerprint
from regard.text.batches.seeded_rng import Epoch
from regard.text.examples import IGNORED

if TYPE_CHECKING:
    from regard.text.store.columns import Columns


@dataclass(frozen=True, eq=False)
class TokenStream:
    """The ids of all texts end to end; with an `end` id, one before the first text and one after each.

    TokenStream.plain(columns) has nothing between texts; its first token is never a target.
    TokenStream.lines(columns, end) closes every line, as for an LSTM on the Penn Treebank.
    TokenStream.documents(columns, end) closes every document, as for GPT.
    With an end id every token of every text is a target, and so is each text's end; the opening one is not.
    """

    ids: np.ndarray
    ends: np.ndarray  # (texts,): where each text ends in `ids`; may be memory-mapped too
    end: int | None = None

    @classmethod
    def plain(cls, columns: Columns, field: str = "text") -> TokenStream:
        return cls(columns[field].stream, columns[field].ends)

    @classmethod
    def lines(cls, columns: Columns, end: int, field: str = "text") -> TokenStream:
        return cls(columns[field].stream, columns[field].ends, end)

    @classmethod
    def documents(cls, columns: Columns, end: int, field: str = "text") -> TokenStream:
        if columns.documents is None:
            raise SettingError(
                "The columns have no document boundaries",
                where="TokenStream.documents",
                advice="Make them with DocumentFields, or use TokenStream.lines, which takes every entry as a text.",
            )
        until = np.asarray(columns.documents[1:])
        ends = columns[field].ends
        return cls(columns[field].stream, np.where(until > 0, ends[np.maximum(until, 1) - 1], 0), end)

    def __len__(self) -> int:
        return len(self.ids) if self.end is None else len(self.ids) + len(self.ends) + 1

    def read(self, places: np.ndarray) -> np.ndarray:
        """The tokens (rows, T) at these positions of the stream."""
        if self.end is None:
            return self.ids[places].astype(np.int64)
        texts = self.texts(places)
        ends = self._openings(texts) == places
        inner = np.where(ends, 0, places - texts - 1)  # texts + 1 end tokens stand before it
        words = self.ids[inner].astype(np.int64) if len(self.ids) else inner
        return np.where(ends, self.end, words)

    def texts(self, places: np.ndarray) -> np.ndarray:
        """The number of the text at each position, (rows, T), ascending; an end token belongs to the text after it."""
        edges = places[:, [0, -1]]
        outer = self._search(edges, np.zeros_like(edges), np.full_like(edges, len(self.ends)))
        return self._search(places, outer[:, :1], outer[:, 1:])  # few texts lie between the ends of a row

    def _search(self, places: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """The last text from low to high that starts at or before each position: bisection, all positions at once."""
        while (low < high).any():
            middle = (low + high + 1) // 2
            opened = self._openings(middle) <= places
            low, high = np.where(opened, middle, low), np.where(opened, high, middle - 1)
        return np.broadcast_to(low, places.shape)

    def _openings(self, texts: np.ndarray) -> np.ndarray:
        """The position of the end token before each text; the last one closes the stream."""
        return np.where(texts > 0, self.ends[texts - 1], 0) + texts

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.ids, len(self.ends), self.ends[:: max(1, len(self.ends) // 1024)], self.end)


@dataclass(frozen=True, eq=False)
class Lanes:
    """A batch plan for recurrent models: the stream cut into `lanes` of equal length, read in parallel.

    Each batch is the next `size` columns of every lane, so a row continues where it ended in the batch before; the
    same in every epoch. Rank r reads lanes r::ranks throughout. After a change of ranks a rank finds the states of its
    lanes by their numbers, `batch.indices`.
    """

    stream: TokenStream
    size: int
    lanes: int

    def __post_init__(self) -> None:
        _require_positive("Lanes", size=self.size, lanes=self.lanes)
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
            return _block_table(np.arange(self.lanes), np.minimum(starts, stops), stops, carried=number > 0)

        return LazySequence(-(-longest // self.size), batch)


@dataclass(frozen=True, eq=False)
class TokenBlocks:
    """A batch plan for Transformers: blocks of `size` targets in random order, `rows` a batch; cut anew in every epoch.

    The first and the last block of the stream may be shorter.
    """

    stream: TokenStream
    size: int
    rows: int

    def __post_init__(self) -> None:
        _require_positive("TokenBlocks", size=self.size, rows=self.rows)
        if len(self.stream) < 2:
            raise SettingError(f"a stream of {len(self.stream)} tokens", "at least 2", where="TokenBlocks")

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint("blocks", len(self.stream), self.size, self.rows)

    def __call__(self, epoch: Epoch) -> Sequence[np.ndarray]:
        rng = epoch.rng("blocks")
        last = len(self.stream)
        shift = 1 - int(rng.integers(self.size))  # where block 0 would start; the first target is at place 1
        order = rng.permutation(-(-(last - shift) // self.size))

        def batch(number: int) -> np.ndarray:
            blocks = order[number * self.rows : (number + 1) * self.rows]
            starts = shift + blocks * self.size
            return _block_table(blocks, np.maximum(starts, 1), np.minimum(starts + self.size, last), carried=False)

        return LazySequence(-(-len(order) // self.rows), batch)


@dataclass(frozen=True, eq=False)
class BlockCollator:
    """The collator of Lanes and TokenBlocks: inputs, and the next tokens as targets. `pad` fills shorter rows."""

    stream: TokenStream
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
        documents = None if self.stream.end is None else np.where(real, self.stream.texts(places[:, :-1]), NO_DOCUMENT)
        return BlockBatch(
            indices=to_tensor(rows[:, 0]),
            inputs=to_tensor(np.where(real, tokens[:, :-1], self.pad)),
            targets=to_tensor(np.where(real, tokens[:, 1:], IGNORED)),
            documents=None if documents is None else to_tensor(documents),
            carried=bool(carried.any()),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int((rows[:, 2] - rows[:, 1]).sum())


def _block_table(numbers: np.ndarray, starts: np.ndarray, stops: np.ndarray, carried: bool) -> np.ndarray:
    """(B, 4): the number of the lane or block, the positions of its first target and after its last, and `carried`."""
    return np.stack([numbers, starts, stops, np.full(len(numbers), int(carried))], axis=1)


def _require_positive(where: str, **settings: int) -> None:
    for name, value in settings.items():
        if value < 1:
            raise SettingError(f"{name}={value}", "at least 1", where=where)
