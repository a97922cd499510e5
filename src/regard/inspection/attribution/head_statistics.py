"""A head in a few numbers: how broadly, how far and where it looks; exact, in memory linear in the length."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from regard.errors import RecordError
from regard.inspection.record.place import Place

ROWS = 256  # of a map that are held together


@dataclass(frozen=True, eq=False)
class HeadStatistics:
    """One head in a few numbers: means over the `looking` queries, those that look somewhere.

    `entropy` in nats; `distance`: |i - j| of a query and what it looks at, weighted; then the share of the weight that
    falls on the first token, on oneself, on the token before and on the one after. `received` (S,): what each key got
    from all queries. In a map between two texts, a query's own token is the key with the same number.
    """

    head: int
    looking: int
    entropy: float
    distance: float
    first: float
    itself: float
    previous: float
    next: float
    received: Tensor


def head_statistics(place: Place, head: int) -> HeadStatistics:
    """These numbers of one head; of one that looks nowhere all are 0."""
    after = place.S - place.T if place.kind == "self" else 0  # cached keys sit left of the new ones
    mass = far = first = 0.0
    near = dict.fromkeys((0, -1, 1), 0.0)
    looking = 0
    kept, _ = place.number(head)
    for rows in torch.arange(place.T).split(ROWS):
        keys = slice(*kept.sight.reach(head, rows))
        weights = place.tile(head, rows, keys).double()
        away = torch.arange(place.S)[keys] - (rows + after).unsqueeze(-1)
        sums = weights.sum(-1)
        looking += int((sums > 0).sum())
        mass += float(sums.sum())
        far += float((weights * away.abs()).sum())
        first += float(weights[:, :1].sum()) if keys.start == 0 else 0.0
        for offset in near:
            near[offset] += float(weights[away == offset].sum())
    seen = place.statistics
    count = max(looking, 1)
    return HeadStatistics(
        head,
        looking,
        entropy=float(seen.entropy[head].double().sum()) / count,  # 0 where a query looks nowhere
        distance=far / mass if mass else 0.0,
        first=first / count,
        itself=near[0] / count,
        previous=near[-1] / count,
        next=near[1] / count,
        received=seen.received[head],
    )


def every_head(place: Place) -> list[HeadStatistics]:
    """The numbers of every head that the record kept."""
    if place.kept is None:
        raise RecordError(f"the heads of {place.name}", "a place that kept more than statistics", advice=place.why)
    return [head_statistics(place, head) for head in place.kept.heads]
