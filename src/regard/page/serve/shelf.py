"""What is kept between requests, within bounds: records that looks have made, and answers that may be asked again."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from threading import Lock
from typing import Generic, TypeVar

from regard.inspection.record.record import Record
from regard.page.serve.refusals import Missing, TooLarge

Key = TypeVar("Key", bound=Hashable)
Thing = TypeVar("Thing")
TOKEN = 256  # bytes that a token takes in Python, with its span and its word


class Shelf(Generic[Key, Thing]):
    """So many things, and so many bytes of them; what has not been used for the longest time goes first."""

    def __init__(self, size: Callable[[Thing], int], count: int | None, most: int) -> None:
        self.size, self.count, self.most = size, count, most
        self.held = 0
        self._things: OrderedDict[Key, tuple[Thing, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._things)

    def put(self, key: Key, thing: Thing) -> bool:
        """Whether there is room for it at all."""
        size = self.size(thing)
        if size > self.most:
            return False
        with self._lock:
            self._take(key)
            self._things[key] = (thing, size)
            self.held += size
            while self.held > self.most or (self.count is not None and len(self._things) > self.count):
                self._take(next(iter(self._things)))
        return True

    def get(self, key: Key) -> Thing | None:
        with self._lock:
            if key not in self._things:
                return None
            self._things.move_to_end(key)
            return self._things[key][0]

    def _take(self, key: Key) -> None:
        if key in self._things:
            self.held -= self._things.pop(key)[1]


class Records:
    """Records by their ids: those that were given stay; those that looks make come and go, and only who made one knows
    its id."""

    def __init__(self, given: Mapping[str, Record], count: int, most: int) -> None:
        self.given = dict(given)
        self.made: Shelf[str, Record] = Shelf(record_size, count, most)

    def add(self, record: Record) -> str:
        name = secrets.token_urlsafe(16)
        if not self.made.put(name, record):
            came = f"a record of {record_size(record):,} bytes"
            raise TooLarge(came, f"at most {self.made.most:,}", advice="Look at a shorter text.")
        return name

    def get(self, name: str) -> Record:
        record = self.given.get(name) or self.made.get(name)
        if record is None:
            advice = "Records are kept for a while only: look at the text again."
            raise Missing("a record that is not here", "the id of one that is", where="id", advice=advice)
        return record


def record_size(record: Record) -> int:
    """Bytes that a record takes in memory."""
    numbers = sum(tensor.nbytes for tensor in record.tensors().values())
    maps = [place.statistics.thumbnail for place in record.places]  # in the file they are four times smaller
    tokens = sum(len(side) * TOKEN + 4 * len(side.text) for side in record.sides)
    return numbers + sum(one.nbytes for one in maps if one is not None) + tokens
