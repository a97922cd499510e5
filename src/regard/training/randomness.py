"""The random states of this process, taken and put back: torch's (of the device too), numpy's and Python's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, device

from regard.text import Epoch
from regard.training.checkpoint import Own


def seed(number: int, step: int, rank: int) -> None:
    """Begin chance anew: as a pure function of the run's seed, the step and the rank."""
    start = int(Epoch(number, step).hashes("training", np.array([rank]))[0])
    torch.manual_seed(start % 2**63)
    np.random.seed(start % 2**32)
    random.seed(start)


@dataclass(frozen=True)
class RandomState:
    """Every random state of the process at one moment."""

    torch: Tensor
    cuda: Tensor | None
    numpy: tuple[str, np.ndarray, int, int, float]
    python: tuple[int, tuple[int, ...], float | None]

    @classmethod
    def now(cls, where: device) -> RandomState:
        cuda = torch.cuda.get_rng_state(where) if where.type == "cuda" else None
        numpy = np.random.get_state(legacy=True)
        return cls(torch.get_rng_state(), cuda, numpy, random.getstate())  # type: ignore[arg-type]

    def put_back(self, where: device) -> None:
        torch.set_rng_state(self.torch)
        if self.cuda is not None and where.type == "cuda":
            torch.cuda.set_rng_state(self.cuda, where)
        np.random.set_state(self.numpy)
        random.setstate(self.python)

    def own(self) -> Own:
        """As a checkpoint keeps it."""
        kind, keys, place, has_normal, normal = self.numpy
        tensors = {"torch": self.torch, "numpy": torch.from_numpy(keys.astype(np.int64))}
        if self.cuda is not None:
            tensors["cuda"] = self.cuda
        version, numbers, gauss = self.python
        scalars = {"numpy": [kind, place, has_normal, normal], "python": [version, list(numbers), gauss]}
        return Own(scalars, tensors)

    @classmethod
    def from_own(cls, own: Own) -> RandomState:
        kind, place, has_normal, normal = own.scalars["numpy"]
        version, numbers, gauss = own.scalars["python"]
        keys = own.tensors["numpy"].numpy().astype(np.uint32)
        cuda = own.tensors.get("cuda")
        return cls(
            own.tensors["torch"], cuda, (kind, keys, place, has_normal, normal), (version, tuple(numbers), gauss)
        )


@contextmanager
def undisturbed(where: device) -> Iterator[None]:
    """Whatever happens inside leaves the random states as they were."""
    before = RandomState.now(where)
    try:
        yield
    finally:
        before.put_back(where)
