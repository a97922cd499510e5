"""Do two orders of the tokens agree? Kendall's tau of maps with gradients and with leaving one token out.

Jain & Wallace 2019, algorithm 1: what attention holds most important ought to be what moves the output.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from regard.adapters.case import Row
from regard.trust.answers import Answers
from regard.trust.distances import kendall_tau, tvd


def left_out(answers: Answers, rows: Sequence[Row], said: Tensor) -> Tensor:
    """How far the output moves, by total variation, when a token is not there: (B, S), 0 where it has to stay.

    said (B, C): p as it is.
    """
    places = [(row, at) for row, one in enumerate(rows) for at, free in enumerate(one.free) if free]
    moved = answers([rows[row].without([at]) for row, at in places])
    found = said.new_zeros(len(rows), max(len(row.ids) for row in rows))
    for (row, at), p in zip(places, moved, strict=True):
        found[row, at] = tvd(p, said[row])
    return found


def agreements(maps: Mapping[str, Tensor], references: Mapping[str, Tensor], free: Sequence[bool]) -> Tensor:
    """Tau of every map (S,) of one text with every reference (S,), both by how much and not which way, over the tokens
    that may be taken away: (maps, references)."""
    chosen = torch.tensor(free).nonzero().squeeze(-1)
    stacked = torch.stack([x[chosen].abs() for x in maps.values()])
    return torch.stack([kendall_tau(stacked, other[chosen].abs()) for other in references.values()], -1)
