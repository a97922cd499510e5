"""What models that answer from a passage are trained for: the first and the last token of the answer (FindAnswer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.models import Logits, Span
from regard.text import AnswerBatch, Tokenizer
from regard.training import metrics
from regard.training.metrics import Grade
from regard.training.objectives.base import Better, Carry, Loss, Measured, Objective, Output

LONGEST = 30  # tokens of an answer


@dataclass(frozen=True)
class FindAnswer:
    """Where an answer begins and ends, of a model (inputs, lengths, segments) -> Span.

    The loss of an answer is the mean surprise of its two ends. `exact`: the share of answers whose ends are both right;
    `f1`: the mean over answers of how far the stretches of tokens overlap.
    """

    tokenizer: Tokenizer
    longest: int = LONGEST

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "exact": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: AnswerBatch, carry: Carry | None) -> Loss:
        return Loss(_surprise(model(batch.inputs, batch.lengths, batch.segments), batch).sum())

    def measure(self, model: nn.Module, batch: AnswerBatch, carry: Carry | None) -> Measured:
        said: Span = model(batch.inputs, batch.lengths, batch.segments)
        starts, ends = best_span(said, self.longest)
        shared = (torch.minimum(ends, batch.ends) - torch.maximum(starts, batch.starts) + 1).clamp(min=0)
        sizes = (ends - starts + 1) + (batch.ends - batch.starts + 1)
        return Measured(
            {
                "nll": _surprise(said, batch).double().sum(),
                "answers": batch.starts.new_tensor(len(batch)).double(),
                "exact": ((starts == batch.starts) & (ends == batch.ends)).double().sum(),
                "f1": (2 * shared / sizes).double().sum(),
            }
        )

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        count = float(sums["answers"])
        names = {"loss": "nll", "exact": "exact", "f1": "f1"}
        return {name: metrics.accuracy(float(sums[total]), count) for name, total in names.items()}

    def outputs(self, model: nn.Module, batch: AnswerBatch) -> Sequence[Output]:
        """The question, the answer that was found, and the right one."""
        said: Span = model(batch.inputs, batch.lengths, batch.segments)
        spans = (*best_span(said, self.longest), batch.starts, batch.ends)
        found = []
        for index, ids, *bounds in zip(
            batch.indices.tolist(), batch.inputs.tolist(), *(one.tolist() for one in spans), strict=True
        ):
            start, end, first, last = bounds
            question = ids[1 : ids.index(self.tokenizer.special.need("sep"))]
            parts = (question, ids[start : end + 1], ids[first : last + 1])
            found.append(Output(index, *self.tokenizer.decode_batch(parts)))
        return found

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}


def best_span(said: Span, longest: int) -> tuple[Tensor, Tensor]:
    """The first and the last token (B,) of the likeliest stretch of at most `longest` tokens."""
    size = said.start.size(1)
    here = torch.arange(size, device=said.start.device)
    apart = here - here.unsqueeze(-1)  # (T, T): from the row's token to the column's
    both = said.start.unsqueeze(-1) + said.end.unsqueeze(-2)
    best = both.masked_fill((apart < 0) | (apart >= longest), -torch.inf).flatten(1).argmax(-1)
    return best // size, best % size


def _surprise(said: Span, batch: AnswerBatch) -> Tensor:
    """(B,): the mean surprise of both ends."""
    return (Logits(said.start).surprise(batch.starts) + Logits(said.end).surprise(batch.ends)) / 2


if TYPE_CHECKING:
    _objectives: type[Objective[AnswerBatch]] = FindAnswer
