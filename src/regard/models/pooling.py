"""A text classifier with one question: a learned query looks over the text, and the average of what it sees decides.

weights = softmax(score(question, states)),    logits = W sum_t weights_t states_t + b
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from regard.attention.layers import AttentionPooling
from regard.attention.masks import Padding
from regard.attention.scores import Score
from regard.errors import SettingError
from regard.models.turning import turned


class PoolingClassifier(nn.Module):
    """Words, what each of them means in its place, an average by attention, a class.

    PoolingClassifier(8000, 2, 64)                                 # of the words themselves: it knows no order
    PoolingClassifier(8000, 2, 64, states=BothWays(64))            # of words that have read the others

    `states`: a module (x (B, T, width), lengths (B,)) -> (B, T, width); by default the words stand for themselves.
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        width: int,
        score: Score | None = None,
        dropout: float = 0.0,
        states: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.states = states
        self.pooling = AttentionPooling(width, score)
        self.dropout = nn.Dropout(dropout)
        self.classes = nn.Linear(width, classes)

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

    The second one reads every row from its own last word, so that padding comes after the text for both of them.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        if width < 2 or width % 2:
            raise SettingError(f"width={width}", "an even width, half of it for each way", where="BothWays")
        self.forth = nn.GRU(width, width // 2, batch_first=True)
        self.back = nn.GRU(width, width // 2, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """x (B, T, width), of which the first `lengths` (B,) are real: (B, T, width)."""
        forth, _ = self.forth(x)
        back, _ = self.back(turned(x, lengths))
        return torch.cat((forth, turned(back, lengths)), -1)
