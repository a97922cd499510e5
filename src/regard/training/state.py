"""Everything that a training is made of at one moment, and its way into a checkpoint and back."""

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
from regard.training.averaging import Moving
from regard.training.checkpoint import Contents, Own, load_own, load_tensors
from regard.training.distributed import Spread, World
from regard.training.objectives.base import Carry
from regard.training.precision import Precision
from regard.training.progress import Progress
from regard.training.randomness import RandomState, seed
from regard.training.recipe import MovingAverage, Prepared

OPTIMISER, CARRY = "optimiser.", "carry."


@dataclass(frozen=True)
class Carried:
    """What a recurrent model carries, and whose rows it is, (B,): the numbers of their lanes."""

    rows: Tensor
    tensors: Carry

    def of(self, batch: Batch) -> Carry | None:
        """The part that belongs to the rows of this batch, in their order; None if it has others."""
        if torch.equal(self.rows, batch.indices):
            return self.tensors
        places = {int(row): place for place, row in enumerate(self.rows)}
        wanted = [places.get(int(row)) for row in batch.indices]
        if None in wanted:
            return None
        chosen = torch.tensor(wanted, dtype=torch.int64, device=self.rows.device)
        return {name: tensor.index_select(0, chosen) for name, tensor in self.tensors.items()}


@dataclass(frozen=True)
class Moment:
    """Where chance, the data and what is carried stand between two steps."""

    random: RandomState
    position: Mapping[str, int | str]
    carried: Carried | None


class State:
    """The model over the ranks, and all that moves it."""

    def __init__(self, prepared: Prepared, world: World) -> None:
        recipe = prepared.recipe
        if world.several and (recipe.train.shard, recipe.train.precision) == ("fsdp", "fp16"):
            raise SettingError(
                "train.precision = 'fp16' with train.shard = 'fsdp'",
                "bf16 or float32: a scale that fits one shard may not fit another",
                where="train",
            )
        self.world, self.seed, self.threads = world, recipe.train.seed, recipe.train.threads
        graphs = recipe.train.compile == "graphs"
        self.spread = Spread(prepared.model.to(world.device), world, recipe.train.shard, graphs)
        self.model = self.spread.model
        self.optimiser = optimisers.optimiser(recipe.optimiser, self.model)
        self.precision = Precision(recipe.train.precision, world.device)
        average = recipe.average
        self.average = Moving(self.model, average.decay) if isinstance(average, MovingAverage) else None
        self.batches = prepared.train
        self.carried: Carried | None = None
        watch = recipe.evaluate.watch
        self.progress = Progress(watch, prepared.objective.metrics.get(watch, "lower"))
        seed(self.seed, 0, world.rank)

    def moment(self) -> Moment:
        return Moment(RandomState.now(self.world.device), self.batches.state_dict(), self.carried)

    def contents(self, moment: Moment) -> Contents:
        """What a checkpoint keeps: the weights as they are now, all else as it was at the moment."""
        tensors = {f"{WEIGHTS}{name}": tensor for name, tensor in weights_of(self.model).items()}
        if self.average is not None:
            tensors |= {f"{AVERAGE}{name}": tensor for name, tensor in self.average.tensors.items()}
        for name, tensor in optimisers.tensors_of(self.optimiser, self.model).items():
            tensors[f"{OPTIMISER}{name}"] = tensor
        scalars = {
            "progress": self.progress.scalars(),
            "position": dict(moment.position),
            "optimiser": optimisers.scalars_of(self.optimiser, self.model),
            "scaler": self.precision.scaler.state_dict(),
            "ranks": self.world.ranks,
            "threads": torch.get_num_threads(),
        }
        return Contents(tensors, scalars, _own(moment))

    def restore(self, checkpoint: Checkpoint) -> None:
        """Stand where the checkpoint was taken, with any number of ranks."""
        scalars = checkpoint.scalars()
        if self.threads is None and scalars["ranks"] == self.world.ranks:
            torch.set_num_threads(scalars["threads"])  # another number would add up in another order
        memory = optimisers.blank_tensors(scalars["optimiser"], self.model)
        tensors = {f"{WEIGHTS}{name}": tensor for name, tensor in weights_of(self.model).items()}
        if self.average is not None:
            tensors |= {f"{AVERAGE}{name}": tensor for name, tensor in self.average.tensors.items()}
        wanted = tensors | {f"{OPTIMISER}{name}": tensor for name, tensor in memory.items()}
        load_tensors(checkpoint, wanted, self.world)
        optimisers.restore(self.optimiser, self.model, scalars["optimiser"], memory)
        if scalars["scaler"]:
            self.precision.scaler.load_state_dict(scalars["scaler"])
        self.progress.restore(scalars["progress"])
        self.batches.load_state_dict(scalars["position"])
        self.carried = self._carried(checkpoint, scalars["ranks"])
        own = load_own(checkpoint, self.world.rank)
        if own is None:  # there are more ranks now than then
            seed(self.seed, self.progress.step, self.world.rank)
        else:
            RandomState.from_own(own).put_back(self.world.device)

    def _carried(self, checkpoint: Checkpoint, ranks: int) -> Carried | None:
        """What all ranks carried, together: each takes the rows that its next batch asks for."""
        owned = (load_own(checkpoint, rank) for rank in range(ranks))
        parts = [own.tensors for own in owned if own is not None]
        names = [name for name in parts[0] if name.startswith(CARRY)]
        if not names:
            return None
        joined = {name.removeprefix(CARRY): torch.cat([part[name] for part in parts]) for name in names}
        here = {name: tensor.to(self.world.device) for name, tensor in joined.items()}
        return Carried(here.pop("rows"), here)


def _own(moment: Moment) -> Own:
    own = moment.random.own()
    if moment.carried is None:
        return own
    carried = {f"{CARRY}{name}": tensor for name, tensor in moment.carried.tensors.items()}
    everything: dict[str, Any] = {**own.tensors, **carried, f"{CARRY}rows": moment.carried.rows}
    return Own(own.scalars, {name: tensor.detach().cpu().contiguous() for name, tensor in everything.items()})
