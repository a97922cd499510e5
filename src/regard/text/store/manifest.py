"""What a token store says about itself: of which text and tokenizer it was made, and what its files must look like."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.errors import StoreError
from regard.files import Print, print_of, write_whole
from regard.text.corpora.lines import Skipped

FORMAT = 1
NAME = "manifest.json"


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


def fingerprint(path: Path) -> Print:
    """The size and checksum of one of the user's files."""
    try:
        return print_of(path)
    except OSError as error:
        raise StoreError(f"a file that cannot be read ({error.strerror})", "a file", where=f"{path}") from error


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


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:12] + "..."
