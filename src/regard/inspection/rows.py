"""Texts as the rows that a BERT reads: [CLS] a [SEP], or [CLS] a [SEP] b [SEP], padded on the right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.errors import SettingError
from regard.text.tokenizers.specials import SpecialIds


class Rows(NamedTuple):
    """inputs (B, T), of which the first `lengths` (B,) are real; segments (B, T) are 1 in the second text."""

    inputs: Tensor
    lengths: Tensor
    segments: Tensor

    def to(self, device: torch.device | str) -> Rows:
        return Rows(*(one.to(device) for one in self))


def rows_of(
    texts: Sequence[Sequence[int]],
    others: Sequence[Sequence[int] | None],
    special: SpecialIds,
    longest: int | None,
    where: str,
) -> Rows:
    """Rows of these ids, each with a second text or without; one that is longer than `longest` is refused."""
    cls, sep = special.need("cls"), special.need("sep")
    rows, segments = [], []
    for number, (text, other) in enumerate(zip(texts, others, strict=True), 1):
        first = [cls, *text, sep]
        second = [] if other is None else [*other, sep]
        if longest is not None and len(first) + len(second) > longest:
            came = f"{len(first) + len(second)} tokens in text {number}, [CLS] and [SEP] among them"
            raise SettingError(came, f"at most {longest}, the positions of this model", where=where)
        rows.append(torch.tensor(first + second))
        segments.append(torch.tensor([0] * len(first) + [1] * len(second)))
    lengths = torch.tensor([len(row) for row in rows])
    inputs = pad_sequence(rows, batch_first=True, padding_value=special.need("pad"))
    return Rows(inputs, lengths, pad_sequence(segments, batch_first=True))
