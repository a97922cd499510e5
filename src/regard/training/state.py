"""The state of a training, and its way into a checkpoint and back: model, optimiser, averages, data position, RNG."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.errors import SettingError
from regard.runs import AVERAGE, WEIGHTS, Checkpoint, weights_of
from regard.text import Batch
from regard.training import optimisers
from regard.training.checkpoint import CheckpointContents, PerRank, load_per_rank, load_tensors
from regard.training.distributed import DistributedModel, World
from regard.training.early_stopping import Progress
from regard.training.objectives.base import Carry
from regard.training.precision import Precision
from regard.training.random_state import RandomState, seed_everything
from regard.training.recipe import MovingAverage, PreparedTask
from regard.training.weight_average import EMA

OPTIMISER, CARRY = "optimiser.", "carry."


@dataclass(frozen=True)
class CarriedState:
    """The recurrent state that goes on into the next batch, and the rows (lanes) it belongs to, (B,)."""

    rows: Tensor
    tensors: Carry

    def for_batch(self, batch: Batch) -> Carry | None:
        """The state of the rows of this batch, in their order; None if the batch has other rows."""
        if torch.equal(self.rows, batch.indices):
            return self.tensors
        places = {int(row): place for place, row in enumerate(self.rows)}
        found = [places.get(int(row)) for row in batch.indices]
        if None in found:
            return None
        chosen = torch.tensor(found, dtype=torch.int64, device=self.rows.device)
        return {name: tensor.index_select(0, chosen) for name, tensor in self.tensors.items()}


@dataclass(frozen=True)
class ResumePoint:
    """Random states, position in the data and carried state between two steps: what resuming starts from."""

    random: RandomState
    position: Mapping[str, int | str]
    carried: CarriedState | None


class TrainingState:
    """The model over the ranks, with optimiser, precision, weight average, batches and progress."""

    def __init__(self, prepared: PreparedTask, world: World) -> None:
        recipe = prepared.recipe
        if world.is_distributed and (recipe.train.shard, recipe.train.precision) == ("fsdp", "fp16"):
            raise SettingError(
                "train.precision = 'fp16' does not work with train.shard = 'fsdp': each shard would need its own loss "
                "scale",
                where="train",
                advice="Use bf16 or float32.",
            )
        self.world, self.seed, self.threads = world, recipe.train.seed, recipe.train.threads
        cuda_graphs = recipe.train.compile == "graphs"
        self.distributed = DistributedModel(prepared.model.to(world.device), world, recipe.train.shard, cuda_graphs)
        self.model = self.distributed.model
        self.optimiser = optimisers.make_optimiser(recipe.optimiser, self.model)
        self.precision = Precision(recipe.train.precision, world.device)
        average = recipe.weight_average
        self.average = EMA(self.model, average.decay) if isinstance(average, MovingAverage) else None
        self.batches = prepared.train
        self.carried: CarriedState | None = None
        monitor = recipe.evaluate.monitor
        self.progress = Progress(monitor, prepared.objective.metrics.get(monitor, "lower"))
        seed_everything(self.seed, 0, world.rank)

    def resume_point(self) -> ResumePoint:
        return ResumePoint(RandomState.capture(self.world.device), self.batches.state_dict(), self.carried)

    def contents(self, point: ResumePoint) -> CheckpointContents:
        """What a checkpoint stores: the weights as they are now, all else as it was at the resume point."""
        tensors = {f"{WEIGHTS}{name}": tensor for name, tensor in weights_of(self.model).items()}
        if self.average is not None:
            tensors |= {f"{AVERAGE}{name}": tensor for name, tensor in self.average.tensors.items()}
        for name, tensor in optimisers.state_tensors(self.optimiser, self.model).items():
            tensors[f"{OPTIMISER}{name}"] = tensor
        scalars = {
            "progress": self.progress.scalars(),
            "position": dict(point.position),
            "optimiser": optimisers.state_scalars(self.optimiser, self.model),
            "scaler": self.precision.scaler.state_dict(),
            "ranks": self.world.ranks,
            "threads": torch.get_num_threads(),
        }
        return CheckpointContents(tensors, scalars, _per_rank(point))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Load a checkpoint, written with any number of ranks."""
        scalars = checkpoint.scalars()
        if self.threads is None and scalars["ranks"] == self.world.ranks:
            torch.set_num_threads(scalars["threads"])  # another number would sum in another order
        memory = optimisers.empty_state_tensors(scalars["optimiser"], self.model)
        tensors = {f"{WEIGHTS}{name}": tensor for name, tensor in weights_of(self.model).items()}
        if self.average is not None:
            tensors |= {f"{AVERAGE}{name}": tensor for name, tensor in self.average.tensors.items()}
        targets = tensors | {f"{OPTIMISER}{name}": tensor for name, tensor in memory.items()}
        load_tensors(checkpoint, targets, self.world)
        optimisers.restore(self.optimiser, self.model, scalars["optimiser"], memory)
        if scalars["scaler"]:
            self.precision.scaler.load_state_dict(scalars["scaler"])
        self.progress.restore(scalars["progress"])
        self.batches.load_state_dict(scalars["position"])
        self.carried = self._load_carried(checkpoint, scalars["ranks"])
        per_rank = load_per_rank(checkpoint, self.world.rank)
        if per_rank is None:  # there are more ranks now than then
            seed_everything(self.seed, self.progress.step, self.world.rank)
        else:
            RandomState.from_per_rank(per_rank).restore(self.world.device)

    def _load_carried(self, checkpoint: Checkpoint, ranks: int) -> CarriedState | None:
        """The carried state of all ranks joined: each rank picks the rows of its next batch."""
        loaded = (load_per_rank(checkpoint, rank) for rank in range(ranks))
        parts = [one.tensors for one in loaded if one is not None]
        names = [name for name in parts[0] if name.startswith(CARRY)]
        if not names:
            return None
        joined = {name.removeprefix(CARRY): torch.cat([part[name] for part in parts]) for name in names}
        here = {name: tensor.to(self.world.device) for name, tensor in joined.items()}
        return CarriedState(here.pop("rows"), here)


def _per_rank(point: ResumePoint) -> PerRank:
    random = point.random.to_per_rank()
    if point.carried is None:
        return random
    carried = {f"{CARRY}{name}": tensor for name, tensor in point.carried.tensors.items()}
    tensors: dict[str, Any] = {**random.tensors, **carried, f"{CARRY}rows": point.carried.rows}
    return PerRank(random.scalars, {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()})
