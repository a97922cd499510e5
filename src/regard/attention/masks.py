"""Attention masks: causal mask, padding mask, sliding window, documents; predicates on (query, key), joined by & | ~.

Query i is at position i + offset, and the offset is S - T by default, because cached keys lie left of the new ones. A
mask is evaluated tile by tile, so that the full map need not be held:

>>> (Causal() & Window(left=1, right=0)).dense(3, 3).int()
tensor([[1, 0, 0],
        [1, 1, 0],
        [0, 1, 1]], dtype=torch.int32)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any as Anything

import torch
from torch import Tensor

from regard.attention.grid import Grid, Lead, check_table, cut, pick, short_repr
from regard.attention.transforms import current_stream, is_memory_lasting, is_readable
from regard.errors import DtypeError, SettingError, ShapeError


class Mask(ABC):
    """A predicate on (query, key); True where the query may see the key."""

    contiguous = False  # True: every key between the two ends of `span` is allowed

    @abstractmethod
    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        """Booleans that broadcast to (*lead, t, s) for the queries `rows` (t,) and the keys `cols` (s,)."""

    def span(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """For every query the first key, and one past the last key, that it may see; broadcast to (*lead, T)."""
        return torch.zeros(1, dtype=torch.long, device=grid.device), torch.full((1,), grid.S, device=grid.device)

    def part(self, lead: Lead) -> Mask:
        """The same mask for a part of the leading dimensions."""
        return self

    def check(self, grid: Grid) -> None:
        """Raise ShapeError if this mask does not fit the map."""

    def implied_lead(self) -> tuple[int, ...]:
        """The leading dimensions that this mask alone implies."""
        return ()

    def table_of(self, grid: Grid) -> Tensor:
        """The booleans of the full map; they broadcast to (*lead, T, S)."""
        return self.allowed(torch.arange(grid.T, device=grid.device), torch.arange(grid.S, device=grid.device), grid)

    def dense(self, T: int, S: int, lead: tuple[int, ...] | None = None) -> Tensor:
        """The full mask as booleans (*lead, T, S); by default with the leading dimensions that it implies."""
        grid = Grid(self.implied_lead() if lead is None else lead, T, S, torch.device("cpu"))
        self.check(grid)
        return self.table_of(grid).expand(*grid.lead, T, S)

    def __and__(self, other: Mask) -> Mask:
        return self if isinstance(_require_mask(other), Everything) else All(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Any(self, _require_mask(other))

    def __invert__(self) -> Mask:
        return Not(self)


@dataclass(frozen=True)
class Everything(Mask):
    """No mask: every query sees every key."""

    contiguous = True

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return torch.ones(1, 1, dtype=torch.bool, device=grid.device)

    def __and__(self, other: Mask) -> Mask:
        return _require_mask(other)


@dataclass(frozen=True, eq=False, repr=False)
class Window(Mask):
    """A sliding window: keys from `left` positions before the query to `right` after it; None means unlimited.

    `offset`: an int, a tensor (B,), or None for S - T.
    """

    left: int | None
    right: int | None
    offset: int | Tensor | None = None
    contiguous = True

    def __post_init__(self) -> None:
        if self.left is not None and self.right is not None and self.left + self.right < 0:
            raise SettingError(
                f"left={self.left}, right={self.right}",
                "left + right of at least 0, else no key is inside",
                where="Window",
            )

    def __repr__(self) -> str:
        ends = [f"left={self.left}, right={self.right}"] if type(self) is Window else []
        if self.offset is not None:
            ends.append(
                f"offset {tuple(self.offset.shape)}" if isinstance(self.offset, Tensor) else f"offset={self.offset}"
            )
        return f"{type(self).__name__}({', '.join(ends)})"

    def key_bounds(self, positions: Tensor | int, S: int) -> tuple[Tensor | int, Tensor | int]:
        """First key, and one past the last, that queries at these positions may see, before clipping to S keys."""
        lo = 0 if self.left is None else positions - self.left
        hi = S if self.right is None else positions + self.right + 1
        return lo, hi

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        lo, hi = self.key_bounds(rows.unsqueeze(-1) + self._offset(grid, trailing=2), grid.S)
        return torch.atleast_2d((cols >= lo) & (cols < hi))

    def span(self, grid: Grid) -> tuple[Tensor, Tensor]:
        here = torch.arange(grid.T, device=grid.device) + self._offset(grid, trailing=1)
        lo, hi = (
            end.clamp(0, grid.S) if isinstance(end, Tensor) else torch.full((1,), end, device=grid.device)
            for end in self.key_bounds(here, grid.S)
        )  # a Python number would be copied to the device, which synchronises
        return lo, hi

    def part(self, lead: Lead) -> Mask:
        if isinstance(self.offset, Tensor) and self.offset.dim():
            return Window(self.left, self.right, self.offset[lead[0]])
        return self

    def check(self, grid: Grid) -> None:
        if isinstance(self.offset, Tensor) and self.offset.dim():
            _check_batch(self.offset, grid, f"{type(self).__name__} offset")

    def implied_lead(self) -> tuple[int, ...]:
        return tuple(self.offset.shape[:1]) if isinstance(self.offset, Tensor) else ()

    def _offset(self, grid: Grid, *, trailing: int) -> int | Tensor:
        if self.offset is None:
            return grid.S - grid.T
        if isinstance(self.offset, Tensor) and self.offset.dim():
            return grid.by_batch(self.offset, trailing=trailing)
        return int(self.offset)


class Causal(Window):
    """The causal mask: a query at position p sees key j when j <= p."""

    def __init__(self, offset: int | Tensor | None = None) -> None:
        super().__init__(None, 0, offset)


class Past(Window):
    """The strictly causal mask: j < p. The first query of a sequence sees no key."""

    def __init__(self, offset: int | Tensor | None = None) -> None:
        super().__init__(None, -1, offset)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Padding(Mask):
    """The padding mask: the first `lengths` (B,) keys of each batch row are real; with side="left" the last ones.

    With `queries` (B,), padded queries see no key, so that sums over queries count real ones only.
    """

    lengths: Tensor
    queries: Tensor | None
    side: str
    contiguous = True

    __repr__ = short_repr

    def __init__(
        self, lengths: Tensor | Sequence[int], queries: Tensor | Sequence[int] | None = None, side: str = "right"
    ) -> None:
        if side not in ("left", "right"):
            raise SettingError(f"side={side!r}", "'left' or 'right', the side of the padding", where="Padding")
        object.__setattr__(self, "lengths", _checked_lengths(lengths, "lengths"))
        object.__setattr__(self, "queries", None if queries is None else _checked_lengths(queries, "queries"))
        object.__setattr__(self, "side", side)

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        real = self._real(cols, grid.by_batch(self.lengths, trailing=2), grid.S)
        if self.queries is None:
            return real
        return real & self._real(rows.unsqueeze(-1), grid.by_batch(self.queries, trailing=2), grid.T)

    def span(self, grid: Grid) -> tuple[Tensor, Tensor]:
        lengths = grid.by_batch(self.lengths, trailing=1)
        lo, hi = (
            (torch.zeros_like(lengths), lengths) if self.side == "right" else (grid.S - lengths, lengths * 0 + grid.S)
        )
        if self.queries is not None:
            here = torch.arange(grid.T, device=grid.device)
            hi = torch.where(self._real(here, grid.by_batch(self.queries, trailing=1), grid.T), hi, lo)
        return lo, hi

    def part(self, lead: Lead) -> Mask:
        return Padding(self.lengths[lead[0]], None if self.queries is None else self.queries[lead[0]], self.side)

    def check(self, grid: Grid) -> None:
        for name, counts, limit in (("lengths", self.lengths, grid.S), ("queries", self.queries, grid.T)):
            if counts is not None:
                _check_batch(counts, grid, f"Padding {name}")
                if counts.numel() and is_readable(counts) and int(counts.max()) > limit:
                    raise ShapeError(f"a length of {int(counts.max())}", f"at most {limit}", where=f"Padding {name}")

    def implied_lead(self) -> tuple[int, ...]:
        return tuple(self.lengths.shape)

    def _real(self, index: Tensor, counts: Tensor, size: int) -> Tensor:
        return index < counts if self.side == "right" else index >= size - counts


@dataclass(frozen=True, eq=False, repr=False)
class Documents(Mask):
    """A document mask: only keys of the query's document, for several texts packed into one row.

    `ids`: the document of each key, (S,) or (B, S). `queries`: of each query, (T,) or (B, T); by default the last T of
    `ids`, as when cached keys lie left of the new ones.
    """

    ids: Tensor
    queries: Tensor | None = None

    __repr__ = short_repr

    def __post_init__(self) -> None:
        for given in (self.ids, self.ids if self.queries is None else self.queries):
            if not isinstance(given, Tensor):
                raise DtypeError(f"{type(given).__name__} as ids", "tensors of whole numbers", where="Documents")

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        query_ids, key_ids = self.document_ids(grid)
        return query_ids[..., rows, None] == key_ids[..., None, cols]

    def span(self, grid: Grid) -> tuple[Tensor, Tensor]:
        query_ids, key_ids = self.document_ids(grid)
        documents, index = torch.cat([query_ids, key_ids], -1).unique(return_inverse=True)
        query_ids, key_ids = index[..., : query_ids.size(-1)], index[..., query_ids.size(-1) :]
        where = torch.arange(grid.S, device=grid.device).expand(key_ids.shape)
        first = torch.full((*key_ids.shape[:-1], len(documents)), grid.S, device=grid.device)
        last = torch.zeros_like(first)
        first = first.scatter_reduce(-1, key_ids, where, "amin")
        last = last.scatter_reduce(-1, key_ids, where + 1, "amax")
        return first.gather(-1, query_ids), last.gather(-1, query_ids)

    def part(self, lead: Lead) -> Mask:
        return Documents(
            self.ids[lead[0]] if self.ids.dim() > 1 else self.ids,
            self.queries[lead[0]] if self.queries is not None and self.queries.dim() > 1 else self.queries,
        )

    def check(self, grid: Grid) -> None:
        for name, ids, size in (("ids", self.ids, grid.S), ("queries", self.queries, grid.T)):
            if ids is None:
                continue
            if ids.dim() not in (1, 2) or ids.size(-1) != size or ids.is_floating_point():
                raise ShapeError(
                    f"{ids.dtype} of shape {tuple(ids.shape)}",
                    f"integers ({size},) or (B, {size})",
                    where=f"Documents {name}",
                )
            if ids.dim() == 2:
                _check_batch(ids, grid, f"Documents {name}")
        if self.queries is None and grid.T > grid.S:
            raise ShapeError(
                f"{grid.T} queries need document ids of their own, because there are only {grid.S} keys",
                where="Documents",
                advice="Pass Documents(ids, queries=...).",
            )

    def implied_lead(self) -> tuple[int, ...]:
        return max((tuple(ids.shape[:-1]) for ids in (self.ids, self.queries) if ids is not None), key=len)

    def document_ids(self, grid: Grid) -> tuple[Tensor, Tensor]:
        """The document of each query, (..., T), and of each key, (..., S)."""
        queries = self.ids[..., grid.S - grid.T :] if self.queries is None else self.queries
        query_ids, key_ids = (
            grid.by_batch(x, trailing=1) if x.dim() > 1 else x.to(grid.device) for x in (queries, self.ids)
        )
        shape = torch.broadcast_shapes(query_ids.shape[:-1], key_ids.shape[:-1])
        return query_ids.expand(*shape, -1), key_ids.expand(*shape, -1)


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Mask):
    """A boolean tensor that broadcasts to (*lead, T, S), True where a query may see the key."""

    table: Tensor

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not isinstance(self.table, Tensor) or self.table.dtype != torch.bool:
            kind = f"a tensor of {self.table.dtype}" if isinstance(self.table, Tensor) else type(self.table).__name__
            raise DtypeError(
                kind,
                "booleans",
                where="masks.Dense",
                advice="For floats that are added to the scores, use DenseBias.",
            )

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return pick(self.table.to(grid.device), rows, cols)

    def table_of(self, grid: Grid) -> Tensor:
        return self.table.to(grid.device)

    def part(self, lead: Lead) -> Mask:
        return Dense(cut(self.table, lead))

    def check(self, grid: Grid) -> None:
        check_table(self.table, grid, "masks.Dense")

    def implied_lead(self) -> tuple[int, ...]:
        return tuple(self.table.shape[:-2])


@dataclass(frozen=True, eq=False, repr=False)
class Runs(Mask):
    """One run of keys for each query: from `first` up to, but not including, `stop`; both broadcast to (*lead, T).

    Most tables of booleans are such runs (causal, padded, windows, packed texts), and fused kernels skip the rest.
    """

    first: Tensor
    stop: Tensor
    contiguous = True
    # what was worked out from these numbers
    _kept: dict[Anything, Anything] = field(default_factory=dict, init=False, repr=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        for name, ends in (("first", self.first), ("stop", self.stop)):
            if not isinstance(ends, Tensor) or ends.is_floating_point() or ends.dtype == torch.bool or not ends.dim():
                given = f"{ends.dtype} of shape {tuple(ends.shape)}" if isinstance(ends, Tensor) else f"{ends!r}"
                raise DtypeError(given, "whole numbers (..., T)", where=f"masks.Runs {name}")

    @classmethod
    def of(cls, table: Tensor) -> Runs | None:
        """The same mask as a table of booleans (..., T, S), if each query's keys are one run; waits for the device."""
        first, count = table.byte().argmax(-1), table.sum(-1)
        runs = cls(first, first + count)
        keys = torch.arange(table.size(-1), device=table.device)
        same = (table == ((keys >= first.unsqueeze(-1)) & (keys < runs.stop.unsqueeze(-1)))).all()
        return runs if bool(same) else None

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        lo, hi = self.span(grid)
        lo, hi = (end if end.size(-1) == 1 else end[..., rows] for end in (lo, hi))
        return (cols >= lo.unsqueeze(-1)) & (cols < hi.unsqueeze(-1))

    def span(self, grid: Grid) -> tuple[Tensor, Tensor]:
        lo, hi = (end.to(grid.device).clamp(0, grid.S) for end in (self.first, self.stop))
        return lo, torch.maximum(lo, hi)

    def part(self, lead: Lead) -> Mask:
        return Runs(*(cut(ends, lead, trailing=1) for ends in (self.first, self.stop)))

    def check(self, grid: Grid) -> None:
        for name, ends in (("first", self.first), ("stop", self.stop)):
            check_table(ends.unsqueeze(-1), replace(grid, S=1), f"masks.Runs {name}")

    def implied_lead(self) -> tuple[int, ...]:
        return tuple(torch.broadcast_shapes(self.first.shape[:-1], self.stop.shape[:-1]))

    def kept(self, what: str, grid: Grid, compute: Callable[[], Anything]) -> Anything:
        """What `compute` returns for this map, worked out once for all layers of a model that share the mask."""
        if not is_memory_lasting(grid.device) or self.first.is_inference() or self.stop.is_inference():
            return compute()  # or their changes are not counted
        stream = current_stream(grid.device)
        key = what, grid.lead, grid.T, grid.S, grid.device, stream, self.first._version, self.stop._version
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]


