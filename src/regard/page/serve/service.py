"""The service behind the API: runs models on texts, stores records, computes tiles, and runs interventions."""

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
from regard.errors import RecordError, RegardError, SettingError, unknown
from regard.inspection import Record, RecordSpec, apply_interventions, collect, find_head_labels, with_head_labels
from regard.page import tiles
from regard.page.payload import finite_or_null, pack_payload
from regard.page.serve.intervention import HeadChange, InterventionResult, compare_records, find_place, forced_prefix
from regard.page.serve.limits import Limits
from regard.page.serve.queue import Work, WorkQueue, cancellable, raise_if_cancelled
from regard.page.serve.serve_errors import ServeError

Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
STATISTICS_ONLY = RecordSpec(heads=())
TOKEN_BYTES = 256  # memory of a token in Python, with its span and its word


class Service:
    """The state that requests share: adapters by name, records by id, a cache, and a queue for each kind of work."""

    def __init__(
        self,
        adapters: Sequence[ModelAdapter],
        records: Mapping[str, Record | RecordError],
        limits: Limits,
        collect: Callable[..., Record] = collect,
    ) -> None:
        self.collect = collect
        self.adapters = {adapter.name: adapter for adapter in adapters}
        if len(self.adapters) < len(adapters):
            names = ", ".join(one.name for one in adapters)
            raise SettingError(f"Two models have the same name: {names}", where="make_app")
        for adapter in adapters:
            _expect_unicode(adapter.name, "name")
            _expect_unicode(adapter.description, "description")
        self.notes = {adapter.name: find_head_labels(adapter) for adapter in adapters}
        self.limits = limits
        self.records = RecordStore(records, limits.records, limits.record_bytes)
        self.cache: LRU[Any, tuple[bytes, bool]] = LRU(lambda tile: len(tile[0]) + 256, None, limits.cached_bytes)
        max_wait = limits.waiting_seconds
        self.looks = WorkQueue("looks", limits.looks, limits.waiting_looks, max_wait)
        self.tiles = WorkQueue("tiles", limits.tiles, limits.waiting_tiles, max_wait)
        self.downloads = WorkQueue("downloads", limits.downloads, limits.waiting_downloads, max_wait)

    def stop(self) -> None:
        """Answer all requests that wait or run: the server is stopping."""
        for queue in (self.looks, self.tiles, self.downloads):
            queue.stop()

    def close(self) -> None:
        for queue in (self.looks, self.tiles, self.downloads):
            queue.close()

    async def look(self, run: str, text: str, other: str | None, prefix: Sequence[int] | None) -> str:
        """The id of a new record."""
        adapter = self.adapters.get(run)
        if adapter is None:
            advice = unknown(run[:60], self.adapters, kind="run", where="run").advice
            raise ServeError(f"Unknown run {run[:60]!r}", where="run", advice=advice, status=404)
        _check_at_most("text", len(text), self.limits.characters, "characters")
        _check_at_most("other", len(other or ""), self.limits.characters, "characters")
        _check_at_most("prefix", len(prefix or ()), self.limits.prefix, "tokens")
        record = await self._run_model(run, lambda: self.collect(adapter, text, other, prefix=prefix))
        # stored, so that a client that opens the record later can regenerate and intervene
        request = {"run": run, "text": text, "other": other, "prefix": None if prefix is None else list(prefix)}
        record = with_head_labels(record, self.notes[run])
        return self.records.add(replace(record, facts={**record.facts, "look": request}))

    async def intervene(self, name: str, changes: Sequence[HeadChange]) -> InterventionResult:
        """The output of the model of a record with changed heads, compared with the original output."""
        record = self.records.get(name)
        request = record.facts.get("look")
        adapter = None if request is None else self.adapters.get(request["run"])
        if request is None or adapter is None:
            raise ServeError("The model of this record is not available", where="id", status=404)
        edits = [len(one.weights) for one in changes if not isinstance(one.weights, str)]
        _check_at_most("changes", len(changes), self.limits.changes, "changes")
        _check_at_most("weights", max(edits, default=0), self.limits.edits, "weights")
        interventions = [one.change(record) for one in changes]
        forced = forced_prefix(record, request)

        def work() -> InterventionResult:
            with apply_interventions(adapter, interventions):
                after = self.collect(adapter, request["text"], request["other"], prefix=forced, spec=STATISTICS_ONLY)
                generated = None
                if forced is not None:
                    generated = self.collect(
                        adapter, request["text"], prefix=request.get("prefix"), spec=STATISTICS_ONLY
                    )
            return compare_records(record, after, generated)

        return await self._run_model(request["run"], work)

    async def _run_model(self, run: str, work: Callable[[], Result]) -> Result:
        """Run a model, in the queue of looks."""

        def cancelled_early(stop: Event) -> Result:
            with cancellable(stop):
                found = work()
            raise_if_cancelled(stop)
            return found

        try:
            return await self.looks.run(cancelled_early, self.limits.look_seconds)
        except ServeError:
            raise
        except RegardError as error:  # `where` may be a path or a part of the model; for a client it is the run
            raise ServeError(error.problem, error.expected, where=run, advice=error.advice) from None

    async def tile(self, name: str, number: int, head: int, bounds: tiles.TileBounds) -> tuple[bytes, bool]:
        """The tile as float32, little-endian, and whether it is exact."""
        _check_at_most("rows", bounds.rows, self.limits.cells, "rows")
        _check_at_most("cols", bounds.cols, self.limits.cells, "cols")
        place = find_place(self.records.get(name), number, head)
        bounds.check(place)

        def work(stop: Event) -> tuple[bytes, bool]:
            means, exact = tiles.compute_tile(place, head, bounds, self.limits.exact, partial(raise_if_cancelled, stop))
            return _bytes(means), exact

        key = (name, number, head, bounds)
        cached = self.cache.get(key)
        if cached is None:
            cached = await self.tiles.run(work, self.limits.tile_seconds)
            self.cache.put(key, cached)
        return cached

    async def row(self, name: str, number: int, head: int, query: int) -> bytes:
        place = find_place(self.records.get(name), number, head)
        return await self.tiles.run(
            lambda stop: _bytes(tiles.compute_row(place, head, query)), self.limits.tile_seconds
        )

    async def pair(self, name: str, number: int, head: int, query: int, key: int) -> tiles.ScoreBreakdown:
        place = find_place(self.records.get(name), number, head)
        return await self.tiles.run(lambda stop: tiles.explain_pair(place, head, query, key), self.limits.tile_seconds)

    def payload(self, name: str) -> Work[bytes]:
        """Work that returns the payload of a record, from the cache if possible."""
        record = self.records.get(name)

        def work(stop: Event) -> bytes:
            cached = self.cache.get(name)
            if cached is None:
                cached = pack_payload(record, self.limits.payload_bytes), True
                self.cache.put(name, cached)
            return cached[0]

        return work

    def file(self, name: str) -> Work[bytes]:
        """Work that returns the file of a record."""
        record = self.records.get(name)
        return lambda stop: record.to_bytes()

    def info(self, name: str) -> Work[bytes]:
        """Work that returns a record without its tensors, as JSON."""
        record = self.records.get(name)
        return lambda stop: json.dumps(finite_or_null(record.to_dict()), allow_nan=False).encode("ascii")


