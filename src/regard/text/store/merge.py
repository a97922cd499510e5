"""Merges the parts of a build into the files of a store, a part at a time, in constant memory."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import CorpusError, StoreError
from regard.files import FileDigest, sync
from regard.text.store.columns import Array

Made = tuple[dict[str, int], dict[str, str], tuple[FileDigest, ...]]  # tokens and dtype of each field; the files


def merge_parts(parts: Sequence[Path], folder: Path) -> Made:
    """Write one array of ids and one of ends per field, and the document boundaries if any."""
    if folder.exists():  # an earlier attempt was interrupted here
        shutil.rmtree(folder)
    folder.mkdir()
    names = _names(parts)
    files: list[FileDigest] = []
    tokens: dict[str, int] = {}
    dtypes: dict[str, str] = {}
    for name in [key.removesuffix(".ids") for key in names if key.endswith(".ids")]:
        sizes = [sum(len(ids) for ids in _part_arrays(parts, f"{name}.{what}")) for what in ("ids", "ends")]
        dtype = next(_part_arrays(parts, f"{name}.ids")).dtype
        tokens[name], dtypes[name] = sizes[0], dtype.name
        files.append(_write(folder / f"{name}.ids.npy", dtype, sizes[0], _part_arrays(parts, f"{name}.ids")))
        files.append(_write(folder / f"{name}.ends.npy", np.dtype(np.int64), sizes[1], _ends(parts, name)))
    if "documents" in names:
        count = sum(len(bounds) - 1 for bounds in _part_arrays(parts, "documents")) + 1
        files.append(_write(folder / "documents.npy", np.dtype(np.int64), count, _documents(parts)))
    sync(folder)
    return tokens, dtypes, tuple(files)


def _names(parts: Sequence[Path]) -> list[str]:
    first: list[str] | None = None
    for path in parts:
        with _load_part(path) as part:
            names = list(part.files)
        if first is not None and names != first:
            raise CorpusError("Some examples have a second text and some have none", where=f"{path.parent}")
        first = names
    return first or []


def _part_arrays(parts: Sequence[Path], name: str) -> Iterator[Array]:
    for path in parts:
        with _load_part(path) as part:
            try:
                yield part[name]
            except (zipfile.BadZipFile, ValueError, OSError) as error:
                raise _damaged_part(path, error) from error


def _load_part(path: Path) -> Any:
    try:
        return np.load(path)
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise _damaged_part(path, error) from error


def _damaged_part(path: Path, error: Exception) -> StoreError:
    return StoreError(f"The part is damaged ({error})", where=f"{path}", advice="Delete it and build again.")


def _ends(parts: Sequence[Path], name: str) -> Iterator[Array]:
    start = 0
    for ends in _part_arrays(parts, f"{name}.ends"):
        yield ends + start
        start += int(ends[-1]) if len(ends) else 0


def _documents(parts: Sequence[Path]) -> Iterator[Array]:
    start = 0
    yield np.zeros(1, np.int64)
    for bounds in _part_arrays(parts, "documents"):
        yield bounds[1:] + start
        start += int(bounds[-1])


class _ChecksumWriter:
    """A file whose checksum is computed as it is written."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.sum, self.size = stream, hashlib.sha256(), 0

    def write(self, content: Any) -> None:
        self.sum.update(content)
        self.size += self.stream.write(content)


def _write(path: Path, dtype: np.dtype[Any], count: int, arrays: Iterator[Array]) -> FileDigest:
    """Write a .npy file of a known length, array by array."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (count,)}
    with open(path, "wb") as stream:
        summed = _ChecksumWriter(stream)
        np.lib.format.write_array_header_1_0(summed, header)
        for array in arrays:
            summed.write(np.ascontiguousarray(array, dtype).data)
        stream.flush()
        os.fsync(stream.fileno())
    return FileDigest(path.name, summed.size, summed.sum.hexdigest())
