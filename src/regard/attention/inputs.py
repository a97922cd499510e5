"""Queries and keys ready to be compared, with all that bears on who looks where: any tile of the map comes from here.

This is what every kernel is handed and what a viewer can zoom into afterwards: linear in the length, never T x S.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.biases import Bias, as_bias
from regard.attention.grid import Grid, Lead, cut
from regard.attention.mask_analysis import all_take_part, hides_nothing, looks_and_seen
from regard.attention.masks import Mask, as_mask
from regard.attention.scores import Score, as_score
from regard.attention.windows import LocalM, LocalP, as_window
from regard.errors import DeviceError, DtypeError, SettingError, ShapeError

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


def prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    score: object,
    mask: Mask | None,
    bias: object,
    window: object,
) -> tuple[Prepared, Tensor]:
    """Check everything, clean what nobody may look at, and let the score prepare queries and keys."""
    v = k if v is None else v
    check_tensors(q, k, v)
    grid = Grid(_lead(q, k, v), q.size(-2), k.size(-2), q.device)
    asked, near = as_score(score), as_window(window)
    where = as_mask(mask)
    if isinstance(near, LocalM):
        where, near = where & near.mask, None
    where.check(grid)
    added = as_bias(bias)
    added = None if added is None else added.placed(grid)
    check_parameters(asked, near, q)
    raw = Prepared(asked, q, k, where, added, near, None, grid)
    q, k, v = _clean(raw, v)
    with own_precision(q) if q.dtype in (torch.float32, torch.float64) else nullcontext():
        aim = None if near is None else near.aim(q)
        asking, keys = asked.prepare(q, k)
    if _joint(asking, keys, grid) != grid.lead:  # a mask or the values have more leading dimensions than q and k
        asking = asking.expand(*grid.lead, *asking.shape[-2:])
    return Prepared(asked, asking, keys, where, added, near, aim, grid), v


def _clean(raw: Prepared, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for queries that look nowhere and keys that nobody sees: they may hold NaN or inf, and 0 x NaN is NaN.

    On the CPU a glance at the largest numbers tells if nothing needs cleaning; elsewhere it would wait for the device,
    and while a graph is compiled there are no numbers.
    """
    q, k, grid = raw.q, raw.k, raw.grid
    more_hides = raw.window is not None or not raw.score.finite or not (raw.bias is None or raw.bias.finite)
    calm = not more_hides and all_take_part(raw.mask, grid)
    at_hand = q.device.type == "cpu" and not torch.compiler.is_compiling()
    if calm or (at_hand and all(map(_tame, (q, k, v)))):
        return q, k, v
    looks, seen = looks_and_seen(raw.mask, grid)
    q = torch.where(looks.unsqueeze(-1), q, 0.0)
    if more_hides:
        with torch.no_grad():
            aim = None if raw.window is None else raw.window.aim(q).to(working(q.dtype))
            looks, seen = looks_and_seen(raw.mask, grid, more=replace(raw, q=q, aim=aim).shown)
        q = torch.where(looks.unsqueeze(-1), q, 0.0)
    keys = unseen_to_zero(k, seen, grid)
    return q, keys, keys if v is k else unseen_to_zero(v, seen, grid)


def _tame(x: Tensor) -> bool:
    """Whether every number is one whose products are finite in float32."""
    if not x.numel():
        return True
    low, high = x.detach().aminmax()
    return bool(low > -1e18) and bool(high < 1e18)  # false for NaN


def unseen_to_zero(x: Tensor, seen: Tensor, grid: Grid) -> Tensor:
    if grouped(x, grid) and seen.dim() >= 2 and seen.size(-2) > 1:
        seen = seen.unflatten(-2, (x.size(-3), -1)).any(-2)
    return torch.where(seen.unsqueeze(-1), x, 0.0)


def own_precision(x: Tensor) -> AbstractContextManager[object]:
    """The precision is the inputs' own (see `working`): autocast, where it is on, is switched off inside."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _lead(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
    """The leading dimensions of the result, heads last if there are four dimensions or more."""
    shapes = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
    if k.size(-2) != v.size(-2):
        raise ShapeError(
            f"{k.size(-2)} keys and {v.size(-2)} values ({shapes})", "one value for each key", where="attend"
        )
    by_head = max(q.dim(), k.dim(), v.dim()) >= 4
    try:
        outer = _broadcast(*(x.shape[: -3 if by_head else -2] for x in (q, k, v)))
    except RuntimeError:
        raise ShapeError(shapes, "leading dimensions that broadcast", where="attend") from None
    if not by_head:
        return outer
    asking, *others = (x.size(-3) if x.dim() >= 3 else 1 for x in (q, k, v))
    heads = asking if asking > 1 else max(others)
    for name, own in zip(("key", "value"), others, strict=True):
        if own < 1 or heads % own or (asking == 1 and own not in (1, heads)):
            raise ShapeError(
                f"{asking} query heads and {own} {name} heads ({shapes})",
                f"a number of {name} heads that divides {heads}",
                where="attend",
            )
    return (*outer, heads)


def _joint(q: Tensor, k: Tensor, grid: Grid) -> tuple[int, ...]:
    """The leading dimensions that the scores of prepared q and k would have."""
    k_lead = (*k.shape[:-3], grid.lead[-1]) if grouped(k, grid) else k.shape[:-2]
    return _broadcast(q.shape[:-2], k_lead)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to; equal ones, the usual case, are spared the slow way."""
    return tuple(shapes[0] if len(set(map(tuple, shapes))) == 1 else torch.broadcast_shapes(*shapes))


def check_tensors(q: Tensor, k: Tensor, v: Tensor) -> None:
    named = {"q": q, "k": k, "v": v}
    for name, x in named.items():
        if not isinstance(x, Tensor):
            raise DtypeError(f"{name} of type {type(x).__name__}", "a tensor", where="attend")
        if x.dim() < 2:
            raise ShapeError(f"{name} of shape {tuple(x.shape)}", "(..., length, width)", where="attend")
        if not x.is_floating_point():
            raise DtypeError(f"{name} of {x.dtype}", "floating-point numbers", where="attend")
    if len({x.device for x in named.values()}) > 1:
        came = ", ".join(f"{name} on {x.device}" for name, x in named.items())
        raise DeviceError(came, "all on one device", where="attend")
    if len({x.dtype for x in named.values()}) > 1:
        came = ", ".join(f"{name} of {x.dtype}" for name, x in named.items())
        raise DtypeError(came, "one dtype", where="attend")


def check_parameters(score: Score, window: LocalP | None, q: Tensor) -> None:
    """A learned score or window must lie where the queries lie, in their dtype (autocast may mix dtypes)."""
    mixed = torch.is_autocast_enabled(q.device.type)
    for part in (score, window):
        for name, parameter in () if part is None else part.named_parameters():
            where = f"attend {type(part).__name__}.{name}"
            if parameter.device != q.device:
                raise DeviceError(f"a parameter on {parameter.device}", f"the queries' {q.device}", where=where)
            if parameter.dtype != q.dtype and not mixed and not name.startswith("function."):
                raise DtypeError(f"a parameter of {parameter.dtype}", f"the queries' {q.dtype}", where=where)
