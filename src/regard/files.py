"""Files that survive a crash: written to a temporary file, flushed to disk, then renamed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from regard.bounded_files import open_regular
from regard.errors import RegardError


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A file's size and the checksum of its bytes."""

    path: str
    size: int
    sha256: str


def digest_of(path: Path, name: str | None = None) -> FileDigest:
    """Read a file through, in flat memory."""
    with open_regular(path, RegardError) as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileDigest(name or str(path), os.fstat(stream.fileno()).st_size, digest)


def write_atomic(path: Path, content: bytes) -> None:
    """A file that is there as a whole or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Let a file, or the names in a folder, reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def exclusive_lock(folder: Path, taken: Callable[[], RegardError]) -> Iterator[None]:
    """Keep out every other process that asks for the same folder; `taken` makes the error that it gets.

    A folder in which no lock file can be opened is refused with an error of the same class. The lock ends with the
    process that holds it, however it ends.
    """
    import fcntl

    path = folder / "lock"
    try:
        lock = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666), "w")
    except OSError as error:
        raise type(taken())(
            f"Could not open the lock file {path}: {error.strerror}",
            advice="The folder must be writable, and `lock` in it a plain file.",
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise taken() from error
        yield
