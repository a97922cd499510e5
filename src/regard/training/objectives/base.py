"""The interface of a training objective: the loss of a batch, metrics on the validation set, and sample outputs.

The training loop knows models and tasks only through an Objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

from torch import Tensor, nn

from regard.text import Batch
from regard.training.metrics import CorpusScore

B_contra = TypeVar("B_contra", bound=Batch, contravariant=True)
Carry = Mapping[str, Tensor]
"""The recurrent state carried into the next batch: tensors (B, ...) whose row b belongs to batch.indices[b]."""
Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Loss:
    """The loss of a batch, a scalar summed over its tokens (the loop divides by the tokens of all ranks)."""

    total: Tensor
    carry: Carry | None = None


@dataclass(frozen=True)
class MetricSums:
    """Sums to be added over batches and ranks, such as {"nll": ..., "tokens": ...}; tensors of any shape."""

    sums: Mapping[str, Tensor]
    carry: Carry | None = None


@dataclass(frozen=True)
class ExampleOutput:
    """What a model generated or predicted for example number `index`, and what was expected."""

    index: int
    given: str
    got: str
    expected: str | None = None


class Objective(Protocol[B_contra]):
    """`metrics`: the names that `summary` and `text_metrics` return, and which direction is better; "loss" is required.

    `loss` calls model(...) once and nothing else of the model, because it may be wrapped by DDP; the other methods get
    the bare model, in evaluation mode and without gradients. Every method accepts a batch without rows, and gives it a
    loss of zero that is still connected to the model's weights.
    """

    @property
    def metrics(self) -> Mapping[str, Better]: ...

    def loss(self, model: nn.Module, batch: B_contra, carry: Carry | None) -> Loss: ...

    def measure(self, model: nn.Module, batch: B_contra, carry: Carry | None) -> MetricSums: ...

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        """The metrics, from the sums over all batches and ranks."""

    def outputs(self, model: nn.Module, batch: B_contra) -> Sequence[ExampleOutput]:
        """The model's output for each row: samples for people, and input of `text_metrics`."""

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        """Metrics of generated texts, such as BLEU; empty for most tasks."""
