"""Word embedding and output projection (softmax layer), which may be tied; sampled softmax for training."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.cross_entropy import SampledSoftmax


class WordEmbedding(nn.Module):
    """Token embeddings. An id beyond the vocabulary gets the vector of `unknown`, a negative one (no token) zeros.

    The vectors are `scale` times the embedding, by default sqrt(width) times (Vaswani et al. 2017, 3.4): the inputs
    then have unit variance, and a softmax tied to the embedding starts with logits of size 1.
    """

    def __init__(self, vocabulary: int, width: int, unknown: int | None = None, scale: float | None = None) -> None:
        super().__init__()
        if unknown is not None and not 0 <= unknown < vocabulary:
            raise SettingError(f"unknown={unknown}", f"an id from 0 to {vocabulary - 1}", where="WordEmbedding")
        self.unknown = unknown
        self.scale = width**0.5 if scale is None else scale
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)

    @property
    def width(self) -> int:
        return self.embedding.embedding_dim

    def __len__(self) -> int:
        return self.embedding.num_embeddings

    def forward(self, ids: Tensor) -> Tensor:
        """ids (...): (..., width)."""
        known = ids if self.unknown is None else ids.where(ids < self.embedding.num_embeddings, self.unknown)
        is_token = known >= 0
        vectors = cast(Tensor, self.embedding(known.where(is_token, 0)))
        return torch.where(is_token.unsqueeze(-1), vectors * self.scale, 0.0)


class OutputProjection(nn.Module):
    """Logits of every word: hidden W + b. With `tied`, W is the embedding matrix (weight tying).

    Where the embedding has another width than the vectors, or where `project` is given, a projection comes between.
    `scale` multiplies the vectors: with a larger one each occurrence of a word changes its logit more, so that rare
    words are learned from fewer of them.
    """

    def __init__(
        self,
        hidden: int,
        vocabulary: int,
        tied: WordEmbedding | nn.Embedding | None = None,
        scale: float = 1.0,
        project: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.scale = scale
        shared = tied.embedding if isinstance(tied, WordEmbedding) else tied
        weight = nn.Parameter(torch.empty(vocabulary, hidden)) if shared is None else shared.weight
        if project is None and weight.size(1) != hidden:
            project = nn.Linear(hidden, weight.size(1), bias=False)
        self.project = project
        self.weight = weight
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        if tied is None:
            nn.init.normal_(self.weight, std=hidden**-0.5)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden (..., D): logits (..., V)."""
        return nn.functional.linear(self._projected(hidden), self.weight, self.bias)

    def sampled(self, hidden: Tensor, targets: Tensor, num_sampled: int) -> SampledSoftmax:
        """Sampled softmax: over these words (the targets) and about `num_sampled` others, drawn uniformly."""
        size = len(self.weight)
        known = torch.zeros(size, dtype=torch.bool, device=hidden.device)
        known[targets] = True
        share = min(1.0, num_sampled / size)
        ids = (known | (torch.rand(size, device=hidden.device) < share)).nonzero().squeeze(-1)
        correction = -math.log(share) if share else 0.0  # for words that were drawn
        bias = self.bias[ids] + torch.where(known[ids], 0.0, correction)
        return SampledSoftmax(nn.functional.linear(self._projected(hidden), self.weight[ids], bias), ids, size)

    def _projected(self, hidden: Tensor) -> Tensor:
        if self.project is not None:
            hidden = self.project(hidden)
        return hidden if self.scale == 1.0 else hidden * self.scale
