"""What stands on a BERT: a class or a number for a text, a tag for each token, a stretch that answers a question."""

from __future__ import annotations

from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.attention import AttentionPooling
from regard.attention.masks import Padding
from regard.errors import SettingError
from regard.models.bert import Bert
from regard.models.elmo import ScalarMix

Layer = int | Literal["mix"] | None
Pooling = Literal["pooler", "cls", "mean", "attention"]


class Reading(nn.Module):
    """The states of a Bert as a task takes them: of one layer (the last one if not told), or of all of them, mixed.

    Reading(bert)                          # the last states, tuned with the task
    Reading(bert, "mix", tuned=False)      # features: a learned average of the layers, which stay as they are

    What the task does not need does not learn: layers above the one that is taken, and the pooler without `pooler`.
    """

    def __init__(self, bert: Bert, layer: Layer = None, tuned: bool = True, pooler: bool = False) -> None:
        super().__init__()
        last = bert.layers
        if isinstance(layer, int) and not 0 <= layer <= last:
            raise SettingError(f"layer {layer}", f"0 to {last}, or mix", where="Reading")
        self.bert, self.tuned = bert.requires_grad_(tuned), tuned
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
        with torch.set_grad_enabled(self.tuned and torch.is_grad_enabled()):
            return self.bert.encoder.layers(ids, lengths, segments)[cast(int, self.layer)]

    def states(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """(B, layers + 1, T, D), as Bert gives them."""
        with torch.set_grad_enabled(self.tuned and torch.is_grad_enabled()):
            return self.bert.states(ids, lengths, segments)

    def train(self, mode: bool = True) -> Reading:
        """A BERT that is not tuned is not dropped out either: its states are features."""
        super().train(mode)
        self.bert.train(mode and self.tuned)
        return self


class Summary(nn.Module):
    """One vector for a text, (B, T, D) to (B, D): that of [CLS], the mean, or an average by a learned question."""

    def __init__(self, width: int, pooling: Literal["cls", "mean", "attention"]) -> None:
        super().__init__()
        self.pooling = pooling
        self.question = AttentionPooling(width) if pooling == "attention" else None

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The first `lengths` (B,) of the states are real, [CLS] and [SEP] among them."""
        if self.question is not None:
            return cast(Tensor, self.question(states, mask=Padding(lengths)))
        if self.pooling == "cls":
            return states[:, 0]
        real = torch.arange(states.size(1), device=states.device) < lengths.unsqueeze(-1)
        return (states * real.unsqueeze(-1)).sum(1) / lengths.unsqueeze(-1)


class OnText(nn.Module):
    """Numbers for each text, or pair of texts: logits of classes, or what is estimated.

    OnText(Reading(bert, pooler=True), 2)                          # as published: on tanh(W [CLS] + b)
    OnText(Reading(bert, 1, tuned=False), 2, "mean")               # on features of layer 1
    """

    def __init__(self, reading: Reading, outputs: int, pooling: Pooling = "pooler", dropout: float = 0.0) -> None:
        super().__init__()
        if pooling == "pooler" and reading.layer != reading.bert.layers:
            came, why = f"pooling 'pooler' of layer {reading.layer}", "It was taught to read the last layer."
            raise SettingError(came, "cls, mean or attention, or the last layer", where="OnText", advice=why)
        self.reading = reading
        self.summary = None if pooling == "pooler" else Summary(reading.bert.width, pooling)
        self.dropout = nn.Dropout(dropout)
        self.outputs = nn.Linear(reading.bert.width, outputs)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: (B, outputs)."""
        states = self.reading(inputs, lengths, segments)
        whole = self.reading.bert.pooled(states) if self.summary is None else self.summary(states, lengths)
        return cast(Tensor, self.outputs(self.dropout(whole)))


class OnTokens(nn.Module):
    """A tag for each token: logits (B, T, C) of every one of them."""

    def __init__(self, reading: Reading, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.reading, self.dropout = reading, nn.Dropout(dropout)
        self.classes = nn.Linear(reading.bert.width, classes)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """inputs (B, T), of which the first `lengths` (B,) are real: (B, T, C)."""
        return cast(Tensor, self.classes(self.dropout(self.reading(inputs, lengths, segments))))


class Span(NamedTuple):
    """Logits (B, T) of the first token of an answer and of its last one; -inf where no answer can be."""

    start: Tensor
    end: Tensor


class OnSpans(nn.Module):
    """Where in the second text the answer to the first one begins and ends."""

    def __init__(self, reading: Reading, dropout: float = 0.0) -> None:
        super().__init__()
        self.reading, self.dropout = reading, nn.Dropout(dropout)
        self.bounds = nn.Linear(reading.bert.width, 2)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor) -> Span:
        """inputs (B, T), question and passage; segments (B, T) are 1 in the passage and the [SEP] after it."""
        logits = self.bounds(self.dropout(self.reading(inputs, lengths, segments)))
        here = torch.arange(inputs.size(1), device=inputs.device)
        passage = (segments == 1) & (here < lengths.unsqueeze(-1) - 1)
        start, end = logits.float().masked_fill(~passage.unsqueeze(-1), -torch.inf).unbind(-1)
        return Span(start, end)
