"""The lines of a text file, plain or gzip: strict UTF-8, in constant memory, without overlong lines."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal, NamedTuple, cast

from regard.bounded_files import open_regular
from regard.errors import CorpusError, SettingError, unknown

DecodeErrors = Literal["strict", "replace"]
MAX_LINE = 1_000_000  # characters; longer lines are rarely text
CHUNK = 1 << 16
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class Line(NamedTuple):
    """One line without its end, and its number, counted from 1."""

    number: int
    text: str


@dataclass(slots=True)
class SkippedLines:
    """The lines that a reader skipped: how many, and the first locations with the reason."""

    count: int = 0
    places: list[str] = field(default_factory=list)
    SHOWN: ClassVar[int] = 10

    def add(self, where: str, why: str) -> None:
        self.count += 1
        if len(self.places) < self.SHOWN:
            self.places.append(f"{where}: {why}")

    def __or__(self, other: SkippedLines) -> SkippedLines:
        """The skipped lines of both."""
        return SkippedLines(self.count + other.count, (self.places + other.places)[: self.SHOWN])


@dataclass(slots=True)
class Lines:
    """The lines of a file, re-iterable. Only "\\n" (or "\\r\\n") ends a line.

    A line of more than `max_line` characters is skipped and counted in `skipped`, which belongs to the latest pass.
    """

    path: Path
    max_line: int = MAX_LINE
    errors: DecodeErrors = "strict"
    skipped: SkippedLines = field(default_factory=SkippedLines)

    def __post_init__(self) -> None:
        if self.errors not in ("strict", "replace"):
            raise unknown(self.errors, ("strict", "replace"), kind="value of errors", where=f"{self.path}")
        if self.max_line < 1:
            raise SettingError(f"max_line={self.max_line}", "1 character or more", where=f"{self.path}")

    def __iter__(self) -> Iterator[Line]:
        self.skipped = SkippedLines()
        for number, text in self.all_lines():
            if text is None:
                self.skipped.add(f"{self.path}:{number}", self.too_long_message)
            else:
                yield Line(number, text)

    @property
    def too_long_message(self) -> str:
        return f"a line of more than {self.max_line:,} characters"

    def all_lines(self) -> Iterator[tuple[int, str | None]]:
        """Each line's number and text, None for an overlong one."""
        number = 0
        with open_binary(self.path) as stream:
            # a character takes at most four bytes, so a line of more bytes has too many characters
            for number, raw in enumerate(_raw_lines(self.path, stream, 4 * self.max_line + 2), start=1):
                text = None if raw is None else self._decoded(number, raw)
                yield number, None if text is None or len(text) > self.max_line else text
        if number == 0:
            raise CorpusError("The file is empty", where=f"{self.path}")

    def pieces(self) -> Iterator[str]:
        """The text as it runs, for language models: its lines with "\\n" at the end of each, a long one in pieces."""
        last = ""  # held back, since the end of the file ends a line too
        with open_binary(self.path) as stream, _read_errors(self.path):
            text = io.TextIOWrapper(stream, "utf-8-sig", self.errors, newline="\n")
            try:
                while piece := text.readline(self.max_line):
                    piece += text.readline(1) if piece.endswith("\r") else ""  # "\r\n" is not cut in two
                    if last:
                        yield last
                    last = piece.removesuffix("\n").removesuffix("\r") + "\n" if piece.endswith("\n") else piece
            except UnicodeDecodeError as error:
                for _ in self.all_lines():  # raises at the line
                    pass
                raise CorpusError(f"A long line is not valid UTF-8 ({error.reason})", where=f"{self.path}") from error
        if not last:
            raise CorpusError("The file is empty", where=f"{self.path}")
        yield last if last.endswith("\n") else last.removesuffix("\r") + "\n"

    def _decoded(self, number: int, raw: bytes) -> str:
        raw = raw.removesuffix(b"\n").removesuffix(b"\r")
        raw = raw.removeprefix(_BOM) if number == 1 else raw
        try:
            return raw.decode("utf-8", self.errors)
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"The line is not valid UTF-8: byte 0x{raw[error.start]:02x} at byte {error.start} ({error.reason})",
                where=f"{self.path}:{number}",
                advice='Convert the file with iconv, or read it with errors="replace".',
            ) from error


def open_binary(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading bytes, "-" for standard input; gzip is detected by its content and decompressed."""
    path = Path(path)
    try:
        stream = open(0, "rb", closefd=False) if str(path) == "-" else open_regular(path, CorpusError)  # noqa: SIM115 (the caller closes it)
    except OSError as error:
        if path.is_dir():
            raise CorpusError("a folder", "a text file", where=f"{path}") from error
        if not path.exists():
            raise CorpusError("File not found", where=f"{path}") from error
        raise CorpusError(f"Could not open the file: {error.strerror}", where=f"{path}") from error
    return cast(BinaryIO, _Gzip(stream)) if stream.peek(2)[:2] == _GZIP else stream


class _Gzip(gzip.GzipFile):
    """A GzipFile that also closes the file it reads from: `myfileobj` makes it do so."""

    def __init__(self, stream: Any) -> None:
        super().__init__(fileobj=stream)
        self.myfileobj = stream


def _raw_lines(path: Path, stream: BinaryIO, max_line: int) -> Iterator[bytes | None]:
    """Lines as bytes; None stands for one of more than `max_line` bytes, which is read past piece by piece."""
    with _read_errors(path):
        while raw := stream.readline(max_line + 1):
            if len(raw) <= max_line or raw.endswith(b"\n"):
                yield raw
                continue
            while (rest := stream.readline(CHUNK)) and not rest.endswith(b"\n"):
                pass
            yield None


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    """Errors of reading, as of a gzip file that is cut, in words."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(
            f"The file could not be read to its end ({error})",
            where=f"{path}",
            advice="It may be truncated: copy or download it again.",
        ) from error


@dataclass(slots=True)
class LineCorpus:
    """The base class of readers of one file's lines: the file, its decoding, and what was skipped."""

    path: str | os.PathLike[str]
    max_line: int = MAX_LINE
    errors: DecodeErrors = "strict"
    _lines: Lines = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._lines = Lines(Path(self.path), self.max_line, self.errors)

    @property
    def sources(self) -> tuple[Path, ...]:
        return (self._lines.path,)

    @property
    def skipped(self) -> SkippedLines:
        return self._lines.skipped
