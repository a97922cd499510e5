"""The memory of a recurrent language model that attends to its past: states, their tokens and documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention.masks import Documents

NO_TOKEN = -1
NO_DOCUMENT = -2  # of an empty slot: no token is in it, not even padding


class StateMemory(NamedTuple):
    """S slots of which some may be empty: states (B, S, D), tokens (B, S), documents (B, S)."""

    states: Tensor
    tokens: Tensor
    documents: Tensor

    @classmethod
    def of(cls, states: Tensor, tokens: Tensor, documents: Tensor | None = None) -> StateMemory:
        """States (B, T, D) of these tokens (B, T), all of one document unless `documents` (B, T) are given."""
        return cls(states, tokens, torch.zeros_like(tokens) if documents is None else documents)

    @classmethod
    def from_carry(cls, carry: Mapping[str, Tensor]) -> StateMemory:
        return cls(*(carry[f"memory.{name}"] for name in cls._fields))

    @property
    def carry(self) -> dict[str, Tensor]:
        return {f"memory.{name}": tensor.detach() for name, tensor in zip(self._fields, self, strict=True)}

    def append(self, later: StateMemory) -> StateMemory:
        """These slots and, to the right of them, later ones."""
        return StateMemory(torch.cat((self.states.to(later.states.dtype), later.states), 1), *self._and(later))

    def _and(self, later: StateMemory) -> tuple[Tensor, Tensor]:
        return torch.cat((self.tokens, later.tokens), 1), torch.cat((self.documents, later.documents), 1)

    def last(self, size: int) -> StateMemory:
        """The last `size` slots, padded with empty ones on the left."""
        gap = max(0, size - self.tokens.size(1))
        keep = slice(max(0, self.tokens.size(1) - size), None)
        return StateMemory(
            pad(self.states[:, keep], (0, 0, gap, 0)),
            pad(self.tokens[:, keep], (gap, 0), value=NO_TOKEN),
            pad(self.documents[:, keep], (gap, 0), value=NO_DOCUMENT),
        )

    def truncate(self, lengths: Tensor) -> StateMemory:
        """The same slots, those after the first `lengths` (B,) of each row emptied."""
        real = torch.arange(self.tokens.size(1), device=lengths.device) < lengths.unsqueeze(-1)
        return StateMemory(self.states, self.tokens.where(real, NO_TOKEN), self.documents.where(real, NO_DOCUMENT))

    def rows(self, rows: Tensor) -> StateMemory:
        return StateMemory(*(tensor.index_select(0, rows) for tensor in self))

    def mask(self, documents: Tensor | None, size: int) -> Documents:
        """Queries (B, size), in these documents or all in document 0, see states of their own document."""
        queries = self.documents.new_zeros(len(self.documents), size) if documents is None else documents
        return Documents(self.documents, queries)


def document_ids(tokens: Tensor, end: int | None) -> Tensor:
    """The document number of each token (B, T); the token `end` starts a new document, and belongs to it."""
    return torch.zeros_like(tokens) if end is None else (tokens == end).cumsum(1)
