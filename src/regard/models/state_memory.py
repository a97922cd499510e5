"""What a model can look back at: states of the past, the tokens that they stand for, and whose text those are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.masks import Documents

NO_TOKEN = -1
NO_TEXT = -2  # of a place without a state: no token belongs to it, not even padding


class Seen(NamedTuple):
    """S places of which some may be empty: states (B, S, D), tokens (B, S), documents (B, S)."""

    states: Tensor
    tokens: Tensor
    documents: Tensor

    @classmethod
    def of(cls, states: Tensor, tokens: Tensor, documents: Tensor | None = None) -> Seen:
        """States (B, T, D) of these tokens (B, T), all of one text if `documents` (B, T) do not say otherwise."""
        return cls(states, tokens, torch.zeros_like(tokens) if documents is None else documents)

    @classmethod
    def carried(cls, carry: Mapping[str, Tensor]) -> Seen:
        return cls(*(carry[f"memory.{name}"] for name in cls._fields))

    @property
    def carry(self) -> dict[str, Tensor]:
        return {f"memory.{name}": tensor.detach() for name, tensor in zip(self._fields, self, strict=True)}

    def then(self, later: Seen) -> Seen:
        """These places and, to the right of them, later ones."""
        return Seen(torch.cat((self.states.to(later.states.dtype), later.states), 1), *self._and(later))

    def _and(self, later: Seen) -> tuple[Tensor, Tensor]:
        return torch.cat((self.tokens, later.tokens), 1), torch.cat((self.documents, later.documents), 1)

    def last(self, size: int) -> Seen:
        """The last `size` places, with empty ones to the left where there are fewer."""
        gap = max(0, size - self.tokens.size(1))
        keep = slice(max(0, self.tokens.size(1) - size), None)
        return Seen(
            pad(self.states[:, keep], (0, 0, gap, 0)),
            pad(self.tokens[:, keep], (gap, 0), value=NO_TOKEN),
            pad(self.documents[:, keep], (gap, 0), value=NO_TEXT),
        )

    def only(self, lengths: Tensor) -> Seen:
        """The same places, those after the first `lengths` (B,) of each row empty."""
        real = torch.arange(self.tokens.size(1), device=lengths.device) < lengths.unsqueeze(-1)
        return Seen(self.states, self.tokens.where(real, NO_TOKEN), self.documents.where(real, NO_TEXT))

    def rows(self, rows: Tensor) -> Seen:
        return Seen(*(tensor.index_select(0, rows) for tensor in self))

    def mask(self, documents: Tensor | None, size: int) -> Documents:
        """Queries (B, size), in these documents or all in text 0, look at states of their own text."""
        asking = self.documents.new_zeros(len(self.documents), size) if documents is None else documents
        return Documents(self.documents, asking)


def texts_of(tokens: Tensor, end: int | None) -> Tensor:
    """The number of the text that each token (B, T) of a row belongs to; `end` opens another one, and counts to it."""
    return torch.zeros_like(tokens) if end is None else (tokens == end).cumsum(1)
