"""Task heads for BERT: sequence classification or regression, token classification, extractive question answering."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.attention import AttentionPooling
from regard.attention.masks import Padding
from regard.errors import SettingError
from regard.models.bert import Bert
from regard.models.elmo import ScalarMix

LayerChoice = int | Literal["mix"] | None
Pooling = Literal["pooler", "cls", "mean", "attention"]


class BertFeatures(nn.Module):
    """The states of a BERT for a task: of one layer (by default the last), or a scalar mix of all layers.

    BertFeatures(bert)                             # the last states, fine-tuned with the task
    BertFeatures(bert, "mix", finetune=False)      # frozen features: a learned average of the layers

    What the task does not use gets no gradient: layers above the one taken, and the pooler without `pooler`.
    """

    def __init__(self, bert: Bert, layer: LayerChoice = None, finetune: bool = True, pooler: bool = False) -> None:
        super().__init__()
        last = bert.layers
        if isinstance(layer, int) and not 0 <= layer <= last:
            raise SettingError(f"layer {layer}", f"0 to {last}, or 'mix'", where="BertFeatures")
        self.bert, self.finetune = bert.requires_grad_(finetune), finetune
        self.layer = last if layer is None else layer
        self.mix = ScalarMix(last + 1) if layer == "mix" else None
        if not pooler:
            bert.pooler.requires_grad_(False)
        if isinstance(self.layer, int):
            bert.encoder.blocks[self.layer :].requires_grad_(False)

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """ids (B, T), of which the first `lengths` (B,) are real: (B, T, D)."""
        if self.mix is not None:
            return cast(Tensor, self.mix(self.states(ids, lengths, segments)))
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            return self.bert.encoder.layers(ids, lengths, segments)[cast(int, self.layer)]

    def states(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, D), as Bert gives them."""
        with torch.set_grad_enabled(self.finetune and torch.is_grad_enabled()):
            return self.bert.states(ids, lengths, segments)

    def train(self, mode: bool = True) -> BertFeatures:
        """A frozen BERT has no dropout either: its states are features."""
        super().train(mode)
        self.bert.train(mode and self.finetune)
        return self


class Pooler(nn.Module):
    """Pools (B, T, D) to one vector for a text, (B, D): the state of [CLS], the mean, or attention pooling."""

    def __init__(self, width: int, pooling: Literal["cls", "mean", "attention"]) -> None:
        super().__init__()
        self.pooling = pooling
        self.attention = AttentionPooling(width) if pooling == "attention" else None

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The first `lengths` (B,) of the states are real, [CLS] and [SEP] among them."""
        if self.attention is not None:
            return cast(Tensor, self.attention(states, mask=Padding(lengths)))
        if self.pooling == "cls":
            return states[:, 0]
        real = torch.arange(states.size(1), device=states.device) < lengths.unsqueeze(-1)
        return (states * real.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)


class SequenceClassifier(nn.Module):
    """Sequence classification or regression: the logits of classes, or numbers, for each text or pair of texts.

    SequenceClassifier(BertFeatures(bert, pooler=True), 2)                    # as published: on tanh(W [CLS] + b)
    SequenceClassifier(BertFeatures(bert, 1, finetune=False), 2, "mean")      # on frozen features of layer 1
    """

    def __init__(self, features: BertFeatures, outputs: int, pooling: Pooling = "pooler", dropout: float = 0.0) -> None:
        super().__init__()
        if pooling == "pooler" and features.layer != features.bert.layers:
            given, why = f"pooling 'pooler' of layer {features.layer}", "The pooler was trained on the last layer."
            raise SettingError(
                given, "cls, mean or attention, or the last layer", where="SequenceClassifier", advice=why
            )
        self.features = features
        self.pooler = None if pooling == "pooler" else Pooler(features.bert.width, pooling)
        self.dropout = nn.Dropout(dropout)
        self.outputs = nn.Linear(features.bert.width, outputs)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: (B, outputs)."""
        states = self.features(inputs, lengths, segments)
        pooled = self.features.bert.pooled(states) if self.pooler is None else self.pooler(states, lengths)
        return cast(Tensor, self.outputs(self.dropout(pooled)))


class TokenClassifier(nn.Module):
    """Token classification (tagging): logits (B, T, C) for each token."""

    def __init__(self, features: BertFeatures, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.features, self.dropout = features, nn.Dropout(dropout)
        self.classes = nn.Linear(features.bert.width, classes)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: (B, T, C)."""
        return cast(Tensor, self.classes(self.dropout(self.features(inputs, lengths, segments))))


class SpanLogits(NamedTuple):
    """Logits (B, T) of the first and of the last token of an answer; -inf outside the passage."""

    start: Tensor
    end: Tensor


class SpanPredictor(nn.Module):
    """Extractive question answering: where in the passage the answer to the question starts and ends."""

    def __init__(self, features: BertFeatures, dropout: float = 0.0) -> None:
        super().__init__()
        self.features, self.dropout = features, nn.Dropout(dropout)
        self.bounds = nn.Linear(features.bert.width, 2)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor) -> SpanLogits:
        """inputs (B, T), question and passage; segments (B, T) are 1 in the passage and the [SEP] after it."""
        logits = self.bounds(self.dropout(self.features(inputs, lengths, segments)))
        position = torch.arange(inputs.size(1), device=inputs.device)
        passage = (segments == 1) & (position < lengths.unsqueeze(-1) - 1)
        start, end = logits.float().masked_fill(~passage.unsqueeze(-1), -torch.inf).unbind(-1)
        return SpanLogits(start, end)