@dataclass(frozen=True, eq=False, repr=False)
class Keys(Mask):
    """Sparse attention: each query sees a list of chosen keys (as the indexer of DeepSeek sparse attention makes).

    `indices` (..., T, n): the numbers of the keys, -1 for none; the leading dimensions broadcast.
    """

    indices: Tensor
    size = 1  # keys that one index stands for

    __repr__ = short_repr

    def __post_init__(self) -> None:
        _check_indices(self.indices, type(self).__name__)

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        count = -(-grid.S // self.size)
        indices = self.indices.to(grid.device)
        chosen = (indices if indices.size(-2) == 1 else indices[..., rows, :]).long()
        # an index of no key goes to one extra column, which is never read
        where = torch.where((chosen < 0) | (chosen >= count), count, chosen)
        table = torch.zeros(*where.shape[:-1], count + 1, dtype=torch.bool, device=grid.device)
        return table.scatter_(-1, where, True)[..., cols // self.size]

    def part(self, lead: Lead) -> Mask:
        return replace(self, indices=cut(self.indices, lead))

    def check(self, grid: Grid) -> None:
        where, sizes = f"masks.{type(self).__name__}", self.indices.shape
        full = (*grid.lead, grid.T)
        pairs = list(zip(reversed(sizes[:-1]), reversed(full), strict=False))
        if len(sizes) - 1 > len(full) or any(given != 1 and given != size for given, size in pairs):
            raise ShapeError(f"indices of shape {tuple(sizes)}", f"(..., {grid.T}, n) for {full}", where=where)
        if self.indices.numel() and is_readable(self.indices) and int(self.indices.max()) * self.size >= grid.S:
            unit = "keys" if self.size == 1 else f"blocks of {self.size} keys"
            raise ShapeError(
                f"Index {int(self.indices.max())} is out of range: there are {-(-grid.S // self.size)} {unit}",
                where=where,
            )

    def implied_lead(self) -> tuple[int, ...]:
        return tuple(self.indices.shape[:-2])


@dataclass(frozen=True, eq=False, repr=False)
class Blocks(Keys):
    """Block-sparse attention: each query sees a list of chosen blocks; block b holds the keys from b * size up to, but
    not including, (b + 1) * size."""

    size: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.size, bool) or not isinstance(self.size, int) or self.size < 1:
            raise SettingError(f"size={self.size!r}", "a whole number of at least 1", where="masks.Blocks")


class Joined(Mask):
    """Several masks combined: the base class of All (&) and Any (|)."""

    def __init__(self, *masks: Mask) -> None:
        self.masks: tuple[Mask, ...] = tuple(
            inner
            for mask in masks
            for inner in (mask.masks if isinstance(mask, Joined) and type(mask) is type(self) else (mask,))
        )

    def part(self, lead: Lead) -> Mask:
        return type(self)(*(mask.part(lead) for mask in self.masks))

    def check(self, grid: Grid) -> None:
        for mask in self.masks:
            mask.check(grid)

    def implied_lead(self) -> tuple[int, ...]:
        leads = [mask.implied_lead() for mask in self.masks]
        deepest = max(leads, key=len)
        first = max((lead[0] for lead in leads if lead), default=1)  # lengths (B,) beside a table (1, H, T, S)
        return (max(first, deepest[0]), *deepest[1:]) if deepest else ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self.masks))})"


