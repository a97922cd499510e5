"""Trainings by several processes on this machine, that talk over gloo, for tests of what ranks do together."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.training.distributed import World, init_distributed
from regard.training.events.event import Evaluated, Event, Trained
from regard.training.loop import Loop
from regard.training.run_writer import RunWriter
from training import little

PATIENCE = 600  # seconds: only what hangs takes so long


@dataclass(frozen=True)
class Job:
    """A training in `folder`: of `make` in little.py, by a recipe of these sections, up to a number of steps."""

    folder: Path
    sections: dict[str, Any] = field(default_factory=dict)
    make: str = "little"
    steps: int = 12
    resume: bool = False


class Diary:
    """The losses that were told, by step."""

    def __init__(self) -> None:
        self.losses: dict[str, float] = {}

    def on_event(self, event: Event) -> None:
        match event:
            case Trained():
                self.losses[f"trained {event.step}"] = event.loss
            case Evaluated():
                self.losses |= {f"{name} {event.step}": value for name, value in event.metrics.items()}
                self.losses |= {
                    f"sample {number}": crc32(repr(one).encode()) for number, one in enumerate(event.samples)
                }


def train(job: Job, world: World) -> dict[str, float]:
    """Do a job as one of the ranks; the weights are then in folder/model.safetensors."""
    torch.set_num_threads(1)
    prepared = getattr(little, job.make)(little.recipe(**job.sections), world.rank, world.ranks)
    if hasattr(prepared.model, "dropout"):
        prepared.model.dropout.p = 0.0  # each rank has chance of its own
    diary = Diary()
    writer = RunWriter(job.folder, world, prepared.recipe)
    loop = Loop(prepared, job.steps, world, writer, [diary])
    (loop.resume if job.resume else loop.start)()
    loop.run()
    writer.write_weights(writer.gather_weights(loop.state.model))  # the last ones, not the best
    return diary.losses


def alone(job: Job) -> dict[str, float]:
    return train(job, World())


def by_two(job: Job) -> dict[str, float]:
    """What the first of two ranks says."""
    return run(partial(_joined, job), 2)[0]


def _joined(job: Job) -> dict[str, float]:
    with init_distributed("cpu") as world:
        return train(job, world)


def run(work: Callable[[], Any], ranks: int) -> list[Any]:
    """What `work` gives in each of some new processes that can join each other."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed.checkpoint", "torch.distributed.fsdp", "regard.training.loop"])
    results = context.Queue()
    port = _free_port()
    workers = [context.Process(target=_work, args=(work, rank, ranks, port, results)) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    try:
        said = dict(results.get(timeout=PATIENCE) for _ in workers)
    finally:
        for worker in workers:
            worker.join(10)
            worker.kill()
    for value in said.values():
        if isinstance(value, BaseException):
            raise value
    return [said[rank] for rank in range(ranks)]


def _work(work: Callable[[], Any], rank: int, ranks: int, port: int, results: Any) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.fsync = lambda handle: None  # type: ignore[assignment]
    try:
        results.put((rank, work()))
    except Exception as error:  # noqa: BLE001  it is raised in the test
        results.put((rank, error))


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=2e-4, atol=2e-5)
