"""Which vectors feed which: the places of a record as steps from what a model says back to what it read.

The tokens of one text are a stream that goes up through the layers. Where tokens look at their own text, a step leads
from the stream to itself one layer lower; where they look across, a part of them stays, and a part goes over to the
stream of the other text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from regard.errors import RecordError
from regard.inspection.record.place import Place
from regard.inspection.record.record import Record


@dataclass(frozen=True, eq=False)
class Back:
    """One step back: from the stream of a place's queries to that of its keys, each told by the number of a side."""

    place: Place
    queries: int
    keys: int


def steps_back(record: Record, places: Sequence[str] | None = None) -> list[Back]:
    """The places of a record, all or the named ones, from the last to the first: a record has them in model order."""
    wanted = None if places is None else {record.place(name).name for name in places}
    same = _streams(record)
    found = [
        Back(place, same.get(place.queries, place.queries), same.get(place.keys, place.keys))
        for place in reversed(record.places)
        if wanted is None or place.name in wanted
    ]
    if not found:
        raise RecordError("no places", "at least one to go back through", where="steps_back")
    lengths: dict[int, int] = {}
    for step in found:
        for stream, count in ((step.queries, step.place.T), (step.keys, step.place.S)):
            if lengths.setdefault(stream, count) != count:
                came = f"{count} tokens at {step.place.name}"
                raise RecordError(came, f"{lengths[stream]}, as at the other places", where="steps_back")
    return found


def _streams(record: Record) -> dict[int, int]:
    """The side that stands for a stream, for every other side of it.

    A decoder says tokens that stand one place further than those it reads: two sides, but one stream. So is what looks
    at itself; and what only ever looks across, where just before as many tokens of another text than that which it
    looks at have looked at themselves.
    """
    same: dict[int, int] = {}
    alone = {side for place in record.places if place.kind == "self" for side in (place.queries, place.keys)}
    before: Place | None = None
    for place in record.places:
        if place.kind == "self":
            before = place
            if place.queries != place.keys:
                same[place.queries] = place.keys
        elif place.queries not in alone and before is not None and before.T == place.T and before.keys != place.keys:
            same[place.queries] = before.keys
    return same


def expect_token(token: int, count: int, where: str) -> None:
    if not 0 <= token < count:
        raise RecordError(f"token {token}", f"one of the {count}, counted from 0", where=where)
