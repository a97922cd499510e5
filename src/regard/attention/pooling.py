"""Attention pooling: learned queries that summarise a sequence in a few vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.masks import Mask
from regard.attention.scores import Score
from regard.attention.tap import Tap


class AttentionPooling(nn.Module):
    """A summary of fixed size of any number of vectors: the average for each of `num_queries` learned queries.

    >>> AttentionPooling(8)(torch.randn(2, 5, 8)).shape    # mask=Padding(lengths) leaves padding out
    torch.Size([2, 8])
    """

    def __init__(self, dim: int, score: Score | None = None, num_queries: int = 1) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(num_queries, dim) * dim**-0.5)
        self.score = score
        self.tap = Tap()

    def forward(self, x: Tensor, *, mask: Mask | None = None) -> Tensor:
        """x (B, S, D) to (B, D), or to (B, num_queries, D) with several queries."""
        queries = self.queries.expand(*x.shape[:-2], *self.queries.shape)
        got = self.tap(queries, x, score=self.score, mask=mask)
        return got.output.squeeze(-2) if self.queries.size(0) == 1 else got.output

    def extra_repr(self) -> str:
        return f"{self.queries.size(1)}, num_queries={self.queries.size(0)}"
