"""Atomic export folders: an export appears once it is complete and verified, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from regard.errors import CheckpointError


@contextmanager
def atomic_folder(folder: Path, where: str) -> Iterator[Path]:
    """A temporary folder to write to, renamed to `folder` if the block succeeds.

    with atomic_folder(folder, "regard export --to onnx") as draft: write(draft); check(draft)
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} exists already", where=where, advice="Name a new folder.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".export-", dir=folder.parent) as temporary:
            draft = Path(temporary) / "model"
            draft.mkdir()
            yield draft
            draft.replace(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise CheckpointError(f"Could not write {folder}: {reason}", where=where) from error


class ExportCheck(NamedTuple):
    """The verification of an export: how many texts both programs ran, and how many gave the same output."""

    checked: int
    equal: int
    tokens: float = 1.0  # the share of equal tokens
