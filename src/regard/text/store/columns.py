"""Columns of token ids: one sequence per example and field, concatenated in one array (a ragged array)."""

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


@dataclass(frozen=True, eq=False, repr=False)
class RaggedArray:
    """A ragged array: sequences of different lengths in one flat array, in memory or memory-mapped.

    Example i is ids[ends[i - 1] : ends[i]].


    >>> RaggedArray.of([[4, 5], [], [6]])[2]
    array([6])
    """

    ids: Array  # (tokens,) integers
    ends: Array  # (n,) int64, cumulative

    def __post_init__(self) -> None:
        if self.ids.ndim != 1 or self.ends.ndim != 1:
            raise ShapeError(
                f"ids {self.ids.shape} and ends {self.ends.shape}", "one dimension each", where="RaggedArray"
            )
        last = int(self.ends[-1]) if len(self.ends) else 0
        if last != len(self.ids):
            raise ShapeError(
                f"ends up to {last} for {len(self.ids)} ids", "the last end at the last id", where="RaggedArray"
            )

    @classmethod
    def of(cls, sequences: Iterable[Sequence[float]], dtype: Any = np.int64) -> RaggedArray:
        """The ragged array of these sequences."""
        rows = list(sequences)
        ends = np.cumsum([len(sequence) for sequence in rows], dtype=np.int64)
        count = int(ends[-1]) if len(ends) else 0
        return cls(np.fromiter(chain.from_iterable(rows), dtype, count), ends)

    @classmethod
    def concatenate(cls, parts: Sequence[RaggedArray]) -> RaggedArray:
        """The concatenation of ragged arrays."""
        starts = np.cumsum([0, *(len(part.ids) for part in parts)], dtype=np.int64)
        ends = [part.ends + start for part, start in zip(parts, starts[:-1], strict=True)]
        return cls(np.concatenate([part.ids for part in parts]), np.concatenate(ends))

    def __repr__(self) -> str:
        return f"<RaggedArray of {len(self):,} sequences, {len(self.ids):,} {self.ids.dtype}>"

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
        """The ids of all examples, concatenated; nothing is copied."""
        return self.ids


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """The fields of a tokenized corpus; sentence i is in document d where `documents[d] <= i < documents[d + 1]`."""

    fields: Mapping[str, RaggedArray]
    documents: Array | None = None  # (number of documents + 1,) int64

    def __post_init__(self) -> None:
        sizes = {name: len(column) for name, column in self.fields.items()}
        if len(set(sizes.values())) > 1:
            raise ShapeError(f"fields of {sizes} examples", "the same number in each", where="Columns")
        if self.documents is not None and (len(self.documents) == 0 or self.documents[-1] != len(self)):
            raise ShapeError("The documents do not end at the last sentence", where="Columns")

    @classmethod
    def concatenate(cls, parts: Sequence[Columns]) -> Columns:
        """The concatenation of columns of the same fields."""
        fields = {name: RaggedArray.concatenate([part[name] for part in parts]) for name in parts[0].fields}
        if parts[0].documents is None:
            return cls(fields)
        sizes = chain.from_iterable(np.diff(part.documents) for part in parts if part.documents is not None)
        return cls(fields, np.cumsum([0, *sizes], dtype=np.int64))

    def __repr__(self) -> str:
        sizes = ", ".join(f"{name}: {len(column.ids):,} ids" for name, column in self.fields.items())
        documents = "" if self.documents is None else f" in {len(self.documents) - 1:,} documents"
        return f"<{type(self).__name__} of {len(self):,} examples{documents}; {sizes}>"

    def __getitem__(self, name: str) -> RaggedArray:
        if name not in self.fields:
            raise unknown(name, self.fields, kind="field", where="Columns")
        return self.fields[name]

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def __len__(self) -> int:
        """The number of examples; with documents, of sentences."""
        return len(next(iter(self.fields.values()))) if self.fields else 0
