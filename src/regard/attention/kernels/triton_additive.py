"""The additive score on a GPU: Triton kernels that keep no more of the map than a workspace of about the inputs' size.

The map is walked through in parts, some leading indices or some rows at a time. For each part the scores are written
into the workspace, softened there to weights, and averaged; the backward pass computes them again, see
triton_additive_backward.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.grid import Grid
from regard.attention.inputs import Prepared, share_heads
from regard.attention.kernels.blocks import Block
from regard.attention.kernels.devices import no_kernels, on_device
from regard.attention.kernels.statistics import Statistics
from regard.attention.kernels.triton_additive_backward import gradient, remember
from regard.attention.kernels.triton_additive_parts import Tiles, parts, whole_turns
from regard.attention.masks import Everything
from regard.attention.observe import Attended, Observe, Top
from regard.attention.scores import Additive

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
