"""Attention flow (max-flow) from an output token to each input token, with attention weights as capacities.

Abnar & Zuidema 2020: every vector of every layer is a node, every weight of A = (W + I) / 2 an edge of that capacity;
the flow is the maximum flow between the two tokens (Dinic 1970). One maximum flow for each input token is expensive, so
long texts are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.errors import RecordError, SettingError
from regard.inspection.attribution.rollout import RolloutLayer, expect_layers

UNIT = 2**40  # capacities are whole numbers of 1 / UNIT, so that an edge is either saturated or not
MAX_TOKENS = 64


def flow(
    layers: Sequence[RolloutLayer], token: int, residual: float = 0.5, max_tokens: int = MAX_TOKENS
) -> dict[int, Tensor]:
    """From an output token, one of the last layer's queries, to every input token: (N,) for each stream.

    Layers first to last, with weights (T, S). More than `max_tokens` tokens are refused.
    """
    sizes = expect_layers(layers, residual, "flow")
    if max(sizes.values()) > max_tokens:
        advice = "Its cost grows with the fourth power of the length; rollout takes longer texts."
        raise SettingError(f"{max(sizes.values())} tokens", f"at most {max_tokens}", where="flow", advice=advice)
    output = layers[-1].queries
    if not 0 <= token < sizes[output]:
        raise RecordError(f"token {token}", f"one from 0 to {sizes[output] - 1}", where="flow")
    network = FlowNetwork()
    streams = {stream: network.add_nodes(size) for stream, size in sizes.items()}
    source = streams[output][token]
    for layer in reversed(layers):
        upper = streams[layer.queries]
        streams[layer.queries] = lower = network.add_nodes(len(upper))
        total = residual + (1 - residual) * layer.weights.sum(-1, keepdim=True)
        total = total.masked_fill(total == 0, 1.0)
        network.add_edges(upper, lower, torch.diag_embed((residual / total).squeeze(-1)))
        network.add_edges(upper, streams[layer.keys], (1 - residual) * layer.weights / total)
    return {stream: _max_flows(network, source, inputs) for stream, inputs in streams.items()}


@dataclass(eq=False)
class FlowNetwork:
    """A flow network: edge number n leads to node ends[n] with residual capacity capacities[n]; edge n ^ 1 is its
    reverse."""

    edges_of: list[list[int]] = field(default_factory=list)  # the edges that leave each node
    ends: list[int] = field(default_factory=list)
    capacities: list[int] = field(default_factory=list)

    def add_nodes(self, count: int) -> range:
        start = len(self.edges_of)
        self.edges_of.extend([] for _ in range(count))
        return range(start, start + count)

    def add_edges(self, upper: Sequence[int], lower: Sequence[int], capacities: Tensor) -> None:
        """Edges from each upper node to each lower one; none where the capacity is 0."""
        units = (capacities.detach().double().cpu() * UNIT).round().long().tolist()
        for start, row in zip(upper, units, strict=True):
            for end, capacity in zip(lower, row, strict=True):
                if capacity:
                    self.edges_of[start].append(len(self.ends))
                    self.edges_of[end].append(len(self.ends) + 1)
                    self.ends += [end, start]
                    self.capacities += [capacity, 0]

    def max_flow(self, source: int, sink: int) -> int:
        """The maximum flow from one node to another, in units; the network itself is not changed."""
        residual, total = self.capacities.copy(), 0
        while (levels := self._levels(source, sink, residual)) is not None:
            tried = [0] * len(self.edges_of)  # how many edges of each node are saturated or dead ends
            while path := self._augmenting_path(source, sink, residual, levels, tried):
                bottleneck = min(residual[edge] for edge in path)
                for edge in path:
                    residual[edge] -= bottleneck
                    residual[edge ^ 1] += bottleneck
                total += bottleneck
        return total

    def _levels(self, source: int, sink: int, residual: list[int]) -> list[int] | None:
        """The distance of each node from the source over unsaturated edges; None where the sink cannot be reached."""
        levels = [-1] * len(self.edges_of)
        levels[source], frontier = 0, [source]
        while frontier and levels[sink] < 0:
            following = []
            for node in frontier:
                for edge in self.edges_of[node]:
                    end = self.ends[edge]
                    if levels[end] < 0 and residual[edge]:
                        levels[end] = levels[node] + 1
                        following.append(end)
            frontier = following
        return None if levels[sink] < 0 else levels

    def _augmenting_path(
        self, source: int, sink: int, residual: list[int], levels: list[int], tried: list[int]
    ) -> list[int]:
        """The edges of a shortest augmenting path from the source to the sink; empty where all have been tried."""
        path: list[int] = []
        node = source
        while node != sink:
            edges = self.edges_of[node]
            while tried[node] < len(edges):
                edge = edges[tried[node]]
                if residual[edge] and levels[self.ends[edge]] == levels[node] + 1:
                    break
                tried[node] += 1
            if tried[node] < len(edges):
                path.append(edges[tried[node]])
                node = self.ends[path[-1]]
            elif not path:
                return []
            else:
                node = self.ends[path.pop() ^ 1]
                tried[node] += 1
        return path


def _max_flows(network: FlowNetwork, source: int, sinks: Sequence[int]) -> Tensor:
    return torch.tensor([network.max_flow(source, sink) / UNIT for sink in sinks], dtype=torch.float64)
