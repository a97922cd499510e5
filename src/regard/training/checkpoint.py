"""Checkpoints of a training, written and restored: a folder for each, there as a whole or not at all.

What lies in it is told in runs/checkpoint.py. It is written under another name, brought to the disk and renamed.
Nothing here is ever unpickled.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from regard.errors import CheckpointError
from regard.files import print_of, sync, write_whole
from regard.runs import FORMAT, Checkpoint, checkpoint_at, files_in, same_shape, steps_in
from regard.training.distributed import World

Tell = Callable[[str], None]
Wanted = Callable[[list[int]], set[int]]  # of the steps of all checkpoints, those to be kept
warnings.filterwarnings(
    "ignore", "torch.distributed is disabled, unavailable or uninitialized"
)  # one process is enough


@dataclass(frozen=True)
class Own:
    """What belongs to one rank alone."""

    scalars: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Contents:
    """What goes into a checkpoint. Tensors may be shards; scalars and a rank's own are anything that JSON can say."""

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Any]
    own: Own


def load_tensors(checkpoint: Checkpoint, tensors: Mapping[str, Tensor], world: World) -> None:
    """Fill these tensors (perhaps shards, of any number of ranks) from the ones of the same names in a checkpoint."""
    with _in_words(checkpoint.folder, "read"):
        reader = dcp.HuggingFaceStorageReader(str(checkpoint.folder / "tensors"))
        _expect_fitting(checkpoint, tensors, reader)
        dcp.load(dict(tensors), storage_reader=reader, process_group=world.channel, no_dist=not world.several)


def _expect_fitting(
    checkpoint: Checkpoint, tensors: Mapping[str, Tensor], reader: dcp.HuggingFaceStorageReader
) -> None:
    kept, where = reader.read_metadata().state_dict_metadata, f"{checkpoint.folder}"
    for name, tensor in tensors.items():
        if name not in kept:
            raise CheckpointError(f"a checkpoint without {name}", "one of this model", where=where)
        same_shape(name, tuple(kept[name].size), tuple(tensor.shape), where)  # type: ignore[union-attr]


def load_own(checkpoint: Checkpoint, rank: int) -> Own | None:
    """What rank number `rank` kept for itself in a checkpoint; None if there were fewer ranks."""
    base = checkpoint.folder / "ranks" / f"{rank}.json"
    if not base.exists():
        return None
    with _in_words(checkpoint.folder, "read"):
        return Own(dict(json.loads(base.read_bytes())), load_file(base.with_suffix(".safetensors")))


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, folder: Path, world: World, tell: Tell = lambda text: None) -> None:
        self.folder, self.world, self.tell = folder, world, tell

    def save(self, step: int, contents: Contents, wanted: Wanted) -> Path:
        """Write a checkpoint, then remove those that nobody wants."""
        final = self.at(step).folder
        part = self.folder / f".{final.name}.part"
        try:
            with _in_words(final, "written", self._good_news):
                if self.world.first:
                    shutil.rmtree(part, ignore_errors=True)
                    self.folder.mkdir(parents=True, exist_ok=True)
                    sync(self.folder.parent)
                    (part / "ranks").mkdir(parents=True)
                self.world.wait()
                self._write(part, contents)
                self.world.wait()
                if self.world.first:
                    _seal(part, contents.scalars)
                    part.rename(final)
                    sync(self.folder)
                    self._tidy(wanted)
        finally:
            if self.world.first:
                shutil.rmtree(part, ignore_errors=True)  # is there only if it failed
        self.world.wait()
        return final

    def newest(self) -> Checkpoint | None:
        """The newest checkpoint that is sound. Damaged ones are told of and put aside, under another name."""
        step = self.world.share(self._sound() if self.world.first else None)
        return None if step is None else self.at(step)

    def at(self, step: int) -> Checkpoint:
        return checkpoint_at(self.folder, step)

    def steps(self) -> list[int]:
        """The steps of all checkpoints that are there, in order."""
        return steps_in(self.folder)

    def _sound(self) -> int | None:
        for leftover in [*self.folder.glob(".step-*"), *self.folder.glob(".gone-*")]:
            shutil.rmtree(leftover)
        damaged = [path.name for path in sorted(self.folder.glob("damaged-*"))]
        newest = max(self.steps(), default=None)
        for step in reversed(self.steps()):
            wrong = self.at(step).complaint()
            if wrong is None:
                if step != newest:
                    self.tell(f"the checkpoint of step {step} is used in its place")
                return step
            aside = self._put_aside(step)
            damaged.append(f"{aside.name} with {wrong}")
            self.tell(f"the checkpoint of step {step} has {wrong}; it is now {aside}")
        if damaged:
            raise CheckpointError(
                f"only damaged checkpoints ({'; '.join(damaged)})",
                "at least one that is sound",
                where=f"{self.folder}",
                advice="Nothing was deleted. Start anew with another --out.",
            )
        return None

    def _put_aside(self, step: int) -> Path:
        source = self.at(step).folder
        for number in range(1000):
            aside = self.folder / f"damaged-{source.name}{f'.{number}' if number else ''}"
            if not aside.exists():
                return source.rename(aside)
        raise CheckpointError("a thousand damaged checkpoints of one step", "fewer", where=f"{self.folder}")

    def _write(self, part: Path, contents: Contents) -> None:
        writer = dcp.HuggingFaceStorageWriter(str(part / "tensors"), save_distributed=True)
        dcp.save(
            dict(contents.tensors),
            storage_writer=writer,
            process_group=self.world.channel,
            no_dist=not self.world.several,
        )
        own = part / "ranks" / f"{self.world.rank}.json"
        write_whole(own.with_suffix(".safetensors"), save(dict(contents.own.tensors)))
        write_whole(own, json.dumps(dict(contents.own.scalars)).encode())

    def _tidy(self, wanted: Wanted) -> None:
        steps = self.steps()
        for step in sorted(set(steps) - wanted(steps)):
            going = self.folder / f".gone-{step}"
            shutil.rmtree(going, ignore_errors=True)
            self.at(step).folder.rename(going)  # so that half a checkpoint never bears the name of a whole one
            shutil.rmtree(going)

    def _good_news(self) -> str:
        kept = self.steps()
        return f"Step {kept[-1]} is saved as before." if kept else "Nothing was saved before."


def _seal(part: Path, scalars: Mapping[str, Any]) -> None:
    """Write what is left, and the manifest when all else is on the disk."""
    write_whole(part / "scalars.json", json.dumps(dict(scalars)).encode())
    files = files_in(part)
    for path in files.values():
        sync(path)
    prints = [asdict(print_of(path, name)) for name, path in sorted(files.items())]
    write_whole(part / "manifest.json", json.dumps({"format": FORMAT, "files": prints}, indent=1).encode())
    for folder in (part / "tensors", part / "ranks", part):
        sync(folder)


@contextmanager
def _in_words(folder: Path, done: str, more: Callable[[], str] = str) -> Iterator[None]:
    """Turn what the system or torch says into an error of ours."""
    try:
        yield
    except (OSError, ValueError, TypeError, SafetensorError, CheckpointException) as error:
        if isinstance(error, CheckpointError):
            raise
        cause: BaseException = error
        if isinstance(error, CheckpointException):
            cause = next(iter(error.failures.values()))[0]
        said = cause.strerror if isinstance(cause, OSError) and cause.strerror else f"{cause}".partition("\n")[0]
        raise CheckpointError(
            f"a checkpoint that could not be {done} ({said})", "one", where=f"{folder}", advice=more()
        ) from cause
