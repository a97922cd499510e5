"""What models are trained for: a label for a text (Classify), the next token of a stream (PredictNext)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.decoding.sample import Sample
from regard.decoding.stepper import Stepper
from regard.decoding.writing import Rules
from regard.text.batches.batch import IGNORED, BlockBatch, LabelledBatch
from regard.text.corpora.labels import Labels
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.training import metrics
from regard.training.objective import Better, Carry, Grade, Loss, Measured, Objective, Output


@dataclass(frozen=True)
class Classify:
    """A label for each text, of a model (inputs (B, T), lengths (B,), segments (B, T)) -> logits (B, C)."""

    labels: Labels
    tokenizer: Tokenizer
    smoothing: float = 0.0

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "accuracy": "higher", "f1": "higher"}

    def loss(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Loss:
        logits = model(batch.inputs, batch.lengths, batch.segments)
        return Loss(_surprise(logits, batch.labels, "sum", self.smoothing))

    def measure(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Measured:
        logits = model(batch.inputs, batch.lengths, batch.segments)
        table = metrics.confusion(logits.argmax(-1), batch.labels, len(self.labels))
        return Measured({"nll": _surprise(logits, batch.labels).double().sum(), "confusion": table.double()})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        table = sums["confusion"]
        return {
            "loss": float(sums["nll"] / table.sum()),
            "accuracy": metrics.accuracy(float(table.trace()), float(table.sum())),
            "f1": metrics.f1(table, average="macro"),
        }

    def outputs(self, model: nn.Module, batch: LabelledBatch) -> Sequence[Output]:
        names = self.labels.names
        got = model(batch.inputs, batch.lengths, batch.segments).argmax(-1).tolist()
        texts = self.tokenizer.decode_batch(_rows(batch.inputs, batch.lengths))
        rows = zip(batch.indices.tolist(), texts, got, batch.labels.tolist(), strict=True)
        return [Output(index, text, names[said], names[label]) for index, text, said, label in rows]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}


@dataclass(frozen=True)
class PredictNext:
    """The next token at every place of a stream, of a model (inputs (B, T), documents) -> logits (B, T, V).

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
        logits = model(batch.inputs, batch.documents)
        return Loss(_surprise(logits, batch.targets, "sum", self.smoothing))

    def measure(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Measured:
        nll = _surprise(model(batch.inputs, batch.documents), batch.targets).double().sum()
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


def _surprise(logits: Tensor, targets: Tensor, reduction: str = "none", smoothing: float = 0.0) -> Tensor:
    """- ln p of each target, 0 where it is IGNORED; in float32, whatever the model computes in."""
    logits, targets = logits.flatten(0, -2).float(), targets.flatten()
    return cross_entropy(logits, targets, ignore_index=IGNORED, reduction=reduction, label_smoothing=smoothing)


def _rows(inputs: Tensor, lengths: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(inputs.tolist(), lengths.tolist(), strict=True)]


if TYPE_CHECKING:
    _objectives: tuple[type[Objective[LabelledBatch]], type[Objective[BlockBatch]]] = (Classify, PredictNext)
