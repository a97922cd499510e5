"""What the server does, apart from HTTP: it looks, keeps records, and gives out parts of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, TypeVar

from regard.adapters import ModelAdapter
from regard.errors import RegardError, SettingError
from regard.inspection.intervene import changed
from regard.inspection.notes import noted, notes_of
from regard.inspection.record.collect import RecordSpec, collect
from regard.inspection.record.place import Place
from regard.inspection.record.record import Record
from regard.page.payload import payload
from regard.page.serve import tiles
from regard.page.serve.limits import Limits
from regard.page.serve.line import Line
from regard.page.serve.outcomes import Wish, outcome, prefixes
from regard.page.serve.refusals import Missing, Refusal
from regard.page.serve.shelf import Records, Shelf
from regard.page.serve.stopping import check, stoppable

Found = TypeVar("Found")
STATISTICS = RecordSpec(heads=())


@dataclass(frozen=True)
class Spot:
    """One head of one place of one record."""

    record: str
    place: int
    head: int


class Service:
    """Holds what requests share: subjects by name, records by id, and three lines before three kinds of work."""

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
        self.cache: Shelf[tuple[Any, ...], tuple[bytes, bool]] = Shelf(_size, None, limits.cached_bytes)
        patience = limits.waiting_seconds
        self.looks = Line("looks", limits.looks, limits.waiting_looks, patience)
        self.tiles = Line("tiles", limits.tiles, limits.waiting_tiles, patience)
        self.downloads = Line("downloads", limits.downloads, limits.waiting_downloads, patience)

    def close(self) -> None:
        for line in (self.looks, self.tiles, self.downloads):
            line.close()

    async def look(self, run: str, text: str, other: str | None, prefix: Sequence[int] | None) -> str:
        """The id of a new record."""
        subject = self.subjects.get(run)
        if subject is None:
            raise Missing("a run that is not here", "one that /api/runs tells of", where="run")
        for name, given in (("text", text), ("other", other or "")):
            if len(given) > self.limits.characters:
                raise Refusal(f"{len(given):,} characters", f"at most {self.limits.characters:,}", where=name)
        if prefix is not None and len(prefix) > self.limits.prefix:
            raise Refusal(f"{len(prefix):,} tokens", f"at most {self.limits.prefix:,}", where="prefix")

        record = await self._asked(run, lambda: self.collect(subject, text, other, prefix=prefix))
        # so that a link to the record can go on from it
        asked = {"run": run, "text": text, "other": other, "prefix": None if prefix is None else list(prefix)}
        record = noted(record, self.notes[run])
        return self.records.add(replace(record, facts={**record.facts, "look": asked}))

    async def intervene(self, name: str, wishes: Sequence[Wish]) -> dict[str, Any]:
        """What the model of a record says when some of its heads are changed, beside what it said."""
        record = self.records.get(name)
        asked = record.facts.get("look")
        subject = None if asked is None else self.subjects.get(asked["run"])
        if asked is None or subject is None:
            raise Missing("a record whose model is not here", "one that a look has made", where="id")
        edits = [len(wish.weights) for wish in wishes if not isinstance(wish.weights, str)]
        for where, count, most in (
            ("changes", len(wishes), self.limits.changes),
            ("weights", max(edits, default=0), self.limits.edits),
        ):
            if count > most:
                raise Refusal(f"{count:,} of them", f"at most {most:,}", where=where)
        changes = [wish.meant(record) for wish in wishes]
        told, writes = prefixes(record, asked)

        def work() -> dict[str, Any]:
            with changed(subject, changes):
                same = self.collect(subject, asked["text"], asked["other"], prefix=told, spec=STATISTICS)
                begun = asked.get("prefix")
                anew = self.collect(subject, asked["text"], prefix=begun, spec=STATISTICS) if writes else None
            return outcome(record, same, anew)

        return await self._asked(asked["run"], work)

    async def _asked(self, run: str, work: Callable[[], Found]) -> Found:
        """What a model is asked for, in the line of those who ask."""

        def working(stop: Event) -> Found:
            with stoppable(stop):
                found = work()
            check(stop)
            return found

        try:
            return await self.looks.do(working, self.limits.look_seconds)
        except Refusal:
            raise
        except RegardError as error:  # its place is a path or a part of the model: to a visitor it is the run
            raise Refusal(error.came, error.expected, where=run, advice=error.advice) from None

    async def tile(self, spot: Spot, area: tiles.Area) -> tuple[bytes, bool]:
        """float32, little-endian, and whether it is exact."""
        for name, cells in (("rows", area.rows), ("cols", area.cols)):
            if cells > self.limits.cells:
                raise Refusal(f"{cells} {name}", f"at most {self.limits.cells}", where=name)
        place = self.place(spot)
        area.fit(place)

        def work(stop: Event) -> tuple[bytes, bool]:
            means, exact = tiles.tile(place, spot.head, area, self.limits.exact, stop)
            return _bytes(means.numpy()), exact

        return await self._remembered((spot, area), work)

    async def row(self, spot: Spot, query: int) -> bytes:
        place = self.place(spot)
        return await self._small(lambda: _bytes(tiles.row(place, spot.head, query).numpy()))

    async def pair(self, spot: Spot, query: int, key: int) -> dict[str, Any]:
        place = self.place(spot)
        return await self._small(lambda: tiles.pair(place, spot.head, query, key))

    def payload(self, name: str) -> Callable[[Event], bytes]:
        """Work that makes what the page needs of a record, or finds it made."""
        record = self.records.get(name)

        def work(stop: Event) -> bytes:
            held = self.cache.get((name,))
            made = payload(record, self.limits.payload_bytes) if held is None else held[0]
            if held is None:
                self.cache.put((name,), (made, True))
            return made

        return work

    def file(self, name: str) -> Callable[[Event], bytes]:
        """Work that makes the file of a record."""
        record = self.records.get(name)
        return lambda stop: record.bytes()

    def told(self, name: str) -> Callable[[Event], bytes]:
        """Work that says, in JSON, all of a record but its numbers."""
        record = self.records.get(name)
        return lambda stop: json.dumps(_plain(record.told()), ensure_ascii=False, allow_nan=False).encode()

    def place(self, spot: Spot) -> Place:
        places = self.records.get(spot.record).places
        if spot.place >= len(places):
            raise Missing(f"place {spot.place}", f"one of {len(places)}, counted from 0", where="place")
        place = places[spot.place]
        if spot.head >= place.heads:
            raise Missing(f"head {spot.head}", f"one of {place.heads}, counted from 0", where="head")
        return place

    async def _small(self, work: Callable[[], Found]) -> Found:
        return await self.tiles.do(lambda stop: work(), self.limits.tile_seconds)

    async def _remembered(
        self, key: tuple[Any, ...], work: Callable[[Event], tuple[bytes, bool]]
    ) -> tuple[bytes, bool]:
        held = self.cache.get(key)
        if held is None:
            held = await self.tiles.do(work, self.limits.tile_seconds)
            self.cache.put(key, held)
        return held


def _bytes(numbers: Any) -> bytes:
    found: bytes = numbers.astype("<f4").tobytes()
    return found


def _size(answer: tuple[bytes, bool]) -> int:
    return len(answer[0]) + 256


def _plain(value: Any) -> Any:
    """As strict JSON takes it: what is no finite number is null."""
    if isinstance(value, float):
        return tiles.finite(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
