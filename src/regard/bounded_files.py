"""Bounded reading of files that others made: regular files alone, up to a size, and JSON up to a nesting depth.

FIFOs, devices, sockets and folders are refused before they are opened, so that no reader waits or grows for ever.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from regard.errors import RegardError

CONFIG_LIMIT = 16 << 20  # bytes of a configuration: config.json, recipe.toml, a manifest
DATA_LIMIT = 512 << 20  # bytes of JSON with data: a vocabulary, a record, an atlas
MAX_DEPTH = 100  # lists and objects inside each other
BOM = b"\xef\xbb\xbf"
TEXT_FILES = (".json", ".txt", ".jinja", ".model", ".spm", ".codes", ".tokenizer")  # of a model folder
KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISSOCK, "a socket"),
)
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[{]|[\]}]', re.DOTALL)  # a JSON string, or a bracket


def kind_of(mode: int) -> str | None:
    """What a file is, by its mode, where it is not a regular file: "a FIFO"."""
    return next((name for matches, name in KINDS if matches(mode)), None)


def expect_regular(path: str | os.PathLike[str], error: type[RegardError]) -> int:
    """Refuse what is not a regular file, links followed; its size. Raises OSError where there is none, or a folder."""
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if (kind := kind_of(status.st_mode)) is not None:
        raise error(kind, "a regular file", where=f"{path}")
    return status.st_size


def open_regular(path: str | os.PathLike[str], error: type[RegardError]) -> BufferedReader:
    """Open a regular file for reading bytes. Raises OSError where it cannot be opened."""
    expect_regular(path, error)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO put there meanwhile cannot block
    try:
        if (kind := kind_of(os.fstat(handle).st_mode)) is not None:
            raise error(kind, "a regular file", where=f"{path}")
        return open(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bytes(path: str | os.PathLike[str], error: type[RegardError], limit: int = CONFIG_LIMIT) -> bytes:
    """The bytes of a regular file of at most `limit` bytes. Raises OSError where it cannot be opened."""
    with open_regular(path, error) as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise error(f"a file of more than {limit:,} bytes", f"at most {limit:,}", where=f"{path}")
    return content


def read_text(path: str | os.PathLike[str], error: type[RegardError], limit: int = CONFIG_LIMIT) -> str:
    """The text of such a file, which is UTF-8 with or without a byte order mark."""
    return decode(read_bytes(path, error, limit), f"{path}", error)


def decode(content: bytes, where: str, error: type[RegardError]) -> str:
    """UTF-8 as text, without a byte order mark; an error names the line and the byte."""
    try:
        return content.removeprefix(BOM).decode()
    except UnicodeDecodeError as problem:
        at = problem.start + (len(BOM) if content.startswith(BOM) else 0)
        line = content.count(b"\n", 0, at) + 1
        reason = f"byte 0x{content[at]:02x} at offset {at} ({problem.reason})"
        raise error(f"The file is not UTF-8: {reason}", where=f"{where}:{line}") from problem


def read_json(path: str | os.PathLike[str], error: type[RegardError], limit: int = CONFIG_LIMIT) -> Any:
    """The JSON value in such a file."""
    return parse_json(read_text(path, error, limit), f"{path}", error)


def parse_json(text: str, where: str, error: type[RegardError], max_depth: int = MAX_DEPTH) -> Any:
    """A JSON value with at most `max_depth` lists and objects inside each other."""
    expect_depth(text, where, error, max_depth)
    try:
        return json.loads(text)
    except ValueError as problem:  # of the syntax, or a number of thousands of digits
        raise error(f"The file is not valid JSON: {problem}", where=where) from problem


def expect_depth(text: str, where: str, error: type[RegardError], max_depth: int = MAX_DEPTH) -> None:
    """Refuse a text whose brackets nest too deep for a parser that recurses; brackets in strings do not count."""
    if text.count("[") + text.count("{") <= max_depth:
        return
    depth = 0
    for found in _TOKEN.finditer(text):
        sign = found.group()
        if sign in "[{":
            depth += 1
            if depth > max_depth:
                line = text.count("\n", 0, found.start()) + 1
                problem = f"more than {max_depth} lists and objects inside each other"
                raise error(problem, "fewer", where=f"{where}:{line}")
        elif sign in "]}":
            depth -= 1


def expect_readable_folder(folder: Path, error: type[RegardError], limit: int = DATA_LIMIT) -> None:
    """Refuse a folder with a FIFO or a device among its files, or with a text file of more than `limit` bytes.

    For libraries that read a folder on their own.
    """
    for entry in sorted(folder.iterdir()):
        try:
            status = entry.stat()
        except FileNotFoundError:
            continue  # a link to nothing, which no library finds
        except OSError as problem:
            raise error(f"Could not read {entry}: {problem.strerror}") from problem
        if (kind := kind_of(status.st_mode)) is not None:
            raise error(kind, "a regular file", where=f"{entry}")
        if status.st_size > limit and entry.suffix in TEXT_FILES and not stat.S_ISDIR(status.st_mode):
            raise error(f"a file of {status.st_size:,} bytes", f"at most {limit:,}", where=f"{entry}")
