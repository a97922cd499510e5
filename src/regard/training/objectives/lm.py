"""The objective of language models: the next token of a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch import Tensor, nn

from regard.decoding import Rules, Sample, Stepper
from regard.models import Surprise
from regard.text import IGNORED, BlockBatch, Tokenizer
from regard.training import metrics
from regard.training.metrics import Grade
from regard.training.objectives.base import Better, Carry, Loss, Measured, Objective, Output


@dataclass(frozen=True)
class PredictNext:
    """The next token at every place of a stream, of a model (inputs (B, T), documents, say) -> what `say` makes of its
    last states (GPT).

    `characters_per_token`: of the text it is measured on, for bits per character. `size`: the longest row the model
    takes; samples begin with a quarter of it and go on for `continuation` tokens, or as far as it reaches.
    """

    tokenizer: Tokenizer
    characters_per_token: float
    size: int
    smoothing: float = 0.0
    continuation: int = 60
    temperature: float = 0.8

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "perplexity": "lower", "bits_per_character": "lower"}

    def loss(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Loss:
        return Loss(model(batch.inputs, batch.documents, say=Surprise(batch.targets, self.smoothing)))

    def measure(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Measured:
        nll = model(batch.inputs, batch.documents, say=Surprise(batch.targets)).double()
        return Measured({"nll": nll, "tokens": (batch.targets != IGNORED).sum().double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        nll, tokens = float(sums["nll"]), float(sums["tokens"])
        return {
            "loss": float(sums["nll"] / sums["tokens"]),
            "perplexity": metrics.perplexity(nll, tokens),
            "bits_per_character": metrics.bits_per_character(nll, tokens * self.characters_per_token),
        }

    def outputs(self, model: nn.Module, batch: BlockBatch) -> Sequence[Output]:
        """The beginning of each row and how the model goes on, drawn by chance that depends on the row's number."""
        lengths = (batch.targets != IGNORED).sum(-1).clamp(max=max(1, self.size // 4))
        end = None if batch.documents is None else self.tokenizer.special.end
        said: dict[int, Output] = {}
        for length in lengths.unique().tolist():  # rows that begin alike go on together
            rows = (lengths == length).nonzero().squeeze(-1)
            given, indices = batch.inputs[rows, :length], batch.indices[rows].tolist()
            rules = Rules(None, min(self.continuation, self.size - length), rows=indices)
            state = cast(Starting, model).start(given[:, :-1], lengths[rows] - 1, end)
            written = Sample(self.temperature)(cast(Stepper[Any], model), state, given[:, -1], rules)
            texts = map(self.tokenizer.decode_batch, (given.tolist(), [text.tokens for (text,) in written]))
            for row, index, before, after in zip(rows.tolist(), indices, *texts, strict=True):
                said[row] = Output(index, before, after)
        return [said[row] for row in sorted(said)]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}


class Starting(Protocol):
    """A Stepper that keeps the texts of a row apart, as GPT does: `end` is the token that opens one."""

    def start(self, inputs: Tensor, lengths: Tensor, end: int | None) -> object: ...


if TYPE_CHECKING:
    _objective: type[Objective[BlockBatch]] = PredictNext
