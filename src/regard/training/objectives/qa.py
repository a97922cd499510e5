"""Span question answering: the first and last token of the answer in a passage, scored by exact match and F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.models import Logits, SpanLogits
from regard.text import AnswerBatch, Tokenizer
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective

MAX_ANSWER_LENGTH = 30  # tokens of an answer


@dataclass(frozen=True)
class SpanQAObjective:
    """The span of an answer, of a model (inputs, lengths, segments) -> SpanLogits.

    The loss of an answer is the mean cross-entropy of its first and its last token. `exact`: the share of answers with
    both right; `f1`: the mean F1 of the predicted and the right span, in tokens.
    """

    tokenizer: Tokenizer
    max_answer_length: int = MAX_ANSWER_LENGTH

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "exact": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: AnswerBatch, carry: Carry | None) -> Loss:
        return Loss(_span_nll(model(batch.inputs, batch.lengths, batch.segments), batch).sum())

    def measure(self, model: nn.Module, batch: AnswerBatch, carry: Carry | None) -> MetricSums:
        logits: SpanLogits = model(batch.inputs, batch.lengths, batch.segments)
        starts, ends = best_span(logits, self.max_answer_length)
        shared = (torch.minimum(ends, batch.ends) - torch.maximum(starts, batch.starts) + 1).clamp(min=0)
        sizes = (ends - starts + 1) + (batch.ends - batch.starts + 1)
        return MetricSums(
            {
                "nll": _span_nll(logits, batch).double().sum(),
                "answers": batch.starts.new_tensor(len(batch)).double(),
                "exact": ((starts == batch.starts) & (ends == batch.ends)).double().sum(),
                "f1": (2 * shared / sizes).double().sum(),
            }
        )

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        count = float(sums["answers"])
        names = {"loss": "nll", "exact": "exact", "f1": "f1"}
        return {name: metrics.accuracy(float(sums[total]), count) for name, total in names.items()}

    def outputs(self, model: nn.Module, batch: AnswerBatch) -> Sequence[ExampleOutput]:
        """The question, the predicted answer, and the right one."""
        logits: SpanLogits = model(batch.inputs, batch.lengths, batch.segments)
        spans = (*best_span(logits, self.max_answer_length), batch.starts, batch.ends)
        found = []
        for index, ids, *bounds in zip(
            batch.indices.tolist(), batch.inputs.tolist(), *(one.tolist() for one in spans), strict=True
        ):
            start, end, first, last = bounds
            question = ids[1 : ids.index(self.tokenizer.special.need("sep"))]
            parts = (question, ids[start : end + 1], ids[first : last + 1])
            found.append(ExampleOutput(index, *self.tokenizer.decode_batch(parts)))
        return found

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}


def best_span(logits: SpanLogits, max_answer_length: int) -> tuple[Tensor, Tensor]:
    """The first and the last token (B,) of the most likely span of at most `max_answer_length` tokens."""
    size = logits.start.size(1)
    here = torch.arange(size, device=logits.start.device)
    distance = here - here.unsqueeze(-1)  # (T, T): from start to end
    both = logits.start.unsqueeze(-1) + logits.end.unsqueeze(-2)
    best = both.masked_fill((distance < 0) | (distance >= max_answer_length), -torch.inf).flatten(1).argmax(-1)
    return best // size, best % size


def _span_nll(logits: SpanLogits, batch: AnswerBatch) -> Tensor:
    """(B,): the mean cross-entropy of start and end."""
    return (Logits(logits.start).nll(batch.starts) + Logits(logits.end).nll(batch.ends)) / 2


if TYPE_CHECKING:
    _objectives: type[Objective[AnswerBatch]] = SpanQAObjective
