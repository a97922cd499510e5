"""Causal language modelling, predicting the next token: cross-entropy loss, perplexity, bits per character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch import Tensor, nn

from regard.decoding import Rules, Sample, Stepper
from regard.models import LinearCrossEntropy
from regard.text import IGNORED, BlockBatch, Tokenizer
from regard.training import metrics
from regard.training.metrics import CorpusScore
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums, Objective


@dataclass(frozen=True)
class CausalLMObjective:
    """The next token at every position of a text, of a model (inputs (B, T), documents, head) -> head(last states),
    as GPT is.

    `characters_per_token`: of the validation text, for bits per character. `max_length`: the longest row the model
    takes; samples start with a quarter of it and continue for `continuation` tokens, or up to this length.
    """

    tokenizer: Tokenizer
    characters_per_token: float
    max_length: int
    label_smoothing: float = 0.0
    continuation: int = 60
    temperature: float = 0.8

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "perplexity": "lower", "bits_per_character": "lower"}

    def loss(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Loss:
        return Loss(model(batch.inputs, batch.documents, head=LinearCrossEntropy(batch.targets, self.label_smoothing)))

    def measure(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> MetricSums:
        nll = model(batch.inputs, batch.documents, head=LinearCrossEntropy(batch.targets)).double()
        return MetricSums({"nll": nll, "tokens": (batch.targets != IGNORED).sum().double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        nll, tokens = float(sums["nll"]), float(sums["tokens"])
        return {
            "loss": float(sums["nll"] / sums["tokens"]),
            "perplexity": metrics.perplexity(nll, tokens),
            "bits_per_character": metrics.bits_per_character(nll, tokens * self.characters_per_token),
        }

    def outputs(self, model: nn.Module, batch: BlockBatch) -> Sequence[ExampleOutput]:
        """The start of each row and a sampled continuation; the random numbers depend on the row's number alone."""
        lengths = (batch.targets != IGNORED).sum(-1).clamp(max=max(1, self.max_length // 4))
        end = None if batch.documents is None else self.tokenizer.special.end
        outputs: dict[int, ExampleOutput] = {}
        for length in lengths.unique().tolist():  # rows of one prompt length are sampled together
            rows = (lengths == length).nonzero().squeeze(-1)
            given, indices = batch.inputs[rows, :length], batch.indices[rows].tolist()
            rules = Rules(None, min(self.continuation, self.max_length - length), rows=indices)
            state = cast(DocumentStepper, model).start(given[:, :-1], lengths[rows] - 1, end)
            written = Sample(self.temperature)(cast(Stepper[Any], model), state, given[:, -1], rules)
            texts = map(self.tokenizer.decode_batch, (given.tolist(), [text.tokens for (text,) in written]))
            for row, index, before, after in zip(rows.tolist(), indices, *texts, strict=True):
                outputs[row] = ExampleOutput(index, before, after)
        return [outputs[row] for row in sorted(outputs)]

    def text_metrics(self, outputs: Sequence[ExampleOutput]) -> dict[str, CorpusScore]:
        return {}


class DocumentStepper(Protocol):
    """A Stepper that separates the documents of a row, as GPT does: `end` is the token that starts one."""

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None) -> object: ...


if TYPE_CHECKING:
    _objective: type[Objective[BlockBatch]] = CausalLMObjective
