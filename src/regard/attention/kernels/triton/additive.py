"""The additive score on a GPU: Triton kernels that keep no more of the map than a workspace of about the inputs' size.

The map is walked through in parts, some leading indices or some rows at a time (additive_workspace). For each part the
scores are written by one kernel and read by others (additive_kernels). For the gradient they are computed again. With
p = e^(score - lse), the gradient of a score is p (do . v - do . output + dlse); it is written once for each part, then
gathered twice, over queries for the keys and over keys for the queries. All sums have a fixed order.

What a part needs besides two tables of its pairs lies in its gradients, until they are written.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.grid import Grid
from regard.attention.inputs import Prepared, share_heads
from regard.attention.kernels.devices import no_kernels, on_device
from regard.attention.kernels.row_blocks import Block
from regard.attention.kernels.statistics import Statistics
from regard.attention.kernels.triton.additive_workspace import (
    Part,
    Tiles,
    parts,
    tiling_for,
    whole_turns,
    within,
)
from regard.attention.masks import Everything
from regard.attention.observe import Attended, Observe, Top
from regard.attention.scores import Additive


@torch.library.custom_op("regard::additive_backward", mutates_args=())
def told(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None,
    output: Tensor, lse: Tensor, for_output: Tensor, for_lse: Tensor | None, tiling: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of a, b, v and vector, given those of output (N, T, Dv) and lse (N, T); None: nobody asked."""
    grads = Gradients(a.new_empty(a.shape), b.new_empty(b.shape), a.new_empty(v.shape))
    asked = Asked(output, lse, for_output.contiguous(), None if for_lse is None else for_lse.contiguous())
    padded = whole_turns(vector)
    room = a.numel() + b.numel() + v.numel() - output.numel()
    cuts = list(parts(a, b, room, tables=2, powers=not _lent(a, b, tiling)))
    for_vector = a.new_empty(len(cuts), padded.numel())
    with on_device(a):
        for part, into in zip(cuts, for_vector, strict=True):
            tiles = Tiles.of(a, b, padded, lo, hi, part, tiling)
            _tell(tiles, v[part.leads].float(), asked.cut(part), grads.cut(part), into, again=part.rows.start > 0)
    return grads.a, grads.b, grads.v.to(v.dtype), for_vector.sum(0)[: vector.numel()]


