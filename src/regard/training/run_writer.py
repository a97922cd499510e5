"""What a training leaves behind in its run folder: checkpoints, the weights for use, and batches that went wrong.

Training stands still only while its state is copied; a thread writes the copy. One save is finished before the next one
begins, and a save that failed is told as soon as training looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.runs import FILE, Checkpoint, save_weights, weights_of
from regard.training.checkpoint import Checkpoints, Contents, Tell
from regard.training.distributed import World, whole
from regard.training.host_staging import Staging
from regard.training.recipe import LastAverage, Recipe


class Keeping:
    """A run folder, seen by the loop."""

    def __init__(self, folder: Path, world: World, recipe: Recipe, tell: Tell = lambda text: None) -> None:
        self.folder, self.world = folder, world
        self.keep, self.average = recipe.keep, recipe.average
        self.checkpoints = Checkpoints(folder / "state", world.aside(), tell)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="regard-keeping")
        self._writing: Future[Path] | None = None
        self._staging, self._for_use = Staging(), Staging()

    def save(self, step: int, contents: Contents, best: int | None, weights: Mapping[str, Tensor] | None) -> None:
        """Begin to write a checkpoint and then, where there are some, the weights for use."""
        self.finish()
        copied = replace(contents, tensors=self._staging.copies(contents.tensors))
        self._writing = self._thread.submit(self._write, step, copied, best, weights)

    def _write(self, step: int, contents: Contents, best: int | None, weights: Mapping[str, Tensor] | None) -> Path:
        path = self.checkpoints.save(step, contents, lambda steps: self._wanted(steps, best))
        if weights is not None:
            self.write_weights(weights)
        return path

    def _wanted(self, steps: list[int], best: int | None) -> set[int]:
        """The latest, the best, and those for a mean: one more than it takes, should the newest be damaged."""
        wanted = {*steps[-self.keep.latest :]} | ({best} & {*steps})
        if isinstance(self.average, LastAverage):
            wanted |= {*self._regular(steps)[-self.average.count - 1 :]}
        return {step for step in wanted if step is not None}

    def _regular(self, steps: list[int]) -> list[int]:
        """Those that were saved because it was time, whatever happened in between."""
        return [step for step in steps if step % self.keep.every == 0]

    def last(self, step: int, count: int) -> list[Checkpoint]:
        """The last `count` regular checkpoints with that of the last step among them, each of them sound."""
        steps = sorted({*self._regular(self.checkpoints.steps()), step})[-count:]
        found = [self.checkpoints.at(one) for one in steps]
        for one in found:
            wrong = one.complaint()
            if wrong is not None:
                raise CheckpointError(
                    f"a checkpoint with {wrong}",
                    "one that is sound, for the mean of the last",
                    where=f"{one.folder}",
                    advice="Delete the newer ones too and resume: training makes them again.",
                )
        return found

    def written(self) -> Path | None:
        """The checkpoint that has been finished since one asked last; an error, if it could not be."""
        return self.finish() if self._writing is not None and self._writing.done() else None

    def finish(self) -> Path | None:
        """Wait until what was begun is written; what it is, if anything was begun."""
        writing, self._writing = self._writing, None
        return None if writing is None else writing.result()

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """A copy of the weights of all ranks together, good until the next one; only the first rank gets it."""
        self.finish()
        wholes = {name: whole(tensor) for name, tensor in weights_of(model).items()}
        return self._for_use.copies(wholes) if self.world.first else {}

    def write_weights(self, weights: Mapping[str, Tensor]) -> None:
        """model.safetensors, now."""
        if not self.world.first:
            return
        path = self.folder / FILE
        try:
            save_weights(weights, path)
        except OSError as error:
            raise CheckpointError(
                f"weights that could not be written ({error.strerror})",
                "a folder with room for them",
                where=f"{path}",
                advice="The checkpoints are as they were.",
            ) from error

    def fault(self, step: int, number: int) -> Path:
        """Where batch `number` of a step that went wrong on this rank is kept."""
        return self.folder / "faults" / f"step-{step:08d}-rank{self.world.rank}-{number}.safetensors"
