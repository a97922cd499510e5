"""Copy weights that are computed on demand: the mass of one token, or all weights, without storing the matrix."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention import AttentionInputs, Grid, Softmax, autocast_disabled, full_map, log_mass
from regard.attention.masks import Documents, Mask, Past
from regard.attention.scores import Dot, ScaledDot


class LazyCopyWeights(NamedTuple):
    """The weights of queries (B, T, D) over earlier keys (B, S, D) of the same document: dot products times `scale`.

    `p_copy` (B, T) multiplies the weights of a query. `query_documents` (B, T) and `key_documents` (B, S); None: there
    is one document. Queries and keys are prepared by the score already, so nothing here but tensors and a number: it
    can be evaluated outside of the model that made it.
    """

    queries: Tensor
    keys: Tensor
    scale: float
    p_copy: Tensor
    query_documents: Tensor | None = None
    key_documents: Tensor | None = None

    @classmethod
    def from_score(
        cls, score: Dot, states: Tensor, keys: Tensor, p_copy: Tensor, same: Documents | None = None
    ) -> LazyCopyWeights:
        """The weights of attend(states, keys, score=score, mask=Past() & same), times `p_copy`."""
        precise = states.dtype in (torch.float32, torch.float64)  # as `attend` prepares them, autocast or not
        with autocast_disabled(states) if precise else nullcontext():
            prepared, prepared_keys = score.prepare(states, keys)
        scale = score.scale(prepared_keys.size(-1))
        return cls(prepared, prepared_keys, scale, p_copy, *(None, None) if same is None else (same.queries, same.ids))

    def mass(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """(B, T): the weight of all keys whose token, of `tokens` (B, S), is the target (B, T); linear in memory."""
        return log_mass(self._prepared(), Documents(tokens, targets)).exp() * self.p_copy

    def weights(self) -> Tensor:
        """All weights, (B, T, S)."""
        return full_map(self._prepared())[0] * self.p_copy.unsqueeze(-1)

    def _prepared(self) -> AttentionInputs:
        (B, T, _), S = self.queries.shape, self.keys.size(1)
        mask: Mask = Past()
        if self.key_documents is not None:
            mask = mask & Documents(self.key_documents, self.query_documents)
        grid = Grid((B,), T, S, self.queries.device)
        return AttentionInputs(ScaledDot(self.scale), self.queries, self.keys, mask, None, None, None, grid, Softmax())
