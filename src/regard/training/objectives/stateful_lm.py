"""Language modelling with a recurrent state carried from batch to batch (truncated backpropagation), and copying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.decoding import Rules, Sample, Stepper
from regard.models import Mixture, Prediction, map_unreachable_to_unk
from regard.text import IGNORED, BlockBatch, compact_oov, decode_with_oov
from regard.training import metrics
from regard.training.objectives.base import Better, Carry, ExampleOutput, Loss, MetricSums
from regard.training.objectives.lm import CausalLMObjective, DocumentStepper


class StatefulLM(Protocol):
    """A language model that continues from the state of its rows: WindowLM, RecurrentLM, AttentiveLM, NeuralCache."""

    def __call__(
        self, inputs: Tensor, documents: Tensor | None = None, carry: Carry | None = None
    ) -> tuple[Prediction, dict[str, Tensor]]: ...


@dataclass(frozen=True)
class StatefulLMObjective(CausalLMObjective):
    """The next token at every position of a text, of a StatefulLM.

    `carries_state`: the rows continue in the next batch, so the state is carried over. `open_vocabulary`: words outside
    the vocabulary (OOV) have ids of their own, beyond it; one that did not occur before cannot be copied, and its
    target is the unknown token. `closed_perplexity` takes every OOV word as that token: it is comparable with the
    perplexity of models that cannot copy.
    """

    carries_state: bool = True
    open_vocabulary: bool = False

    @property
    def metrics(self) -> Mapping[str, Better]:
        return {**super().metrics, "closed_perplexity": "lower"} if self.open_vocabulary else super().metrics

    def loss(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> Loss:
        prediction, after = self._forward(model, batch, carry)
        targets = map_unreachable_to_unk(prediction, batch.targets, self.tokenizer.special.unknown)
        return Loss(prediction.nll(targets, self.label_smoothing).sum(), after)

    def measure(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> MetricSums:
        prediction, after = self._forward(model, batch, carry)
        unknown = self.tokenizer.special.unknown
        nll = prediction.nll(map_unreachable_to_unk(prediction, batch.targets, unknown)).double().sum()
        sums = {"nll": nll, "tokens": (batch.targets != IGNORED).sum().double()}
        if self.open_vocabulary:
            sums["closed_nll"] = closed_vocabulary_nll(prediction, batch.targets, unknown).double().sum()
        return MetricSums(sums, after)

    def summary(self, sums: Mapping[str, Tensor]) -> dict[str, float]:
        found = super().summary(sums)
        if self.open_vocabulary:
            found["closed_perplexity"] = metrics.perplexity(float(sums["closed_nll"]), float(sums["tokens"]))
        return found

    def outputs(self, model: nn.Module, batch: BlockBatch) -> Sequence[ExampleOutput]:
        """The start of each row and a sampled continuation; the random numbers depend on the row's number alone.

        Words outside the vocabulary are shown as ⟨0⟩, ⟨1⟩, ..., numbered in each row. The unknown token is not sampled.
        """
        size, indices = len(self.tokenizer), batch.indices.tolist()
        lengths = (batch.targets != IGNORED).sum(-1).clamp(1, max(1, self.max_length // 4))
        rows = zip(batch.inputs, lengths.tolist(), strict=True)
        given = [compact_oov(row[:length], size)[0] for row, length in rows]
        if not given:
            return []
        ids = pad_sequence(given, batch_first=True)
        end = None if batch.documents is None else self.tokenizer.special.end
        state = cast(DocumentStepper, model).start(ids[:, :-1], lengths - 1, end)
        first = ids.gather(1, lengths.unsqueeze(-1) - 1).squeeze(-1)
        unknown = self.tokenizer.special.unknown
        rules = Rules(None, self.continuation, rows=indices, banned=() if unknown is None else [[unknown]])
        written = Sample(self.temperature)(cast(Stepper[Any], model), state, first, rules)
        spell = partial(decode_with_oov, self.tokenizer)
        texts = zip(indices, given, written, strict=True)
        return [ExampleOutput(index, spell(before.tolist()), spell(after[0].tokens)) for index, before, after in texts]

    def _forward(self, model: nn.Module, batch: BlockBatch, carry: Carry | None) -> tuple[Prediction, Carry | None]:
        prediction, after = model(batch.inputs, batch.documents, carry if batch.carried else None)
        return prediction, after if self.carries_state else None


def closed_vocabulary_nll(prediction: Prediction, targets: Tensor, unknown: int | None) -> Tensor:
    """- ln p of the targets (B, T) where every word outside the vocabulary counts as the unknown token."""
    if unknown is None:
        return prediction.nll(targets)
    size = _vocabulary_size(prediction)
    if isinstance(prediction, Mixture):
        prediction = prediction._replace(
            copy_tokens=prediction.copy_tokens.masked_fill(prediction.copy_tokens >= size, unknown)
        )
    return prediction.nll(targets.masked_fill(targets >= size, unknown))


@torch.no_grad()
def token_nlls(model: StatefulLM, ids: Tensor, unknown: int | None = None, segment: int = 64) -> Tensor:
    """- ln p of every token of texts ids (B, L) but their first, (B, L - 1), read segment by segment.

    `unknown`: the target where a word outside the vocabulary occurs for the first time.

    >>> found = token_nlls(NeuralCache(model, 500), ids)                       # doctest: +SKIP
    >>> metrics.perplexity(float(found.sum()), found.numel())                 # doctest: +SKIP
    """
    found, carry = [ids[:, :0].float()], None
    for inputs, targets in zip(ids[:, :-1].split(segment, 1), ids[:, 1:].split(segment, 1), strict=True):
        prediction, carry = model(inputs, None, carry)
        found.append(prediction.nll(map_unreachable_to_unk(prediction, targets, unknown)))
    return torch.cat(found, 1)


def _vocabulary_size(prediction: Prediction) -> int:
    """The vocabulary size of a prediction's softmax."""
    return cast(Mixture, prediction).logits.size(-1)
