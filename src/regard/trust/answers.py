"""What a model says of many rows, each asked once however often it is wanted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from regard.adapters.base import ModelAdapter
from regard.adapters.case import Row

TOKENS = 4096  # padding included, that are put to the model at once


class Answers:
    """p (C,) of rows; those that were asked before are remembered until `forget`."""

    def __init__(self, asker: ModelAdapter) -> None:
        self.asker, self.asked = asker, 0
        self._known: dict[Row, Tensor] = {}

    def __call__(self, rows: Sequence[Row]) -> Tensor:
        """p (n, C) of each row."""
        new = sorted({row for row in rows if row not in self._known}, key=lambda row: (len(row.ids), row.ids))
        for some in _batches(new):
            with torch.no_grad():
                said = self.asker.log_probs(some).exp()
            self.asked += len(some)
            self._known.update(zip(some, said, strict=True))
        return torch.stack([self._known[row] for row in rows])

    def forget(self) -> None:
        self._known.clear()


def _batches(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows in order of length, as many together as fit."""
    found: list[list[Row]] = []
    for row in rows:
        if found and (len(found[-1]) + 1) * len(row.ids) <= TOKENS:
            found[-1].append(row)
        else:
            found.append([row])
    return found
