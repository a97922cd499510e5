"""Reads training checkpoints: the weights and scalars of each, checked against the checksums of its manifest.

    state/step-00000200/
      manifest.json                 sizes and checksums of the files below; written last
      scalars.json                  everything that is not a tensor
      tensors/*.safetensors         tensors of all ranks, a file from each (torch.distributed.checkpoint)
      ranks/0.json, 0.safetensors   the state of each rank: RNG states, the carry of a recurrent model

They are read with safetensors alone, so that inference needs no torch.distributed. Nothing is ever unpickled.
training/checkpoint.py writes them, and decides when, and how many are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from regard.bounded_files import DATA_LIMIT, expect_regular, parse_json, read_json
from regard.errors import CheckpointError, RegardError
from regard.files import FileDigest, digest_of

FORMAT = 1
WEIGHTS, AVERAGE = "weights.", "average."  # prefixes of tensor names: the model's weights, and their moving average
_NAME = re.compile(r"step-(\d+)")
_OFFSETS = "DCP_SHARDING_INFO"  # metadata of torch.distributed.checkpoint: which part of a tensor a file holds


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk."""

    folder: Path
    step: int

    def find_damage(self) -> str | None:
        """Verify it against its manifest (sizes, SHA-256 checksums): what is damaged; None if nothing is."""
        try:
            manifest = read_json(self.folder / "manifest.json", CheckpointError, DATA_LIMIT)
            if manifest["format"] != FORMAT:
                return f"format {manifest['format']!r} instead of {FORMAT}"
            kept = [FileDigest(**one) for one in manifest["files"]]
            found = files_in(self.folder)
            if {one.path for one in kept} != found.keys():
                return (
                    f"other files than its manifest lists: {_list_differences({one.path for one in kept}, set(found))}"
                )
            for one in kept:
                if found[one.path].stat().st_size != one.size or digest_of(found[one.path], one.path) != one:
                    return f"a damaged {one.path}"
            step = self.scalars().get("progress", {}).get("step", self.step)
            if step != self.step:
                return f"the state of step {step}: its folder was renamed"
        except OSError as error:
            return f"{Path(error.filename or '').name}: {error.strerror}"
        except RegardError as error:
            return f"a damaged file ({error.problem})"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"a damaged manifest.json ({type(error).__name__})"
        return None

    def scalars(self) -> dict[str, Any]:
        with _read_errors(self.folder):
            return dict(read_json(self.folder / "scalars.json", CheckpointError, DATA_LIMIT))

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names start with `prefix`, by the rest of their names; shards are joined."""
        shards: dict[str, list[tuple[list[int], Tensor]]] = {}
        with _read_errors(self.folder):
            for name, file, offsets in self._shards(prefix):
                shards.setdefault(name, []).append((offsets, file.get_tensor(prefix + name)))
        return {name: self._join(name, parts) for name, parts in shards.items()}

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """The shapes of those tensors, from the headers of their files alone."""
        found: dict[str, tuple[int, ...]] = {}
        with _read_errors(self.folder):
            for name, file, offsets in self._shards(prefix):
                shape = file.get_slice(prefix + name).get_shape()
                last = found.get(name, (0,) * len(shape))
                found[name] = tuple(max(a, b + c) for a, b, c in zip(last, offsets, shape, strict=True))
        return found

    def _shards(self, prefix: str) -> Iterator[tuple[str, Any, list[int]]]:
        """The shards of these tensors: the rest of the name, the open file, and where the shard begins."""
        for path in sorted((self.folder / "tensors").glob("*.safetensors")):
            expect_regular(path, CheckpointError)
            with safe_open(path, framework="pt") as file:
                places = parse_json((file.metadata() or {}).get(_OFFSETS, "{}"), f"{path}", CheckpointError)
                for name in filter(lambda name: name.startswith(prefix), file.keys()):
                    dims = len(file.get_slice(name).get_shape())
                    yield name.removeprefix(prefix), file, _offsets(places, name, dims)

    def _join(self, name: str, parts: list[tuple[list[int], Tensor]]) -> Tensor:
        """A tensor from its shards, each with the offsets of its first element."""
        first = parts[0][1]
        shape = [max(at[dim] + part.size(dim) for at, part in parts) for dim in range(first.dim())]
        if len(parts) == 1 and shape == list(first.shape):
            return first
        tensor = torch.empty(shape, dtype=first.dtype)
        if sum(part.numel() for _, part in parts) != tensor.numel():
            raise CheckpointError(f"Some shards of {name} are missing", where=f"{self.folder}")
        for at, part in parts:
            tensor[tuple(slice(begin, begin + size) for begin, size in zip(at, part.shape, strict=True))] = part
        return tensor


def _offsets(places: dict[str, Any], name: str, dims: int) -> list[int]:
    """Where the part of a tensor that a file holds begins."""
    found: list[int] = places.get(name, {}).get("saved_offsets", [0] * dims)
    return found


def steps_in(folder: Path) -> list[int]:
    """The steps of all checkpoints in a folder, in order."""
    if not folder.is_dir():
        return []
    matches = (_NAME.fullmatch(path.name) for path in folder.iterdir() if path.is_dir())
    return sorted(int(match[1]) for match in matches if match)


def checkpoint_at(folder: Path, step: int) -> Checkpoint:
    """The checkpoint of a step, which need not exist."""
    return Checkpoint(folder / f"step-{step:08d}", step)


def newest_intact(folder: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint; nothing is moved or removed."""
    found = (checkpoint_at(folder, step) for step in reversed(steps_in(folder)))
    return next((one for one in found if one.find_damage() is None), None)


def files_in(folder: Path) -> dict[str, Path]:
    """All files below a folder except the manifest, by relative path."""
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if not path.is_dir()}
    return {name: path for name, path in found.items() if name != "manifest.json"}


def _list_differences(listed: set[str], found: set[str]) -> str:
    missing, extra = sorted(listed - found), sorted(found - listed)
    return "; ".join([*(f"no {name}" for name in missing[:3]), *(f"an unknown {name}" for name in extra[:3])])


@contextmanager
def _read_errors(folder: Path) -> Iterator[None]:
    """Turns errors of reading into CheckpointErrors."""
    try:
        yield
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        if isinstance(error, CheckpointError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else f"{error}".partition("\n")[0]
        raise CheckpointError(f"Could not read the checkpoint: {reason}", where=f"{folder}") from error
