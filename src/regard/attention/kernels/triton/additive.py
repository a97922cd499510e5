"""Additive attention (Bahdanau) on a GPU: Triton kernels with a workspace of about the size of the inputs.

The map is computed in parts, some leading indices or some rows at a time (additive_workspace). For each part the
scores are written by one kernel and read by others (additive_kernels). For the gradient they are computed again. With
p = e^(score - lse), the gradient of a score is p (do . v - do . output + dlse); it is written once for each part, then
gathered twice, over queries for the keys and over keys for the queries. All sums have a fixed order.

What a part needs besides two tables of its pairs uses the memory of its gradients, until they are written.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.grid import Grid
from regard.attention.inputs import AttentionInputs, repeat_kv
from regard.attention.kernels.devices import on_device, triton_unsupported_reason
from regard.attention.kernels.row_blocks import Block
from regard.attention.kernels.statistics import (
    StreamingStatistics,
    empty_statistics,
    request_of,
    requested,
    statistics_of,
    tensors_of,
)
from regard.attention.kernels.triton.additive_workspace import (
    MapPart,
    Tiles,
    additive_tiling,
    map_parts,
    pad_vector,
    reuse_memory,
)
from regard.attention.masks import Everything
from regard.attention.normalise import Softmax
from regard.attention.observe import Attended, Observe
from regard.attention.operator_arguments import OperatorArguments
from regard.attention.scores import Additive
from regard.attention.transforms import refuse_second_derivative


@torch.library.custom_op("regard::additive_backward", mutates_args=())
def additive_backward(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None,
    output: Tensor, lse: Tensor, grad_output: Tensor, grad_lse: Tensor | None, tiling: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients of a, b, v and vector, given those of output (N, T, Dv) and lse (N, T); None: zero."""
    grads = Gradients(a.new_empty(a.shape), b.new_empty(b.shape), a.new_empty(v.shape))
    grad_lse = None if grad_lse is None else grad_lse.contiguous()
    outputs = OutputGradients(output, lse, grad_output.contiguous(), grad_lse)
    padded = pad_vector(vector)
    workspace = a.numel() + b.numel() + v.numel() - output.numel()
    map_pieces = list(map_parts(a, b, workspace, tables=2, powers=not _powers_fit_in_gradients(a, b, tiling)))
    grad_vector = a.new_empty(len(map_pieces), padded.numel())
    with on_device(a):
        for part, out in zip(map_pieces, grad_vector, strict=True):
            tiles = Tiles.of(a, b, padded, lo, hi, part, tiling)
            _part_gradients(
                tiles, v[part.leads].float(), outputs.cut(part), grads.cut(part), out, accumulate=part.rows.start > 0
            )
    return grads.a, grads.b, grads.v.to(v.dtype), grad_vector.sum(0)[: vector.numel()]


