"""Next-sentence pairs: half follow each other, half come from two documents (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import SettingError, ShapeError
from regard.text.batches.batch import MaskedBatch
from regard.text.batches.buckets import Buckets
from regard.text.batches.layout import PaddedRows, RowSlices, text_limit, truncate_pair
from regard.text.batches.masking import Masking, choose_targets, make_masked_batch
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch

if TYPE_CHECKING:
    from regard.text.store.columns import Columns

SPECIALS = 3  # [CLS] a [SEP] b [SEP]
NUMBER, FIRST, FIRST_STOP, SECOND, SECOND_STOP, FOLLOWS = range(6)  # the columns of a table of pairs


@dataclass(frozen=True, eq=False)
class NextSentencePairs:
    """A batch plan of pairs a, b of at most `max_length` positions: in half of them b follows a, in half b is random.

    Every document of two sentences or more is cut into chunks of as many sentences as fit, two at least, and each chunk
    at a random sentence into a front and a rest. Two chunks of three give a true pair, front and rest; the third gives
    two false ones, front and rest each followed by a random span of another document. So true and false pairs differ in
    number by at most one, and every sentence of such a document is in some pair each epoch (the last one twice where it
    would be left over). A document of one sentence only occurs as a random second text.

    A pair of single sentences that is too long is truncated, the longer one first; a span of another document is
    truncated to the remaining length. Sentences without tokens are skipped.

    >>> pairs = NextSentencePairs(columns, max_length=128, budget=8192)
    >>> batches = Batches(pairs, NextSentenceCollator(columns, Masking(special, vocabulary)))
    """

    columns: Columns
    max_length: int
    budget: int

    def __post_init__(self) -> None:
        if self._max_text < 2 or self.budget < self.max_length:
            raise SettingError(
                f"max_length={self.max_length}, budget={self.budget}",
                f"max_length of at least {SPECIALS + 2}, and a budget of at least max_length",
                where="NextSentencePairs",
            )
        if len(self._documents) < 3:
            raise SettingError(
                f"{len(self._documents) - 1} documents with text",
                "at least 2, because half the pairs take their second text from another document",
                where="NextSentencePairs",
                advice="Separate the documents of the corpus by empty lines.",
            )
        if (np.diff(self._documents) < 2).all():
            raise SettingError(
                "Every document has a single sentence, so no sentence follows another",
                where="NextSentencePairs",
                advice="Write each sentence on a line of its own, with an empty line between documents.",
            )

    def __call__(self, epoch: Epoch) -> list[np.ndarray]:
        table = self.pairs(epoch)
        lengths = table[:, FIRST_STOP] - table[:, FIRST] + table[:, SECOND_STOP] - table[:, SECOND] + SPECIALS
        return [table[batch] for batch in Buckets(lengths, self.budget)(epoch)]

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint("pairs", self._edges, self._documents, self.max_length, self.budget)

    def pairs(self, epoch: Epoch) -> np.ndarray:
        """(pairs, 6): the number of each pair of an epoch, where a and b start and stop in the stream of the tokens,
        and whether b follows a."""
        rng = epoch.rng("pairs")
        chunks = self._chunks(rng)  # (chunks, 3): first sentence, the one after the last, document
        middles = rng.integers(chunks[:, 0] + 1, chunks[:, 1])
        order = rng.permutation(len(chunks))
        false, true = np.split(order, [(len(chunks) + 1) // 3])
        front = np.stack([chunks[:, 0], middles, chunks[:, 2]], axis=1)
        rest = np.stack([middles, chunks[:, 1], chunks[:, 2]], axis=1)
        pairs = [
            self._true(front[true], rest[true]),
            self._false(front[false], rng),
            self._false(rest[false], rng),
        ]
        table = np.concatenate(pairs)
        return np.concatenate([np.arange(len(table))[:, None], table], axis=1)

    def _chunks(self, rng: np.random.Generator) -> np.ndarray:
        """(chunks, 3): the first sentence of each, the one after its last, and its document.

        The first chunk of a document that needs several has a random number of sentences, so that the others begin
        elsewhere each epoch.
        """
        fits = np.searchsorted(self._edges, self._edges[:-1] + self._max_text, side="right") - 1
        reach, chunks = fits.tolist(), []
        shares = rng.random(len(self._documents) - 1).tolist()
        bounds = self._documents.tolist()
        for document, (begin, stop) in enumerate(pairwise(bounds)):
            if stop - begin < 2:
                continue
            longest = reach[begin] - begin
            first = stop if reach[begin] >= stop else begin + 2 + int(shares[document] * (longest - 1))
            while begin < stop:
                end = min(max(min(reach[begin], first), begin + 2), stop)
                chunks.append((min(begin, end - 2), end, document))
                begin, first = end, stop
        return np.array(chunks, dtype=np.int64)

    def _true(self, front: np.ndarray, rest: np.ndarray) -> np.ndarray:
        a, b = truncate_pair(self._size(front), self._size(rest), self._max_text)
        return self._table(front[:, 0], a, rest[:, 0], b, follows=1)

    def _false(self, sentences: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """These sentences (n, 3), each followed by a span of another document, in whole sentences where they fit."""
        owners = sentences[:, 2]
        others = rng.integers(len(self._documents) - 2, size=len(owners))
        others += others >= owners
        begins = rng.integers(self._documents[others], self._documents[others + 1])
        space = self._max_text - self._size(sentences)
        stops = np.searchsorted(self._edges, self._edges[begins] + space, side="right") - 1
        stops = np.clip(stops, begins + 1, self._documents[others + 1])
        a, b = self._size(sentences), self._edges[stops] - self._edges[begins]
        multiple = sentences[:, 1] - sentences[:, 0] > 1  # with the rest of their chunk they fit, so b has room
        cut_a, cut_b = truncate_pair(a, b, self._max_text)
        return self._table(
            sentences[:, 0],
            np.where(multiple, a, cut_a),
            begins,
            np.where(multiple, np.minimum(b, space), cut_b),
            follows=0,
        )

    def _table(self, a: np.ndarray, a_size: np.ndarray, b: np.ndarray, b_size: np.ndarray, follows: int) -> np.ndarray:
        """(n, 5): texts from these sentences on, of these sizes, as positions in the stream."""
        a, b = self._edges[a], self._edges[b]
        return np.stack([a, a + a_size, b, b + b_size, np.full(len(a), follows)], axis=1)

    def _size(self, sentences: np.ndarray) -> np.ndarray:
        return self._edges[sentences[:, 1]] - self._edges[sentences[:, 0]]

    @cached_property
    def _max_text(self) -> int:
        return text_limit(self.max_length, SPECIALS, "NextSentencePairs")

    @cached_property
    def _nonempty(self) -> np.ndarray:
        """The sentences that have tokens."""
        return np.flatnonzero(self.columns["text"].lengths)

    @cached_property
    def _edges(self) -> np.ndarray:  # (kept + 1,): where kept sentences begin and end in the stream
        return np.concatenate([[0], self.columns["text"].ends[self._nonempty]])

    @cached_property
    def _documents(self) -> np.ndarray:  # (documents + 1,): in kept sentences; documents without text are left out
        if self.columns.documents is None:
            raise SettingError(
                "The columns have no document boundaries",
                where="NextSentencePairs",
                advice="Make them with DocumentFields.",
            )
        return np.unique(np.searchsorted(self._nonempty, self.columns.documents))


@dataclass(frozen=True, eq=False)
class NextSentenceCollator:
    """The collator of NextSentencePairs: [CLS] a [SEP] b [SEP], masked by `masking` (rate=0: not at all)."""

    columns: Columns
    masking: Masking

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.columns["text"].ids, repr(self.masking))

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> MaskedBatch:
        if rows.ndim != 2:
            raise ShapeError(
                f"rows of shape {rows.shape}", "the rows of NextSentencePairs", where="NextSentenceCollator"
            )
        padded, chosen = self._chosen(rows, epoch)
        return make_masked_batch(padded, chosen, rows[:, NUMBER], self.masking, epoch, follows=rows[:, FOLLOWS])

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self._chosen(rows, epoch)[1].sum())

    def _chosen(self, rows: np.ndarray, epoch: Epoch) -> tuple[PaddedRows, np.ndarray]:
        ids = self.columns["text"].ids
        texts = [
            RowSlices(ids, rows[:, at], rows[:, to] - rows[:, at])
            for at, to in ((FIRST, FIRST_STOP), (SECOND, SECOND_STOP))
        ]
        return choose_targets(texts, self.columns, rows[:, NUMBER], self.masking, epoch)
