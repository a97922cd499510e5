"""The sequences of a place's calls: rows of a batch, windows, chunks and the calls of a shared layer, told apart.

The leading dimension of a call is the batch only where it is as long: windowed attention has a sequence for each window
there. A module that attends chunk by chunk makes several calls in one forward pass; a layer that a model shares is
called again and again. What is one map and what are several follows from these numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.attention import HEAD_COUNTS, Attended, AttentionInputs, Lead, cut

Join = Literal["steps", "chunks", "windows"]
"""steps: the queries of a call come after those of earlier calls, and attend to the same keys or more of them; chunks
and windows: the queries of each sequence see its own keys alone."""


class Moment(NamedTuple):
    """When a call was made: its number among all calls, the number of its module's forward pass, and the lengths of the
    sequences that this pass was given."""

    number: int
    forward: int
    lengths: frozenset[int]


@dataclass(frozen=True, eq=False)
class CallSlice:
    """One sequence of a call: a part of its leading dimensions, with all heads."""

    call: Attended
    lead: Lead

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of its queries and keys."""
        assert self.call.received is not None
        return self.call.lse.size(-1), self.call.received.size(-1)

    def statistic(self, x: Tensor | None, trailing: int) -> Tensor:
        """(H, ...) of a statistic of the call, on the CPU."""
        assert x is not None, "a record needs the statistics of record_observe"
        return cut(x, self.lead, trailing=trailing).reshape(-1, *x.shape[x.dim() - trailing :]).detach().cpu()

    def vectors(self, x: Tensor) -> Tensor:
        """(H, N, D) of vectors (..., N, D), such as values, whose heads may be fewer."""
        return cut(x, self.lead).reshape(-1, *x.shape[-2:]).detach().float().cpu()

    def inputs(self) -> AttentionInputs:
        """What its tiles are recomputed from."""
        prepared = self.call.prepared
        assert prepared is not None, "a record needs Observe(prepared=True)"
        return prepared.part(self.lead).precise()


@dataclass(frozen=True, eq=False)
class BatchRow:
    """The row of a batch of `rows` that is shown. `even`: every input had one entry for each row."""

    row: int = 0
    rows: int = 1
    even: bool = True

    def numbers_of(self, count: int) -> tuple[range, str]:
        """The numbers of the sequences of this row, among `count` sequences of a call, and what they are in words."""
        if count == self.rows:
            return range(self.row, self.row + 1), ""
        each, rest = divmod(count, self.rows)
        if rest or (self.rows > 1 and not self.even):
            among = f"all {count} sequences of the call" if count > 1 else "one sequence"
            return range(count), f"{among}, for all {self.rows} rows of the batch together"
        note = f"{each} sequences of one call, each seeing its own keys alone"
        first, last = self.row * each, (self.row + 1) * each - 1
        if self.rows > 1:
            note += f" (numbers {first} to {last} of {count}: the rows of the batch lie one after another)"
        return range(first, last + 1), note


@dataclass(frozen=True, eq=False)
class PlaceCalls:
    """What a record shows as one place.

    name     that of its module, with the number of the call where there are several
    calls    the numbers of its calls among those of the module
    slices   their sequences, in order
    note     what the map consists of, in words, where it is not one call of one sequence
    first    the number of its first call among all calls of the model
    """

    name: str
    module: str
    calls: tuple[int, ...]
    slices: tuple[CallSlice, ...]
    join: Join = "steps"
    note: str = ""
    first: int = 0
    call: int | None = None


def row_slice(call: Attended, row: int = 0) -> CallSlice:
    """One row of a call whose first leading dimension is the batch."""
    sizes = call.lse.shape[:-1]
    rest = tuple(slice(0, size) for size in sizes[1:])
    return CallSlice(call, (slice(row, row + 1), *rest) if sizes else ())


def batch_rows(calls: Mapping[str, Sequence[Attended]], possible: Sequence[int]) -> int:
    """The rows of the batch: as many as some call has sequences, or so that a call has several for each; else 1."""
    leads = {call.lse.shape[0] for some in calls.values() for call in some if call.lse.dim() > 1}
    same = [rows for rows in possible if rows in leads]
    return next(iter((*same, *(rows for rows in possible if any(lead % rows == 0 for lead in leads)))), 1)


