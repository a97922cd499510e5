"""A look back whose weights nobody holds: what it gives to one token can be asked for, and so can all of it."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention import Grid, Prepared, log_mass, own_precision, whole_map
from regard.attention.masks import Documents, Mask, Past
from regard.attention.scores import Dot, ScaledDot


class Looked(NamedTuple):
    """Queries (B, T, D) that looked strictly back at keys (B, S, D), by dot products times `scale`, in the same text.

    `part` (B, T): what the weights of a query are multiplied with. `texts` (B, T) of the queries and `among` (B, S) of
    the keys; None: there is one text. The score's own weights have done their work: nothing here but tensors and a
    number, so that it may be asked outside of the model that made it.
    """

    queries: Tensor
    keys: Tensor
    scale: float
    part: Tensor
    texts: Tensor | None = None
    among: Tensor | None = None

    @classmethod
    def by(cls, score: Dot, states: Tensor, keys: Tensor, part: Tensor, same: Documents | None = None) -> Looked:
        """What attend(states, keys, score=score, mask=Past() & same) looks at, `part` of it."""
        precise = states.dtype in (torch.float32, torch.float64)  # as `attend` prepares them, autocast or not
        with own_precision(states) if precise else nullcontext():
            asking, asked = score.prepare(states, keys)
        scale = score.scale(asked.size(-1))
        return cls(asking, asked, scale, part, *(None, None) if same is None else (same.queries, same.ids))

    def mass(self, seen: Tensor, targets: Tensor) -> Tensor:
        """(B, T): the weight of all keys whose token, of `seen` (B, S), is the target (B, T); linear in memory."""
        return log_mass(self._prepared(), Documents(seen, targets)).exp() * self.part

    def weights(self) -> Tensor:
        """All of them, (B, T, S)."""
        return whole_map(self._prepared())[0] * self.part.unsqueeze(-1)

    def _prepared(self) -> Prepared:
        (B, T, _), S = self.queries.shape, self.keys.size(1)
        mask: Mask = Past()
        if self.among is not None:
            mask = mask & Documents(self.among, self.texts)
        grid = Grid((B,), T, S, self.queries.device)
        return Prepared(ScaledDot(self.scale), self.queries, self.keys, mask, None, None, None, grid)
