"""What a training leaves behind in its run folder: checkpoints, the weights for use, and batches that went wrong."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from regard.errors import CheckpointError
from regard.training.checkpoint import Checkpoints, Tell
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
        self.checkpoints = Checkpoints(folder / "state", world, latest, tell)

    def write_weights(self, model: nn.Module) -> None:
        """model.safetensors: the weights of all ranks together."""
        tensors = {name: whole(tensor) for name, tensor in weights_of(model).items()}
        if self.world.first:
            path = self.folder / FILE
            try:
                save_weights(tensors, path)
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