class All(Joined):
    """The intersection of masks: a & b."""

    @property
    def contiguous(self) -> bool:  # type: ignore[override]
        return all(mask.contiguous for mask in self.masks)

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return _reduce(torch.logical_and, [mask.allowed(rows, cols, grid) for mask in self.masks])

    def span(self, grid: Grid) -> tuple[Tensor, Tensor]:
        los, his = zip(*(mask.span(grid) for mask in self.masks), strict=True)
        lo, hi = _reduce(torch.maximum, los), _reduce(torch.minimum, his)
        return lo, torch.maximum(lo, hi)


class Any(Joined):
    """The union of masks: a | b."""

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return _reduce(torch.logical_or, [mask.allowed(rows, cols, grid) for mask in self.masks])


@dataclass(frozen=True)
class Not(Mask):
    """The complement of a mask: ~a."""

    mask: Mask

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return ~self.mask.allowed(rows, cols, grid)

    def part(self, lead: Lead) -> Mask:
        return Not(self.mask.part(lead))

    def check(self, grid: Grid) -> None:
        self.mask.check(grid)

    def implied_lead(self) -> tuple[int, ...]:
        return self.mask.implied_lead()

    def __invert__(self) -> Mask:
        return self.mask


def _reduce(join: Callable[[Tensor, Tensor], Tensor], tensors: Sequence[Tensor]) -> Tensor:
    result = tensors[0]
    for tensor in tensors[1:]:
        result = join(result, tensor)
    return result


