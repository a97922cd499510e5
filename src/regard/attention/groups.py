"""Groups of positions that statistics are asked about: spans of keys and of queries, and the queries that count.

Observe(spans=Spans(queries=None, keys=[(0, 120), (120, None)]))    # of each query: context, and what came after it
Observe(received=Queries(last=32))                                  # what the last 32 queries gave to each key
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import DtypeError, SettingError, ShapeError

Ends = tuple[int | None, int | None]


@dataclass(frozen=True, eq=False)
class Groups:
    """Positions in groups: runs (start, stop), which may overlap, or the number of the group of each position, -1 for
    none. Equal runs are equal; numbers are equal only if they are one tensor."""

    runs: tuple[Ends, ...] | None = None
    ids: Tensor | None = None
    count: int = 0

    @classmethod
    def of(cls, given: Any, where: str) -> Groups:
        if isinstance(given, Groups):
            return given
        if isinstance(given, Tensor):
            if given.dim() != 1 or given.is_floating_point() or given.dtype == torch.bool or not given.numel():
                came = f"{given.dtype} of shape {tuple(given.shape)}"
                raise ShapeError(came, "one whole number for each position, -1 for no group", where=where)
            return cls(ids=given, count=int(given.max()) + 1)
        if not isinstance(given, Sequence) or isinstance(given, str) or not given:
            raise DtypeError(f"{given!r}", "slices, pairs (start, stop), or a tensor of group numbers", where=where)
        runs = tuple(_ends(one, where) for one in given)
        return cls(runs=runs, count=len(runs))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Groups) and self.runs == other.runs and self.ids is other.ids

    def __hash__(self) -> int:
        return hash((self.runs, id(self.ids)))

    def __repr__(self) -> str:
        return f"{self.count} groups" if self.runs is None else f"{[list(run) for run in self.runs]}"

    def members(self, positions: Tensor, size: int, dtype: torch.dtype) -> Tensor:
        """(groups, n) of ones and zeros: which of these positions (n,), of `size` in all, is in which group."""
        if self.runs is not None:
            rows = [
                (positions >= _at(start, size, 0)) & (positions < _at(stop, size, size)) for start, stop in self.runs
            ]
            return torch.stack(rows).to(dtype)
        assert self.ids is not None
        ids = self.ids.to(positions.device)[positions]
        return (ids == torch.arange(self.count, device=positions.device)[:, None]).to(dtype)

    def check(self, size: int, where: str) -> None:
        """Refuse numbers for another count of positions."""
        if self.ids is not None and len(self.ids) != size:
            raise ShapeError(f"{len(self.ids)} group numbers", f"{size}, one for each", where=where)

    def as_values(self) -> tuple[Any, ...]:
        """What an operator takes (OperatorArguments.text)."""
        return (self.ids, self.count) if self.runs is None else self.runs

    @classmethod
    def from_values(cls, values: tuple[Any, ...]) -> Groups:
        if isinstance(values[0], Tensor):
            return cls(ids=values[0], count=values[1])
        return cls(runs=values, count=len(values))


@dataclass(frozen=True)
class Spans:
    """Groups of queries and groups of keys between which weights are summed. `queries` None: each query by itself."""

    queries: Any
    keys: Any

    def __post_init__(self) -> None:
        if self.queries is not None:
            object.__setattr__(self, "queries", Groups.of(self.queries, "Spans queries"))
        object.__setattr__(self, "keys", Groups.of(self.keys, "Spans keys"))

    def rows(self, T: int) -> int:
        """The number of groups of queries."""
        return T if self.queries is None else int(self.queries.count)

    def sum(self, weights: Tensor) -> Tensor:
        """(..., G, H) of weights (..., T, S)."""
        T, S = weights.shape[-2:]
        self.check(T, S)
        return self.sum_queries(weights @ self.key_members(slice(0, S), S, weights).mT)

    def sum_queries(self, by_query: Tensor) -> Tensor:
        """(..., G, H) of the weights that each query gives to each group of keys, (..., T, H)."""
        if self.queries is None:
            return by_query
        T = by_query.size(-2)
        return self.queries.members(torch.arange(T, device=by_query.device), T, by_query.dtype) @ by_query

    def key_members(self, cols: slice, S: int, like: Tensor) -> Tensor:
        """(H, s): which of the keys `cols` is in which group."""
        members: Tensor = self.keys.members(torch.arange(cols.start, cols.stop, device=like.device), S, like.dtype)
        return members

    def check(self, T: int, S: int) -> None:
        self.keys.check(S, "Spans keys")
        if self.queries is not None:
            self.queries.check(T, "Spans queries")

    def as_values(self) -> tuple[Any, ...]:
        return (None if self.queries is None else self.queries.as_values(), self.keys.as_values())

    @classmethod
    def from_values(cls, values: tuple[Any, ...]) -> Spans:
        queries, keys = values
        return cls(None if queries is None else Groups.from_values(queries), Groups.from_values(keys))


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries that count in `received`: the last ones, or those that a boolean tensor (T,) marks."""

    last: int | None = None
    marked: Tensor | None = None

    def __post_init__(self) -> None:
        if (self.last is None) == (self.marked is None):
            raise SettingError("Queries takes either last=N or marked=a boolean tensor", where="Queries")
        if self.last is not None and (isinstance(self.last, bool) or not isinstance(self.last, int) or self.last < 1):
            raise SettingError(f"last={self.last!r}", "a whole number of at least 1", where="Queries")
        if self.marked is not None and (self.marked.dtype != torch.bool or self.marked.dim() != 1):
            came = f"{self.marked.dtype} of shape {tuple(self.marked.shape)}"
            raise ShapeError(came, "one boolean for each query, (T,)", where="Queries")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Queries) and self.last == other.last and self.marked is other.marked

    def __hash__(self) -> int:
        return hash((self.last, id(self.marked)))

    def counted(self, rows: slice, T: int, device: torch.device) -> Tensor:
        """Which of the queries `rows` count, (t,)."""
        if self.marked is None:
            assert self.last is not None
            return torch.arange(rows.start, rows.stop, device=device) >= T - self.last
        if len(self.marked) != T:
            raise ShapeError(f"{len(self.marked)} booleans", f"{T}, one for each query", where="Queries")
        return self.marked.to(device)[rows]

    def as_values(self) -> tuple[Any, ...]:
        return (self.last, self.marked)


def _at(place: int | None, size: int, default: int) -> int:
    """A place counted from the end if it is negative, as in a slice."""
    if place is None:
        return default
    return place + size if place < 0 else place


def _ends(given: Any, where: str) -> Ends:
    """A slice without a step, or a pair, as a pair."""
    if isinstance(given, slice) and given.step in (None, 1):
        return given.start, given.stop
    pair = isinstance(given, tuple | list) and len(given) == 2
    if pair and all(one is None or isinstance(one, int) for one in given):
        return given[0], given[1]
    raise DtypeError(f"{given!r}", "a slice or a pair (start, stop)", where=where)
