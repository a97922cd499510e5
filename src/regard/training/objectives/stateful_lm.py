"""The next token of a text that is read on and on, of models that carry a state from batch to batch and may copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.decoding import Rules, Sample, Stepper
from regard.models import Mixture, Prediction, sayable
from regard.text import IGNORED, BlockBatch, compacted, spelled
from regard.training import metrics
from regard.training.objectives.base import Better, Carry, Loss, Measured, Output
from regard.training.objectives.lm import PredictNext, Starting


class ReadingOn(Protocol):
    """A model that goes on where the same rows ended: WindowLM, RecurrentLM, AttentiveLM, NeuralCache."""

    def __call__(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]: ...


@dataclass(frozen=True)
class ReadOn(PredictNext):
    """The next token at every place of a stream, of a model that is ReadingOn.

    `carries`: the rows of a batch may go on in the next one, so what the model carries is kept. `open`: words outside
    the vocabulary have numbers of their own, beyond it; where such a one was not seen before, nobody could copy it, and
    the unknown token is what there is to say. `closed_perplexity` takes all of them as that one token: it compares with
    the perplexity of models that cannot copy.
    """

    carries: bool = True
    open: bool = False

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {**super().metrics, "closed_perplexity": "lower"} if self.open else super().metrics

    def loss(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Loss:
        prediction, after = self._read(model, batch, carry)
        targets = sayable(prediction, batch.targets, self.tokenizer.special.unknown)
        return Loss(prediction.surprise(targets, self.smoothing).sum(), after)

    def measure(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Measured:
        prediction, after = self._read(model, batch, carry)
        unknown = self.tokenizer.special.unknown
        nll = prediction.surprise(sayable(prediction, batch.targets, unknown)).double().sum()
        sums = {"nll": nll, "tokens": (batch.targets != IGNORED).sum().double()}
        if self.open:
            sums["closed_nll"] = closed_surprise(prediction, batch.targets, unknown).double().sum()
        return Measured(sums, after)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        found = super().summary(sums)
        if self.open:
            found["closed_perplexity"] = metrics.perplexity(float(sums["closed_nll"]), float(sums["tokens"]))
        return found

    def outputs(self, model: nn.Module, batch: BlockBatch) -> Sequence[Output]:
        """The beginning of each row and how the model goes on, drawn by chance that depends on the row's number.

        Words outside the vocabulary are shown as ⟨0⟩, ⟨1⟩, ...: each row has its own. The unknown token, which is no
        word, is not drawn.
        """
        size, indices = len(self.tokenizer), batch.indices.tolist()
        lengths = (batch.targets != IGNORED).sum(-1).clamp(1, max(1, self.size // 4))
        rows = zip(batch.inputs, lengths.tolist(), strict=True)
        given = [compacted(row[:length], size)[0] for row, length in rows]
        if not given:
            return []
        ids = pad_sequence(given, batch_first=True)
        end = None if batch.documents is None else self.tokenizer.special.end
        state = cast(Starting, model).start(ids[:, :-1], lengths - 1, end)
        first = ids.gather(1, lengths.unsqueeze(-1) - 1).squeeze(-1)
        unknown = self.tokenizer.special.unknown
        rules = Rules(None, self.continuation, rows=indices, banned=() if unknown is None else [[unknown]])
        written = Sample(self.temperature)(cast(Stepper[Any], model), state, first, rules)
        spell = partial(spelled, self.tokenizer)
        said = zip(indices, given, written, strict=True)
        return [Output(index, spell(before.tolist()), spell(after[0].tokens)) for index, before, after in said]

    def _read(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> tuple[Prediction, Carry | None]:
        prediction, after = model(batch.inputs, batch.documents, carry if batch.carried else None)
        return prediction, after if self.carries else None


def closed_surprise(prediction: Prediction, targets: Tensor, unknown: int | None) -> Tensor:
    """- ln p of the targets (B, T) where all words outside the vocabulary are one, the unknown token."""
    if unknown is None:
        return prediction.surprise(targets)
    size = _size(prediction)
    if isinstance(prediction, Mixture):
        prediction = prediction._replace(seen=prediction.seen.masked_fill(prediction.seen >= size, unknown))
    return prediction.surprise(targets.masked_fill(targets >= size, unknown))


@torch.no_grad()
def surprises(model: ReadingOn, ids: Tensor, unknown: int | None = None, segment: int = 64) -> Tensor:
    """- ln p of every token of texts ids (B, L) but their first, (B, L - 1), read on segment by segment.

    `unknown`: the token to expect where a word outside the vocabulary comes up for the first time.

    >>> found = surprises(NeuralCache(model, 500), ids)                       # doctest: +SKIP
    >>> metrics.perplexity(float(found.sum()), found.numel())                 # doctest: +SKIP
    """
    found, carry = [ids[:, :0].float()], None
    for inputs, targets in zip(ids[:, :-1].split(segment, 1), ids[:, 1:].split(segment, 1), strict=True):
        prediction, carry = model(inputs, None, carry)
        found.append(prediction.surprise(sayable(prediction, targets, unknown)))
    return torch.cat(found, 1)


def _size(prediction: Prediction) -> int:
    """How many words the softmax of a prediction has."""
    return cast(Mixture, prediction).logits.size(-1)
