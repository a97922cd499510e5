"""The gradient of additive attention: scores are computed again, part by part, and nothing of the map was kept.

With p = e^(score - lse), the gradient of a score is p (do . v - do . output + dlse); it is written once for each part,
then gathered twice, over queries for the keys and over keys for the queries. All sums have a fixed order.

What a part needs besides two tables of its pairs lies in its gradients, until they are written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.kernels.devices import on_device
from regard.attention.kernels.triton_additive_parts import (
    Part,
    Tiles,
    parts,
    tiling_for,
    whole_turns,
    within,
)


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
    from regard.attention.kernels import triton_additive_tiles as kernels

    kernels.write_slopes[(tiles.number(),)](
        *tiles.compared(panels_a, panels_b), asked.lse, asked.output, asked.for_output, asked.for_lse,
        slopes, weights, *tiles.sizes(), asked.output.size(-1), **tiles.options(), **tiles.limited(),
    )  # fmt: skip


def _gather(tiles: Tiles, grown: Tensor, slopes: Tensor, into: Tensor, sums: Tensor | None, *, again: bool) -> None:
    """The gradient of the keys, and parts of that of the vector into `sums`; without those, that of the queries."""
    from regard.attention.kernels import triton_additive_tiles as kernels

    tiling, padded = tiles.tiling, tiles.vector.numel()
    keys, queries = (tiles.b, tiling.columns, tiles.bounds_b), (tiles.a, tiling.rows, tiles.bounds_a)
    (x, block, own), (y, other, bounds) = (queries, keys) if sums is None else (keys, queries)
    width = tiling.width if padded % tiling.width == 0 else 16
    kernels.gather[(own.numel() * (padded // width),)](
        x, y, grown, bounds, slopes, tiles.vector, into, sums, x.size(1), y.size(1), x.size(2), int(again),
        BLOCK=block, OTHER=other, WIDTH=width, PADDED=padded, PAIRS=tiling.pairs, VECTOR=sums is not None,
        **tiles.compiled(), **tiles.limited(),
    )  # fmt: skip
