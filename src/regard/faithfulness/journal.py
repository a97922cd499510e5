"""The resume log of an audit: parts are written to disk as they are done, so that an interrupted audit can resume.

One JSON line for each part; the first line says what is audited and how. Each process writes its own file, and reads
those of all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import RunError


class Journal:
    """The parts that are done, by their number; `head`: what is audited and how, which must be the same to resume."""

    def __init__(self, path: Path, head: dict[str, Any], rank: int = 0) -> None:
        self.path, self.rank = path, rank
        self.done: dict[int, list[dict[str, Any]]] = {}
        own = self._own_path
        if own.exists():
            _drop_partial_line(own)  # of this file only: other processes may be writing to theirs
        for file in _journal_files(path):
            self._read(file, head)
        fresh = not own.exists() or not own.stat().st_size
        self._file = own.open("a", encoding="utf-8")
        if fresh:
            self._write({"head": head})

    def append(self, part: int, results: list[dict[str, Any]]) -> None:
        self.done[part] = results
        self._write({"part": part, "results": results})

    def close(self) -> None:
        """Close the file; one without parts is deleted, so that it blocks no other audit."""
        self._file.close()
        if not self.done:
            self._own_path.unlink(missing_ok=True)

    @property
    def _own_path(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{self.rank}.journal")

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _read(self, file: Path, head: dict[str, Any]) -> None:
        lines = _complete_lines(file)
        first = next(lines, None)
        if first is None:
            return
        if first.get("head") != json.loads(json.dumps(head)):
            if next(lines, None) is None:  # its audit was killed before any part was done
                if file == self._own_path:
                    file.unlink()
                return
            raise RunError(
                f"{file} belongs to an audit of another model, other examples or other settings",
                where="audit",
                advice="Delete it to start anew, or write the report to another file.",
            )
        for line in lines:
            self.done[int(line["part"])] = line["results"]


def remove_journals(path: Path) -> None:
    """Delete the journals beside a saved report, also those of an earlier try with more processes."""
    for file in _journal_files(path):
        file.unlink(missing_ok=True)


def _journal_files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.*.journal"))


def _complete_lines(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, without an incomplete last one."""
    data = file.read_bytes()
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        yield json.loads(line)


def _drop_partial_line(file: Path) -> None:
    """Remove an incomplete last line from a file."""
    data = file.read_bytes()
    with file.open("r+b") as open_file:
        open_file.truncate(data.rfind(b"\n") + 1)
