"""Measures the largest tensor that any operation creates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass
class Largest:
    numbers: int = 0


class _Watching(TorchDispatchMode):
    def __init__(self, found: Largest) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = function(*args, **(kwargs or {}))
        for one in tree_leaves(made):
            if isinstance(one, Tensor):
                self.found.numbers = max(self.found.numbers, one.untyped_storage().nbytes() // one.element_size())
        return made


@contextmanager
def largest() -> Iterator[Largest]:
    found = Largest()
    with _Watching(found):
        yield found
