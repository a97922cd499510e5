"""Head statistics: entropy, mean distance, and the weight on the first token (attention sink), the same, the previous
and the next token; exact, in memory linear in the length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RecordError
from regard.inspection.record.place import PlaceRecord

BLOCK_ROWS = 256  # rows of a map that are in memory together


@dataclass(frozen=True, eq=False, repr=False)
class HeadStatistics:
    """The statistics of one head: means over its `active_queries`, those that attend to at least one key.

    `entropy` in nats; `distance`: the weighted mean of |i - j|; then the shares of the weight on the first token, on
    the same token, on the previous one and on the next one. `received` (S,): the total weight of each key. In a map
    between two texts, the same token is the key with the same number.
    """

    head: int
    active_queries: int
    entropy: float
    distance: float
    first: float
    same: float
    previous: float
    next: float
    received: Tensor

    def __repr__(self) -> str:
        named = ("entropy", "distance", "first", "same", "previous", "next")
        return f"HeadStatistics(head={self.head}, {', '.join(f'{name}={getattr(self, name):.3g}' for name in named)})"


def head_statistics(place: PlaceRecord, head: int) -> HeadStatistics:
    """The statistics of one head; all are 0 where no query attends to anything."""
    offset = place.S - place.T if place.kind == "self" else 0  # cached keys sit left of the new ones
    mass = far = first = 0.0
    near = dict.fromkeys((0, -1, 1), 0.0)
    active = 0
    stored, _ = place.stored_head(head)
    for rows in torch.arange(place.T).split(BLOCK_ROWS):
        keys = slice(*stored.mask.key_range(head, rows))
        weights = place.tile(head, rows, keys).double()
        distance = torch.arange(place.S)[keys] - (rows + offset).unsqueeze(-1)
        sums = weights.sum(-1)
        active += int((sums > 0).sum())
        mass += float(sums.sum())
        far += float((weights * distance.abs()).sum())
        first += float(weights[:, :1].sum()) if keys.start == 0 else 0.0
        for step in near:
            near[step] += float(weights[distance == step].sum())
    observed = place.statistics
    count = max(active, 1)
    return HeadStatistics(
        head,
        active,
        entropy=float(observed.entropy[head].double().sum()) / count,  # 0 where a query attends to nothing
        distance=far / mass if mass else 0.0,
        first=first / count,
        same=near[0] / count,
        previous=near[-1] / count,
        next=near[1] / count,
        received=observed.received[head],
    )


def all_head_statistics(place: PlaceRecord) -> list[HeadStatistics]:
    """The statistics of every head whose map is stored."""
    if place.stored is None:
        raise RecordError("The record has no maps of this place", where=place.name, advice=place.why)
    return [head_statistics(place, head) for head in place.stored.heads]
