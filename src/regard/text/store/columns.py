"""Columns of ids, what batches are cut from: one sequence per example and field, all end to end in one array."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np

from regard.errors import ShapeError, unknown

Array = np.ndarray[Any, np.dtype[Any]]


class Column(Protocol):
    """One sequence of ids per example."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Array: ...

    @property
    def lengths(self) -> Array: ...


@dataclass(frozen=True, eq=False)
class Flat:
    """A column in one array, in memory or mapped from a file: example i is ids[ends[i - 1] : ends[i]].

    >>> Flat.of([[4, 5], [], [6]])[2]
    array([6])
    """

    ids: Array  # (tokens,) integers
    ends: Array  # (n,) int64, cumulative

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or self.ends.ndim != 1:
            raise ShapeError(f"ids {self.ids.shape} and ends {self.ends.shape}", "one dimension each", where="Flat")
        last = int(self.ends[-1]) if len(self.ends) else 0
        if last != len(self.ids):
            raise ShapeError(f"ends up to {last} for {len(self.ids)} ids", "the last end at the last id", where="Flat")

    @classmethod
    def of(cls, sequences: Iterable[Sequence[float]], dtype: Any = np.int64) -> Flat:
        """Sequences end to end."""
        kept = list(sequences)
        ends = np.cumsum([len(sequence) for sequence in kept], dtype=np.int64)
        count = int(ends[-1]) if len(ends) else 0
        return cls(np.fromiter(chain.from_iterable(kept), dtype, count), ends)

    @classmethod
    def joined(cls, parts: Sequence[Flat]) -> Flat:
        """Columns one after another."""
        starts = np.cumsum([0, *(len(part.ids) for part in parts)], dtype=np.int64)
        ends = [part.ends + start for part, start in zip(parts, starts[:-1], strict=True)]
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> Array:
        if not -len(self) <= index < len(self):
            raise IndexError(f"example {index} of a column of {len(self)}")
        index %= len(self)
        return self.ids[int(self.ends[index - 1]) if index else 0 : int(self.ends[index])]

    @property
    def lengths(self) -> Array:
        """(n,) int64."""
        return np.diff(self.ends, prepend=np.int64(0))

    @property
    def stream(self) -> Array:
        """The ids of all examples end to end; nothing is copied."""
        return self.ids


@dataclass(frozen=True, eq=False)
class Columns:
    """The fields of a tokenised corpus; `documents[d] <= i < documents[d + 1]` says sentence i is in document d."""

    fields: Mapping[str, Flat]
    documents: Array | None = None  # (number of documents + 1,) int64

    def __post_init__(self) -> None:
        sizes = {name: len(column) for name, column in self.fields.items()}
        if len(set(sizes.values())) > 1:
            raise ShapeError(f"fields of {sizes} examples", "the same number in each", where="Columns")
        if self.documents is not None and (len(self.documents) == 0 or self.documents[-1] != len(self)):
            raise ShapeError(f"documents that end elsewhere than at {len(self)}", "the last sentence", where="Columns")

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """Columns of the same fields one after another."""
        fields = {name: Flat.joined([part[name] for part in parts]) for name in parts[0].fields}
        if parts[0].documents is None:
            return cls(fields)
        sizes = chain.from_iterable(np.diff(part.documents) for part in parts if part.documents is not None)
        return cls(fields, np.cumsum([0, *sizes], dtype=np.int64))

    def __getitem__(self, name: str) -> Flat:
        if name not in self.fields:
            raise unknown(name, self.fields, kind="field", where="Columns")
        return self.fields[name]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def __len__(self) -> int:
        """The number of examples; of sentences, where there are documents."""
        return len(next(iter(self.fields.values()))) if self.fields else 0
