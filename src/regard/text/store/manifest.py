"""What a token store says about itself: of which text and tokenizer it was made, and what its files must look like."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from regard.errors import StoreError
from regard.text.corpora.lines import Skipped

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Print:
    """A file's size and the checksum of its bytes."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of manifest.json."""

    identity: Mapping[str, str]  # the kind of examples, the tokenizers' fingerprints, labels
    sources: tuple[Print, ...]
    examples: int
    tokens: Mapping[str, int]  # of each field
    dtypes: Mapping[str, str]
    files: tuple[Print, ...]
    skipped: Skipped  # what the reader left out of the sources
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        write_whole(folder / NAME, text.encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """The manifest of a store; a folder without one is no store."""
        path = folder / NAME
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            stopped = Path(f"{folder}.building").exists()
            raise StoreError(
                f"no {NAME} ({error.strerror})",
                "a folder that `Store.build` or `regard tokenize store` wrote",
                where=f"{folder}",
                advice="Its building was stopped; build it again, and it goes on." if stopped else "",
            ) from error
        except ValueError as error:
            raise StoreError(f"a damaged {NAME} ({error})", "JSON", where=f"{path}", advice=AGAIN) from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            came = found.get("format") if isinstance(found, dict) else None
            raise StoreError(f"format {came!r}", f"format {FORMAT}", where=f"{path}", advice=AGAIN)
        try:
            for name in ("sources", "files"):
                found[name] = tuple(Print(**one) for one in found[name])
            found["skipped"] = Skipped(**found["skipped"])
            return cls(**found)
        except (TypeError, KeyError) as error:
            raise StoreError(f"a damaged {NAME} ({error})", "all its entries", where=f"{path}", advice=AGAIN) from error


AGAIN = "Delete the folder and build the store again."


def fingerprint(path: Path, name: str | None = None) -> Print:
    """Read a file through, in flat memory."""
    try:
        with open(path, "rb") as stream:
            return Print(name or str(path), os.fstat(stream.fileno()).st_size, _digest(stream))
    except OSError as error:
        raise StoreError(f"a file that cannot be read ({error.strerror})", "a file", where=f"{path}") from error


def _digest(stream: Any) -> str:
    return hashlib.file_digest(stream, "sha256").hexdigest()


def same_identity(folder: Path, stored: Mapping[str, str], asked: Mapping[str, str]) -> None:
    """Refuse a store that was made in another way, and say which thing differs."""
    for name in {**asked, **stored}:
        had, wants = stored.get(name, "none"), asked.get(name, "none")
        if had != wants:
            raise StoreError(
                f"a store with another {name}: {_short(had)}", _short(wants), where=f"{folder}", advice=AGAIN
            )


def same_sources(folder: Path, stored: Iterable[Print], asked: Iterable[Print]) -> None:
    """Refuse a store whose text has changed since; files are compared in order, by what is in them."""
    stored, asked = tuple(stored), tuple(asked)
    if len(stored) != len(asked):
        raise StoreError(f"a store of {len(stored)} files", f"one of {len(asked)}", where=f"{folder}", advice=AGAIN)
    for had, has in zip(stored, asked, strict=True):
        if (had.size, had.sha256) != (has.size, has.sha256):
            raise StoreError(
                f"a store made of another {has.path} ({had.size} bytes, sha256 {_short(had.sha256)})",
                f"one of the file as it is ({has.size} bytes, sha256 {_short(has.sha256)})",
                where=f"{folder}",
                advice=AGAIN,
            )


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside, let it reach the disk, and only then give it its name."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    with open(part, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(part, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder reach the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:12] + "..."
