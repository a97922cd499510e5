"""What a model gets to see at once: one frozen dataclass of tensors for each kind of task, padded on the right.

Letters: B rows, S source positions, T positions, M masked places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from regard.text.examples import IGNORED

NOWHERE = -1  # the document number of padding
UNCOUNTED = -1


@dataclass(frozen=True, eq=False)
class Batch:
    """The parent of all batches: rows that can be counted and moved.

    `indices` (B,) are the numbers of the rows' examples. `tokens` counts what carries loss in these rows, `all_tokens`
    in the rows of all ranks together, so that a loss summed over tokens can be divided without asking the other ranks.
    Both are plain integers: reading them never waits for a device.
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
        """How many tokens of these rows carry loss: one a row, unless the kind of batch says otherwise."""
        return len(self)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Self:
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Self:
        return self._each(Tensor.pin_memory)

    def _each(self, move: Callable[[Tensor], Tensor]) -> Self:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        moved: dict[str, Any] = {name: move(value) for name, value in values.items() if isinstance(value, Tensor)}
        return replace(self, **moved)


@dataclass(frozen=True, eq=False)
class TranslationBatch(Batch):
    """Sentences and their translations: source = x + end, target_in = start + y, target_out = y + end.

    Padding of target_out is IGNORED, of the other two the pad id. target_lengths counts the added token.
    """

    source: Tensor  # (B, S)
    source_lengths: Tensor  # (B,)
    target_in: Tensor  # (B, T)
    target_out: Tensor  # (B, T)
    target_lengths: Tensor  # (B,)

    def count(self) -> int:
        return int(self.target_lengths.sum())


@dataclass(frozen=True, eq=False)
class BlockBatch(Batch):
    """Stretches of a stream of text; targets are the inputs' successors, IGNORED where a row is shorter than others.

    `carried`: the rows go on where the same rows ended in the batch before (the state of a recurrent model is theirs);
    `indices` are then the numbers of the lanes. `documents`: the document of each input, NOWHERE in padding; None when
    nothing separates the documents of the stream.
    """

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    documents: Tensor | None = None  # (B, T)
    carried: bool = False

    def count(self) -> int:
        return int((self.targets != IGNORED).sum())


@dataclass(frozen=True, eq=False)
class MaskedBatch(Batch):
    """Texts with some tokens hidden: `positions` are the places row * T + column to predict, `targets` what was there.

    `segments` are 0 up to and with the first [SEP], then 1; `next` is 1 where b truly follows a, None without pairs.
    `padding`: how many of the inputs are none, a plain integer.
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


@dataclass(frozen=True, eq=False)
class LabelledBatch(Batch):
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP], with a label for each row: the number of a class, or a float."""

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    segments: Tensor  # (B, T)
    labels: Tensor  # (B,)


@dataclass(frozen=True, eq=False)
class TaggedBatch(Batch):
    """[CLS] pieces [SEP]; `tags` has the tag of each word at its first piece, IGNORED elsewhere."""

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    tags: Tensor  # (B, T)

    def count(self) -> int:
        return int((self.tags != IGNORED).sum())


@dataclass(frozen=True, eq=False)
class AnswerBatch(Batch):
    """[CLS] question [SEP] passage [SEP]; the answer is inputs[starts] to inputs[ends], both included."""

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    segments: Tensor  # (B, T)
    starts: Tensor  # (B,)
    ends: Tensor  # (B,)


@dataclass(frozen=True, eq=False)
class PackedBatch(Batch):
    """Several texts a row, end to end; attention with masks.Causal() & masks.Documents(documents) keeps them apart.

    `documents` numbers the texts of a row from 0, NOWHERE in padding; `positions` count from 0 in each text. A target
    is the next token of the same text, IGNORED at its end. `indices` are the numbers of each row's first text.
    """

    inputs: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    documents: Tensor  # (B, T)
    positions: Tensor  # (B, T)

    def count(self) -> int:
        return int((self.targets != IGNORED).sum())


@dataclass(frozen=True, eq=False)
class PlainBatch(Batch):
    """[CLS] text [SEP]; every token but the first has one before it to be predicted from, every one but the last one
    after it.

    An id of the vocabulary's size + e is the word that row e of `spellings` spells; None where nobody kept spellings.
    """

    inputs: Tensor  # (B, T)
    lengths: Tensor  # (B,)
    spellings: Tensor | None = None  # (E, C)

    def count(self) -> int:
        return int(self.lengths.sum()) - len(self)


@dataclass(frozen=True, eq=False)
class SpelledTaggedBatch(TaggedBatch):
    """TaggedBatch, with `spellings` as in PlainBatch."""

    spellings: Tensor | None = None  # (E, C)
