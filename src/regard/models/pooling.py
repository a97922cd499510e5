"""Text classification by attention pooling: one learned query averages the states, a linear layer classifies.

weights = softmax(score(query, states)),    logits = W sum_t weights_t states_t + b
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from regard.attention import AttentionPooling
from regard.attention.masks import Padding
from regard.attention.scores import Score
from regard.errors import SettingError
from regard.models.cells import build_rnn
from regard.models.rnn import reverse_padded


class PoolingClassifier(nn.Module):
    """Word embedding, an encoder, attention pooling, a linear classifier.

    PoolingClassifier(8000, 2, 64)                                 # pools the embeddings: ignores word order
    PoolingClassifier(8000, 2, 64, encoder=BiRNN(64))              # pools contextual states
    PoolingClassifier(8000, 2, 300, encoder=BiRNN(300, 256, "lstm"))

    `encoder`: a module (x (B, T, width), lengths (B,)) -> (B, T, encoder.width); None: the embeddings are pooled. The
    score compares vectors of that width.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        width: int,
        score: Score | None = None,
        dropout: float = 0.0,
        encoder: BiRNN | Positionwise | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.encoder = encoder
        dim = width if encoder is None else encoder.width
        self.pooling = AttentionPooling(dim, score)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(dim, classes)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """inputs (B, T) of which the first `lengths` (B,) are real: logits (B, C).

        `segments` are ignored: a second text is encoded like the first.
        """
        x = self.dropout(self.embedding(inputs))
        if self.encoder is not None:
            x = self.dropout(self.encoder(x, lengths))
        return cast(Tensor, self.classes(self.pooling(x, mask=Padding(lengths))))


class BiRNN(nn.Module):
    """A bidirectional RNN (BiLSTM, BiGRU): half of each state comes from each direction.

    `dim`: the width of a state, by default that of the embeddings; `cell`: "rnn", "gru" or "lstm". Each row is
    reversed within its length, so that padding comes last in both directions.
    """

    def __init__(self, width: int, dim: int | None = None, cell: str = "gru") -> None:
        super().__init__()
        self.width = width if dim is None else dim
        if self.width < 2 or self.width % 2:
            raise SettingError(f"width={self.width}", "an even width, half of it for each direction", where="BiRNN")
        self.forward_rnn = build_rnn(cell, width, self.width // 2)
        self.backward_rnn = build_rnn(cell, width, self.width // 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, T, embedding width), of which the first `lengths` (B,) are real: (B, T, width)."""
        forward, _ = self.forward_rnn(x)
        backward, _ = self.backward_rnn(reverse_padded(x, lengths))
        return torch.cat((forward, reverse_padded(backward, lengths)), -1)


class Positionwise(nn.Module):
    """A position-wise layer, h = tanh(W x + b): no word sees another."""

    def __init__(self, width: int, dim: int | None = None) -> None:
        super().__init__()
        self.width = width if dim is None else dim
        self.layer = nn.Linear(width, self.width)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, T, embedding width): (B, T, width)."""
        return torch.tanh(self.layer(x))
