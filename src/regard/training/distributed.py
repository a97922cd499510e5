"""The processes that train together, one a device: who they are, how they agree, and how a model is laid over them.

One process needs nothing of this; `torchrun -m regard train ...` starts several, and tells each of them who it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, distributed as dist, nn

from regard.errors import SettingError, TrainingError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class World:
    """All ranks together, seen from one of them. What it says, every rank must ask at the same time."""

    rank: int = 0
    ranks: int = 1
    device: torch.device = CPU
    channel: Any = None  # the process group that carries the words; None is the one that all began with

    @property
    def first(self) -> bool:
        """The rank that writes and speaks for all."""
        return self.rank == 0

    @property
    def several(self) -> bool:
        return self.ranks > 1

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, on each of them."""
        if not self.several:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total, group=self.channel)
        return total

    def any(self, flag: bool) -> bool:
        """Whether it is so on any rank."""
        return bool(self.sum(torch.tensor(int(flag))).item()) if self.several else flag

    def wait(self) -> None:
        """Until every rank is here."""
        if self.several:
            self.sum(torch.zeros(()))  # a barrier that needs no device

    def gather(self, value: Any) -> list[Any]:
        """What each rank says, in their order: anything that JSON can say."""
        if not self.several:
            return [value]
        said = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.ranks)]
        dist.all_gather(sizes, torch.tensor([len(said)]), group=self.channel)
        longest = int(max(sizes))
        heard = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.ranks)]
        dist.all_gather(heard, nn.functional.pad(said, (0, longest - len(said))), group=self.channel)
        return [json.loads(one[: int(size)].numpy().tobytes()) for one, size in zip(heard, sizes, strict=True)]

    def share(self, value: Any) -> Any:
        """What the first rank says."""
        return self.gather(value if self.first else None)[0]

    def aside(self) -> World:
        """The same ranks over a channel of their own, for threads whose words must not mix with those of training."""
        return replace(self, channel=dist.new_group(backend="gloo")) if self.several else self

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """The first rank goes first: what it makes and keeps, the others find. If it fails, nobody waits for it."""
        if not self.first and self.any(False):
            raise TrainingError("a failure of the first rank", "its success", where=f"rank {self.rank}")
        try:
            yield
        except BaseException:
            if self.first:
                self.any(True)
            raise
        if self.first:
            self.any(False)


@contextmanager
def join(device: Literal["auto", "cpu", "cuda"] = "auto") -> Iterator[World]:
    """Take one's place among the processes that torchrun has started, or be alone."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    place = _device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if place.type == "cuda":
        torch.cuda.set_device(place)
    if ranks == 1:
        yield World(device=place)
        return
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=_meeting_place(ranks), rank=rank, world_size=ranks)
    try:
        yield World(rank, ranks, place)
    finally:
        dist.destroy_process_group()


def _meeting_place(ranks: int) -> dist.Store:
    """Where the processes find each other: as torchrun says, with a corner for each of its attempts.

    torchrun keeps one store over all its restarts, so that a new worker would find the address of a dead one there.
    """
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    kept = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(host, port, ranks, is_master=not kept and os.environ.get("RANK", "0") == "0")
    return dist.PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _device(asked: str, number: int) -> torch.device:
    if asked == "cpu" or (asked == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise SettingError(
            "device 'cuda', but no CUDA device is here",
            "a machine with one",
            where="train.device",
            advice="Pass --set train.device=cpu, or auto to take what there is.",
        )
    if number >= torch.cuda.device_count():
        raise SettingError(
            f"local rank {number} with {torch.cuda.device_count()} CUDA devices",
            "one device for each process",
            where="torchrun --nproc-per-node",
        )
    return torch.device("cuda", number)


class Spread:
    """A model over the ranks: `module` is what the loss calls, `model` the bare one, whose weights may be shards.

    "ddp" keeps all weights on every rank and sums the gradients; "fsdp" keeps a part of them on each. `graphs`: what
    the module does on a GPU is recorded and replayed as a whole, for each shape of its inputs; what it gives is
    overwritten when it is called again.
    """

    def __init__(
        self, model: nn.Module, world: World, how: Literal["ddp", "fsdp"] = "ddp", graphs: bool = False
    ) -> None:
        self.model, self.world, self.how, self.graphs = model, world, how, graphs
        self.module = model
        if graphs:
            _expect_one_gpu(world)
            self.module = cast(nn.Module, torch.compile(model, mode="reduce-overhead"))
        if world.several and how == "ddp":
            self.module = nn.parallel.DistributedDataParallel(model)
        elif world.several:
            _shard(model, world)

    @contextmanager
    def summing(self, last: bool) -> Iterator[None]:
        """Sum gradients over the ranks with the last batch of a step only, those before just add theirs up here."""
        if not self.world.several:
            yield
        elif self.how == "fsdp":
            self.model.set_requires_gradient_sync(last)  # type: ignore[operator]
            yield
        elif last:
            yield
        else:
            with self.module.no_sync():  # type: ignore[operator]
                yield


def _expect_one_gpu(world: World) -> None:
    if world.several or world.device.type != "cuda":
        raise SettingError(
            f"train.compile = 'graphs' on {world.ranks} x {world.device.type}",
            "one process on a GPU",
            where="train.compile",
            advice="Pass --set train.compile=true, which compiles everywhere.",
        )


def _shard(model: nn.Module, world: World) -> None:
    """Cut every layer of every stack of layers into a shard for each rank, then what is left."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.ranks,))
    for stack in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in (one for one in stack if not isinstance(one, nn.ModuleList | nn.ModuleDict)):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole(tensor: Tensor) -> Tensor:
    """A tensor from all its shards; every rank must ask."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