@told.register_fake
def _(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None,
    output: Tensor, lse: Tensor, for_output: Tensor, for_lse: Tensor | None, tiling: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return a.new_empty(a.shape), b.new_empty(b.shape), v.new_empty(v.shape), torch.empty_like(vector)


def remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """What the operator regard::additive keeps for its gradient: its inputs, output and lse, linear in the length."""
    a, b, v, vector, lo, hi, ctx.tiling = inputs
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(a, b, v, vector, lo, hi, output[0], output[1])


def gradient(
    ctx: Any, for_output: Tensor | None, for_lse: Tensor | None, for_entropy: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Of all inputs of regard::additive; entropy is a report, and has none."""
    a, b, v, vector, lo, hi, output, lse = ctx.saved_tensors
    if for_output is None:
        for_output = torch.zeros_like(output)
    return (*told(a, b, v, vector, lo, hi, output, lse, for_output, for_lse, ctx.tiling), None, None, None)


class Asked(NamedTuple):
    """What the forward pass gave, and the gradients of it: (N, T, Dv) and (N, T)."""

    output: Tensor
    lse: Tensor
    for_output: Tensor
    for_lse: Tensor | None

    def cut(self, part: Part) -> Asked:
        return Asked(*(None if x is None else part.cut(x) for x in self))  # type: ignore[arg-type]


class Gradients(NamedTuple):
    """Of a, b and v, to be written."""

    a: Tensor
    b: Tensor
    v: Tensor

    def cut(self, part: Part) -> Gradients:
        return Gradients(part.cut(self.a), self.b[part.leads], self.v[part.leads])


def _lent(a: Tensor, b: Tensor, tiling: str) -> bool:
    """Whether the powers e^2a and e^2b fit into the room of gradients, or of slopes that are no longer needed."""
    (_, T, U), S = a.shape, b.size(1)
    chosen = tiling_for(T, S, tiling)
    return T % chosen.rows == 0 and S % chosen.columns == 0 and U % 16 == 0 and T >= U


def _tell(tiles: Tiles, values: Tensor, asked: Asked, into: Gradients, for_vector: Tensor, *, again: bool) -> None:
    """The gradients of one part; again: those of keys and values are added to what earlier rows gave."""
    T, S = tiles.a.size(1), tiles.b.size(1)
    slopes, weights = tiles.table(), tiles.table()
    of_a = within(into.a, *tiles.powers_of_a())
    of_b = into.b.new_empty(tiles.powers_of_b()) if again else within(into.b, *tiles.powers_of_b())
    torch.bmm(asked.for_output, values.mT, out=slopes[:, :T, :S])
    tiles.grow(of_a, of_b, panels=True)
    _write_slopes(tiles, of_a, of_b, asked, slopes, weights)
    del of_b
    shares = weights[:, :T, :S].mT
    if again:
        torch.baddbmm(into.v, shares, asked.for_output, out=into.v)
    else:
        torch.bmm(shares, asked.for_output, out=into.v)

    tiles.grow(of_a, None, panels=False)
    sums = within(weights, *tiles.bounds_b.shape, tiles.vector.numel())
    _gather(tiles, of_a, slopes, into.b, sums, again=again)
    torch.sum(sums, (0, 1), out=for_vector)
    del of_a, sums

    turned = weights.view(slopes.mT.shape).copy_(slopes.mT)
    of_b = within(slopes, *tiles.powers_of_b())
    tiles.grow(None, of_b, panels=False)
    _gather(tiles, of_b, turned, into.a, None, again=False)


def _write_slopes(
    tiles: Tiles, panels_a: Tensor, panels_b: Tensor, asked: Asked, slopes: Tensor, weights: Tensor
) -> None:
    """The gradients of the scores, over the products do . v, and the weights: (N, T, S) in whole tiles."""
    from regard.attention.kernels.triton import additive_kernels as kernels

    kernels.write_slopes[(tiles.number(),)](
        *tiles.compared(panels_a, panels_b), asked.lse, asked.output, asked.for_output, asked.for_lse,
        slopes, weights, *tiles.sizes(), asked.output.size(-1), **tiles.options(), **tiles.limited(),
    )  # fmt: skip


def _gather(tiles: Tiles, grown: Tensor, slopes: Tensor, into: Tensor, sums: Tensor | None, *, again: bool) -> None:
    """The gradient of the keys, and parts of that of the vector into `sums`; without those, that of the queries."""
    from regard.attention.kernels.triton import additive_kernels as kernels

    tiling, padded = tiles.tiling, tiles.vector.numel()
    keys, queries = (tiles.b, tiling.columns, tiles.bounds_b), (tiles.a, tiling.rows, tiles.bounds_a)
    (x, block, own), (y, other, bounds) = (queries, keys) if sums is None else (keys, queries)
    width = tiling.width if padded % tiling.width == 0 else 16
    kernels.gather[(own.numel() * (padded // width),)](
        x, y, grown, bounds, slopes, tiles.vector, into, sums, x.size(1), y.size(1), x.size(2), int(again),
        BLOCK=block, OTHER=other, WIDTH=width, PADDED=padded, PAIRS=tiling.pairs, VECTOR=sums is not None,
        **tiles.compiled(), **tiles.limited(),
    )  # fmt: skip


NAME = "triton"


def refuses(prepared: Prepared, v: Tensor, dropout: float) -> str | None:
    """Why this kernel cannot serve the request, in words; None: it can."""
    q, grid = prepared.q, prepared.grid
    if not isinstance(prepared.score, Additive):
        return f"it computes the additive score, and {type(prepared.score).__name__} is another"
    if why := no_kernels(q):
        return why
    if torch.float64 in (q.dtype, prepared.k.dtype, v.dtype):
        return "it computes in float32"
    if prepared.window is not None:
        return "it has no predicted window"
    if prepared.bias is not None:
        return "it adds no bias"
    if not prepared.mask.solid:
        return "it takes masks that leave one run of keys to each query: Causal, Past, Window, Padding, and their &"
    if dropout > 0:
        return "it draws no dropout"
    if 0 in (grid.T, grid.S, q.size(-1), v.size(-1), *grid.lead):
        return "it needs at least one query, one key and one number in each"
    return None


def compute(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output, log-sum-exp and entropy from one pass, then whatever else is to be observed from another."""
    assert isinstance(prepared.score, Additive)
    grid = prepared.grid
    a, b, values = (_in_a_row(x, grid) for x in (prepared.q.float(), prepared.k.float(), v))
    vector = prepared.score.vector.float()
    lo, hi = _ends(prepared)
    output, lse, entropy = attended(a, b, values, vector, lo, hi)
    found: dict[str, Any] = {}
    if observe.top or observe.received or observe.thumbnail:
        with torch.no_grad():
            found = _observed(a, b, vector, lo, hi, observe, grid.lead)
    if observe.entropy:
        found["entropy"] = entropy.detach().reshape(*grid.lead, grid.T)
    output = output.to(v.dtype).reshape(*grid.lead, grid.T, -1)
    return Attended(output, lse.reshape(*grid.lead, grid.T), NAME, **found)


@torch.library.custom_op("regard::additive", mutates_args=())
def attended(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, tiling: str = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    """output (N, T, Dv), lse (N, T), entropy (N, T) of a (N, T, U), b (N, S, U), v (N, S, Dv), vector (U,).

    lo, hi: int32 (N, T), the first key and one past the last that a query sees; None: it sees all of them.
    All in float32 but v, which may be narrower. The gradient is that of output and lse.
    """
    output = a.new_empty(*a.shape[:2], v.size(-1))
    lse, entropy = a.new_empty(a.shape[:2]), a.new_empty(a.shape[:2])
    padded = whole_turns(vector)
    with on_device(a):
        for part in parts(a, b, a.numel() + b.numel() + v.numel(), tables=1):
            tiles = Tiles.of(a, b, padded, lo, hi, part, tiling)
            weights = tiles.weights(part.cut(lse), part.cut(entropy))
            torch.bmm(weights, v[part.leads].float(), out=part.cut(output))
            del weights  # before the next part asks for as much
    return output, lse, entropy


@attended.register_fake
def _(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, tiling: str = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    return a.new_empty(*a.shape[:2], v.size(-1)), a.new_empty(a.shape[:2]), a.new_empty(a.shape[:2])


attended.register_autograd(gradient, setup_context=remember)


@torch.library.custom_op("regard::additive_observed", mutates_args=())
def observed(
    a: Tensor, b: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, top: int, rows: int, columns: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The values and keys of the `top` largest weights (N, T, top), what each key received (N, S), and a thumbnail of
    at most (rows, columns)."""
    (N, T, _), S = a.shape, b.size(1)
    grid = Grid((N,), T, S, a.device)
    statistics = Statistics(Observe(top=top, received=True, thumbnail=(rows, columns)), grid, a.dtype)
    lse, entropy, keys = a.new_empty(N, T), a.new_empty(N, T), torch.arange(S, device=a.device)
    padded = whole_turns(vector)
    with on_device(a):
        for part in parts(a, b, a.numel() + b.numel(), tables=3):
            tiles = Tiles.of(a, b, padded, lo, hi, part, "auto")
            weights = tiles.weights(part.cut(lse), part.cut(entropy))
            logs = torch.zeros_like(weights)  # tells which keys are hidden
            if tiles.lo is not None and tiles.hi is not None:
                hidden = (keys < tiles.lo.unsqueeze(-1)) | (keys >= tiles.hi.unsqueeze(-1))
                logs.masked_fill_(hidden, -torch.inf)
            inner = slice(0, S) if tiles.lo is None else None
            statistics.add(Block((part.leads,), part.rows, slice(0, S), inner, finite=True), weights, logs, None)
    found = statistics.found()
    best = found["top"] or Top(a.new_empty(N, T, 0), torch.empty(N, T, 0, dtype=torch.long, device=a.device))
    return best.values, best.indices, found["received"], found["thumbnail"]


@observed.register_fake
def _(
    a: Tensor, b: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, top: int, rows: int, columns: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    (N, T, _), S = a.shape, b.size(1)
    best = a.new_empty(N, T, top), a.new_empty(N, T, top, dtype=torch.long)
    return *best, a.new_empty(N, S), a.new_empty(N, min(rows, T), min(columns, S))


def _observed(
    a: Tensor,
    b: Tensor,
    vector: Tensor,
    lo: Tensor | None,
    hi: Tensor | None,
    observe: Observe,
    lead: tuple[int, ...],
) -> dict[str, Any]:
    rows, columns = observe.thumbnail or (1, 1)
    found = observed(a, b, vector, lo, hi, observe.top, rows, columns)
    values, indices, received, thumbnail = (x.reshape(*lead, *x.shape[1:]) for x in found)
    return {
        "top": Top(values, indices) if observe.top else None,
        "received": received if observe.received else None,
        "thumbnail": thumbnail if observe.thumbnail else None,
    }


def _in_a_row(x: Tensor, grid: Grid) -> Tensor:
    """x (..., n, D) for every leading index, (N, n, D)."""
    x = share_heads(x, grid)
    return x.expand(*grid.lead, *x.shape[-2:]).reshape(prod(grid.lead), *x.shape[-2:]).contiguous()


def _ends(prepared: Prepared) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The first key, and one past the last, that each query sees: int32 (N, T); None if all see all."""
    grid = prepared.grid
    if isinstance(prepared.mask, Everything):
        return None, None
    lo, hi = (
        end.to(torch.int32).expand(*grid.lead, grid.T).reshape(-1, grid.T).contiguous()
        for end in prepared.mask.span(grid)
    )
    return lo, hi
