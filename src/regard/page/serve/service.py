"""What the server does, apart from HTTP: it looks at texts, keeps records, and gives out parts of them."""

from __future__ import annotations

import json
import secrets
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Event, Lock
from typing import Any, Generic, TypeVar

from regard.adapters import ModelAdapter
from regard.errors import RegardError, SettingError
from regard.inspection import Record, RecordSpec, changed, collect, noted, notes_of
from regard.page import tiles
from regard.page.payload import finite, payload
from regard.page.serve.intervention import HeadChange, Outcome, forced_prefix, outcome, place_of
from regard.page.serve.limits import Limits
from regard.page.serve.queue import Work, WorkQueue, cancellable, check
from regard.page.serve.serve_errors import ServeError

Found = TypeVar("Found")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
STATISTICS = RecordSpec(heads=())
TOKEN = 256  # bytes that a token takes in Python, with its span and its word


class Service:
    """Holds what requests share: subjects by name, records by id, and three queues before three kinds of work."""

    def __init__(
        self,
        subjects: Sequence[ModelAdapter],
        records: Mapping[str, Record],
        limits: Limits,
        collect: Callable[..., Record] = collect,
    ) -> None:
        self.collect = collect
        self.subjects = {subject.name: subject for subject in subjects}
        if len(self.subjects) < len(subjects):
            names = ", ".join(subject.name for subject in subjects)
            raise SettingError(f"subjects named {names}", "names that differ", where="make_app")
        self.notes = {subject.name: notes_of(subject) for subject in subjects}
        self.limits = limits
        self.records = Records(records, limits.records, limits.record_bytes)
        self.cache: LRU[Any, tuple[bytes, bool]] = LRU(lambda answer: len(answer[0]) + 256, None, limits.cached_bytes)
        patience = limits.waiting_seconds
        self.looks = WorkQueue("looks", limits.looks, limits.waiting_looks, patience)
        self.tiles = WorkQueue("tiles", limits.tiles, limits.waiting_tiles, patience)
        self.downloads = WorkQueue("downloads", limits.downloads, limits.waiting_downloads, patience)

    def close(self) -> None:
        for queue in (self.looks, self.tiles, self.downloads):
            queue.close()

    async def look(self, run: str, text: str, other: str | None, prefix: Sequence[int] | None) -> str:
        """The id of a new record."""
        subject = self.subjects.get(run)
        if subject is None:
            raise ServeError("a run that is not here", "one that /api/runs tells of", where="run", status=404)
        _at_most("text", len(text), self.limits.characters, "characters")
        _at_most("other", len(other or ""), self.limits.characters, "characters")
        _at_most("prefix", len(prefix or ()), self.limits.prefix, "tokens")
        record = await self._ask(run, lambda: self.collect(subject, text, other, prefix=prefix))
        # so that a link to the record can go on from it
        asked = {"run": run, "text": text, "other": other, "prefix": None if prefix is None else list(prefix)}
        record = noted(record, self.notes[run])
        return self.records.add(replace(record, facts={**record.facts, "look": asked}))

    async def intervene(self, name: str, changes: Sequence[HeadChange]) -> Outcome:
        """What the model of a record says when some of its heads are changed, beside what it said."""
        record = self.records.get(name)
        asked = record.facts.get("look")
        subject = None if asked is None else self.subjects.get(asked["run"])
        if asked is None or subject is None:
            raise ServeError("a record whose model is not here", "one that a look has made", where="id", status=404)
        edits = [len(one.weights) for one in changes if not isinstance(one.weights, str)]
        _at_most("changes", len(changes), self.limits.changes, "of them")
        _at_most("weights", max(edits, default=0), self.limits.edits, "of them")
        meant = [one.change(record) for one in changes]
        forced = forced_prefix(record, asked)

        def work() -> Outcome:
            with changed(subject, meant):
                same = self.collect(subject, asked["text"], asked["other"], prefix=forced, spec=STATISTICS)
                anew = None
                if forced is not None:
                    anew = self.collect(subject, asked["text"], prefix=asked.get("prefix"), spec=STATISTICS)
            return outcome(record, same, anew)

        return await self._ask(asked["run"], work)

    async def _ask(self, run: str, work: Callable[[], Found]) -> Found:
        """Run a model, in the queue of looks."""

        def cancelled_early(stop: Event) -> Found:
            with cancellable(stop):
                found = work()
            check(stop)
            return found

        try:
            return await self.looks.run(cancelled_early, self.limits.look_seconds)
        except ServeError:
            raise
        except RegardError as error:  # its place is a path or a part of the model: to a client it is the run
            raise ServeError(error.came, error.expected, where=run, advice=error.advice) from None

    async def tile(self, name: str, number: int, head: int, area: tiles.Area) -> tuple[bytes, bool]:
        """float32, little-endian, and whether it is exact."""
        _at_most("rows", area.rows, self.limits.cells, "rows")
        _at_most("cols", area.cols, self.limits.cells, "cols")
        place = place_of(self.records.get(name), number, head)
        area.fit(place)

        def work(stop: Event) -> tuple[bytes, bool]:
            means, exact = tiles.tile(place, head, area, self.limits.exact, partial(check, stop))
            return _bytes(means), exact

        key = (name, number, head, area)
        held = self.cache.get(key)
        if held is None:
            held = await self.tiles.run(work, self.limits.tile_seconds)
            self.cache.put(key, held)
        return held

    async def row(self, name: str, number: int, head: int, query: int) -> bytes:
        place = place_of(self.records.get(name), number, head)
        return await self.tiles.run(lambda stop: _bytes(tiles.row(place, head, query)), self.limits.tile_seconds)

    async def pair(self, name: str, number: int, head: int, query: int, key: int) -> tiles.Pair:
        place = place_of(self.records.get(name), number, head)
        return await self.tiles.run(lambda stop: tiles.pair(place, head, query, key), self.limits.tile_seconds)

    def payload(self, name: str) -> Work[bytes]:
        """Work that makes what the page needs of a record, or finds it made."""
        record = self.records.get(name)

        def work(stop: Event) -> bytes:
            held = self.cache.get(name)
            if held is None:
                held = payload(record, self.limits.payload_bytes), True
                self.cache.put(name, held)
            return held[0]

        return work

    def file(self, name: str) -> Work[bytes]:
        """Work that makes the file of a record."""
        record = self.records.get(name)
        return lambda stop: record.bytes()

    def told(self, name: str) -> Work[bytes]:
        """Work that says, in JSON, all of a record but its numbers."""
        record = self.records.get(name)
        return lambda stop: json.dumps(finite(record.told()), ensure_ascii=False, allow_nan=False).encode()


