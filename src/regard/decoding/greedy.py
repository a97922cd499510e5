"""Greedy search: at every step the likeliest token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from regard.decoding.alone import write
from regard.decoding.stepper import Stepper
from regard.decoding.writing import Rules, Search, Written


@dataclass(frozen=True)
class Greedy:
    """The likeliest token, then the likeliest after that.

    [[text], ...] = Greedy()(model, model.start(inputs, lengths), first, Rules(end=3, longest=50))
    """

    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Written]]:
        """One text for each of the B rows of `first` (B,), with the attention of its steps where that is asked for."""
        return [[text] for text in write(model, state, first, rules, _likeliest, attention)]


def _likeliest(log_probs: Tensor, rows: Tensor, written: int) -> Tensor:
    return log_probs.argmax(-1)


if TYPE_CHECKING:
    _search: Search = Greedy()