def _expect_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        problem, advice = f"The {what} of a model is not Unicode text: {text!a}", "Rename its folder."
        raise SettingError(problem, where="make_app", advice=advice) from None


def _check_at_most(where: str, count: int, limit: int, noun: str) -> None:
    if count > limit:
        raise ServeError(f"{count:,} {noun}", f"at most {limit:,}", where=where)


def _bytes(numbers: Any) -> bytes:
    found: bytes = numbers.numpy().astype("<f4").tobytes()
    return found


class LRU(Generic[Key, Value]):
    """A least-recently-used cache, bounded by count and by bytes. (functools.lru_cache bounds the count only.)"""

    def __init__(self, size: Callable[[Value], int], max_count: int | None, max_bytes: int) -> None:
        self.size, self.max_count, self.max_bytes = size, max_count, max_bytes
        self.bytes = 0
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: Key, value: Value) -> bool:
        """Store a value; returns False, and stores nothing, where it is larger than the cache."""
        size = self.size(value)
        if size > self.max_bytes:
            return False
        with self._lock:
            self.bytes += size - self._values.pop(key, (value, 0))[1]
            self._values[key] = (value, size)
            while self.bytes > self.max_bytes or (self.max_count is not None and len(self._values) > self.max_count):
                self.bytes -= self._values.popitem(last=False)[1][1]
        return True

    def get(self, key: Key) -> Value | None:
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]


class RecordStore:
    """Records by id: preloaded ones, and those of clients, with secret ids; least recently used ones are evicted."""

    def __init__(self, preloaded: Mapping[str, Record | RecordError], max_count: int, max_bytes: int) -> None:
        self.preloaded = {name: one for name, one in preloaded.items() if isinstance(one, Record)}
        self.unread = {name: one for name, one in preloaded.items() if isinstance(one, RecordError)}
        self.made: LRU[str, Record] = LRU(record_size, max_count, max_bytes)

    def add(self, record: Record) -> str:
        name = secrets.token_urlsafe(16)
        if not self.made.put(name, record):
            size, limit = f"a record of {record_size(record):,} bytes", f"at most {self.made.max_bytes:,}"
            raise ServeError(size, limit, advice="Use a shorter text.", status=413)
        return name

    def get(self, name: str) -> Record:
        if name in self.unread:
            raise self.unread[name]
        record = self.preloaded.get(name) or self.made.get(name)
        if record is None:
            advice = "Records are stored for a limited time: look at the text again."
            raise ServeError("No record with this id", where="id", advice=advice, status=404)
        return record


def record_size(record: Record) -> int:
    """The memory of a record, in bytes."""
    numbers = sum(tensor.nbytes for tensor in record.tensors().values())
    maps = [place.statistics.thumbnail for place in record.places]  # four times as large as in the file
    tokens = sum(len(side) * TOKEN_BYTES + 4 * len(side.text) for side in record.axes)
    return numbers + sum(one.nbytes for one in maps if one is not None) + tokens
