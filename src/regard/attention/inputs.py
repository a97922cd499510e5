"""The inputs of every attention kernel: prepared queries and keys, mask, bias and window; grouped-query attention.

Any tile of the map can be computed from them, by a kernel or later by a viewer: linear in the length, never T x S.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from regard.attention.biases import Bias, as_bias
from regard.attention.grid import Grid, Lead, cut, short_repr
from regard.attention.mask_analysis import every_row_and_column_live, is_trivial, live_queries_and_keys
from regard.attention.masks import Mask, as_mask
from regard.attention.normalise import Normaliser, Softmax, as_normaliser
from regard.attention.scores import Score, as_score
from regard.attention.transforms import is_readable
from regard.attention.windows import LocalM, LocalP, as_window
from regard.errors import DeviceError, DtypeError, SettingError, ShapeError

Index = slice | Tensor
"""Which queries, or which keys: a slice or an index tensor."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionInputs:
    """q (..., T, D) and k (..., S, D) as `score` prepared them; with `lse`, `tile` gives any part of the weights."""

    score: Score
    q: Tensor
    k: Tensor
    mask: Mask
    bias: Bias | None
    window: LocalP | None
    predicted: Tensor | None  # (..., T): LocalP's predicted position of each query, as a fraction of its keys
    grid: Grid
    normalise: Normaliser
    lse: Tensor | None = None
    live: tuple[Tensor, Tensor] | None = None  # (..., T) and (..., S): others are hidden; where a score may hide keys

    __repr__ = short_repr

    def tile(self, rows: Index = slice(None), cols: Index = slice(None)) -> Tensor:
        """The weights (..., t, s) of these queries and keys, recomputed; float32, or float64 from float64."""
        if self.lse is None:
            raise SettingError(
                "These inputs have no log-sum-exp",
                where="AttentionInputs.tile",
                advice="Use got.prepared of attend(..., observe=Observe(prepared=True)).",
            )
        precise = self.precise()
        weights = self.normalise.weights(precise.scores(rows, cols), self.lse[..., rows])
        return weights if self.window is None else weights * precise.window_weight(rows, cols)

    def scores(
        self,
        rows: Index = slice(None),
        cols: Index = slice(None),
        inner: slice | None = None,
        out: Tensor | None = None,
    ) -> Tensor:
        """The scores (..., t, s) with bias, -inf where a key is hidden; a tensor that the caller may overwrite.

        `inner`: keys that the mask leaves to all these queries, so that only the rest is masked.
        `out`: memory that may hold the result.
        """
        scores = self.score.compare(self.q[..., rows, :], repeat_kv(self.k[..., cols, :], self.grid), out=out)
        in_place = not torch.is_grad_enabled()
        if self.bias is not None:
            tile = self.bias.tile(self.index(rows, self.grid.T), self.index(cols, self.grid.S)).to(scores.dtype)
            scores = scores.add_(tile) if in_place else scores + tile
        if self.window is None and self.live is None and is_trivial(self.mask, self.grid):
            return scores
        if inner is None or not in_place or not isinstance(cols, slice):
            return scores.masked_fill(~self.allowed(rows, cols), -torch.inf)
        for edge in (slice(cols.start, inner.start), slice(inner.stop, cols.stop)):
            if edge.start < edge.stop:
                here = scores[..., edge.start - cols.start : edge.stop - cols.start]
                here.masked_fill_(~self.allowed(rows, edge), -torch.inf)
        return scores

    def allowed(self, rows: Index, cols: Index) -> Tensor:
        """The keys that mask and window allow these queries; broadcasts to (*lead, t, s)."""
        i, j = self.index(rows, self.grid.T), self.index(cols, self.grid.S)
        allowed = self.mask.allowed(i, j, self.grid)
        if self.live is not None:
            live_queries, live_keys = self.live
            allowed = allowed & live_queries[..., i, None] & live_keys[..., None, j]
        return allowed if self.window is None else allowed & self.window.inside(self.centre(i), j)

    def allowed_without_mask(self, rows: Tensor, cols: Tensor) -> Tensor:
        """The keys that all but the mask allows these queries: the window, and a bias or a score of -inf."""
        allowed = torch.ones(1, 1, dtype=torch.bool, device=self.grid.device)
        if self.window is not None:
            allowed = self.window.inside(self.centre(rows), cols)
        if self.bias is not None and not self.bias.finite:
            allowed = allowed & (self.bias.tile(rows, cols) != -torch.inf)
        if not self.score.finite:
            scores = self.score(self.q[..., rows, :], repeat_kv(self.k[..., cols, :], self.grid))
            allowed = allowed & (scores != -torch.inf)
        return allowed

    def window_weight(self, rows: Index = slice(None), cols: Index = slice(None)) -> Tensor:
        """The factor of the weights (..., t, s) by the window: its Gaussian."""
        assert self.window is not None, "only a window has a Gaussian"
        return self.window.gaussian(self.centre(self.index(rows, self.grid.T)), self.index(cols, self.grid.S))

    def precise(self) -> AttentionInputs:
        """The same with q, k and `predicted` in the precision of the weights."""
        dtype = compute_dtype(torch.promote_types(self.q.dtype, self.k.dtype))
        predicted = None if self.predicted is None else self.predicted.to(dtype)
        return replace(self, q=self.q.to(dtype), k=self.k.to(dtype), predicted=predicted)

    def detached(self, lse: Tensor) -> AttentionInputs:
        """The same with the log-sum-exp, detached from the graph."""
        predicted = None if self.predicted is None else self.predicted.detach()
        return replace(self, q=self.q.detach(), k=self.k.detach(), predicted=predicted, lse=lse.detach())

    def part(self, lead: Lead) -> AttentionInputs:
        """The same for a part of the leading dimensions, one slice for each."""
        sizes = tuple(len(range(*piece.indices(size))) for piece, size in zip(lead, self.grid.lead, strict=True))
        return replace(
            self,
            q=cut(self.q, lead),
            k=cut_heads(self.k, lead, self.grid),
            mask=self.mask.part(lead),
            bias=None if self.bias is None else self.bias.part(lead),
            predicted=None if self.predicted is None else cut(self.predicted, lead, trailing=1),
            grid=replace(self.grid, lead=sizes),
            lse=None if self.lse is None else cut(self.lse, lead, trailing=1),
            normalise=self.normalise.part(lead),
            live=None
            if self.live is None
            else (cut(self.live[0], lead, trailing=1), cut(self.live[1], lead, trailing=1)),
        )

    def centre(self, rows: Tensor) -> Tensor:
        """The centres of the windows of these queries, (..., t, 1)."""
        assert self.window is not None and self.predicted is not None
        everywhere = torch.arange(self.grid.S, device=self.grid.device)
        allowed = self.mask.allowed(rows, everywhere, self.grid)
        allowed = allowed.expand(*allowed.shape[:-2], len(rows), self.grid.S)
        return self.window.centre(self.predicted[..., rows], allowed)

    def index(self, where: Index, size: int) -> Tensor:
        """The same queries or keys as an index tensor."""
        if isinstance(where, Tensor):
            return where.to(self.grid.device)
        # slice.indices would put the length itself into a compiled graph
        bounds = (size,) if where == slice(None) else where.indices(size)
        return torch.arange(*bounds, device=self.grid.device)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision that scores and weights are computed in: float32, or float64 for float64."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def repeat_kv(x: Tensor, grid: Grid) -> Tensor:
    """Keys or values (..., Hk, S, D) for every query head: head h reads number h // (H / Hk)."""
    if not is_grouped(x, grid):
        return x
    return x.repeat_interleave(grid.lead[-1] // x.size(-3), dim=-3)


def is_grouped(x: Tensor, grid: Grid) -> bool:
    """Whether several query heads share each head of x."""
    return x.dim() >= 3 and len(grid.lead) >= 2 and 1 < x.size(-3) < grid.lead[-1]


def cut_heads(x: Tensor, lead: Lead, grid: Grid) -> Tensor:
    """As `cut`, for keys or values whose heads are shared by groups of query heads."""
    if not is_grouped(x, grid):
        return cut(x, lead)
    start, stop, _ = lead[-1].indices(grid.lead[-1])
    group = grid.lead[-1] // x.size(-3)
    full = start == 0 and stop == grid.lead[-1]
    assert full or start // group == (stop - 1) // group, "a part of the heads reads one key head"
    heads = slice(None) if full else slice(start // group, start // group + 1)
    return cut(x, (*lead[:-1], slice(None)))[..., heads, :, :]


def prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    score: object,
    mask: Mask | None,
    bias: object,
    window: object,
    normalise: object = None,
) -> tuple[AttentionInputs, Tensor]:
    """Check everything, replace what is masked everywhere, and let the score prepare queries and keys."""
    v = k if v is None else v
    check_tensors(q, k, v)
    grid = Grid(_broadcast_lead(q, k, v), q.size(-2), k.size(-2), q.device)
    score_module, local_window = as_score(score), as_window(window)
    full_mask = as_mask(mask)
    if isinstance(local_window, LocalM):
        full_mask, local_window = full_mask & local_window.mask, None
    full_mask.check(grid)
    bound_bias = as_bias(bias)
    bound_bias = None if bound_bias is None else bound_bias.bind(grid).cast(compute_dtype(q.dtype))
    check_parameters(score_module, local_window, q)
    normaliser = bound_normaliser(normalise, local_window, grid, q)
    raw = AttentionInputs(score_module, q, k, full_mask, bound_bias, local_window, None, grid, normaliser)
    q, k, v, live = _replace_masked_inputs(raw, v)
    with autocast_disabled(q) if q.dtype in (torch.float32, torch.float64) else nullcontext():
        predicted = None if local_window is None else local_window.predict(q)
        queries, keys = score_module.prepare(q, k)
    if live is not None and predicted is not None:  # the window of a query that sees no key stays away from all keys
        predicted = torch.where(live[0], predicted.to(compute_dtype(predicted.dtype)), NOWHERE)
    if score_module.finite:
        live = None
    if _score_lead(queries, keys, grid) != grid.lead:  # a mask or the values have more leading dimensions than q and k
        queries = queries.expand(*grid.lead, *queries.shape[-2:])
    terms = full_mask, bound_bias, local_window, predicted
    return AttentionInputs(score_module, queries, keys, *terms, grid, normaliser, live=live), v


def bound_normaliser(normalise: object, window: LocalP | None, grid: Grid, q: Tensor) -> Normaliser:
    """The normaliser a user passed, checked against the map."""
    normaliser = as_normaliser(normalise)
    normaliser.check(grid, q)
    if window is not None and not isinstance(normaliser, Softmax):
        raise SettingError(
            f"A predicted window weighs the weights of a softmax, and got {normaliser!r}",
            where="attend",
            advice="Leave out window or normalise.",
        )
    return normaliser


def _replace_masked_inputs(
    raw: AttentionInputs, v: Tensor
) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor] | None]:
    """q, k and v without queries that see no key and keys hidden from every query, which may hold NaN or inf: 0 x NaN
    is NaN. With them which queries and keys are live, if more than the mask hides keys: what is not stays hidden.

    On the CPU the largest numbers show whether this is needed; elsewhere reading them would wait for the device, and
    while a graph is compiled there are none. A score of its own may do anything with zeros, so it is given live
    queries and keys in place of others.
    """
    q, k, grid, score = raw.q, raw.k, raw.grid, raw.score
    others_hide = raw.window is not None or not score.finite or not (raw.bias is None or raw.bias.finite)
    by_mask = not every_row_and_column_live(raw.mask, grid)
    safe = (not others_hide and not by_mask) or (is_readable(q) and all(map(_safe_range, (q, k, v))))
    if safe and (score.finite or not by_mask):
        return q, k, v, None
    replace_masked = zero_masked if score.finite else substitute_masked
    live = live_queries_and_keys(raw.mask, grid)
    q, keys = replace_masked(q, live[0], grid), replace_masked(k, live[1], grid)
    if safe:
        return q, keys, v, None
    if others_hide:
        with torch.no_grad(), autocast_disabled(q):
            cleaned = replace(raw, q=q.detach(), k=keys.detach()).precise()
            predicted = None if raw.window is None else raw.window.predict(q).to(cleaned.q.dtype)
            cleaned = replace(cleaned, predicted=predicted)
            live = live_queries_and_keys(raw.mask, grid, more=cleaned.allowed_without_mask)
        q, keys = replace_masked(q, live[0], grid), replace_masked(keys, live[1], grid)
    same = v is k and score.finite
    return q, keys, keys if same else zero_masked(v, live[1], grid), live if others_hide else None


