"""A map walked through from top to bottom, some rows at a time, so that no more than those is ever held."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from regard.inspection.record.place import Place

ROWS = 256


def blocks(rows: Tensor) -> Iterator[Tensor]:
    """Numbers of queries (n,), as many at a time as are held together."""
    return (some for some in rows.split(ROWS) if len(some))


def reach(place: Place, rows: Tensor) -> slice:
    """The keys from the first to the last that any of these queries may see in any head; the others have no weight."""
    if place.kept is None:
        return slice(0, place.S)
    first, last = (end[:, rows] for end in (place.kept.sight.first, place.kept.sight.last))
    some = last > first
    return slice(int(first[some].min()), int(last[some].max())) if bool(some.any()) else slice(0, 0)
