"""Checkpoints of a training: when one is written, how many are kept (retention), and how they are written and loaded.

CheckpointSchedule decides both from [checkpoint]. Checkpoints writes with torch.distributed.checkpoint: under another
name, synced to disk and then renamed, so a checkpoint is complete or absent. runs/checkpoint_reader.py describes the
folder and verifies its checksums on resume. Nothing here is ever unpickled.
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
from regard.files import digest_of, sync, write_atomic
from regard.runs import FORMAT, Checkpoint, checkpoint_at, expect_same_shape, files_in, steps_in
from regard.training.distributed import World

Notify = Callable[[str], None]
warnings.filterwarnings(
    "ignore", "torch.distributed is disabled, unavailable or uninitialized"
)  # one process is enough


@dataclass(frozen=True)
class CheckpointSchedule:
    """When a checkpoint is due, and which checkpoints are kept.

    every      steps between regular checkpoints; a new best evaluation gets one too
    keep_last  how many of the last checkpoints are kept; the best one always is
    averaged   how many regular checkpoints a weight average takes at the end; 0: none
    """

    every: int
    keep_last: int
    averaged: int = 0

    def is_due(self, step: int, best: int | None) -> bool:
        """Whether a checkpoint is due after this step; `best`: the step of the best evaluation."""
        return step > 0 and (step % self.every == 0 or step == best)

    def retained(self, steps: list[int], best: int | None) -> set[int]:
        """Among the steps of all checkpoints, in order, those to keep: the last ones, the best, and those for a weight
        average; for the average one more than it takes, in case the newest is damaged."""
        kept = {*steps[-self.keep_last :]} | ({best} & {*steps})
        if self.averaged:
            kept |= {*self.regular(steps)[-self.averaged - 1 :]}
        return {step for step in kept if step is not None}

    def regular(self, steps: list[int]) -> list[int]:
        """Those of the regular interval, without checkpoints of best evaluations and interrupts between them."""
        return [step for step in steps if step % self.every == 0]


@dataclass(frozen=True)
class PerRank:
    """The part of a checkpoint that belongs to one rank: random states, carried recurrent state."""

    scalars: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class CheckpointContents:
    """What goes into a checkpoint. Tensors may be shards; scalars are anything that JSON can hold."""

    tensors: Mapping[str, Tensor]
    scalars: Mapping[str, Any]
    per_rank: PerRank


def load_tensors(checkpoint: Checkpoint, tensors: Mapping[str, Tensor], world: World) -> None:
    """Load tensors (or shards, over any number of ranks) from those of the same names in a checkpoint, in place."""
    with _as_checkpoint_error(checkpoint.folder, "read"):
        reader = dcp.HuggingFaceStorageReader(str(checkpoint.folder / "tensors"))
        _check_names_and_shapes(checkpoint, tensors, reader)
        dcp.load(dict(tensors), storage_reader=reader, process_group=world.group, no_dist=not world.is_distributed)


def _check_names_and_shapes(
    checkpoint: Checkpoint, tensors: Mapping[str, Tensor], reader: dcp.HuggingFaceStorageReader
) -> None:
    stored, where = reader.read_metadata().state_dict_metadata, f"{checkpoint.folder}"
    for name, tensor in tensors.items():
        if name not in stored:
            raise CheckpointError(f"The checkpoint has no tensor {name}: it is of another model", where=where)
        expect_same_shape(name, tuple(stored[name].size), tuple(tensor.shape), where)  # type: ignore[union-attr]


def load_per_rank(checkpoint: Checkpoint, rank: int) -> PerRank | None:
    """The part of a checkpoint that rank `rank` wrote; None if there were fewer ranks."""
    base = checkpoint.folder / "ranks" / f"{rank}.json"
    if not base.exists():
        return None
    with _as_checkpoint_error(checkpoint.folder, "read"):
        return PerRank(dict(json.loads(base.read_bytes())), load_file(base.with_suffix(".safetensors")))


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(
        self, folder: Path, world: World, schedule: CheckpointSchedule, notify: Notify = lambda text: None
    ) -> None:
        self.folder, self.world, self.schedule, self.notify = folder, world, schedule, notify

    def save(self, step: int, contents: CheckpointContents, best: int | None) -> Path:
        """Write a checkpoint, then remove those that the schedule does not keep; `best`: the step of the best one."""
        final = self.at(step).folder
        part = self.folder / f".{final.name}.part"
        try:
            with _as_checkpoint_error(final, "write", self._what_remains):
                if self.world.is_main:
                    shutil.rmtree(part, ignore_errors=True)
                    self.folder.mkdir(parents=True, exist_ok=True)
                    sync(self.folder.parent)
                    (part / "ranks").mkdir(parents=True)
                self.world.barrier()
                self._write(part, contents)
                self.world.barrier()
                if self.world.is_main:
                    _write_manifest(part, contents.scalars)
                    part.rename(final)
                    sync(self.folder)
                    self._remove_old(best)
        finally:
            if self.world.is_main:
                shutil.rmtree(part, ignore_errors=True)  # is there only if it failed
        self.world.barrier()
        return final

    def newest(self) -> Checkpoint | None:
        """The newest sound checkpoint; damaged ones are reported and renamed out of the way."""
        step = self.world.broadcast(self._newest_sound() if self.world.is_main else None)
        return None if step is None else self.at(step)

    def at(self, step: int) -> Checkpoint:
        return checkpoint_at(self.folder, step)

    def steps(self) -> list[int]:
        """The steps of all checkpoints on disk, in order."""
        return steps_in(self.folder)

    def _newest_sound(self) -> int | None:
        for leftover in [*self.folder.glob(".step-*"), *self.folder.glob(".gone-*")]:
            shutil.rmtree(leftover)
        damaged = [path.name for path in sorted(self.folder.glob("damaged-*"))]
        newest = max(self.steps(), default=None)
        for step in reversed(self.steps()):
            complaint = self.at(step).find_damage()
            if complaint is None:
                if step != newest:
                    self.notify(f"using the checkpoint of step {step} instead")
                return step
            moved = self._set_aside(step)
            damaged.append(f"{moved.name} with {complaint}")
            self.notify(f"the checkpoint of step {step} has {complaint}; it was renamed to {moved}")
        if damaged:
            raise CheckpointError(
                f"All checkpoints are damaged: {'; '.join(damaged)}",
                where=f"{self.folder}",
                advice="None was deleted. Start a new training with another --out.",
            )
        return None

    def _set_aside(self, step: int) -> Path:
        """Rename a damaged checkpoint; its new path."""
        source = self.at(step).folder
        for number in range(1000):
            target = self.folder / f"damaged-{source.name}{f'.{number}' if number else ''}"
            if not target.exists():
                return source.rename(target)
        raise CheckpointError(
            f"There are a thousand damaged checkpoints of step {step} already",
            where=f"{self.folder}",
            advice="Delete those named damaged-*.",
        )

    def _write(self, part: Path, contents: CheckpointContents) -> None:
        writer = dcp.HuggingFaceStorageWriter(str(part / "tensors"), save_distributed=True)
        dcp.save(
            dict(contents.tensors),
            storage_writer=writer,
            process_group=self.world.group,
            no_dist=not self.world.is_distributed,
        )
        path = part / "ranks" / f"{self.world.rank}.json"
        write_atomic(path.with_suffix(".safetensors"), save(dict(contents.per_rank.tensors)))
        write_atomic(path, json.dumps(dict(contents.per_rank.scalars)).encode())

    def _remove_old(self, best: int | None) -> None:
        steps = self.steps()
        for step in sorted(set(steps) - self.schedule.retained(steps, best)):
            doomed = self.folder / f".gone-{step}"
            shutil.rmtree(doomed, ignore_errors=True)
            self.at(step).folder.rename(doomed)  # so that a half-deleted checkpoint never has a checkpoint's name
            shutil.rmtree(doomed)

    def _what_remains(self) -> str:
        steps = self.steps()
        return f"The checkpoint of step {steps[-1]} is intact." if steps else "There was no checkpoint before."


def _write_manifest(part: Path, scalars: Mapping[str, Any]) -> None:
    """Write the scalars, sync everything to disk, and write the manifest last."""
    write_atomic(part / "scalars.json", json.dumps(dict(scalars)).encode())
    files = files_in(part)
    for path in files.values():
        sync(path)
    digests = [asdict(digest_of(path, name)) for name, path in sorted(files.items())]
    write_atomic(part / "manifest.json", json.dumps({"format": FORMAT, "files": digests}, indent=1).encode())
    for folder in (part / "tensors", part / "ranks", part):
        sync(folder)


@contextmanager
def _as_checkpoint_error(folder: Path, action: str, advice: Callable[[], str] = str) -> Iterator[None]:
    """Raise what the system or torch raises as a CheckpointError: "Could not read the checkpoint: ..."."""
    try:
        yield
    except (OSError, ValueError, TypeError, SafetensorError, CheckpointException) as error:
        if isinstance(error, CheckpointError):
            raise
        cause: BaseException = error
        if isinstance(error, CheckpointException):
            cause = next(iter(error.failures.values()))[0]
        reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else f"{cause}".partition("\n")[0]
        raise CheckpointError(
            f"Could not {action} the checkpoint: {reason}", where=f"{folder}", advice=advice()
        ) from cause
