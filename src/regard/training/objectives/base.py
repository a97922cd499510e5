"""What a model is trained for, as the loop sees it: the loss of a batch, how well the model does, and what it says.

The loop knows no model by name; all it knows of the task is an Objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from torch import Tensor, nn

from regard.text import Batch
from regard.training.metrics import Grade

B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)
Carry = Mapping[str, Tensor]
"""What a recurrent model carries into the next batch: tensors (B, ...) whose row b belongs to batch.indices[b]."""
Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Loss:
    """The loss of a batch, () in all, summed over its tokens (the loop divides by the tokens of all ranks)."""

    total: Tensor
    carry: Carry | None = None


@dataclass(frozen=True)
class Measured:
    """Sums that add up over batches and over ranks, such as {"nll": ..., "tokens": ...}; tensors of any shape."""

    sums: Mapping[str, Tensor]
    carry: Carry | None = None


@dataclass(frozen=True)
class Output:
    """What a model made of one example, number `index` of its data, beside what was expected of it."""

    index: int
    given: str
    got: str
    expected: str | None = None


class Objective(Protocol[B_contra]):
    """`metrics`: the names that `summary` and `grade` give, and which way is better; "loss" is always among them.

    `loss` calls model(...) once and nothing else of it, because the model may be wrapped for several devices; the other
    methods get the bare model, in evaluation mode and without gradients. Every method copes with a batch of no rows,
    and gives it a loss of zero that is still connected to the model's weights.
    """

    @property
    def metrics(self) -> Mapping[str, Better]: ...

    def loss(self, model: nn.Module, batch: B_contra, carry: Carry | None) -> Loss: ...

    def measure(self, model: nn.Module, batch: B_contra, carry: Carry | None) -> Measured: ...

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics of all sums together."""

    def outputs(self, model: nn.Module, batch: B_contra) -> Sequence[Output]:
        """What the model says to each row: samples to read, and what `grade` is given."""

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        """Metrics of texts, such as BLEU; empty where there are none."""
