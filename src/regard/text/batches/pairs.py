"""Pairs of texts of which half follow each other: the next-sentence task (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import SettingError, ShapeError
from regard.text.batches.batch import MaskedBatch
from regard.text.batches.buckets import Buckets
from regard.text.batches.layout import Laid, Stretch, room, shorten
from regard.text.batches.masking import Masking, choose_in, masked_batch
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch

if TYPE_CHECKING:
    from regard.text.store.columns import Columns

SPECIALS = 3  # [CLS] a [SEP] b [SEP]
NUMBER, A, A_STOP, B, B_STOP, FOLLOWS = range(6)  # what the columns of a table of pairs hold


@dataclass(frozen=True, eq=False)
class Pairs:
    """A plan of pairs a, b within `limit` positions: in half of them b follows a, in half b is of another document.

    Every document of two sentences or more is cut into chunks of as many sentences as fit, two at least, and each chunk
    at a random sentence into a front and a rest. Two chunks of three give a true pair, front and rest; the third gives
    two false ones, front and rest each before a random stretch of another document. So true and false pairs differ in
    number by one at most, and every sentence of such a document is in some pair each epoch (its last one twice where
    it would stand alone). A document of one sentence only ever stands second, by chance.

    Only where a pair of single sentences is too long are they cut: the longer one, at its end; a stretch of another
    document is cut at its end to what room there is. Sentences without tokens are passed over.

    >>> pairs = Pairs(columns, limit=128, budget=8192)
    >>> batches = Batches(pairs, FillPairs(columns, Masking(special, vocabulary)))
    """

    columns: Columns
    limit: int
    budget: int

    def __post_init__(self) -> None:
        if self._room < 2 or self.budget < self.limit:
            raise SettingError(
                f"limit={self.limit}, budget={self.budget}",
                f"a limit of at least {SPECIALS + 2}, and a budget of at least the limit",
                where="Pairs",
            )
        if len(self._documents) < 3:
            raise SettingError(
                f"{len(self._documents) - 1} documents with text",
                "at least 2: half the pairs take their second text from another document",
                where="Pairs",
                advice="Separate the documents of the corpus by empty lines.",
            )
        if (np.diff(self._documents) < 2).all():
            raise SettingError("documents of one sentence each", "one of two sentences or more", where="Pairs")

    def __call__(self, epoch: Epoch) -> list[np.ndarray]:
        made = self.made(epoch)
        lengths = made[:, A_STOP] - made[:, A] + made[:, B_STOP] - made[:, B] + SPECIALS
        return [made[batch] for batch in Buckets(lengths, self.budget)(epoch)]

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint("pairs", self._edges, self._documents, self.limit, self.budget)

    def made(self, epoch: Epoch) -> np.ndarray:
        """(pairs, 6): the number of each pair of an epoch, where a and b start and stop in the stream of the tokens,
        and whether b follows a."""
        random = epoch.random("pairs")
        chunks = self._chunks(random)  # (chunks, 3): first sentence, the one after the last, document
        middles = random.integers(chunks[:, 0] + 1, chunks[:, 1])
        order = random.permutation(len(chunks))
        false, true = np.split(order, [(len(chunks) + 1) // 3])
        front = np.stack([chunks[:, 0], middles, chunks[:, 2]], axis=1)
        rest = np.stack([middles, chunks[:, 1], chunks[:, 2]], axis=1)
        pairs = [
            self._true(front[true], rest[true]),
            self._false(front[false], random),
            self._false(rest[false], random),
        ]
        table = np.concatenate(pairs)
        return np.concatenate([np.arange(len(table))[:, None], table], axis=1)

    def _chunks(self, random: np.random.Generator) -> np.ndarray:
        """(chunks, 3): the first sentence of each, the one after its last, and its document.

        The first chunk of a document that needs several has a random number of sentences, so that the others begin
        elsewhere each epoch.
        """
        fits = np.searchsorted(self._edges, self._edges[:-1] + self._room, side="right") - 1
        reach, chunks = fits.tolist(), []
        shares = random.random(len(self._documents) - 1).tolist()
        bounds = self._documents.tolist()
        for document, (begin, stop) in enumerate(pairwise(bounds)):
            if stop - begin < 2:
                continue
            most = reach[begin] - begin
            first = stop if reach[begin] >= stop else begin + 2 + int(shares[document] * (most - 1))
            while begin < stop:
                end = min(max(min(reach[begin], first), begin + 2), stop)
                chunks.append((min(begin, end - 2), end, document))
                begin, first = end, stop
        return np.array(chunks, dtype=np.int64)

    def _true(self, front: np.ndarray, rest: np.ndarray) -> np.ndarray:
        a, b = shorten(self._size(front), self._size(rest), self._room)
        return self._table(front[:, 0], a, rest[:, 0], b, follows=1)

    def _false(self, sentences: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """These sentences (n, 3), each before a stretch of another document, whole sentences where there is room."""
        owners = sentences[:, 2]
        others = random.integers(len(self._documents) - 2, size=len(owners))
        others += others >= owners
        begins = random.integers(self._documents[others], self._documents[others + 1])
        space = self._room - self._size(sentences)
        stops = np.searchsorted(self._edges, self._edges[begins] + space, side="right") - 1
        stops = np.clip(stops, begins + 1, self._documents[others + 1])
        a, b = self._size(sentences), self._edges[stops] - self._edges[begins]
        several = sentences[:, 1] - sentences[:, 0] > 1  # with the rest of their chunk they fit, so b has room
        cut_a, cut_b = shorten(a, b, self._room)
        return self._table(
            sentences[:, 0],
            np.where(several, a, cut_a),
            begins,
            np.where(several, np.minimum(b, space), cut_b),
            follows=0,
        )

    def _table(self, a: np.ndarray, a_size: np.ndarray, b: np.ndarray, b_size: np.ndarray, follows: int) -> np.ndarray:
        """(n, 5): texts from these sentences on, of these sizes, as places in the stream."""
        a, b = self._edges[a], self._edges[b]
        return np.stack([a, a + a_size, b, b + b_size, np.full(len(a), follows)], axis=1)

    def _size(self, sentences: np.ndarray) -> np.ndarray:
        return self._edges[sentences[:, 1]] - self._edges[sentences[:, 0]]

    @cached_property
    def _room(self) -> int:
        return room(self.limit, SPECIALS, "Pairs")

    @cached_property
    def _kept(self) -> np.ndarray:
        """The sentences that have tokens."""
        return np.flatnonzero(self.columns["text"].lengths)

    @cached_property
    def _edges(self) -> np.ndarray:  # (kept + 1,): where kept sentences begin and end in the stream
        return np.concatenate([[0], self.columns["text"].ends[self._kept]])

    @cached_property
    def _documents(self) -> np.ndarray:  # (documents + 1,): in kept sentences; documents without text are none
        if self.columns.documents is None:
            raise SettingError("columns without documents", "columns of Document examples", where="Pairs")
        return np.unique(np.searchsorted(self._kept, self.columns.documents))


@dataclass(frozen=True, eq=False)
class FillPairs:
    """The collate of Pairs: [CLS] a [SEP] b [SEP], with tokens hidden by `masking`; Masking(rate=0) hides none."""

    columns: Columns
    masking: Masking

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.columns["text"].ids, repr(self.masking))

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> MaskedBatch:
        if rows.ndim != 2:
            raise ShapeError(f"rows of shape {rows.shape}", "the rows of Pairs", where="FillPairs")
        laid, chosen = self._chosen(rows, epoch)
        return masked_batch(laid, chosen, rows[:, NUMBER], self.masking, epoch, follows=rows[:, FOLLOWS])

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self._chosen(rows, epoch)[1].sum())

    def _chosen(self, rows: np.ndarray, epoch: Epoch) -> tuple[Laid, np.ndarray]:
        ids = self.columns["text"].ids
        texts = [Stretch(ids, rows[:, at], rows[:, to] - rows[:, at]) for at, to in ((A, A_STOP), (B, B_STOP))]
        return choose_in(texts, self.columns, rows[:, NUMBER], self.masking, epoch)
