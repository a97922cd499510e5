"""Attention pooling: learned queries that read a whole sequence into a few vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.masks import Mask
from regard.attention.scores import Score
from regard.attention.tap import Tap


class AttentionPooling(nn.Module):
    """A summary of fixed size of any number of vectors: `queries` learned questions, each answered by an average."""

    def __init__(self, dim: int, score: Score | None = None, queries: int = 1) -> None:
        super().__init__()
        self.questions = nn.Parameter(torch.randn(queries, dim) * dim**-0.5)
        self.score = score
        self.tap = Tap()

    def forward(self, x: Tensor, *, mask: Mask | None = None) -> Tensor:
        """x (B, S, D) to (B, D), or to (B, queries, D) with several questions."""
        questions = self.questions.expand(*x.shape[:-2], *self.questions.shape)
        got = self.tap(questions, x, score=self.score, mask=mask)
        return got.output.squeeze(-2) if self.questions.size(0) == 1 else got.output
