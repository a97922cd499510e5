"""Context-independent word vectors: from an embedding table (WordTable), or from characters by a CNN (CharCNN).

Both are modules (inputs (B, T), spellings (E, C) or None) -> (B, T, width) with a `vocabulary` of V and a `width`. An
id of V + e is the word spelled in row e of `spellings`; without spellings, and in a table, it is the unknown token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.errors import ShapeError
from regard.models.embedding import WordEmbedding
from regard.text import CHAR_PAD, CHAR_SPECIAL

FILTERS = ((1, 16), (2, 32), (3, 64), (4, 64))  # (kernel size, number of filters)


class WordVectors(Protocol):
    """Context-independent vectors of words."""

    vocabulary: int
    width: int

    def __call__(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor: ...


class WordTable(nn.Module):
    """An embedding table: a vector for each word of the vocabulary, and one for all others.

    WordTable(8000, 64, unknown=tokenizer.special.unknown)
    """

    def __init__(self, vocabulary: int, width: int, unknown: int) -> None:
        super().__init__()
        self.vocabulary, self.width = vocabulary, width
        self.words = WordEmbedding(vocabulary, width, unknown)

    def forward(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor:
        return cast(Tensor, self.words(inputs))


class CharCNN(nn.Module):
    """Word vectors from characters: convolutions, max pooling, a highway layer, a projection.

    CharCNN(spelled_vocabulary(tokenizer), 64, unknown=tokenizer.special.unknown)

    `table` (V, C): the characters of each word. Each distinct word of a batch is computed once.
    Kim et al. 2016; Peters et al. 2018.
    """

    table: Tensor

    def __init__(
        self,
        table: Tensor,
        width: int,
        unknown: int,
        char_dim: int = 16,
        filters: Sequence[tuple[int, int]] = FILTERS,
    ) -> None:
        super().__init__()
        if table.dim() != 2 or table.is_floating_point():
            raise ShapeError(f"a table {tuple(table.shape)} of {table.dtype}", "(V, C) of integers", where="CharCNN")
        self.vocabulary, self.width, self.unknown = len(table), width, unknown
        self.register_buffer("table", table, persistent=False)  # the tokenizer has it
        characters = max(CHAR_SPECIAL, int(table.max()) + 1)  # those of any text, and the special tokens of this table
        self.characters = nn.Embedding(characters, char_dim, padding_idx=CHAR_PAD)
        self.convolutions = nn.ModuleList(nn.Conv1d(char_dim, count, size) for size, count in filters)
        features = sum(count for _, count in filters)
        self.highway = Highway(features)
        self.projection = nn.Linear(features, width)

    def forward(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor:
        words, index = inputs.unique(return_inverse=True)  # (U,) and (B, T)
        return self.vectors(self._spelling(words, spellings))[index]

    def vectors(self, spelling: Tensor) -> Tensor:
        """(U, C) characters: (U, width). More padding changes nothing."""
        lengths = (spelling != CHAR_PAD).sum(-1, keepdim=True)  # (U, 1)
        x = self.characters(spelling.long()).transpose(1, 2)  # (U, char_dim, C); padding is zeros
        pooled = []
        for convolution in cast("list[nn.Conv1d]", self.convolutions):
            size = convolution.kernel_size[0]
            matches = convolution(pad(x, (0, max(0, size - x.size(-1)))))  # (U, count, positions)
            position = torch.arange(matches.size(-1), device=x.device)
            inside = position <= (lengths - size).clamp(min=0)  # a word shorter than the kernel is matched once, padded
            pooled.append(matches.masked_fill(~inside.unsqueeze(1), -torch.inf).amax(-1))
        return cast(Tensor, self.projection(self.highway(torch.cat(pooled, -1).relu())))

    def _spelling(self, words: Tensor, spellings: Tensor | None) -> Tensor:
        known = self.table[words.where(words < self.vocabulary, self.unknown)]
        if spellings is None or not len(spellings):
            return known
        width = max(known.size(-1), spellings.size(-1))
        known, spellings = (pad(one, (0, width - one.size(-1)), value=CHAR_PAD) for one in (known, spellings))
        others = spellings[(words - self.vocabulary).clamp(min=0)]
        return others.to(known.dtype).where((words >= self.vocabulary).unsqueeze(-1), known)


class Highway(nn.Module):
    """Highway layer: y = g relu(W x + b) + (1 - g) x with g = sigmoid(V x + c); initially most of x passes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.new, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x).sigmoid()
        return cast(Tensor, gate * self.new(x).relu() + (1 - gate) * x)
