"""Queries and keys ready to be compared, with all that bears on who looks where: any tile of the map comes from here.

This is what every kernel is handed and what a viewer can zoom into afterwards: linear in the length, never T x S.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.biases import Bias
from regard.attention.grid import Grid, Lead, cut
from regard.attention.masks import Mask
from regard.attention.reach import hides_nothing
from regard.attention.scores import Score
from regard.attention.windows import LocalP
from regard.errors import SettingError

Where = slice | Tensor
"""Which queries, or which keys: a slice or an index tensor."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """q (..., T, D) and k (..., S, D) as `score` prepared them; with `lse` the weights of any tile are known."""

    score: Score
    q: Tensor
    k: Tensor
    mask: Mask
    bias: Bias | None
    window: LocalP | None
    aim: Tensor | None  # (..., T): where each query's window points
    grid: Grid
    lse: Tensor | None = None

    def tile(self, rows: Where = slice(None), cols: Where = slice(None)) -> Tensor:
        """The weights (..., t, s) of these queries and keys, recomputed; float32, or float64 from float64."""
        if self.lse is None:
            raise SettingError("no log-sum-exp", "the Prepared that attend returns", where="Prepared.tile")
        precise = self.precise()
        lse = self.lse[..., rows].unsqueeze(-1)
        logs = precise.scores(rows, cols) - lse.masked_fill(lse == -torch.inf, 0.0)
        weights = torch.exp(logs.clamp(max=0.0))  # rounding may put a huge score above its own log-sum-exp
        return weights if self.window is None else weights * precise.gain(rows, cols)

    def scores(
        self,
        rows: Where = slice(None),
        cols: Where = slice(None),
        inner: slice | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """The scores (..., t, s) with bias, -inf wherever a query may not look; a tensor that nobody else holds.

        `inner`: keys that all these queries are known to be allowed, so that the mask is asked only about the rest.
        `out`: memory that may be used for the result.
        """
        scores = self.score.compare(self.q[..., rows, :], share_heads(self.k[..., cols, :], self.grid), out=out)
        in_place = not torch.is_grad_enabled()
        if self.bias is not None:
            tile = self.bias.tile(self.index(rows, self.grid.T), self.index(cols, self.grid.S)).to(scores.dtype)
            scores = scores.add_(tile) if in_place else scores + tile
        if self.window is None and hides_nothing(self.mask, self.grid):
            return scores
        if inner is None or not in_place or not isinstance(cols, slice):
            return scores.masked_fill(~self.allowed(rows, cols), -torch.inf)
        for edge in (slice(cols.start, inner.start), slice(inner.stop, cols.stop)):
            if edge.start < edge.stop:
                here = scores[..., edge.start - cols.start : edge.stop - cols.start]
                here.masked_fill_(~self.allowed(rows, edge), -torch.inf)
        return scores

    def allowed(self, rows: Where, cols: Where) -> Tensor:
        """Where mask and window let these queries look; broadcasts to (*lead, t, s)."""
        i, j = self.index(rows, self.grid.T), self.index(cols, self.grid.S)
        allowed = self.mask.allowed(i, j, self.grid)
        return allowed if self.window is None else allowed & self.window.inside(self.centre(i), j)

    def shown(self, rows: Tensor, cols: Tensor) -> Tensor:
        """What everything but the mask leaves to these queries: the window, a bias or a score of -inf."""
        shown = torch.ones(1, 1, dtype=torch.bool, device=self.grid.device)
        if self.window is not None:
            shown = self.window.inside(self.centre(rows), cols)
        if self.bias is not None and not self.bias.finite:
            shown = shown & (self.bias.tile(rows, cols) != -torch.inf)
        if not self.score.finite:
            keys = share_heads(self.k[..., cols, :], self.grid)
            shown = shown & (self.score.compare(self.q[..., rows, :], keys) != -torch.inf)
        return shown

    def gain(self, rows: Where = slice(None), cols: Where = slice(None)) -> Tensor:
        """What the window multiplies the weights (..., t, s) with."""
        assert self.window is not None, "only a window has a gain"
        return self.window.gain(self.centre(self.index(rows, self.grid.T)), self.index(cols, self.grid.S))

    def precise(self) -> Prepared:
        """The same with q, k and aim in the precision that weights are computed in."""
        dtype = working(torch.promote_types(self.q.dtype, self.k.dtype))
        aim = None if self.aim is None else self.aim.to(dtype)
        return replace(self, q=self.q.to(dtype), k=self.k.to(dtype), aim=aim)

    def kept(self, lse: Tensor) -> Prepared:
        """The same to keep: with the log-sum-exp, and without what gradients would need."""
        aim = None if self.aim is None else self.aim.detach()
        return replace(self, q=self.q.detach(), k=self.k.detach(), aim=aim, lse=lse.detach())

    def part(self, lead: Lead) -> Prepared:
        """The same for a part of the leading dimensions, one slice for each."""
        sizes = tuple(len(range(*piece.indices(size))) for piece, size in zip(lead, self.grid.lead, strict=True))
        return replace(
            self,
            q=cut(self.q, lead),
            k=cut_heads(self.k, lead, self.grid),
            mask=self.mask.part(lead),
            bias=None if self.bias is None else self.bias.part(lead),
            aim=None if self.aim is None else cut(self.aim, lead, trailing=1),
            grid=replace(self.grid, lead=sizes),
            lse=None if self.lse is None else cut(self.lse, lead, trailing=1),
        )

    def centre(self, rows: Tensor) -> Tensor:
        """Where the windows of these queries point, (..., t, 1)."""
        assert self.window is not None and self.aim is not None
        everywhere = torch.arange(self.grid.S, device=self.grid.device)
        allowed = self.mask.allowed(rows, everywhere, self.grid)
        allowed = allowed.expand(*allowed.shape[:-2], len(rows), self.grid.S)
        return self.window.centre(self.aim[..., rows], allowed)

    def index(self, where: Where, size: int) -> Tensor:
        """The same queries or keys as an index tensor."""
        if isinstance(where, Tensor):
            return where.to(self.grid.device)
        return torch.arange(*where.indices(size), device=self.grid.device)


def working(dtype: torch.dtype) -> torch.dtype:
    """The precision that scores and weights are computed in: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def share_heads(x: Tensor, grid: Grid) -> Tensor:
    """Keys or values (..., Hk, S, D) for every query head: head h reads number h // (H / Hk)."""
    if not grouped(x, grid):
        return x
    return x.repeat_interleave(grid.lead[-1] // x.size(-3), dim=-3)


def grouped(x: Tensor, grid: Grid) -> bool:
    """Whether several query heads share each head of x."""
    return x.dim() >= 3 and len(grid.lead) >= 2 and 1 < x.size(-3) < grid.lead[-1]


def cut_heads(x: Tensor, lead: Lead, grid: Grid) -> Tensor:
    """As `cut`, for keys or values whose heads are shared by groups of query heads."""
    if not grouped(x, grid):
        return cut(x, lead)
    start, stop, _ = lead[-1].indices(grid.lead[-1])
    group = grid.lead[-1] // x.size(-3)
    whole = start == 0 and stop == grid.lead[-1]
    assert whole or start // group == (stop - 1) // group, "a part of the heads reads one key head"
    heads = slice(None) if whole else slice(start // group, start // group + 1)
    return cut(x, (*lead[:-1], slice(None)))[..., heads, :, :]