def split_calls(
    module: nn.Module, place: str, calls: Sequence[Attended], moments: Sequence[Moment], batch: BatchRow
) -> list[PlaceCalls]:
    """The calls of a place of any model, as the places of a record: several where they are not one map."""
    sequences = [_sequences(module, call, batch) for call in calls]
    numbers = tuple(range(len(calls)))
    first = moments[0].number
    if len(calls) == 1:
        [(slices, note)] = sequences
        return [PlaceCalls(place, place, numbers, slices, _join_of(slices), note, first)]
    if _are_chunks(sequences, moments):
        slices = tuple(one for some, _ in sequences for one in some)
        note = "; ".join(
            [
                f"{len(calls)} chunks in order: a query sees the keys of its own chunk alone",
                *filter(None, [sequences[0][1]]),
            ]
        )
        return [PlaceCalls(place, place, numbers, slices, "chunks", note, first)]
    if _are_steps([slices for slices, _ in sequences]):
        return [PlaceCalls(place, place, numbers, tuple(slices[0] for slices, _ in sequences), "steps", "", first)]
    found = []
    for number, (slices, note) in enumerate(sequences):
        name = f"{place}, call {number + 1} of {len(calls)}"
        how = _join_of(slices)
        found.append(PlaceCalls(name, place, (number,), slices, how, note, moments[number].number, number))
    return found


def _join_of(slices: Sequence[CallSlice]) -> Join:
    return "windows" if len(slices) > 1 else "steps"


def _sequences(module: nn.Module, call: Attended, batch: BatchRow) -> tuple[tuple[CallSlice, ...], str]:
    """The sequences of a call that belong to a row of the batch, and what they are in words, if not simply that row."""
    lead = tuple(call.lse.shape[:-1])
    if not lead:
        return (CallSlice(call, ()),), ""
    if len(lead) == 1:
        return _flat_sequences(call, lead[0], batch)
    heads = _head_dim(module, lead)
    others = [dim for dim in range(len(lead)) if dim != heads]
    count = prod(lead[dim] for dim in others)
    numbers, note = batch.numbers_of(count)
    slices = []
    for number in numbers:
        at: list[slice] = [slice(0, size) for size in lead]
        for dim in reversed(others):
            number, index = divmod(number, lead[dim])
            at[dim] = slice(index, index + 1)
        slices.append(CallSlice(call, tuple(at)))
    return tuple(slices), note


def _flat_sequences(call: Attended, count: int, batch: BatchRow) -> tuple[tuple[CallSlice, ...], str]:
    """A call (n, T, S) without a dimension of heads: those of a row are taken as heads, since none may be lost."""
    numbers, note = batch.numbers_of(count)
    if len(numbers) == 1:
        return (CallSlice(call, (slice(numbers.start, numbers.stop),)),), note
    note = f"{len(numbers)} maps of one call without a dimension of heads, shown as heads"
    return (CallSlice(call, (slice(numbers.start, numbers.stop),)),), note


def _head_dim(module: nn.Module, lead: tuple[int, ...]) -> int:
    """The leading dimension of the heads: the last one, unless only another is as long as the module has heads."""
    count = next((n for name in HEAD_COUNTS if isinstance(n := getattr(module, name, None), int)), None)
    fits = [dim for dim in range(1, len(lead)) if lead[dim] == count]
    return fits[0] if len(fits) == 1 else len(lead) - 1


def _are_chunks(sequences: Sequence[tuple[tuple[CallSlice, ...], str]], moments: Sequence[Moment]) -> bool:
    """Whether the calls are consecutive parts of the one sequence that a single forward pass of the module was given:
    as many queries as keys in each, and together as many as that sequence has positions."""
    if len({moment.forward for moment in moments}) > 1 or any(len(slices) != 1 for slices, _ in sequences):
        return False
    sizes = [slices[0].size for slices, _ in sequences]
    return all(T == S for T, S in sizes) and sum(T for T, _ in sizes) in moments[0].lengths


def _are_steps(sequences: Sequence[tuple[CallSlice, ...]]) -> bool:
    """Whether queries come one at a time, after the first call, and attend to the same keys or more of them."""
    if any(len(slices) != 1 for slices in sequences):
        return False
    slices = [one for [one] in sequences]
    if any(one.size[0] != 1 for one in slices[1:]):
        return False
    keys = [one.inputs().k for one in slices]
    return all(
        before.size(-2) <= after.size(-2) and torch.equal(before, after[..., : before.size(-2), :])
        for before, after in pairwise(keys)
    )
