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
from regard.attention.attend import check_parameters, check_tensors, own_precision, plain, told_more, unseen_to_zero
from regard.attention.grid import Grid
from regard.attention.masks import Dense, Everything, Mask, as_mask
from regard.attention.observe import Attended, Observe, describe
from regard.attention.prepared import Prepared, working
from regard.attention.scores import Score, as_score
from regard.attention.windows import LocalM, LocalP, as_window
from regard.errors import ShapeError

_NOTHING = Observe()


@dataclass(frozen=True, eq=False)
class Memory:
    """`keys` (B, S, D') as the score prepared them, `values` (B, S, Dv); `Memory.of` makes one.

    `hidden` (B, 1, S): what no query may look at; None: nothing. `blind` (B, 1, 1): rows in which that is everything;
    None: there are none.
    """

    score: Score
    keys: Tensor
    values: Tensor
    hidden: Tensor | None
    blind: Tensor | None

    @classmethod
    def of(cls, k: Tensor, v: Tensor | None = None, *, score: object = None, mask: Mask | None = None) -> Memory:
        """k (B, S, Dk), v (B, S, Dv), by default v = k. The mask must not depend on the query: Padding, Everything."""
        v = k if v is None else v
        check_tensors(k, k, v)
        grid = Grid((k.size(0),), 1, k.size(-2), k.device)
        asked, where = as_score(score), as_mask(mask)
        where.check(grid)
        check_parameters(asked, None, k)
        hidden = blind = None
        if not reach.hides_nothing(where, grid):
            everywhere = torch.arange(grid.S, device=k.device)
            allowed = where.allowed(everywhere[:1], everywhere, grid).expand(k.size(0), 1, grid.S)
            k, v = (unseen_to_zero(x, allowed.squeeze(-2), grid) for x in (k, v))
            hidden, blind = ~allowed, ~allowed.any(-1, keepdim=True)
            blind = None if blind.device.type == "cpu" and not blind.any() else blind
        with own_precision(k):
            return cls(asked, asked.keys(k).to(working(k.dtype)), v, hidden, blind)

    def look(
        self, q: Tensor, *, window: LocalM | LocalP | None = None, dropout: float = 0.0, observe: Observe = _NOTHING
    ) -> Attended:
        """q (B, T, Dq), each of them free to look at every key that the mask leaves and the window holds."""
        if q.dim() != 3 or q.size(0) != self.keys.size(0):
            raise ShapeError(f"queries {tuple(q.shape)}", f"({self.keys.size(0)}, T, D)", where="Memory.look")
        with own_precision(q):
            if window is not None or observe.prepared or observe.values or not self.score.finite:
                return self._through(q, as_window(window), dropout, observe)
            return self._plainly(q, dropout, observe)

    def _plainly(self, q: Tensor, dropout: float, observe: Observe) -> Attended:
        """`plain` without what was done once for all: it is called for every word that a decoder writes."""
        scores = self.score.compare(self.score.queries(q).to(self.keys.dtype), self.keys)
        if self.hidden is not None:
            scores = scores.masked_fill(self.hidden, -torch.inf)
        if self.blind is not None:
            scores = scores.masked_fill(self.blind, 0.0)  # such a row has no softmax; its weights become 0 below
        weights, lse = scores.softmax(-1), scores.logsumexp(-1)
        if self.blind is not None:
            weights, lse = weights.masked_fill(self.blind, 0.0), lse.masked_fill(self.blind.squeeze(-1), -torch.inf)
        output = (torch.nn.functional.dropout(weights, dropout) @ self.values.to(weights.dtype)).to(self.values.dtype)
        if observe == _NOTHING:
            return Attended(output, lse, "plain")
        hidden = torch.zeros_like(weights, dtype=torch.bool) if self.hidden is None else self.hidden
        return Attended(output, lse, "plain", **describe(weights, hidden, observe))

    def _through(self, q: Tensor, near: LocalM | LocalP | None, dropout: float, observe: Observe) -> Attended:
        """With all that bears on who looks where, as `attend` has it."""
        grid = Grid((q.size(0),), q.size(-2), self.keys.size(-2), q.device)
        mask = self.mask
        if isinstance(near, LocalM):
            mask, near = mask & near.mask, None
        aim = None if near is None else near.aim(q)
        prepared = Prepared(self.score, self.score.queries(q), self.keys, mask, None, near, aim, grid)
        got = plain(prepared, self.values, dropout, observe)
        return told_more(got, prepared, self.values, observe)

    @property
    def mask(self) -> Mask:
        """Who may look where, as `attend` takes it."""
        return Everything() if self.hidden is None else Dense(~self.hidden)

    def rows(self, rows: Tensor) -> Memory:
        """The memory of these rows (B',), in this order."""
        hidden, blind = (None if x is None else x.index_select(0, rows) for x in (self.hidden, self.blind))
        keys, values = self.keys.index_select(0, rows), self.values.index_select(0, rows)
        return replace(self, keys=keys, values=values, hidden=hidden, blind=blind)
