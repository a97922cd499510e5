"""Words in and words out: an embedding that copes with ids beyond the vocabulary, and a softmax that may share it."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from regard.errors import SettingError
from regard.models.predictions import Sampled


class Words(nn.Module):
    """Vectors of tokens. An id beyond the vocabulary is read as `unknown`, a negative one is no token: zeros.

    The vectors are `scale` times the embedding, by default sqrt(width) times (Vaswani et al. 2017, 3.4), so that what
    is read has numbers of size 1, and a softmax that shares the embedding starts with logits of size 1.
    """

    def __init__(self, vocabulary: int, width: int, unknown: int | None = None, scale: float | None = None) -> None:
        super().__init__()
        if unknown is not None and not 0 <= unknown < vocabulary:
            raise SettingError(f"unknown={unknown}", f"an id from 0 to {vocabulary - 1}", where="Words")
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
        there = known >= 0
        vectors = cast(Tensor, self.embedding(known.where(there, 0)))
        return torch.where(there.unsqueeze(-1), vectors * self.scale, 0.0)


class Softmax(nn.Module):
    """Logits of every word from a vector: hidden W + b; with `tied`, the rows of W are the words' own embedding.

    Where that is of another width than the vectors, or where `project` is told, a projection comes between. `gain`
    multiplies the vectors: with a larger one each occurrence of a word teaches the softmax more, so that rare words are
    learned in fewer of them.
    """

    def __init__(
        self,
        hidden: int,
        vocabulary: int,
        tied: Words | nn.Embedding | None = None,
        gain: float = 1.0,
        project: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.gain = gain
        shared = tied.embedding if isinstance(tied, Words) else tied
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
        return nn.functional.linear(self._ready(hidden), self.weight, self.bias)

    def among(self, hidden: Tensor, surely: Tensor, count: int) -> Sampled:
        """The softmax over these words and about `count` others, drawn evenly."""
        size = len(self.weight)
        known = torch.zeros(size, dtype=torch.bool, device=hidden.device)
        known[surely] = True
        share = min(1.0, count / size)
        ids = (known | (torch.rand(size, device=hidden.device) < share)).nonzero().squeeze(-1)
        rarity = -math.log(share) if share else 0.0  # of those that were drawn
        bias = self.bias[ids] + torch.where(known[ids], 0.0, rarity)
        return Sampled(nn.functional.linear(self._ready(hidden), self.weight[ids], bias), ids, size)

    def _ready(self, hidden: Tensor) -> Tensor:
        if self.project is not None:
            hidden = self.project(hidden)
        return hidden if self.gain == 1.0 else hidden * self.gain
