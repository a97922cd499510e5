"""Where the vector of a word comes from, before it has read its neighbours: a table (Looked), its letters (Spelled).

Both are modules (inputs (B, T), spellings (E, C) or None) -> (B, T, width) with a `vocabulary` of V and a `width`. An
id of V + e is the word that row e of `spellings` spells; without spellings, and in a table, it is the unknown token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from regard.errors import ShapeError
from regard.models.embedding import Words
from regard.text import PAD, SPECIAL

FILTERS = ((1, 16), (2, 32), (3, 64), (4, 64))  # so many letters at once, so many patterns of them


class WordVectors(Protocol):
    """Vectors of words by themselves."""

    vocabulary: int
    width: int

    def __call__(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor: ...


class Looked(nn.Module):
    """A vector for each word of the vocabulary, and one for all others.

    Looked(8000, 64, unknown=tokenizer.special.unknown)
    """

    def __init__(self, vocabulary: int, width: int, unknown: int) -> None:
        super().__init__()
        self.vocabulary, self.width = vocabulary, width
        self.words = Words(vocabulary, width, unknown)

    def forward(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor:
        return cast(Tensor, self.words(inputs))


class Spelled(nn.Module):
    """A word's vector from its letters: patterns of a few neighbours, the best match of each, a highway, the width.

    Spelled(spelled_vocabulary(tokenizer), 64, unknown=tokenizer.special.unknown)

    `table` (V, C): how the vocabulary is spelled. Each word of a batch is read once, however often it occurs.
    Kim et al. 2016; Peters et al. 2018.
    """

    table: Tensor

    def __init__(
        self,
        table: Tensor,
        width: int,
        unknown: int,
        letters: int = 16,
        filters: Sequence[tuple[int, int]] = FILTERS,
    ) -> None:
        super().__init__()
        if table.dim() != 2 or table.is_floating_point():
            raise ShapeError(f"a table {tuple(table.shape)} of {table.dtype}", "(V, C) of integers", where="Spelled")
        self.vocabulary, self.width, self.unknown = len(table), width, unknown
        self.register_buffer("table", table, persistent=False)  # the tokenizer gives it again
        signs = max(SPECIAL, int(table.max()) + 1)  # those of any text, and the special tokens of this table
        self.letters = nn.Embedding(signs, letters, padding_idx=PAD)
        self.patterns = nn.ModuleList(nn.Conv1d(letters, count, size) for size, count in filters)
        found = sum(count for _, count in filters)
        self.highway = Highway(found)
        self.out = nn.Linear(found, width)

    def forward(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor:
        words, places = inputs.unique(return_inverse=True)  # (U,) and (B, T)
        return self.vectors(self._spelling(words, spellings))[places]

    def vectors(self, spelling: Tensor) -> Tensor:
        """(U, C) signs: (U, width). More padding changes nothing."""
        lengths = (spelling != PAD).sum(-1, keepdim=True)  # (U, 1)
        signs = self.letters(spelling.long()).transpose(1, 2)  # (U, letters, C); padding is zeros
        found = []
        for pattern in cast("list[nn.Conv1d]", self.patterns):
            size = pattern.kernel_size[0]
            matches = pattern(pad(signs, (0, max(0, size - signs.size(-1)))))  # (U, count, places)
            here = torch.arange(matches.size(-1), device=signs.device)
            inside = here <= (lengths - size).clamp(min=0)  # a word shorter than the pattern is matched once, padded
            found.append(matches.masked_fill(~inside.unsqueeze(1), -torch.inf).amax(-1))
        return cast(Tensor, self.out(self.highway(torch.cat(found, -1).relu())))

    def _spelling(self, words: Tensor, spellings: Tensor | None) -> Tensor:
        known = self.table[words.where(words < self.vocabulary, self.unknown)]
        if spellings is None or not len(spellings):
            return known
        width = max(known.size(-1), spellings.size(-1))
        known, spellings = (pad(one, (0, width - one.size(-1)), value=PAD) for one in (known, spellings))
        others = spellings[(words - self.vocabulary).clamp(min=0)]
        return others.to(known.dtype).where((words >= self.vocabulary).unsqueeze(-1), known)


class Highway(nn.Module):
    """y = g relu(W x + b) + (1 - g) x with g = sigmoid(V x + c): it begins by letting most of x pass."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.new, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -1.0)

    def forward(self, x: Tensor) -> Tensor:
        share = self.gate(x).sigmoid()
        return cast(Tensor, share * self.new(x).relu() + (1 - share) * x)
