"""The manifest of a token store: its sources, tokenizer and files, with checksums."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.bounded_files import expect_regular, read_json
from regard.errors import StoreError
from regard.files import FileDigest, digest_of, write_atomic
from regard.text.corpora.lines import SkippedLines

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The contents of manifest.json."""

    identity: Mapping[str, str]  # the kind of examples, the tokenizers' fingerprints, labels
    sources: tuple[FileDigest, ...]
    examples: int
    tokens: Mapping[str, int]  # of each field
    dtypes: Mapping[str, str]
    files: tuple[FileDigest, ...]
    skipped: SkippedLines  # lines of the sources that the reader skipped
    format: int = FORMAT

    def write(self, folder: Path) -> None:
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"
        write_atomic(folder / NAME, text.encode())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a store; a folder without one is no store."""
        path = folder / NAME
        try:
            found = read_json(path, StoreError)
        except OSError as error:
            unfinished = Path(f"{folder}.building").exists()
            advice = "`Store.build` or `regard tokenize store` makes one."
            raise StoreError(
                f"The folder is not a token store: no {NAME} ({error.strerror})",
                where=f"{folder}",
                advice="Its build was interrupted; build it again to resume." if unfinished else advice,
            ) from error
        except StoreError as error:
            problem = f"The manifest is damaged ({error.problem})"
            raise StoreError(problem, where=error.where, advice=REBUILD) from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            given = found.get("format") if isinstance(found, dict) else None
            raise StoreError(f"format {given!r}", f"format {FORMAT}", where=f"{path}", advice=REBUILD)
        try:
            for name in ("sources", "files"):
                found[name] = tuple(FileDigest(**one) for one in found[name])
            found["skipped"] = SkippedLines(**found["skipped"])
            manifest = cls(**found)
        except (TypeError, KeyError) as error:
            raise StoreError(f"The manifest is damaged ({error})", where=f"{path}", advice=REBUILD) from error
        if not manifest.is_well_typed:
            raise StoreError("The manifest is damaged (a value of another type)", where=f"{path}", advice=REBUILD)
        return manifest

    @property
    def is_well_typed(self) -> bool:
        """Whether every value has its type: a file may hold anything."""
        texts = (self.identity, self.dtypes)
        digests, skipped = (*self.sources, *self.files), self.skipped
        return (
            all(isinstance(one, dict) and all(isinstance(value, str) for value in one.values()) for one in texts)
            and isinstance(self.tokens, dict)
            and all(type(count) is int for count in (*self.tokens.values(), self.examples, skipped.count))
            and all(isinstance(one.path, str) and "\0" not in one.path for one in digests)
            and all(type(one.size) is int and isinstance(one.sha256, str) for one in digests)
            and isinstance(skipped.places, list)
            and all(isinstance(place, str) for place in skipped.places)
        )


REBUILD = "Delete the folder and build the store again."


def fingerprint(path: Path) -> FileDigest:
    """The size and checksum of one of the user's files."""
    try:
        expect_regular(path, StoreError)
        return digest_of(path)
    except OSError as error:
        raise StoreError(f"Could not read the file: {error.strerror}", where=f"{path}") from error


def check_identity(folder: Path, stored: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Refuse a store made with other settings, and name the one that differs."""
    for name in {**wanted, **stored}:
        had, wants = stored.get(name, "none"), wanted.get(name, "none")
        if had != wants:
            raise StoreError(
                f"a store with {name} {_short(had)}", f"{name} {_short(wants)}", where=f"{folder}", advice=REBUILD
            )


def check_sources(folder: Path, stored: Iterable[FileDigest], current: Iterable[FileDigest]) -> None:
    """Refuse a store whose source files have changed; they are compared in order, by content."""
    stored, current = tuple(stored), tuple(current)
    if len(stored) != len(current):
        raise StoreError(f"a store of {len(stored)} source files", f"{len(current)}", where=f"{folder}", advice=REBUILD)
    for had, has in zip(stored, current, strict=True):
        if (had.size, had.sha256) != (has.size, has.sha256):
            raise StoreError(
                f"{has.path} has changed since the store was built (then {had.size} bytes, sha256 "
                f"{_short(had.sha256)}; now {has.size} bytes, sha256 {_short(has.sha256)})",
                where=f"{folder}",
                advice=REBUILD,
            )


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:12] + "..."
