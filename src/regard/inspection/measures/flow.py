"""Attention flow: how much of an input token could reach an output token, if the weights were widths of pipes.

Abnar & Zuidema 2020: every vector of every layer is a node, every weight of A = (W + I) / 2 a pipe of that capacity;
flow is the greatest that fits through all pipes together from the one token to the other (Dinic 1970). One such for
each input token costs a great deal, so long texts are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.inspection.measures.rollout import averaged, expect_share, mixing
from regard.inspection.measures.streams import expect_token, steps_back
from regard.inspection.record.record import Record

UNIT = 2**40  # capacities are whole numbers of 1 / UNIT, so that a pipe is either full or not
MOST = 64  # tokens


def flow(layers: Sequence[Tensor], token: int, residual: float = 0.5, most: int = MOST) -> Tensor:
    """From the output token to every input token, (T,), through maps of the layers, first to last: (T, T) or (H, T, T).

    More than `most` tokens are refused.
    """
    if not layers:
        raise SettingError("no layers", "at least one", where="flow")
    tokens = layers[0].size(-1)
    expect_few(tokens, most)
    expect_token(token, tokens, "flow")
    pipes = Pipes()
    upper = top = pipes.nodes(tokens)
    for layer in reversed(layers):
        lower = pipes.nodes(tokens)
        pipes.lay(upper, lower, mixing(layer, residual))
        upper = lower
    return _to_each(pipes, top[token], upper)


def flow_row(
    record: Record, token: int, places: Sequence[str] | None = None, residual: float = 0.5, most: int = MOST
) -> dict[int, Tensor]:
    """The same through the places of a record: flow to every token that was read, by the number of its side."""
    expect_share(residual)
    steps = steps_back(record, places)
    expect_few(max(max(step.place.T, step.place.S) for step in steps), most)
    expect_token(token, steps[0].place.T, "flow_row")
    pipes = Pipes()
    streams = {steps[0].queries: pipes.nodes(steps[0].place.T)}
    source = streams[steps[0].queries][token]
    for step in steps:
        weights = averaged(step.place, torch.arange(step.place.T), slice(0, step.place.S))
        sums = residual + (1 - residual) * weights.sum(-1, keepdim=True)
        sums = sums.masked_fill(sums == 0, 1.0)
        upper = streams.setdefault(step.queries, pipes.nodes(step.place.T))
        streams[step.queries] = lower = pipes.nodes(step.place.T)
        pipes.lay(upper, lower, torch.diag_embed((residual / sums).squeeze(-1)))
        below = streams.setdefault(step.keys, pipes.nodes(step.place.S))
        pipes.lay(upper, below, (1 - residual) * weights / sums)
    return {stream: _to_each(pipes, source, inputs) for stream, inputs in streams.items()}


def expect_few(tokens: int, most: int) -> None:
    if tokens > most:
        advice = "Its cost grows with the fourth power of the length; rollout is linear in memory and takes any length."
        raise SettingError(f"{tokens} tokens", f"at most {most}", where="flow", advice=advice)


@dataclass(eq=False)
class Pipes:
    """A network: pipe number n leads to ends[n] and has room[n] left; pipe n ^ 1 is the same one backwards."""

    leaving: list[list[int]] = field(default_factory=list)  # the pipes of each node
    ends: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)

    def nodes(self, count: int) -> range:
        start = len(self.leaving)
        self.leaving.extend([] for _ in range(count))
        return range(start, start + count)

    def lay(self, upper: Sequence[int], lower: Sequence[int], capacities: Tensor) -> None:
        """Pipes from each upper node to each lower one; where there is no capacity there is no pipe."""
        units = (capacities.detach().double().cpu() * UNIT).round().long().tolist()
        for start, row in zip(upper, units, strict=True):
            for end, capacity in zip(lower, row, strict=True):
                if capacity:
                    self.leaving[start].append(len(self.ends))
                    self.leaving[end].append(len(self.ends) + 1)
                    self.ends += [end, start]
                    self.room += [capacity, 0]

    def greatest(self, source: int, sink: int) -> int:
        """The greatest flow from one node to another, in units; the network itself is left as it was."""
        room, total = self.room.copy(), 0
        while (depths := self._depths(source, sink, room)) is not None:
            tried = [0] * len(self.leaving)  # how many of each node's pipes are full or lead nowhere
            while way := self._way(source, sink, room, depths, tried):
                narrowest = min(room[pipe] for pipe in way)
                for pipe in way:
                    room[pipe] -= narrowest
                    room[pipe ^ 1] += narrowest
                total += narrowest
        return total

    def _depths(self, source: int, sink: int, room: list[int]) -> list[int] | None:
        """How many pipes with room lie between the source and each node; None where none lead to the sink."""
        depths = [-1] * len(self.leaving)
        depths[source], near = 0, [source]
        while near and depths[sink] < 0:
            further = []
            for node in near:
                for pipe in self.leaving[node]:
                    end = self.ends[pipe]
                    if depths[end] < 0 and room[pipe]:
                        depths[end] = depths[node] + 1
                        further.append(end)
            near = further
        return None if depths[sink] < 0 else depths

    def _way(self, source: int, sink: int, room: list[int], depths: list[int], tried: list[int]) -> list[int]:
        """The pipes of a shortest way that has room, from the source to the sink; none where all have been tried."""
        way: list[int] = []
        node = source
        while node != sink:
            pipes = self.leaving[node]
            while tried[node] < len(pipes):
                pipe = pipes[tried[node]]
                if room[pipe] and depths[self.ends[pipe]] == depths[node] + 1:
                    break
                tried[node] += 1
            if tried[node] < len(pipes):
                way.append(pipes[tried[node]])
                node = self.ends[way[-1]]
            elif not way:
                return []
            else:
                node = self.ends[way.pop() ^ 1]
                tried[node] += 1
        return way


def _to_each(pipes: Pipes, source: int, sinks: Sequence[int]) -> Tensor:
    return torch.tensor([pipes.greatest(source, sink) / UNIT for sink in sinks], dtype=torch.float64)
