"""Inputs of a BERT: texts as [CLS] a [SEP] or [CLS] a [SEP] b [SEP] with segment ids, padded to one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.text import SpecialIds

T = TypeVar("T")


class BertInputs(NamedTuple):
    """inputs (B, T), of which the first `lengths` (B,) are not padding; segments (B, T) are 1 in the second text."""

    inputs: Tensor
    lengths: Tensor
    segments: Tensor

    def to(self, device: torch.device | str) -> BertInputs:
        return BertInputs(*(one.to(device) for one in self))


def build_bert_inputs(
    texts: Sequence[Sequence[int]],
    others: Sequence[Sequence[int] | None],
    special: SpecialIds,
    max_length: int | None,
    where: str,
) -> BertInputs:
    """The inputs of these ids, each with a second text or without; a row over `max_length` tokens is refused."""
    cls, sep = special.need("cls"), special.need("sep")
    rows, segments = [], []
    for number, (text, other) in enumerate(zip(texts, others, strict=True), 1):
        parts = [text] if other is None else [text, other]
        row = add_special_tokens(cls, sep, parts)
        if max_length is not None and len(row) > max_length:
            came = f"{len(row)} tokens in text {number}, [CLS] and [SEP] included"
            raise SettingError(came, f"at most {max_length}, the positions of this model", where=where)
        rows.append(row)
        segments.append(segment_ids(parts))
    return pad_bert_inputs(rows, segments, special.need("pad"))


def pad_bert_inputs(rows: Sequence[Sequence[int]], segments: Sequence[Sequence[int]], pad: int) -> BertInputs:
    """Rows and their segments as tensors."""
    return BertInputs(*pad_ids(rows, pad), pad_ids(segments, 0)[0])


def add_special_tokens(cls: T, sep: T, parts: Iterable[Sequence[T]]) -> list[T]:
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]; of ids, or of any other value for each token."""
    return [cls, *(one for part in parts for one in (*part, sep))]


def segment_ids(parts: Sequence[Sequence[object]]) -> list[int]:
    """The number of the text that each token of such a row belongs to; [CLS] belongs to the first one."""
    return [0, *(number for number, part in enumerate(parts) for _ in range(len(part) + 1))]


def pad_ids(rows: Sequence[Sequence[int]], pad: int, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """ids (B, S), padded on the right, and the length of each row, (B,)."""
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    ids = [[*row, *[pad] * (longest - len(row))] for row in rows]
    return torch.tensor(ids, dtype=torch.long, device=device), torch.tensor(lengths, device=device)
