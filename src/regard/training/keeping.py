"""What a training leaves behind in its run folder: checkpoints, the weights for use, and batches that went wrong.

Training stands still only while its state is copied; a thread writes the copy. One save is finished before the next one
begins, and a save that failed is told as soon as training looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.training.checkpoint import Checkpoints, Contents, Tell, copied
from regard.training.distributed import World, whole
from regard.training.recipe import LastAverage, Recipe
from regard.training.weights import FILE, save_weights, weights_of


class Keeping:
    """A run folder, seen by the loop."""

    def __init__(self, folder: Path, world: World, recipe: Recipe, tell: Tell = lambda text: None) -> None:
        self.folder, self.world = folder, world
        latest = recipe.keep.latest
        if isinstance(recipe.average, LastAverage):
            latest = max(latest, recipe.average.count + 1)  # should the newest be damaged, the mean can still be taken
        self.checkpoints = Checkpoints(folder / "state", world.aside(), latest, tell)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="regard-keeping")
        self._writing: Future[Path] | None = None

    def save(self, step: int, contents: Contents, best: int | None, weights: Mapping[str, Tensor] | None) -> None:
        """Begin to write a checkpoint and then, where there are some, the weights for use."""
        self.finish()
        self._writing = self._thread.submit(self._write, step, contents.copied(), best, weights)

    def _write(self, step: int, contents: Contents, best: int | None, weights: Mapping[str, Tensor] | None) -> Path:
        path = self.checkpoints.save(step, contents, best)
        if weights is not None:
            self.write_weights(weights)
        return path

    def written(self) -> Path | None:
        """The checkpoint that has been finished since one asked last; an error, if it could not be."""
        return self.finish() if self._writing is not None and self._writing.done() else None

    def finish(self) -> Path | None:
        """Wait until what was begun is written; what it is, if anything was begun."""
        writing, self._writing = self._writing, None
        return None if writing is None else writing.result()

    def weights(self, model: nn.Module) -> dict[str, Tensor]:
        """A copy of the weights of all ranks together; only the first rank gets them."""
        wholes = ((name, whole(tensor)) for name, tensor in weights_of(model).items())
        return {name: copied(tensor) for name, tensor in wholes if self.world.first}

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