def _require_mask(value: object) -> Mask:
    if isinstance(value, Mask):
        return value
    raise DtypeError(
        f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__,
        "a mask",
        where="masks",
        advice="masks.Dense(tensor) makes one from a boolean tensor.",
    )


def as_mask(mask: object) -> Mask:
    """The mask a user passed, as a Mask: None means Everything()."""
    return Everything() if mask is None else _require_mask(mask)


def _checked_lengths(values: Tensor | Sequence[int], name: str) -> Tensor:
    counts = torch.as_tensor(values)
    if counts.dim() != 1 or counts.is_floating_point() or counts.dtype == torch.bool:
        raise ShapeError(
            f"{counts.dtype} of shape {tuple(counts.shape)}",
            "one integer for each row of the batch, (B,)",
            where=f"Padding {name}",
        )
    if counts.numel() and is_readable(counts) and int(counts.min()) < 0:
        raise SettingError(f"a length of {int(counts.min())}", "lengths of at least 0", where=f"Padding {name}")
    return counts.long()


def _check_indices(indices: object, name: str) -> None:
    if not isinstance(indices, Tensor) or indices.is_floating_point() or indices.dtype == torch.bool:
        given = f"a tensor of {indices.dtype}" if isinstance(indices, Tensor) else type(indices).__name__
        raise DtypeError(given, "a tensor of whole numbers", where=f"masks.{name}")
    if indices.dim() < 2:
        raise ShapeError(f"indices of shape {tuple(indices.shape)}", "(..., T, n)", where=f"masks.{name}")


def _check_batch(values: Tensor, grid: Grid, where: str) -> None:
    if not grid.lead or values.size(0) != grid.lead[0]:
        raise ShapeError(
            f"{values.size(0)} rows",
            f"{grid.lead[0]} rows, the first leading dimension of {grid.lead}"
            if grid.lead
            else "a leading dimension to index",
            where=where,
        )
