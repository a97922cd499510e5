"""Masking for masked language models (MLM): of the chosen tokens 80% become the mask token, 10% a random token, 10%
stay (Devlin et al. 2019, 3.1); a training takes the rates from its recipe (MaskingSettings).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from regard.errors import SettingError
from regard.text.batches.batch import MaskedBatch
from regard.text.batches.layout import (
    PaddedRows,
    RowSlices,
    SingleTextCollator,
    pad_parts,
    require_roles,
    rows_and_columns,
    slice_rows,
    to_tensor,
    with_special,
)
from regard.text.batches.plan import fingerprint
from regard.text.batches.seeded_rng import Epoch

if TYPE_CHECKING:
    from regard.text.store.columns import Columns
    from regard.text.tokenizers.specials import SpecialIds


@dataclass(frozen=True)
class Pieces:
    """Each piece is masked independently."""

    def units(self, columns: Columns, text: RowSlices) -> RowSlices:
        """For each token of the rows, a number: tokens of a row with the same number are masked together."""
        row, place = rows_and_columns(text.lengths)
        return _as_slices(text.starts[row] + place, text.lengths)


@dataclass(frozen=True)
class WholeWords:
    """Whole-word masking; the columns must have "word", the word index of each piece."""

    def units(self, columns: Columns, text: RowSlices) -> RowSlices:
        if "word" not in columns:
            raise SettingError(
                'The columns have no "word", the word index of each piece',
                where="WholeWords",
                advice="Make them with DocumentFields(tokenizer, words=whitespace_words).",
            )
        words = columns["word"]
        row, place = rows_and_columns(text.lengths)
        where = text.starts[row] + place
        sentence = np.searchsorted(words.ends, where, side="right")  # word indices restart in each
        goes_on = (words.ids[where[1:]] == words.ids[where[:-1]]) & (sentence[1:] == sentence[:-1])
        begins = np.flatnonzero(np.concatenate([[True], ~goes_on])[: len(where)])
        return _as_slices(where[np.repeat(begins, np.diff(begins, append=len(where)))], text.lengths)


@dataclass(frozen=True)
class Masking:
    """Selects a share `mask_rate` of the tokens that are not special as targets: replaces `mask_token_rate` of them by
    the mask token, `random_token_rate` by a random token, and leaves the rest unchanged.

    Every token is selected with probability exactly `mask_rate`, in short texts too: of n units, mask_rate x n
    are selected, rounded up or down at random. New each epoch; a function of seed, epoch and example alone.

    >>> Masking(tokenizer.special, len(tokenizer), units=WholeWords())
    """

    special: SpecialIds
    vocabulary: int
    mask_rate: float = 0.15
    mask_token_rate: float = 0.8
    random_token_rate: float = 0.1
    units: Pieces | WholeWords = Pieces()

    def __post_init__(self) -> None:
        shares = {name: getattr(self, name) for name in ("mask_rate", "mask_token_rate", "random_token_rate")}
        replaced = self.mask_token_rate + self.random_token_rate
        for name, share in {**shares, "mask_token_rate + random_token_rate": replaced}.items():
            if not 0 <= share <= 1 + 1e-9:  # 0.8 + 0.2 and the like may round up
                raise SettingError(f"{name}={share}", "a share from 0 to 1", where="Masking")
        require_roles(self.special, "mask", where="Masking")
        if not len(self._words):
            raise SettingError(
                f"All {self.vocabulary} tokens of the vocabulary are special, so none can be masked", where="Masking"
            )

    def choose(self, ids: np.ndarray, units: np.ndarray, examples: np.ndarray, epoch: Epoch) -> np.ndarray:
        """(B, T) booleans: which of the tokens `ids` (B, T) are targets, by whole `units` (B, T)."""
        row, column = np.nonzero(~np.isin(ids, self._specials))
        begins = np.ones(len(row), dtype=bool)  # of a unit
        begins[1:] = (np.diff(row) != 0) | (np.diff(units[row, column]) != 0)
        owner = row[begins]  # of each unit
        counts = np.bincount(owner, minlength=len(ids))
        place = np.arange(len(owner)) - (np.cumsum(counts) - counts)[owner]
        quota = np.floor(self.mask_rate * counts + epoch.uniforms("masking: how many", examples))
        order = np.lexsort((epoch.uniforms("masking: which", examples[owner], place), owner))
        selected = np.empty(len(owner), dtype=bool)
        selected[order] = place < quota[owner]  # the smallest draws of each row; `order` keeps the rows in order
        chosen = np.zeros(ids.shape, dtype=bool)
        chosen[row, column] = selected[np.cumsum(begins) - 1]
        return chosen

    def replace(self, ids: np.ndarray, examples: np.ndarray, places: np.ndarray, epoch: Epoch) -> np.ndarray:
        """The inputs that replace these target tokens, each at a position of an example."""
        fate = epoch.uniforms("masking: fate", examples, places)
        bits = epoch.hashes("masking: random token", examples, places)
        other = self._words[bits % np.uint64(len(self._words))]
        replaced = np.where(fate < self.mask_token_rate, self.special.need("mask"), other)
        return np.where(fate < self.mask_token_rate + self.random_token_rate, replaced, ids)

    @cached_property
    def _specials(self) -> np.ndarray:
        return np.array(sorted(self.special.all), dtype=np.int64)

    @cached_property
    def _words(self) -> np.ndarray:
        return np.setdiff1d(np.arange(self.vocabulary), self._specials)


@dataclass(frozen=True, eq=False)
class MaskingCollator(SingleTextCollator):
    """The collator of a masked language model: [CLS] text [SEP] with masked tokens; longer texts are truncated.

    >>> collate = MaskingCollator(columns, Masking(tokenizer.special, len(tokenizer)), max_length=128)
    >>> batches = Batches(Buckets(collate.lengths, budget=8192), collate)
    """

    columns: Columns
    masking: Masking
    max_length: int | None = None

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.columns["text"].ids, self.columns["text"].ends, self.max_length, repr(self.masking))

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> MaskedBatch:
        padded, chosen = self._chosen(rows, epoch)
        return make_masked_batch(padded, chosen, rows, self.masking, epoch)

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return int(self._chosen(rows, epoch)[1].sum())

    def _chosen(self, rows: np.ndarray, epoch: Epoch) -> tuple[PaddedRows, np.ndarray]:
        return choose_targets(
            [slice_rows(self.columns["text"], rows, self._max_text)], self.columns, rows, self.masking, epoch
        )


def choose_targets(
    texts: Sequence[RowSlices], columns: Columns, examples: np.ndarray, masking: Masking, epoch: Epoch
) -> tuple[PaddedRows, np.ndarray]:
    """[CLS] text [SEP], with another text [SEP] where there are two, and (B, T) which tokens are targets."""
    padded = pad_parts(with_special(texts, masking.special), len(examples), masking.special.need("pad"))
    units = [part for text in texts for part in (0, masking.units.units(columns, text))]
    return padded, masking.choose(padded.ids, pad_parts([*units, 0], len(examples), 0).ids, examples, epoch)


def make_masked_batch(
    padded: PaddedRows,
    chosen: np.ndarray,
    examples: np.ndarray,
    masking: Masking,
    epoch: Epoch,
    follows: np.ndarray | None = None,
) -> MaskedBatch:
    """The batch in which the chosen tokens of these rows are masked."""
    row, column = np.nonzero(chosen)
    inputs = padded.ids.copy()
    inputs[row, column] = masking.replace(padded.ids[row, column], examples[row], column, epoch)
    return MaskedBatch(
        indices=to_tensor(examples),
        inputs=to_tensor(inputs),
        lengths=to_tensor(padded.lengths),
        segments=to_tensor(padded.segment_ids(3) if len(padded.part_starts) > 3 else np.zeros_like(inputs)),
        positions=to_tensor(row * inputs.shape[1] + column),
        targets=to_tensor(padded.ids[row, column]),
        next=None if follows is None else to_tensor(follows),
    )


def _as_slices(values: np.ndarray, lengths: np.ndarray) -> RowSlices:
    """Values of all rows end to end, as a slice for each row."""
    return RowSlices(values, np.cumsum(lengths) - lengths, lengths)
