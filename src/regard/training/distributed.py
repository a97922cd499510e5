"""Distributed training: the ranks of torch.distributed, what they exchange, and a model over them (DDP or FSDP).

A single process needs none of it; `torchrun -m regard train ...` starts several and gives each its rank.
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
    """The ranks that train together, seen from one of them. Every method is collective: all ranks must call it."""

    rank: int = 0
    ranks: int = 1
    device: torch.device = CPU
    group: Any = None  # the process group of the collectives; None is the default group

    @property
    def is_main(self) -> bool:
        """Rank 0, which alone writes files and reports."""
        return self.rank == 0

    @property
    def is_distributed(self) -> bool:
        return self.ranks > 1

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, on each of them."""
        if not self.is_distributed:
            return tensor
        total = tensor.clone()
        dist.all_reduce(total, group=self.group)
        return total

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return bool(self.sum(torch.tensor(int(flag))).item()) if self.is_distributed else flag

    def barrier(self) -> None:
        """Wait until every rank has called it."""
        if self.is_distributed:
            self.sum(torch.zeros(()))  # an all-reduce on the CPU: needs no device

    def gather(self, value: Any) -> list[Any]:
        """The value of each rank, in rank order: anything that JSON can hold."""
        if not self.is_distributed:
            return [value]
        encoded = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.ranks)]
        dist.all_gather(sizes, torch.tensor([len(encoded)]), group=self.group)
        length = int(max(sizes))
        received = [torch.zeros(length, dtype=torch.uint8) for _ in range(self.ranks)]
        dist.all_gather(received, nn.functional.pad(encoded, (0, length - len(encoded))), group=self.group)
        return [json.loads(one[: int(size)].numpy().tobytes()) for one, size in zip(received, sizes, strict=True)]

    def broadcast(self, value: Any) -> Any:
        """The value of the main rank."""
        return self.gather(value if self.is_main else None)[0]

    def side_group(self) -> World:
        """The same ranks over a process group of their own, for a thread whose collectives must not mix with those of
        training."""
        return replace(self, group=dist.new_group(backend="gloo")) if self.is_distributed else self

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run the block on the main rank first, then on the others, which find the files it made. If it fails there,
        the others stop too."""
        if not self.is_main and self.any(False):
            raise TrainingError("Rank 0 failed", where=f"rank {self.rank}", advice="Its own error says why.")
        try:
            yield
        except BaseException:
            if self.is_main:
                self.any(True)
            raise
        if self.is_main:
            self.any(False)


@contextmanager
def init_distributed(device: Literal["auto", "cpu", "cuda"] = "auto") -> Iterator[World]:
    """Join the process group that torchrun has set up; a single process gets a World of one rank."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    chosen = _device(device, int(os.environ.get("LOCAL_RANK", "0")))
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    if ranks == 1:
        yield World(device=chosen)
        return
    backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=_rendezvous_store(ranks), rank=rank, world_size=ranks)
    try:
        yield World(rank, ranks, chosen)
    finally:
        dist.destroy_process_group()


def _rendezvous_store(ranks: int) -> dist.Store:
    """The key-value store through which the ranks find each other, with a prefix for each attempt of torchrun.

    torchrun keeps one store over all its restarts: without the prefix a new worker would find the address of a dead
    one there.
    """
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    by_agent = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = dist.TCPStore(host, port, ranks, is_master=not by_agent and os.environ.get("RANK", "0") == "0")
    return dist.PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _device(name: str, local_rank: int) -> torch.device:
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return CPU
    if not torch.cuda.is_available():
        raise SettingError(
            "Device 'cuda' was chosen, but this machine has no CUDA device",
            where="train.device",
            advice="Pass --set train.device=cpu, or auto to use whatever is available.",
        )
    if local_rank >= torch.cuda.device_count():
        raise SettingError(
            f"More processes than GPUs: local rank {local_rank}, but {torch.cuda.device_count()} CUDA devices",
            where="torchrun --nproc-per-node",
            advice="Start at most one process for each GPU.",
        )
    return torch.device("cuda", local_rank)


class DistributedModel:
    """A model over the ranks, by distributed data parallel (DDP) or fully sharded data parallel (FSDP).

    `module` is what the loss calls, `model` the bare model, whose weights may be shards. `strategy`: "ddp" keeps all
    weights on every rank and sums the gradients; "fsdp" keeps a shard of them on each. `cuda_graphs`: the calls of the
    module are recorded as CUDA graphs and replayed, one for each shape of its inputs; the next call overwrites its
    outputs.
    """

    def __init__(
        self, model: nn.Module, world: World, strategy: Literal["ddp", "fsdp"] = "ddp", cuda_graphs: bool = False
    ) -> None:
        self.model, self.world, self.strategy, self.cuda_graphs = model, world, strategy, cuda_graphs
        self.module = model
        if cuda_graphs:
            _expect_one_gpu(world)
            self.module = cast(nn.Module, torch.compile(model, mode="reduce-overhead"))
        if world.is_distributed and strategy == "ddp":
            self.module = nn.parallel.DistributedDataParallel(model)
        elif world.is_distributed:
            _fully_shard(model, world)

    @contextmanager
    def gradient_sync(self, last: bool) -> Iterator[None]:
        """With gradient accumulation, synchronise gradients over the ranks for the last batch of a step only."""
        if not self.world.is_distributed:
            yield
        elif self.strategy == "fsdp":
            self.model.set_requires_gradient_sync(last)  # type: ignore[operator]
            yield
        elif last:
            yield
        else:
            with self.module.no_sync():  # type: ignore[operator]
                yield


def _expect_one_gpu(world: World) -> None:
    if world.is_distributed or world.device.type != "cuda":
        raise SettingError(
            f"train.compile = 'graphs' on {world.ranks} x {world.device.type}",
            "one process on a GPU",
            where="train.compile",
            advice="Pass --set train.compile=true, which works everywhere.",
        )


def _fully_shard(model: nn.Module, world: World) -> None:
    """FSDP2: shard every layer of every stack of layers over the ranks, then the rest of the model."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.ranks,))
    for stack in [module for module in model.modules() if isinstance(module, nn.ModuleList)]:
        for layer in (one for one in stack if not isinstance(one, nn.ModuleList | nn.ModuleDict)):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def full_tensor(tensor: Tensor) -> Tensor:
    """A tensor gathered from its shards (collective); an ordinary tensor is returned as it is."""
    from torch.distributed.tensor import DTensor

    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
