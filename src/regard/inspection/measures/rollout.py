"""Attention rollout: how much of each input token is left in an output token, if every layer mixes as its weights say.

Abnar & Zuidema 2020: A = (W + I) / 2, since half of a vector is what it was before; rollout = A_L ... A_2 A_1. For one
output token that is a row vector times the layers, from the last to the first: no more than vectors is ever held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import SettingError, ShapeError
from regard.inspection.measures.streams import expect_token, steps_back
from regard.inspection.measures.walking import blocks, reach
from regard.inspection.record.place import Place
from regard.inspection.record.record import Record


def rollout(layers: Sequence[Tensor], residual: float = 0.5) -> Tensor:
    """Maps of the layers, first to last, each (T, T) or with heads (H, T, T), which are averaged: (T, T).

    `residual`: what share of a vector is what it was before. Rows are made to sum to one.
    """
    if not layers:
        raise SettingError("no layers", "at least one", where="rollout")
    found: Tensor | None = None
    for layer in layers:
        mixed = mixing(layer, residual)
        if found is not None and found.shape != mixed.shape:
            raise ShapeError(f"a layer {tuple(mixed.shape)}", f"{tuple(found.shape)}, as before it", where="rollout")
        found = mixed if found is None else mixed @ found
    assert found is not None
    return found


def mixing(layer: Tensor, residual: float = 0.5) -> Tensor:
    """What one layer makes of its vectors: (T, T), each row a share of every vector below. What looks nowhere
    stays, if anything does."""
    expect_share(residual)
    weights = layer.mean(0) if layer.dim() == 3 else layer
    if weights.dim() != 2 or weights.size(0) != weights.size(1):
        raise ShapeError(f"a layer {tuple(layer.shape)}", "(T, T) or (H, T, T)", where="rollout")
    mixed = (1 - residual) * weights + residual * torch.eye(len(weights), dtype=weights.dtype, device=weights.device)
    sums = mixed.sum(-1, keepdim=True)
    return mixed / sums.masked_fill(sums == 0, 1.0)


@dataclass(frozen=True, eq=False)
class Stage:
    """After the step back through a place: how much of the output token lies in each token, (N,) for each stream that
    it has reached, by the number of a side. All together is one."""

    place: str
    masses: Mapping[int, Tensor]


def rollout_row(record: Record, token: int, places: Sequence[str] | None = None, residual: float = 0.5) -> list[Stage]:
    """One output token, followed back through the record's places, the last first. All heads are averaged.

    Where a decoder looks across, a share of it goes over to the source; that then goes down through the encoder, the
    rest through the decoder. The last stage says where it all lies in the end.

    >>> rollout_row(record, 7)[-1].masses[0]     # of a text that looks at itself: (N,)  # doctest: +SKIP
    """
    expect_share(residual)
    steps = steps_back(record, places)
    first = steps[0]
    expect_token(token, first.place.T, "rollout_row")
    masses = {first.queries: torch.zeros(first.place.T, dtype=torch.float64)}
    masses[first.queries][token] = 1.0
    found = []
    for step in steps:
        nothing = torch.zeros(step.place.T, dtype=torch.float64)
        stayed, gone = through(step.place, masses.get(step.queries, nothing), residual)
        masses = {**masses, step.queries: stayed}
        masses[step.keys] = masses[step.keys] + gone if step.keys in masses else gone
        found.append(Stage(step.place.name, masses))
    return found


def through(place: Place, mass: Tensor, residual: float) -> tuple[Tensor, Tensor]:
    """Mass (T,) on the queries of a place, one step back: what stays with them (T,), what goes to the keys (S,)."""
    stayed, gone = torch.zeros_like(mass), mass.new_zeros(place.S)
    for rows in blocks(mass.nonzero().squeeze(-1)):  # the others have nothing to hand on
        keys = reach(place, rows)
        weights = averaged(place, rows, keys)
        sums = residual + (1 - residual) * weights.sum(-1)
        share = mass[rows] / sums.masked_fill(sums == 0, 1.0)
        stayed[rows] = residual * share
        gone[keys] += (1 - residual) * share @ weights
    return stayed, gone


def averaged(place: Place, rows: Tensor, keys: slice) -> Tensor:
    """The mean over the heads of these queries' weights on these keys, (t, s), in float64."""
    total = torch.zeros(len(rows), keys.stop - keys.start, dtype=torch.float64)
    for head in range(place.heads):
        total += place.tile(head, rows, keys)
    return total / place.heads


def expect_share(residual: float) -> None:
    if not 0 <= residual <= 1:
        raise SettingError(f"residual={residual}", "a share from 0 to 1", where="rollout")