NOWHERE = -1e9  # a predicted position, as a fraction of the keys, that is far from all of them


def _safe_range(x: Tensor) -> bool:
    """Whether products of any two of these numbers are finite in float32."""
    if not x.numel():
        return True
    low, high = x.detach().aminmax()
    return bool(low > -1e18) and bool(high < 1e18)  # false for NaN


def zero_masked(x: Tensor, live: Tensor, grid: Grid) -> Tensor:
    """x (..., N, D) with zeros where it is not live (..., N)."""
    return torch.where(_by_head(x, live, grid).unsqueeze(-1), x, 0.0)


def substitute_masked(x: Tensor, live: Tensor, grid: Grid) -> Tensor:
    """x (..., N, D) with the first live vector where it is not live (..., N), and zeros if none is."""
    live = _by_head(x, live, grid)
    if not live.size(-1):
        return zero_masked(x, live, grid)
    lead = torch.broadcast_shapes(x.shape[:-2], live.shape[:-1])
    first = live.byte().argmax(-1)[..., None, None].expand(*lead, 1, x.size(-1))
    stand_in = x.detach().expand(*lead, *x.shape[-2:]).gather(-2, first)
    found = torch.where(live.any(-1)[..., None, None], stand_in, 0.0)
    return torch.where(live.unsqueeze(-1), x, found)


