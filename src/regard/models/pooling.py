"""A text classifier with one question: a learned query looks over the text, and the average of what it sees decides.

weights = softmax(score(question, states)),    logits = W sum_t weights_t states_t + b
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from regard.attention import AttentionPooling
from regard.attention.masks import Padding
from regard.attention.scores import Score
from regard.errors import SettingError
from regard.models.cells import recurrent
from regard.models.rnn import turned


class PoolingClassifier(nn.Module):
    """Words, what each of them means in its place, an average by attention, a class.

    PoolingClassifier(8000, 2, 64)                                 # of the words themselves: it knows no order
    PoolingClassifier(8000, 2, 64, states=BothWays(64))            # of words that have read the others
    PoolingClassifier(8000, 2, 300, states=BothWays(300, 256, "lstm"))

    `states`: a module (x (B, T, width), lengths (B,)) -> (B, T, states.width); by default the words stand for
    themselves. The score compares vectors of that width.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        width: int,
        score: Score | None = None,
        dropout: float = 0.0,
        states: BothWays | Alone | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.states = states
        seen = width if states is None else states.width
        self.pooling = AttentionPooling(seen, score)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(seen, classes)

    def forward(self, inputs: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """inputs (B, T) of which the first `lengths` (B,) are real: logits (B, C).

        It reads a second text as the first one, whatever `segments` say.
        """
        x = self.dropout(self.embedding(inputs))
        if self.states is not None:
            x = self.dropout(self.states(x, lengths))
        return cast(Tensor, self.classes(self.pooling(x, mask=Padding(lengths))))


class BothWays(nn.Module):
    """Two recurrent readers, one from the left and one from the right; a state holds half of its width from each.

    `states`: how wide that is, by default as wide as the words; `cell`: "rnn", "gru" or "lstm". The second one reads
    every row from its own last word, so that padding comes after the text for both of them.
    """

    def __init__(self, width: int, states: int | None = None, cell: str = "gru") -> None:
        super().__init__()
        self.width = width if states is None else states
        if self.width < 2 or self.width % 2:
            raise SettingError(f"width={self.width}", "an even width, half of it for each way", where="BothWays")
        self.forth = recurrent(cell, width, self.width // 2)
        self.back = recurrent(cell, width, self.width // 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, T, words' width), of which the first `lengths` (B,) are real: (B, T, width)."""
        forth, _ = self.forth(x)
        back, _ = self.back(turned(x, lengths))
        return torch.cat((forth, turned(back, lengths)), -1)


class Alone(nn.Module):
    """Each word through the same layer, h = tanh(W x + b): it reads none of the others."""

    def __init__(self, width: int, states: int | None = None) -> None:
        super().__init__()
        self.width = width if states is None else states
        self.layer = nn.Linear(width, self.width)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, T, words' width): (B, T, width)."""
        return torch.tanh(self.layer(x))