@additive_backward.register_fake
def _(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None,
    output: Tensor, lse: Tensor, grad_output: Tensor, grad_lse: Tensor | None, tiling: str = "auto",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    return a.new_empty(a.shape), b.new_empty(b.shape), v.new_empty(v.shape), torch.empty_like(vector)


def save_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    """What the operator regard::additive keeps for its gradient: its inputs, output and lse, linear in the length."""
    a, b, v, vector, lo, hi, ctx.tiling = inputs
    ctx.mark_non_differentiable(output[2])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(a, b, v, vector, lo, hi, output[0], output[1])


def backward(
    ctx: Any, grad_output: Tensor | None, grad_lse: Tensor | None, grad_entropy: Tensor | None
) -> tuple[Tensor | None, ...]:
    """The gradients of all inputs of regard::additive; entropy has no gradient."""
    a, b, v, vector, lo, hi, output, lse = ctx.saved_tensors
    if grad_output is None:
        grad_output = torch.zeros_like(output)
    found = additive_backward(a, b, v, vector, lo, hi, output, lse, grad_output, grad_lse, ctx.tiling)
    return (*found, None, None, None)


class OutputGradients(NamedTuple):
    """The outputs of the forward pass, (N, T, Dv) and (N, T), and their gradients."""

    output: Tensor
    lse: Tensor
    grad_output: Tensor
    grad_lse: Tensor | None

    def cut(self, part: MapPart) -> OutputGradients:
        return OutputGradients(*(None if x is None else part.cut(x) for x in self))  # type: ignore[arg-type]


class Gradients(NamedTuple):
    """The gradients of a, b and v, to be written."""

    a: Tensor
    b: Tensor
    v: Tensor

    def cut(self, part: MapPart) -> Gradients:
        return Gradients(part.cut(self.a), self.b[part.leads], self.v[part.leads])


def _powers_fit_in_gradients(a: Tensor, b: Tensor, tiling: str) -> bool:
    """Whether the powers e^2a and e^2b fit into memory of gradients that are unwritten or no longer needed."""
    (_, T, U), S = a.shape, b.size(1)
    chosen = additive_tiling(T, S, tiling)
    return T % chosen.rows == 0 and S % chosen.columns == 0 and U % 16 == 0 and T >= U


def _part_gradients(
    tiles: Tiles, values: Tensor, outputs: OutputGradients, out: Gradients, grad_vector: Tensor, *, accumulate: bool
) -> None:
    """The gradients of one part; accumulate: those of keys and values are added to those of earlier rows."""
    T, S = tiles.a.size(1), tiles.b.size(1)
    score_grads, weights = tiles.table(), tiles.table()
    powers_a = reuse_memory(out.a, *tiles.powers_shape_a())
    powers_b = out.b.new_empty(tiles.powers_shape_b()) if accumulate else reuse_memory(out.b, *tiles.powers_shape_b())
    torch.bmm(outputs.grad_output, values.mT, out=score_grads[:, :T, :S])
    tiles.write_powers(powers_a, powers_b, panels=True)
    _write_score_gradients(tiles, powers_a, powers_b, outputs, score_grads, weights)
    del powers_b
    shares = weights[:, :T, :S].mT
    if accumulate:
        torch.baddbmm(out.v, shares, outputs.grad_output, out=out.v)
    else:
        torch.bmm(shares, outputs.grad_output, out=out.v)

    tiles.write_powers(powers_a, None, panels=False)
    sums = reuse_memory(weights, *tiles.bounds_b.shape, tiles.vector.numel())
    _gather_gradients(tiles, powers_a, score_grads, out.b, sums, accumulate=accumulate)
    torch.sum(sums, (0, 1), out=grad_vector)
    del powers_a, sums

    transposed = weights.view(score_grads.mT.shape).copy_(score_grads.mT)
    powers_b = reuse_memory(score_grads, *tiles.powers_shape_b())
    tiles.write_powers(None, powers_b, panels=False)
    _gather_gradients(tiles, powers_b, transposed, out.a, None, accumulate=False)


def _write_score_gradients(
    tiles: Tiles, panels_a: Tensor, panels_b: Tensor, outputs: OutputGradients, score_grads: Tensor, weights: Tensor
) -> None:
    """The gradients of the scores, over the products do . v, and the weights: (N, T, S) in whole tiles."""
    from regard.attention.kernels.triton import additive_kernels as kernels

    kernels.write_score_gradients[(tiles.tile_count(),)](
        *tiles.score_args(panels_a, panels_b), outputs.lse, outputs.output, outputs.grad_output, outputs.grad_lse,
        score_grads, weights, *tiles.sizes(), outputs.output.size(-1), **tiles.options(), **tiles.register_limit(),
    )  # fmt: skip


def _gather_gradients(
    tiles: Tiles, powers: Tensor, score_grads: Tensor, out: Tensor, sums: Tensor | None, *, accumulate: bool
) -> None:
    """The gradient of the keys, and parts of that of the vector into `sums`; without those, that of the queries."""
    from regard.attention.kernels.triton import additive_kernels as kernels

    tiling, padded = tiles.tiling, tiles.vector.numel()
    keys, queries = (tiles.b, tiling.columns, tiles.bounds_b), (tiles.a, tiling.rows, tiles.bounds_a)
    (x, block, own_bounds), (y, other, bounds) = (queries, keys) if sums is None else (keys, queries)
    width = tiling.width if padded % tiling.width == 0 else 16
    kernels.gather_gradients[(own_bounds.numel() * (padded // width),)](
        x, y, powers, bounds, score_grads, tiles.vector, out, sums, x.size(1), y.size(1), x.size(2), int(accumulate),
        BLOCK=block, OTHER=other, WIDTH=width, PADDED=padded, PAIRS=tiling.pairs, VECTOR=sums is not None,
        **tiles.hot_loop_options(), **tiles.register_limit(),
    )  # fmt: skip


NAME = "triton"


def unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why this kernel cannot serve the request; None: it can."""
    q, grid = prepared.q, prepared.grid
    if not isinstance(prepared.normalise, Softmax):
        return f"it computes a softmax, and got {prepared.normalise!r}"
    if not isinstance(prepared.score, Additive):
        return f"it computes the additive score, and {type(prepared.score).__name__} is another"
    if why := triton_unsupported_reason(q):
        return why
    if torch.float64 in (q.dtype, prepared.k.dtype, v.dtype):
        return "it computes in float32"
    if prepared.window is not None:
        return "it has no predicted window"
    if prepared.bias is not None:
        return "it adds no bias"
    if not prepared.mask.contiguous:
        return "it takes masks that leave one run of keys to each query: Causal, Past, Window, Padding, and their &"
    if dropout > 0:
        return "it draws no dropout"
    if 0 in (grid.T, grid.S, q.size(-1), v.size(-1), *grid.lead):
        return "it needs at least one query, one key and one number in each"
    return None


def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output, log-sum-exp and entropy from one pass, then the other statistics from a second one."""
    assert isinstance(prepared.score, Additive)
    grid = prepared.grid
    a, b, values = (_flatten_lead(x, grid) for x in (prepared.q.float(), prepared.k.float(), v))
    vector = prepared.score.vector.float()
    lo, hi = _ends(prepared)
    output, lse, entropy = additive_forward(a, b, values, vector, lo, hi)
    refuse_second_derivative(output, NAME)
    found: dict[str, Any] = {}
    rest = replace(observe, entropy=False, weights=False, prepared=False, values=False)
    if rest.statistics:
        with torch.no_grad():
            found = _statistics(a, b, vector, lo, hi, rest, grid)
    if observe.entropy:
        found["entropy"] = entropy.detach().reshape(*grid.lead, grid.T)
    output = output.to(v.dtype).reshape(*grid.lead, grid.T, -1)
    return Attended(output, lse.reshape(*grid.lead, grid.T), NAME, **found)


@torch.library.custom_op("regard::additive", mutates_args=())
def additive_forward(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, tiling: str = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    """output (N, T, Dv), lse (N, T), entropy (N, T) of a (N, T, U), b (N, S, U), v (N, S, Dv), vector (U,).

    lo, hi: int32 (N, T), the first key and one past the last that a query sees; None: it sees all of them.
    All in float32 but v, which may be narrower. The gradient is that of output and lse.
    """
    output = a.new_empty(*a.shape[:2], v.size(-1))
    lse, entropy = a.new_empty(a.shape[:2]), a.new_empty(a.shape[:2])
    padded = pad_vector(vector)
    with on_device(a):
        for part in map_parts(a, b, a.numel() + b.numel() + v.numel(), tables=1):
            tiles = Tiles.of(a, b, padded, lo, hi, part, tiling)
            weights = tiles.weights(part.cut(lse), part.cut(entropy))
            torch.bmm(weights, v[part.leads].float(), out=part.cut(output))
            del weights  # before the next part asks for as much
    return output, lse, entropy


@additive_forward.register_fake
def _(
    a: Tensor, b: Tensor, v: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, tiling: str = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    return a.new_empty(*a.shape[:2], v.size(-1)), a.new_empty(a.shape[:2]), a.new_empty(a.shape[:2])


additive_forward.register_autograd(backward, setup_context=save_for_backward)


@torch.library.custom_op("regard::additive_statistics", mutates_args=())
def additive_statistics(
    a: Tensor, b: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None,
    tensors: list[Tensor], sizes: list[int], numbers: list[float], request: str,
) -> list[Tensor]:  # fmt: skip
    """The requested statistics (N, ...), in the order of `tensors_of`."""
    (N, T, _), S = a.shape, b.size(1)
    grid = Grid((N,), T, S, a.device)
    observe = requested(OperatorArguments([N, T, S], tensors, sizes, numbers).value(request))
    statistics = StreamingStatistics(observe, grid, a.dtype)
    lse, entropy, keys = a.new_empty(N, T), a.new_empty(N, T), torch.arange(S, device=a.device)
    padded = pad_vector(vector)
    with on_device(a):
        for part in map_parts(a, b, a.numel() + b.numel(), tables=3):
            tiles = Tiles.of(a, b, padded, lo, hi, part, "auto")
            weights = tiles.weights(part.cut(lse), part.cut(entropy))
            logs = torch.zeros_like(weights)  # -inf where a key is hidden
            if tiles.lo is not None and tiles.hi is not None:
                hidden = (keys < tiles.lo.unsqueeze(-1)) | (keys >= tiles.hi.unsqueeze(-1))
                logs.masked_fill_(hidden, -torch.inf)
            inner = slice(0, S) if tiles.lo is None else None
            peak = (part.cut(lse).unsqueeze(-1) + weights.amax(-1, keepdim=True).log()) if observe.peak else None
            statistics.add(Block((part.leads,), part.rows, slice(0, S), inner, finite=True), weights, logs, None, peak)
    return tensors_of(statistics.found())


@additive_statistics.register_fake
def _(
    a: Tensor, b: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None,
    tensors: list[Tensor], sizes: list[int], numbers: list[float], request: str,
) -> list[Tensor]:  # fmt: skip
    grid = Grid((a.size(0),), a.size(1), b.size(1), a.device)
    packed = OperatorArguments([*grid.lead, grid.T, grid.S], tensors, sizes, numbers)
    return empty_statistics(requested(packed.value(request)), grid, a.dtype)


def _statistics(
    a: Tensor, b: Tensor, vector: Tensor, lo: Tensor | None, hi: Tensor | None, observe: Observe, grid: Grid
) -> dict[str, Any]:
    packed = OperatorArguments([], [a.new_empty(0)])
    request = packed.text(request_of(observe))
    tensors, _, sizes, numbers = packed.all()
    found = additive_statistics(a, b, vector, lo, hi, tensors, sizes, numbers, request)
    return statistics_of(observe, [x.reshape(*grid.lead, *x.shape[1:]) for x in found])


def _flatten_lead(x: Tensor, grid: Grid) -> Tensor:
    """x (..., n, D) for every leading index, (N, n, D)."""
    x = repeat_kv(x, grid)
    return x.expand(*grid.lead, *x.shape[-2:]).reshape(prod(grid.lead), *x.shape[-2:]).contiguous()


def _ends(prepared: AttentionInputs) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The first key, and one past the last, that each query sees: int32 (N, T); None if all see all."""
    grid = prepared.grid
    if isinstance(prepared.mask, Everything):
        return None, None
    lo, hi = (
        end.to(torch.int32).expand(*grid.lead, grid.T).reshape(-1, grid.T).contiguous()
        for end in prepared.mask.span(grid)
    )
    return lo, hi