def _by_head(x: Tensor, live: Tensor, grid: Grid) -> Tensor:
    """Which vectors of x are live, if query heads share its heads: those that are for any of them."""
    if is_grouped(x, grid) and live.dim() >= 2 and live.size(-2) > 1:
        return live.unflatten(-2, (x.size(-3), -1)).any(-2)
    return live


def autocast_disabled(x: Tensor) -> AbstractContextManager[object]:
    """Autocast is off inside: the precision depends on the inputs alone, see `compute_dtype`."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _broadcast_lead(q: Tensor, k: Tensor, v: Tensor) -> tuple[int, ...]:
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
    queries, *others = (x.size(-3) if x.dim() >= 3 else 1 for x in (q, k, v))
    heads = queries if queries > 1 else max(others)
    for name, count in zip(("key", "value"), others, strict=True):
        if count < 1 or heads % count or (queries == 1 and count != 1 and count != heads):
            raise ShapeError(
                f"{queries} query heads and {count} {name} heads ({shapes})",
                f"a number of {name} heads that divides {heads}",
                where="attend",
            )
    return (*outer, heads)


def _score_lead(q: Tensor, k: Tensor, grid: Grid) -> tuple[int, ...]:
    """The leading dimensions of the scores of prepared q and k."""
    k_lead = (*k.shape[:-3], grid.lead[-1]) if is_grouped(k, grid) else k.shape[:-2]
    return _broadcast(q.shape[:-2], k_lead)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to; equal ones, the usual case, take a fast path."""
    first, *others = shapes  # compared, not hashed: a hash would put the sizes into a compiled graph
    return tuple(first if all(other == first for other in others) else torch.broadcast_shapes(*shapes))


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
        listed = ", ".join(f"{name} on {x.device}" for name, x in named.items())
        raise DeviceError(listed, "all on one device", where="attend")
    if len({x.dtype for x in named.values()}) > 1:
        listed = ", ".join(f"{name} of {x.dtype}" for name, x in named.items())
        raise DtypeError(listed, "one dtype", where="attend")


def check_parameters(score: Score, window: LocalP | None, q: Tensor) -> None:
    """Check that a learned score or window has the device and dtype of the queries (autocast may mix dtypes)."""
    mixed = torch.is_autocast_enabled(q.device.type)
    for part in (score, window):
        for name, parameter in () if part is None else part.named_parameters():
            where = f"attend {type(part).__name__}.{name}"
            if parameter.device != q.device:
                raise DeviceError(f"a parameter on {parameter.device}", f"the queries' {q.device}", where=where)
            if parameter.dtype != q.dtype and not mixed and not name.startswith("function."):
                raise DtypeError(f"a parameter of {parameter.dtype}", f"the queries' {q.dtype}", where=where)
