"""Random number generator (RNG) states, saved and restored: torch's (CPU and GPU), numpy's and Python's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, device

from regard.text import Epoch
from regard.training.checkpoint import PerRank


def seed_everything(number: int, step: int, rank: int) -> None:
    """Seed every generator, as a pure function of the run's seed, the step and the rank."""
    start = int(Epoch(number, step).hashes("training", np.array([rank]))[0])
    torch.manual_seed(start % 2**63)
    np.random.seed(start % 2**32)
    random.seed(start)


@dataclass(frozen=True)
class RandomState:
    """Every RNG state of the process at one moment."""

    torch: Tensor
    cuda: Tensor | None
    numpy: tuple[str, np.ndarray, int, int, float]
    python: tuple[int, tuple[int, ...], float | None]

    @classmethod
    def capture(cls, where: device) -> RandomState:
        cuda = torch.cuda.get_rng_state(where) if where.type == "cuda" else None
        numpy = np.random.get_state(legacy=True)
        return cls(torch.get_rng_state(), cuda, numpy, random.getstate())  # type: ignore[arg-type]

    def restore(self, where: device) -> None:
        torch.set_rng_state(self.torch)
        if self.cuda is not None and where.type == "cuda":
            torch.cuda.set_rng_state(self.cuda, where)
        np.random.set_state(self.numpy)
        random.setstate(self.python)

    def to_per_rank(self) -> PerRank:
        """The form in which a checkpoint stores it."""
        kind, keys, position, has_normal, normal = self.numpy
        tensors = {"torch": self.torch, "numpy": torch.from_numpy(keys.astype(np.int64))}
        if self.cuda is not None:
            tensors["cuda"] = self.cuda
        version, numbers, gauss = self.python
        scalars = {"numpy": [kind, position, has_normal, normal], "python": [version, list(numbers), gauss]}
        return PerRank(scalars, tensors)

    @classmethod
    def from_per_rank(cls, stored: PerRank) -> RandomState:
        kind, position, has_normal, normal = stored.scalars["numpy"]
        version, numbers, gauss = stored.scalars["python"]
        keys = stored.tensors["numpy"].numpy().astype(np.uint32)
        numpy = (kind, keys, position, has_normal, normal)
        return cls(stored.tensors["torch"], stored.tensors.get("cuda"), numpy, (version, tuple(numbers), gauss))


@contextmanager
def preserved_rng(where: device) -> Iterator[None]:
    """Restore every RNG state on the way out, so that the block does not disturb the global generators."""
    before = RandomState.capture(where)
    try:
        yield
    finally:
        before.restore(where)
