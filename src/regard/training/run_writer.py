"""Writes a run folder during training: checkpoints in a background thread, the weights for use, failed batches.

Training waits only while its state is copied to pinned host memory; a thread writes the copy to disk. One save is
finished before the next one begins; a failed save raises at the next poll.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.runs import FILE, Checkpoint, save_weights, weights_of
from regard.training.checkpoint import CheckpointContents, Checkpoints, CheckpointSchedule, Notify
from regard.training.distributed import World, full_tensor
from regard.training.recipe import LastAverage, Recipe

Weights = Mapping[str, Tensor]


class RunWriter:
    """Writes the checkpoints and weights of one run; `notify` gets lines about damaged checkpoints."""

    def __init__(self, folder: Path, world: World, recipe: Recipe, notify: Notify = lambda text: None) -> None:
        self.folder, self.world = folder, world
        averaged = recipe.weight_average.count if isinstance(recipe.weight_average, LastAverage) else 0
        self.schedule = CheckpointSchedule(recipe.checkpoint.every, recipe.checkpoint.keep_last, averaged)
        self.checkpoints = Checkpoints(folder / "state", world.side_group(), self.schedule, notify)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="regard-run-writer")
        self._saving: Future[Path] | None = None
        self._staged_state, self._staged_weights = HostStaging(), HostStaging()

    def save(self, step: int, contents: CheckpointContents, best: int | None, weights: Weights | None) -> None:
        """Start to write a checkpoint and then, if there are any, the weights for use."""
        self.finish()
        copied = replace(contents, tensors=self._staged_state.copies(contents.tensors))
        self._saving = self._thread.submit(self._write, step, copied, best, weights)

    def _write(self, step: int, contents: CheckpointContents, best: int | None, weights: Weights | None) -> Path:
        path = self.checkpoints.save(step, contents, best)
        if weights is not None:
            self.write_weights(weights)
        return path

    def last_checkpoints(self, step: int, count: int) -> list[Checkpoint]:
        """The last `count` regular checkpoints, that of the last step included; a damaged one is refused."""
        steps = sorted({*self.schedule.regular(self.checkpoints.steps()), step})[-count:]
        found = [self.checkpoints.at(one) for one in steps]
        for one in found:
            complaint = one.find_damage()
            if complaint is not None:
                raise CheckpointError(
                    f"This checkpoint has {complaint}, so the last {count} cannot be averaged",
                    where=f"{one.folder}",
                    advice="Delete it and the newer ones, and resume: training writes them again.",
                )
        return found

    def poll(self) -> Path | None:
        """The checkpoint that was finished since the last call, if any; raises if it could not be written."""
        return self.finish() if self._saving is not None and self._saving.done() else None

    def finish(self) -> Path | None:
        """Wait for the save that is under way; its checkpoint, or None if there was none."""
        saving, self._saving = self._saving, None
        return None if saving is None else saving.result()

    def gather_weights(self, model: nn.Module) -> dict[str, Tensor]:
        """A copy of the weights, gathered from all ranks, valid until the next call; empty but on the main rank."""
        self.finish()
        gathered = {name: full_tensor(tensor) for name, tensor in weights_of(model).items()}
        return self._staged_weights.copies(gathered) if self.world.is_main else {}

    def write_weights(self, weights: Weights) -> None:
        """Write model.safetensors now."""
        if not self.world.is_main:
            return
        path = self.folder / FILE
        try:
            save_weights(weights, path)
        except OSError as error:
            raise CheckpointError(
                f"Could not write the weights: {error.strerror}", where=f"{path}", advice="The checkpoints are intact."
            ) from error

    def failed_batch_path(self, step: int, number: int) -> Path:
        """Where batch `number` of a failed step of this rank is saved."""
        return self.folder / "faults" / f"step-{step:08d}-rank{self.world.rank}-{number}.safetensors"


class HostStaging:
    """Copies of tensors in host memory that is reused for every copy; they are valid until the next copies are made.

    Allocating costs more than copying, and only pinned memory takes data from a GPU at full speed. Shards (DTensors)
    are copied on their device.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def copies(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        made = {name: self._copy(name, tensor.detach()) for name, tensor in tensors.items()}
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.synchronize()
        return made

    def _copy(self, name: str, tensor: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor

        if isinstance(tensor, DTensor):
            return tensor.clone()
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = self._buffers[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        return buffer.copy_(tensor, non_blocking=True)
