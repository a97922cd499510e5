"""Which tokens of a text are hidden and by what: masked language models (Devlin et al. 2019, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import SettingError
from regard.text.batches.batch import MaskedBatch
from regard.text.batches.layout import (
    Laid,
    SingleText,
    Stretch,
    check,
    pad_parts,
    places,
    stretch,
    tensor,
    with_special,
)
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch

if TYPE_CHECKING:
    from regard.text.store.columns import Columns
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True)
class Pieces:
    """Each piece is hidden for itself."""

    def units(self, columns: Columns, text: Stretch) -> Stretch:
        """For each token of the rows, a number: tokens of a row with the same number are hidden together."""
        row, place = places(text.lengths)
        return _aligned(text.starts[row] + place, text.lengths)


@dataclass(frozen=True)
class WholeWords:
    """The pieces of a word are hidden together; the columns must have "word", the word number of each piece."""

    def units(self, columns: Columns, text: Stretch) -> Stretch:
        if "word" not in columns:
            raise SettingError(
                'columns without "word"',
                "the word of each piece",
                where="WholeWords",
                advice="Make the columns with DocumentFields(tokenizer, words=spaced).",
            )
        words = columns["word"]
        row, place = places(text.lengths)
        where = text.starts[row] + place
        sentence = np.searchsorted(words.ends, where, side="right")  # words are counted anew in each
        goes_on = (words.ids[where[1:]] == words.ids[where[:-1]]) & (sentence[1:] == sentence[:-1])
        begins = np.flatnonzero(np.concatenate([[True], ~goes_on])[: len(where)])
        return _aligned(where[np.repeat(begins, np.diff(begins, append=len(where)))], text.lengths)


@dataclass(frozen=True)
class Masking:
    """Hides `rate` of the tokens that may be hidden, all but the specials: `masked` of those behind the mask token,
    `random` of them behind a random one that is no special; the rest stay as they are, to be predicted all the same.

    Every token is hidden with probability `rate` exactly, in short texts too: of n units in a text rate x n are hidden,
    rounded up or down by chance. Fresh each epoch, a function of seed, epoch and example alone.

    >>> Masking(tokenizer.special, len(tokenizer), units=WholeWords())
    """

    special: SpecialIds
    vocabulary: int
    rate: float = 0.15
    masked: float = 0.8
    random: float = 0.1
    units: Pieces | WholeWords = Pieces()

    def __post_init__(self) -> None:
        shares = {"rate": self.rate, "masked": self.masked, "random": self.random}
        for name, share in {**shares, "masked + random": self.masked + self.random}.items():
            if not 0 <= share <= 1 + 1e-9:  # 0.8 + 0.2 and the like may round up
                raise SettingError(f"{name}={share}", "a share from 0 to 1", where="Masking")
        check(self.special, "mask", where="Masking")
        if not len(self._words):
            raise SettingError(f"vocabulary={self.vocabulary}, all of it special", "some words too", where="Masking")

    def choose(self, ids: np.ndarray, units: np.ndarray, examples: np.ndarray, epoch: Epoch) -> np.ndarray:
        """(B, T) booleans: which of the tokens `ids` (B, T) are to be predicted, whole `units` (B, T) of them."""
        row, column = np.nonzero(~np.isin(ids, self._specials))
        begins = np.ones(len(row), dtype=bool)  # of a unit
        begins[1:] = (np.diff(row) != 0) | (np.diff(units[row, column]) != 0)
        owner = row[begins]  # of each unit
        counts = np.bincount(owner, minlength=len(ids))
        place = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        quota = np.floor(self.rate * counts + epoch.uniforms("masking: how many", examples))
        order = np.lexsort((epoch.uniforms("masking: which", examples[owner], place), owner))
        taken = np.empty(len(owner), dtype=bool)
        taken[order] = place < quota[owner]  # the smallest draws of each row; `order` leaves the rows in their places
        chosen = np.zeros(ids.shape, dtype=bool)
        chosen[row, column] = taken[np.cumsum(begins) - 1]
        return chosen

    def hide(self, ids: np.ndarray, examples: np.ndarray, places: np.ndarray, epoch: Epoch) -> np.ndarray:
        """What the model sees instead of these tokens, each at a place of an example."""
        fate = epoch.uniforms("masking: fate", examples, places)
        bits = epoch.hashes("masking: random token", examples, places)
        other = self._words[bits % np.uint64(len(self._words))]
        seen = np.where(fate < self.masked, self.special.need("mask"), other)
        return np.where(fate < self.masked + self.random, seen, ids)

    @cached_property
    def _specials(self) -> np.ndarray:
        return np.array(sorted(self.special.all), dtype=np.int64)

    @cached_property
    def _words(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.vocabulary), self._specials)


@dataclass(frozen=True, eq=False)
class Fill(SingleText):
    """The collate of masked texts: [CLS] text [SEP] with some tokens hidden; a limit cuts the end of a text off.

    >>> collate = Fill(columns, Masking(tokenizer.special, len(tokenizer)), limit=128)
    >>> batches = Batches(Buckets(collate.lengths, budget=8192), collate)
    """

    columns: Columns
    masking: Masking
    limit: int | None = None

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.columns["text"].ids, self.columns["text"].ends, self.limit, repr(self.masking))

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> MaskedBatch:
        laid, chosen = self._chosen(rows, epoch)
        return masked_batch(laid, chosen, rows, self.masking, epoch)

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self._chosen(rows, epoch)[1].sum())

    def _chosen(self, rows: np.ndarray, epoch: Epoch) -> tuple[Laid, np.ndarray]:
        return choose_in([stretch(self.columns["text"], rows, self._room)], self.columns, rows, self.masking, epoch)


def choose_in(
    texts: Sequence[Stretch], columns: Columns, examples: np.ndarray, masking: Masking, epoch: Epoch
) -> tuple[Laid, np.ndarray]:
    """[CLS] text [SEP], with another text [SEP] where there are two, and (B, T) which of their tokens to predict."""
    laid = pad_parts(with_special(texts, masking.special), len(examples), masking.special.need("pad"))
    units = [part for text in texts for part in (0, masking.units.units(columns, text))]
    return laid, masking.choose(laid.ids, pad_parts([*units, 0], len(examples), 0).ids, examples, epoch)


def masked_batch(
    laid: Laid,
    chosen: np.ndarray,
    examples: np.ndarray,
    masking: Masking,
    epoch: Epoch,
    follows: np.ndarray | None = None,
) -> MaskedBatch:
    """The batch in which the chosen tokens of these rows are hidden."""
    row, column = np.nonzero(chosen)
    inputs = laid.ids.copy()
    inputs[row, column] = masking.hide(laid.ids[row, column], examples[row], column, epoch)
    return MaskedBatch(
        indices=tensor(examples),
        inputs=tensor(inputs),
        lengths=tensor(laid.lengths),
        segments=tensor(laid.after(3) if len(laid.begins) > 3 else np.zeros_like(inputs)),
        positions=tensor(row * inputs.shape[1] + column),
        targets=tensor(laid.ids[row, column]),
        next=None if follows is None else tensor(follows),
    )


def _aligned(values: np.ndarray, lengths: np.ndarray) -> Stretch:
    """Values of all rows end to end, as a stretch of each row's own."""
    return Stretch(values, np.cumsum(lengths) - lengths, lengths)
