"""Head statistics: entropy, mean distance, and the weight on the first token (attention sink), the same, the previous
and the next token; exact, in memory linear in the length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RecordError
from regard.inspection.record.mask_codec import MaskSpans
from regard.inspection.record.place import PlaceRecord

BLOCK_ROWS = 256  # rows of a map that are in memory together


@dataclass(frozen=True, eq=False, repr=False)
class HeadStatistics:
    """The statistics of one head: means over its `active_queries`, those that attend to at least one key.

    `entropy` in nats; `distance`: the weighted mean of |i - j|; then the shares of the weight on the first token, on
    the same token, on the previous one and on the next one. `received` (S,): the total weight of each key. In a map
    between two texts, the same token is the key with the same number. Queries of a pooled sequence have no position
    among their keys: there `distance`, `same`, `previous` and `next` are None.
    """

    head: int
    active_queries: int
    entropy: float
    distance: float | None
    first: float
    same: float | None
    previous: float | None
    next: float | None
    received: Tensor

    def __repr__(self) -> str:
        named = ("entropy", "distance", "first", "same", "previous", "next")
        values = {name: getattr(self, name) for name in named}
        shown = ", ".join(f"{name}={'None' if one is None else f'{one:.3g}'}" for name, one in values.items())
        return f"HeadStatistics(head={self.head}, {shown})"


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
    placed = _has_positions(place, stored.mask)
    return HeadStatistics(
        head,
        active,
        entropy=float(observed.entropy[head].double().sum()) / count,  # 0 where a query attends to nothing
        distance=(far / mass if mass else 0.0) if placed else None,
        first=first / count,
        same=near[0] / count if placed else None,
        previous=near[-1] / count if placed else None,
        next=near[1] / count if placed else None,
        received=observed.received[head],
    )


def _has_positions(place: PlaceRecord, mask: MaskSpans) -> bool:
    """Whether queries have positions among the keys. Where there are fewer of them, they are the last tokens of a text
    with cached keys if the mask is causal, since each then sees the keys up to its own position; else they are pooled.
    """
    if place.kind == "cross" or place.T == place.S:
        return True
    return bool((mask.last == torch.arange(place.S - place.T, place.S, dtype=mask.last.dtype) + 1).all())


def all_head_statistics(place: PlaceRecord) -> list[HeadStatistics]:
    """The statistics of every head whose map is stored."""
    if place.stored is None:
        raise RecordError("The record has no maps of this place", where=place.name, advice=place.why)
    return [head_statistics(place, head) for head in place.stored.heads]
