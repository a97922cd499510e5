"""Inputs of single architectures, where the rule of zoo_inputs.py cannot know what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

TOKENS, SIDE, PATCH = 12, 32, 8


class Draw:
    """Random texts and numbers for two examples."""

    def __init__(self, config: Any, seed: int) -> None:
        self.config, self.generator = config, torch.Generator().manual_seed(seed)

    def noise(self, *shape: int) -> Tensor:
        return torch.randn((2, *shape), generator=self.generator)

    def words(self, length: int = TOKENS) -> Tensor:
        return torch.randint(5, 80, (2, length), generator=self.generator)


OWN: dict[str, list[Callable[[Draw], dict[str, Any]]]] = {}


def own_inputs(config: Any, seed: int) -> Iterator[dict[str, Any]]:
    """What OWN has for a configuration's model type."""
    for make in OWN.get(getattr(config, "model_type", ""), []):
        yield make(Draw(config, seed))
