"""What models are trained for: a label for a text (Classify), a number (Estimate), the next token of a stream
(PredictNext)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any, Protocol, cast

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.decoding.sampling import Sample
from regard.decoding.search import Rules, Stepper
from regard.models.surprise import Surprise
from regard.text.batches.batch import IGNORED, BlockBatch, LabelledBatch
from regard.text.corpora.labels import Labels, Scale
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
class Estimate:
    """A number for each text, of a model (inputs (B, T), lengths (B,), segments (B, T)) -> (B, 1), in spreads.

    The loss is the squared error in spreads, so 1 is what the mean of all labels would have; `error` is the root of the
    mean squared error as labels are written, `pearson` how well estimates and labels rise and fall together.
    """

    scale: Scale
    tokenizer: Tokenizer

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {"loss": "lower", "error": "lower", "pearson": "higher"}

    def loss(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Loss:
        return Loss((self._said(model, batch) - batch.labels).square().sum())

    def measure(self, model: nn.Module, batch: LabelledBatch, carry: Carry | None) -> Measured:
        said, label = self._said(model, batch).double(), batch.labels.double()
        products = {"said": said, "label": label, "both": said * label, "said2": said**2, "label2": label**2}
        sums = {name: values.sum() for name, values in products.items()}
        return Measured({**sums, "count": label.new_tensor(float(len(label)))})

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        said, label, both, said2, label2, count = (
            float(sums[name]) for name in ("said", "label", "both", "said2", "label2", "count")
        )
        loss = (said2 - 2 * both + label2) / count if count else nan
        return {
            "loss": loss,
            "error": self.scale.spread * max(loss, 0.0) ** 0.5,
            "pearson": metrics.pearson(count, said, label, both, said2, label2),
        }

    def outputs(self, model: nn.Module, batch: LabelledBatch) -> Sequence[Output]:
        said, labels = self._said(model, batch).tolist(), batch.labels.tolist()
        texts = self.tokenizer.decode_batch(_rows(batch.inputs, batch.lengths))
        rows = zip(batch.indices.tolist(), texts, said, labels, strict=True)
        return [
            Output(index, text, f"{self.scale.value(got):.4g}", f"{self.scale.value(label):.4g}")
            for index, text, got, label in rows
        ]

    def grade(self, outputs: Sequence[Output]) -> dict[str, Grade]:
        return {}

    def _said(self, model: nn.Module, batch: LabelledBatch) -> Tensor:
        estimates: Tensor = model(batch.inputs, batch.lengths, batch.segments)
        return estimates.squeeze(-1).float()


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


def _surprise(logits: Tensor, targets: Tensor, reduction: str = "none", smoothing: float = 0.0) -> Tensor:
    """- ln p of each target, 0 where it is IGNORED; in float32, whatever the model computes in."""
    logits, targets = logits.flatten(0, -2).float(), targets.flatten()
    return cross_entropy(logits, targets, ignore_index=IGNORED, reduction=reduction, label_smoothing=smoothing)


def _rows(inputs: Tensor, lengths: Tensor) -> list[list[int]]:
    return [row[:length] for row, length in zip(inputs.tolist(), lengths.tolist(), strict=True)]


if TYPE_CHECKING:
    _objectives: tuple[type[Objective[LabelledBatch]], type[Objective[BlockBatch]]] = (Classify, PredictNext)