def _at_most(where: str, count: int, most: int, noun: str) -> None:
    if count > most:
        raise ServeError(f"{count:,} {noun}", f"at most {most:,}", where=where)


def _bytes(numbers: Any) -> bytes:
    found: bytes = numbers.numpy().astype("<f4").tobytes()
    return found


class LRU(Generic[Key, Value]):
    """A cache of so many values, and so many bytes of them; the least recently used goes first.
    (functools.lru_cache bounds the count alone.)"""

    def __init__(self, size: Callable[[Value], int], count: int | None, most: int) -> None:
        self.size, self.count, self.most = size, count, most
        self.held = 0  # bytes
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: Key, value: Value) -> bool:
        """Whether there is room for it at all."""
        size = self.size(value)
        if size > self.most:
            return False
        with self._lock:
            self.held += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = (value, size)
            while self.held > self.most or (self.count is not None and len(self._values) > self.count):
                self.held -= self._values.popitem(last=False)[1][1]
        return True

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]


class Records:
    """Records by their ids: those that were given stay; those that looks make come and go, and only who made one knows
    its id."""

    def __init__(self, given: Mapping[str, Record], count: int, most: int) -> None:
        self.given = dict(given)
        self.made: LRU[str, Record] = LRU(record_size, count, most)

    def add(self, record: Record) -> str:
        name = secrets.token_urlsafe(16)
        if not self.made.put(name, record):
            came = f"a record of {record_size(record):,} bytes"
            raise ServeError(came, f"at most {self.made.most:,}", advice="Look at a shorter text.", status=413)
        return name

    def get(self, name: str) -> Record:
        record = self.given.get(name) or self.made.get(name)
        if record is None:
            advice = "Records are kept for a while only: look at the text again."
            raise ServeError(
                "a record that is not here", "the id of one that is", where="id", advice=advice, status=404
            )
        return record


def record_size(record: Record) -> int:
    """Bytes that a record takes in memory."""
    numbers = sum(tensor.nbytes for tensor in record.tensors().values())
    maps = [place.statistics.thumbnail for place in record.places]  # in the file they are four times smaller
    tokens = sum(len(side) * TOKEN + 4 * len(side.text) for side in record.sides)
    return numbers + sum(one.nbytes for one in maps if one is not None) + tokens
