"""Batches of pictures, and the collators that make them: with captions, with labels, with phrases that refer to a part.

Letters as in `regard.text`: B rows, T positions; H, W pixels. Pixels stay bytes until the model has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b

import numpy as np
import torch
from torch import Tensor

from regard.errors import SettingError
from regard.pictures.augment import Augment
from regard.pictures.image_store import NO_REGION, ImageStore
from regard.text import IGNORED, Batch, Epoch, Labels, Tokenizer, pad_rows


@dataclass(frozen=True, eq=False, repr=False)
class CaptionBatch(Batch):
    """Pictures with captions, for teacher forcing: target_in = start + y, target_out = y + end, padded with IGNORED.

    `regions` and `words`, where gold regions are known: the regions of each picture, and for each target the number of
    the one of which it speaks, or NO_REGION.
    """

    pixels: Tensor  # (B, H, W, 3) uint8
    target_in: Tensor  # (B, T)
    target_out: Tensor  # (B, T)
    target_lengths: Tensor  # (B,)
    regions: Tensor | None = None  # (B, R, H, W) bool
    words: Tensor | None = None  # (B, T)

    def count(self) -> int:
        return int(self.target_lengths.sum())


@dataclass(frozen=True, eq=False, repr=False)
class ImageLabelBatch(Batch):
    """Pictures with a class each."""

    pixels: Tensor  # (B, H, W, 3) uint8
    labels: Tensor  # (B,)


@dataclass(frozen=True, eq=False, repr=False)
class PointingBatch(Batch):
    """Pictures with a phrase each, [CLS] phrase [SEP], and the region to which it refers."""

    pixels: Tensor  # (B, H, W, 3) uint8
    phrases: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    regions: Tensor  # (B, H, W) bool


@dataclass(frozen=True, eq=False)
class CaptionCollator:
    """Collates pictures and captions; longer captions are truncated to `max_length` tokens, the end included."""

    store: ImageStore
    tokenizer: Tokenizer
    max_length: int | None = None
    augment: Augment | None = None

    @cached_property
    def fingerprint(self) -> str:
        return _fingerprint(self.store, self.tokenizer.fingerprint, self.max_length, self.augment)

    @cached_property
    def ids(self) -> list[list[int]]:
        room = None if self.max_length is None else max(0, self.max_length - 1)
        return [list(ids)[:room] for ids in self.tokenizer.ids_batch(list(self.store.texts))]

    @cached_property
    def truncated(self) -> int:
        if self.max_length is None:
            return 0
        return sum(len(ids) >= self.max_length for ids in self.tokenizer.ids_batch(list(self.store.texts)))

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> CaptionBatch:
        special, given = self.tokenizer.special, [self.ids[row] for row in rows.tolist()]
        start, end = special.need("start"), special.need("end")
        target_in, lengths = _padded([[start, *ids] for ids in given], special.need("pad"))
        target_out, _ = _padded([[*ids, end] for ids in given], IGNORED)
        regions = words = None
        if self.store.packed_regions is not None and self.augment is None:
            regions = torch.from_numpy(self.store.regions(rows))
            numbers = [self._regions_of_tokens(row)[: len(ids)] for row, ids in zip(rows.tolist(), given, strict=True)]
            words, _ = _padded([[*some, NO_REGION] for some in numbers], NO_REGION)
        return CaptionBatch(
            indices=torch.from_numpy(rows.astype(np.int64)),
            pixels=_pixels(self.store, rows, epoch, self.augment),
            target_in=target_in,
            target_out=target_out,
            target_lengths=lengths,
            regions=regions,
            words=words,
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return sum(len(self.ids[row]) + 1 for row in rows.tolist())

    def _regions_of_tokens(self, row: int) -> list[int]:
        """The region of each token of a caption: that of its word."""
        known = self.store.words[row]
        words = self.tokenizer.encode(self.store.texts[row]).words
        return [known[word] if 0 <= word < len(known) else NO_REGION for word in words]


@dataclass(frozen=True, eq=False)
class ImageLabelCollator:
    """Collates pictures and their classes."""

    store: ImageStore
    labels: Labels
    augment: Augment | None = None

    @cached_property
    def fingerprint(self) -> str:
        return _fingerprint(self.store, self.labels.names, self.augment)

    @cached_property
    def numbers(self) -> np.ndarray:
        return np.array([self.labels.number(text) for text in self.store.texts], np.int64)

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> ImageLabelBatch:
        return ImageLabelBatch(
            indices=torch.from_numpy(rows.astype(np.int64)),
            pixels=_pixels(self.store, rows, epoch, self.augment),
            labels=torch.from_numpy(self.numbers[rows]),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return len(rows)


@dataclass(frozen=True, eq=False)
class PointingCollator:
    """Collates pictures, phrases, and the regions that these refer to."""

    store: ImageStore
    tokenizer: Tokenizer

    def __post_init__(self) -> None:
        if self.store.packed_regions is None:
            raise SettingError("These pictures have no gold regions, which pointing needs", where="PointingCollator")

    @cached_property
    def fingerprint(self) -> str:
        return _fingerprint(self.store, self.tokenizer.fingerprint)

    @cached_property
    def ids(self) -> list[list[int]]:
        special = self.tokenizer.special
        cls, sep = special.need("cls"), special.need("sep")
        return [[cls, *ids, sep] for ids in self.tokenizer.ids_batch(list(self.store.texts))]

    def __call__(self, rows: np.ndarray, epoch: Epoch) -> PointingBatch:
        phrases, lengths = _padded([self.ids[row] for row in rows.tolist()], self.tokenizer.special.need("pad"))
        return PointingBatch(
            indices=torch.from_numpy(rows.astype(np.int64)),
            pixels=_pixels(self.store, rows, epoch, None),
            phrases=phrases,
            lengths=lengths,
            regions=torch.from_numpy(self.store.regions(rows)[:, 0]),
        )

    def tokens(self, rows: np.ndarray, epoch: Epoch) -> int:
        return len(rows)


def _padded(rows: list[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    """As pad_rows; no rows are one position wide."""
    ids, lengths = pad_rows(rows, pad)
    return (ids if rows else ids.new_zeros(0, 1)), lengths


def _pixels(store: ImageStore, rows: np.ndarray, epoch: Epoch, augment: Augment | None) -> Tensor:
    """(B, H, W, 3) uint8, changed anew in every epoch."""
    found = store.pixels[rows]  # a copy
    if augment is not None:
        seed = int(epoch.hashes("augment")[0])
        for place, row in enumerate(rows.tolist()):
            found[place] = augment(found[place], seed, row)
    return torch.from_numpy(np.ascontiguousarray(found))


def _fingerprint(store: ImageStore, *more: object) -> str:
    return blake2b(repr((store.fingerprint, more)).encode(), digest_size=16).hexdigest()
