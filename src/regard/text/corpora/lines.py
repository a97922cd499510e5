"""The lines of a text file, plain or gzip, one at a time: strict about what they are, and never a long one whole."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, NamedTuple, cast

from regard.errors import CorpusError, SettingError, unknown

Undecodable = Literal["strict", "replace"]
LIMIT = 1_000_000  # characters; longer lines are rarely text
CHUNK = 1 << 16
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line without its end, and its number, counted from 1."""

    number: int
    text: str


@dataclass(slots=True)
class Skipped:
    """What a reader left out: how many, and the first places with the reason."""

    count: int = 0
    places: list[str] = field(default_factory=list)
    SHOWN: ClassVar[int] = 10

    def add(self, where: str, why: str) -> None:
        self.count += 1
        if len(self.places) < self.SHOWN:
            self.places.append(f"{where}: {why}")

    def __or__(self, other: Skipped) -> Skipped:
        """What either reader left out."""
        return Skipped(self.count + other.count, (self.places + other.places)[: self.SHOWN])


@dataclass(slots=True)
class Lines:
    """The lines of a file; iterate it as often as you like. Only "\\n" (or "\\r\\n") ends a line.

    A line of more than `limit` characters is skipped and counted in `skipped`, which belongs to the latest pass.
    """

    path: Path
    limit: int = LIMIT
    errors: Undecodable = "strict"
    skipped: Skipped = field(default_factory=Skipped)

    def __post_init__(self) -> None:
        if self.errors not in ("strict", "replace"):
            raise unknown(self.errors, ("strict", "replace"), kind="errors", where=f"{self.path}")
        if self.limit < 1:
            raise SettingError(f"limit={self.limit}", "1 character or more", where=f"{self.path}")

    def __iter__(self) -> Iterator[Line]:
        self.skipped = Skipped()
        for number, text in self.every():
            if text is None:
                self.skipped.add(f"{self.path}:{number}", self.too_long)
            else:
                yield Line(number, text)

    @property
    def too_long(self) -> str:
        return f"a line of more than {self.limit:,} characters"

    def every(self) -> Iterator[tuple[int, str | None]]:
        """Each line's number and text; None in the place of one that is too long."""
        number = 0
        with opened(self.path) as stream:
            # a character takes at most four bytes, so what is longer than this in bytes is too long in characters
            for number, raw in enumerate(_raw_lines(self.path, stream, 4 * self.limit + 2), start=1):
                text = None if raw is None else self._decoded(number, raw)
                yield number, None if text is None or len(text) > self.limit else text
        if number == 0:
            raise CorpusError("an empty file", "text", where=f"{self.path}")

    def _decoded(self, number: int, raw: bytes) -> str:
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        raw = raw.removeprefix(_BOM) if number == 1 else raw
        try:
            return raw.decode("utf-8", self.errors)
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"byte 0x{raw[error.start]:02x} at byte {error.start} of the line ({error.reason})",
                "UTF-8",
                where=f"{self.path}:{number}",
                advice='Convert it (with iconv, from what it is to utf-8), or read it with errors="replace".',
            ) from error


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file of bytes; one that begins as gzip does is unpacked, whatever its name."""
    path = Path(path)
    try:
        stream = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        what = "a folder" if path.is_dir() else f"a file that cannot be opened ({error.strerror})"
        raise CorpusError(what, "a file of text", where=f"{path}") from error
    return cast(BinaryIO, _Gzip(stream)) if stream.peek(2)[:2] == _GZIP else stream


class _Gzip(gzip.GzipFile):
    """GzipFile closes only what it opened itself; through `myfileobj` it closes this file too."""

    def __init__(self, stream: Any) -> None:
        super().__init__(fileobj=stream)
        self.myfileobj = stream


def _raw_lines(path: Path, stream: BinaryIO, limit: int) -> Iterator[bytes | None]:
    """Lines as bytes; None stands for one of more than `limit` bytes, which is read past piece by piece."""
    try:
        while raw := stream.readline(limit + 1):
            if len(raw) <= limit or raw.endswith(b"\n"):
                yield raw
                continue
            while (rest := stream.readline(CHUNK)) and not rest.endswith(b"\n"):
                pass
            yield None
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(
            f"a file that cannot be read to its end ({error})",
            "a whole file",
            where=f"{path}",
            advice="Copy or unpack it again: it may be cut short.",
        ) from error


@dataclass(slots=True)
class LineCorpus:
    """What readers of one file's lines share: the file, how strictly it is read, and what was left out."""

    path: str | os.PathLike[str]
    limit: int = LIMIT
    errors: Undecodable = "strict"
    _lines: Lines = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._lines = Lines(Path(self.path), self.limit, self.errors)

    @property
    def sources(self) -> tuple[Path, ...]:
        return (self._lines.path,)

    @property
    def skipped(self) -> Skipped:
        return self._lines.skipped
