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

from regard.errors import RecordError, SettingError
from regard.inspection.attribution.rollout import RolloutLayer, expect_layers

UNIT = 2**40  # capacities are whole numbers of 1 / UNIT, so that a pipe is either full or not
MOST = 64  # tokens


def flow(layers: Sequence[RolloutLayer], token: int, residual: float = 0.5, most: int = MOST) -> dict[int, Tensor]:
    """From an output token, one of the last layer's queries, to every input token: (N,) for each stream.

    Layers first to last, with weights (T, S). More than `most` tokens are refused.
    """
    sizes = expect_layers(layers, residual, "flow")
    if max(sizes.values()) > most:
        advice = "Its cost grows with the fourth power of the length; rollout takes longer texts."
        raise SettingError(f"{max(sizes.values())} tokens", f"at most {most}", where="flow", advice=advice)
    output = layers[-1].queries
    if not 0 <= token < sizes[output]:
        raise RecordError(f"token {token}", f"one of the {sizes[output]}, counted from 0", where="flow")
    pipes = Pipes()
    streams = {stream: pipes.nodes(size) for stream, size in sizes.items()}
    source = streams[output][token]
    for layer in reversed(layers):
        upper = streams[layer.queries]
        streams[layer.queries] = lower = pipes.nodes(len(upper))
        total = residual + (1 - residual) * layer.weights.sum(-1, keepdim=True)
        total = total.masked_fill(total == 0, 1.0)
        pipes.lay(upper, lower, torch.diag_embed((residual / total).squeeze(-1)))
        pipes.lay(upper, streams[layer.keys], (1 - residual) * layer.weights / total)
    return {stream: _to_each(pipes, source, inputs) for stream, inputs in streams.items()}


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
