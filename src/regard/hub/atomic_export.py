"""A folder for other programs: there whole, written and checked against the run, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from regard.errors import CheckpointError


@contextmanager
def giving(folder: Path, where: str) -> Iterator[Path]:
    """A folder beside a new one, to be filled; it takes its place once all has gone well.

    with giving(folder, "regard export --to onnx") as rough: write(rough); check(rough)
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder}, which exists", "a new folder", where=where, advice="Name another one.")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".export-", dir=folder.parent) as aside:
            rough = Path(aside) / "model"
            rough.mkdir()
            yield rough
            rough.replace(folder)
    except OSError as error:
        said = error.strerror or str(error)
        raise CheckpointError(f"{folder} ({said})", "a folder that can be written", where=where) from error


class Checked(NamedTuple):
    """How many texts an exported model was tried on, and how many came out the same."""

    checked: int
    equal: int
    tokens: float = 1.0  # the share of all tokens that were the same
