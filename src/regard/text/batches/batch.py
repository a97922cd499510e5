"""Batches: one frozen dataclass of tensors for each task, with padding on the right.

Letters: B rows, S source positions, T positions, M masked places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from regard.text.examples import IGNORED

NO_DOCUMENT = -1  # the document number of padding positions
UNCOUNTED = -1


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """The base class of all batches: rows that can be counted and moved to a device.

    `indices` (B,) are the numbers of the rows' examples. `tokens` counts the targets that carry loss in these rows,
    `all_tokens` those in the rows of all ranks, so that a loss summed over tokens can be normalised without
    communication. Both are plain integers: reading them never synchronises with a device.
    """

    indices: Tensor
    tokens: int = field(default=UNCOUNTED, kw_only=True)
    all_tokens: int = field(default=UNCOUNTED, kw_only=True)

    def __post_init__(self) -> None:
        if self.tokens == UNCOUNTED:
            object.__setattr__(self, "tokens", self.count())
        if self.all_tokens == UNCOUNTED:
            object.__setattr__(self, "all_tokens", self.tokens)

    def __len__(self) -> int:
        return len(self.indices)

    def count(self) -> int:
        """The number of targets that carry loss: one a row, unless a subclass overrides it."""
        return len(self)

    def __repr__(self) -> str:
        values = ((entry.name, getattr(self, entry.name)) for entry in fields(self))
        shown = (f"{name}={_summary(value)}" for name, value in values if value is not None)
        return f"{type(self).__name__}({', '.join(shown)})"

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> Self:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        moved: dict[str, Any] = {name: move(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved)


def _summary(value: object) -> str:
    """A tensor by its dtype and shape: int64[32, 17]."""
    if not isinstance(value, Tensor):
        return repr(value)
    place = "" if value.device.type == "cpu" else f" {value.device}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}{place}"


@dataclass(frozen=True, eq=False, repr=False)
class TranslationBatch(Batch):
    """A translation batch for teacher forcing: source = x + end, target_in = start + y, target_out = y + end.

    target_out is padded with IGNORED, the other two with the pad id. target_lengths counts the added token.
    """

    source: Tensor  # (B, S)
    source_lengths: Tensor  # (B,)
    target_in: Tensor  # (B, T)
    target_out: Tensor  # (B, T)
    target_lengths: Tensor  # (B,)

    def count(self) -> int:
        return int(self.target_lengths.sum())


@dataclass(frozen=True, eq=False, repr=False)
class BlockBatch(Batch):
    """Segments of a token stream for a language model; targets are the next tokens, IGNORED beyond a row's end.

    `carried`: each row continues the same row of the previous batch, so a recurrent model keeps its state; `indices`
    are then the numbers of the lanes. `documents`: the document of each input, NO_DOCUMENT in padding; None where the
    stream has no separators.
    """

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    documents: Tensor | None = None  # (B, T)
    carried: bool = False

    def count(self) -> int:
        return int((self.targets != IGNORED).sum())


@dataclass(frozen=True, eq=False, repr=False)
class MaskedBatch(Batch):
    """Texts with masked tokens: `positions` are the positions row * T + column to predict, `targets` the original ids.

    `segments` are 0 up to and with the first [SEP], then 1; `next` is 1 where b follows a, None without pairs.
    `padding`: the number of padding positions, a plain integer.
    """

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    segments: Tensor  # (B, T)
    positions: Tensor  # (M,)
    targets: Tensor  # (M,)
    next: Tensor | None = None  # (B,)
    padding: int = field(default=UNCOUNTED, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.padding == UNCOUNTED:
            object.__setattr__(self, "padding", self.inputs.numel() - int(self.lengths.sum()))

    def count(self) -> int:
        return len(self.positions)


@dataclass(frozen=True, eq=False, repr=False)
class LabelledBatch(Batch):
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP], with a label for each row: a class index, or a float for regression."""

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    segments: Tensor  # (B, T)
    labels: Tensor  # (B,)


@dataclass(frozen=True, eq=False, repr=False)
class TaggedBatch(Batch):
    """[CLS] pieces [SEP] for token classification; `tags` has each word's tag at its first piece, IGNORED elsewhere."""

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    tags: Tensor  # (B, T)

    def count(self) -> int:
        return int((self.tags != IGNORED).sum())


@dataclass(frozen=True, eq=False, repr=False)
class AnswerBatch(Batch):
    """[CLS] question [SEP] passage [SEP] for extractive question answering.

    The answer is inputs[starts] to inputs[ends], both included.
    """

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    segments: Tensor  # (B, T)
    starts: Tensor  # (B,)
    ends: Tensor  # (B,)


@dataclass(frozen=True, eq=False, repr=False)
class PackedBatch(Batch):
    """Packed sequences: several texts a row, kept apart by masks.Causal() & masks.Documents(documents).

    `documents` numbers the texts of a row from 0, NO_DOCUMENT in padding; `positions` count from 0 in each text. A
    target is the next token of the same text, IGNORED at its end. `indices`: the number of each row's first text.
    """

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    documents: Tensor  # (B, T)
    positions: Tensor  # (B, T)

    def count(self) -> int:
        return int((self.targets != IGNORED).sum())


@dataclass(frozen=True, eq=False, repr=False)
class PlainBatch(Batch):
    """[CLS] text [SEP] for a bidirectional language model: every token but one is a target in each direction.

    An id of vocabulary size + e is the out-of-vocabulary word that row e of `spellings` spells; None without spellings.
    """

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    spellings: Tensor | None = None  # (E, C)

    def count(self) -> int:
        return int(self.lengths.sum()) - len(self)


@dataclass(frozen=True, eq=False, repr=False)
class SpelledTaggedBatch(TaggedBatch):
    """TaggedBatch, with `spellings` as in PlainBatch."""

    spellings: Tensor | None = None  # (E, C)
