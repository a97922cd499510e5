"""Keys and values that queries come to one by one, as those of a decoder do: prepared once, looked at many times.

memory = Memory(k, v, score=Additive(...), mask=Padding(lengths))
memory.look(q)                                  # what attend(q, k, v, score=..., mask=...) gives

The score sees every key once, and the mask is asked once; a step then costs no more than its own comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention import reach
from regard.attention.attend import check_parameters, check_tensors, own_precision, plain, unseen_to_zero
from regard.attention.grid import Grid
from regard.attention.masks import Dense, Mask, as_mask
from regard.attention.observe import Attended, Observe
from regard.attention.prepared import Prepared
from regard.attention.scores import Score, as_score
from regard.attention.windows import LocalM, LocalP, as_window
from regard.errors import ShapeError

_NOTHING = Observe()


@dataclass(frozen=True, eq=False)
class Memory:
    """`keys` (B, S, D') as the score prepared them, `values` (B, S, Dv), `allowed` (B, 1, S); `Memory.of` makes one."""

    score: Score
    keys: Tensor
    values: Tensor
    allowed: Tensor

    @classmethod
    def of(cls, k: Tensor, v: Tensor | None = None, *, score: object = None, mask: Mask | None = None) -> Memory:
        """k (B, S, Dk), v (B, S, Dv), by default v = k. The mask must not depend on the query: Padding, Everything."""
        v = k if v is None else v
        check_tensors(k, k, v)
        grid = Grid((k.size(0),), 1, k.size(-2), k.device)
        asked, where = as_score(score), as_mask(mask)
        where.check(grid)
        check_parameters(asked, None, k)
        everywhere = torch.arange(grid.S, device=k.device)
        allowed = where.allowed(everywhere[:1], everywhere, grid).expand(k.size(0), 1, grid.S)
        if not reach.hides_nothing(where, grid):
            k, v = (unseen_to_zero(x, allowed.squeeze(-2), grid) for x in (k, v))
        with own_precision(k):
            return cls(asked, asked.keys(k), v, allowed)

    def look(
        self, q: Tensor, *, window: LocalM | LocalP | None = None, dropout: float = 0.0, observe: Observe = _NOTHING
    ) -> Attended:
        """q (B, T, Dq), each of them free to look at every key that the mask leaves and the window holds."""
        if q.dim() != 3 or q.size(0) != self.keys.size(0):
            raise ShapeError(f"queries {tuple(q.shape)}", f"({self.keys.size(0)}, T, D)", where="Memory.look")
        grid = Grid((q.size(0),), q.size(-2), self.keys.size(-2), q.device)
        near = as_window(window)
        mask: Mask = Dense(self.allowed)
        if isinstance(near, LocalM):
            mask, near = mask & near.mask, None
        with own_precision(q):
            aim = None if near is None else near.aim(q)
            prepared = Prepared(self.score, self.score.queries(q), self.keys, mask, None, near, aim, grid)
            got = plain(prepared, self.values, dropout, observe)
        return replace(got, prepared=prepared.kept(got.lse)) if observe.prepared else got

    def rows(self, rows: Tensor) -> Memory:
        """The memory of these rows (B',), in this order."""
        keys, values, allowed = (x.index_select(0, rows) for x in (self.keys, self.values, self.allowed))
        return replace(self, keys=keys, values=values, allowed=allowed)
