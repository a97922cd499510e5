"""Fresh weights: drawn by chance, the same ones on every rank, and nobody's random state is the worse for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from regard.text.batches.seeded_rng import Epoch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Modules made inside get the weights of this seed."""
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.default_generator.manual_seed(int(Epoch(seed).hashes("weights")[0]))
        yield
