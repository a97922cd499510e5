"""Texts as rows of ids: [CLS] a [SEP] or [CLS] a [SEP] b [SEP], and rows of different lengths padded to one tensor."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.text import SpecialIds

T = TypeVar("T")


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
        parts = [text] if other is None else [text, other]
        row = framed(cls, sep, parts)
        if longest is not None and len(row) > longest:
            came = f"{len(row)} tokens in text {number}, [CLS] and [SEP] among them"
            raise SettingError(came, f"at most {longest}, the positions of this model", where=where)
        rows.append(row)
        segments.append(segments_of(parts))
    return padded_rows(rows, segments, special.need("pad"))


def padded_rows(rows: Sequence[Sequence[int]], segments: Sequence[Sequence[int]], pad: int) -> Rows:
    """Rows and their segments as tensors."""
    return Rows(*padded(rows, pad), padded(segments, 0)[0])


def framed(cls: T, sep: T, parts: Iterable[Sequence[T]]) -> list[T]:
    """[CLS] a [SEP], or [CLS] a [SEP] b [SEP]; of ids, or of whatever each token has."""
    return [cls, *(one for part in parts for one in (*part, sep))]


def segments_of(parts: Sequence[Sequence[object]]) -> list[int]:
    """The number of the text that each token of such a row belongs to; [CLS] belongs to the first one."""
    return [0, *(number for number, part in enumerate(parts) for _ in range(len(part) + 1))]


def padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device | str | None = None) -> tuple[Tensor, Tensor]:
    """ids (B, S), padded on the right, and the length of each row, (B,)."""
    lengths = [len(row) for row in rows]
    longest = max(lengths, default=0)
    ids = [[*row, *[pad] * (longest - len(row))] for row in rows]
    return torch.tensor(ids, dtype=torch.long, device=device), torch.tensor(lengths, device=device)
