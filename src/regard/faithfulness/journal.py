"""Parts of an audit on disk, as they are done: an interrupted audit goes on where it stopped, and nothing is lost.

A line a part, in JSON; the first says what is audited and how. One file for each process, so several never write to the
same; all of them are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import RunError


class Journal:
    """The parts that are done, by their number; `head`: what is audited and how, which must be the same to go on."""

    def __init__(self, path: Path, head: dict[str, Any], rank: int = 0) -> None:
        self.path, self.rank = path, rank
        self.done: dict[int, list[dict[str, Any]]] = {}
        own = self._own
        if own.exists():
            _cut(own)  # no other file, since somebody may be writing to it now
        for file in _all(path):
            self._read(file, head)
        fresh = not own.exists() or not own.stat().st_size
        self._file = own.open("a", encoding="utf-8")
        if fresh:
            self._write({"head": head})

    def keep(self, part: int, examined: list[dict[str, Any]]) -> None:
        self.done[part] = examined
        self._write({"part": part, "examined": examined})

    def close(self) -> None:
        """Done with writing. What holds no part is taken away: another audit is not in its way."""
        self._file.close()
        if not self.done:
            self._own.unlink(missing_ok=True)

    @property
    def _own(self) -> Path:
        return self.path.with_name(f"{self.path.name}.{self.rank}.journal")

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def _read(self, file: Path, head: dict[str, Any]) -> None:
        lines = _whole_lines(file)
        first = next(lines, None)
        if first is None:
            return
        if first.get("head") != json.loads(json.dumps(head)):
            if next(lines, None) is None:  # it was killed before any part was done
                if file == self._own:
                    file.unlink()
                return
            raise RunError(
                f"{file}, which is of another audit",
                "the same model, examples and settings",
                where="audit",
                advice="Delete it to begin anew, or write to another file.",
            )
        for line in lines:
            self.done[int(line["part"])] = line["examined"]


def clear(path: Path) -> None:
    """Take away the journals beside a report that is saved now, those of an earlier try by more processes too."""
    for file in _all(path):
        file.unlink(missing_ok=True)


def _all(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.*.journal"))


def _whole_lines(file: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file, but for a last one that was cut off while it was written, or is being written now."""
    data = file.read_bytes()
    for line in data[: data.rfind(b"\n") + 1].splitlines():
        yield json.loads(line)


def _cut(file: Path) -> None:
    """Take away a last line that was cut off while it was written."""
    data = file.read_bytes()
    with file.open("r+b") as open_file:
        open_file.truncate(data.rfind(b"\n") + 1)
