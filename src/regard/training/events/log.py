"""The log of a training run, log.jsonl: one line per event, read back as if training had never been interrupted."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, BinaryIO, get_type_hints

from regard.bounded_files import open_regular
from regard.errors import DtypeError, RunError
from regard.training.events.event import Ended, Evaluated, Event, Resumed, Saved, Skipped, Started, Trained

Entry = dict[str, Any]
"""An event in the log: {"event": "trained", "step": 100, "time": seconds since 1970, and the event's fields}."""

EVENTS = {kind.__name__.lower(): kind for kind in (Started, Resumed, Trained, Evaluated, Saved, Skipped, Ended)}
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # JSON has no such numbers: the log has strings


class LogFile:
    """A listener that appends each event to a file as a line of JSON, written before training continues.

    A line that a crash cut off is ended when the file is opened again.

    >>> with closing(LogFile(folder / "log.jsonl")) as log: train(..., listeners=[log])
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115 (it stays open as long as the log does)
        except OSError as error:
            raise RunError(f"Could not open the log {path}: {error.strerror}", where="LogFile") from error
        if self._file.tell() and not _ends_with_newline(self._file):
            self._write(b"\n")

    def on_event(self, event: Event) -> None:
        entry = {"event": type(event).__name__.lower(), "step": event.step, "time": time.time()}
        text = json.dumps(entry | plain(event), ensure_ascii=False, allow_nan=False)
        # half a surrogate pair is no UTF-8; backslashreplace writes it as JSON's own \udxxx
        self._write(text.encode("utf-8", "backslashreplace") + b"\n")

    def _write(self, line: bytes) -> None:
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise RunError(
                f"Could not write to the log: {error.strerror}",
                where=f"{self.path}",
                advice="Resume once it can be written; the checkpoints are intact.",
            ) from error

    def close(self) -> None:
        self._file.close()


def read_log(path: Path) -> list[Entry]:
    """The events of a log in order, as if the training had never been interrupted.

    Where it was resumed at step N, the events of an earlier process after step N are left out, because those steps were
    repeated; where it started again, all earlier events. A line that a crash cut off is left out; a damaged line
    anywhere else is refused. "nan" and "inf" become numbers again, except in `facts`.
    """
    entries: list[Entry] = []
    for entry in _read_entries(path):
        if entry["event"] in ("started", "resumed"):
            last = entry["step"] if entry["event"] == "resumed" else -1
            while entries and entries[-1]["step"] > last:
                entries.pop()
        entries.append(entry)
    return entries


def series(entries: Iterable[Entry], event: str, name: str) -> tuple[list[int], list[Any]]:
    """The steps and values of a metric or field of all events of a kind; events without it are left out.

    >>> steps, losses = series(read_log(path), "evaluated", "loss")
    """
    steps, values = [], []
    for entry in entries:
        if entry["event"] == event:
            found = entry.get("metrics", entry)
            found = found if name in found else entry
            if name in found:
                steps.append(entry["step"])
                values.append(found[name])
    return steps, values


def _read_entries(path: Path) -> Iterator[Entry]:
    """The entries of a file. Damaged lines are skipped where a process ended: before the start of the next one, and at
    the end of the file."""
    damaged = 0
    try:
        with open_regular(path, RunError) as lines:
            for number, line in enumerate(lines, start=1):
                entry = _parse_line(line)
                if entry is None:
                    damaged = damaged or number
                    continue
                if damaged and entry["event"] not in ("started", "resumed"):
                    raise _damaged_line(path, damaged)
                damaged = 0
                yield entry
    except OSError as error:
        raise RunError(f"Could not read the log {path}: {error.strerror}", where="read_log") from error


def _damaged_line(path: Path, number: int) -> RunError:
    return RunError(
        "This line is no event as JSON",
        where=f"{path}:{number}",
        advice="Only the last line before a crash may be cut off; delete this line to read the rest.",
    )


def _parse_line(line: bytes) -> Entry | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not (isinstance(entry, dict) and isinstance(entry.get("event"), str) and isinstance(entry.get("step"), int)):
        return None
    for name in NUMBERS.get(entry["event"], ()):
        if name in entry:
            entry[name] = _number(entry[name])
    entry["event"] = sys.intern(entry["event"])  # a million entries share their strings
    return {sys.intern(name): value for name, value in entry.items()}


def _number(value: Any) -> Any:
    """A number, or a mapping of names to numbers, with "nan" and "inf" as floats again."""
    if isinstance(value, dict):
        return {name: _number(one) for name, one in value.items()}
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value


def _numbers(kind: type[Event]) -> tuple[str, ...]:
    """The fields of an event that are floats or mappings to floats: there "nan" is a number."""
    return tuple(name for name, hint in get_type_hints(kind).items() if hint in (float, Mapping[str, float]))


NUMBERS = {name: _numbers(kind) for name, kind in EVENTS.items()}


def plain(value: Any) -> Any:
    """A value as JSON: dataclasses and mappings become objects, numbers that are not finite strings."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    raise DtypeError(
        f"a {type(value).__name__}", "strings, numbers, and lists or mappings of them", where="an event for the log"
    )


def _ends_with_newline(file: BinaryIO) -> bool:
    file.seek(-1, 2)
    return file.read(1) == b"\n"
