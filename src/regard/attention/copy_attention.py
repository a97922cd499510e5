"""How much of its attention a query gives to one token: the weights of all keys that stand for it, as one logarithm.

    ln sum_j w_j [ids_j = target]  =  ln sigmoid(lse of the keys that are the target - lse of the others)

The weights of keys that stand for tokens are a distribution over those tokens. Whoever learns to copy needs no more of
it than the share of the token that came, so the map, T x S, need not be held: neither here nor on the way back.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from regard.attention.attend import SMALL
from regard.attention.inputs import Prepared, own_precision, prepare
from regard.attention.kernels.row_blocks import Block, blocks, parts
from regard.attention.kernels.triton import copy
from regard.attention.masks import Documents, Mask
from regard.attention.scores import Score
from regard.errors import BackendError, unknown


def copied(
    q: Tensor,
    k: Tensor,
    ids: Tensor,
    targets: Tensor,
    *,
    score: Score | object | None = None,
    mask: Mask | None = None,
    bias: object | None = None,
    backend: str = "auto",
) -> Tensor:
    """ln of the weight (..., T) that attend(q, k, ...) gives to all keys of the token that each query names.

    ids (S,) or (B, S): the token of each key; targets (T,) or (B, T): the one that is asked about. -inf, and a gradient
    of zero, where no key that the query may see is of that token. `backend`: "auto", or one of BACKENDS.

    >>> copied(torch.zeros(1, 2), torch.zeros(4, 2), torch.tensor([7, 8, 7, 9]), torch.tensor([7])).exp()
    tensor([0.5000])
    """
    prepared, _ = prepare(q, k, None, score, mask, bias, None)
    return log_mass(prepared, Documents(ids, targets), backend)


def log_mass(prepared: Prepared, same: Documents, backend: str = "auto") -> Tensor:
    """The same of queries and keys that are prepared; `same`: which keys are of the token that a query names."""
    same.check(prepared.grid)
    name = choose(prepared) if backend == "auto" else _named(prepared, backend)
    with own_precision(prepared.q):
        return BACKENDS[name].compute(prepared, same)


def plain(prepared: Prepared, same: Documents) -> Tensor:
    """The definition: the whole map at once, T x S."""
    precise = prepared.precise()
    everywhere = precise.index(slice(None), precise.grid.T), precise.index(slice(None), precise.grid.S)
    mass: Tensor = _LogMass.apply(precise.scores(), same.allowed(*everywhere, precise.grid))
    return mass


def stream(prepared: Prepared, same: Documents) -> Tensor:
    """Some rows at a time, computed again on the way back: for every score, mask and bias, on any device."""
    precise = prepared.precise()
    found = [_walk(part, same.part(lead), lead) for lead, part in parts(precise)]
    lead = prepared.grid.lead
    return found[0] if len(found) == 1 else torch.stack(found).reshape(*lead, prepared.grid.T)


class Kernel(NamedTuple):
    """A way to compute it, and a function that says in words why it cannot serve a request (None: it can)."""

    compute: Callable[[Prepared, Documents], Tensor]
    refuses: Callable[[Prepared], str | None] = lambda prepared: None


BACKENDS = MappingProxyType(
    {
        "plain": Kernel(plain),
        "stream": Kernel(stream),
        "triton": Kernel(copy.compute, copy.refuses),
    }
)


# so many weights are held, half a gigabyte with what they need: calls are quicker without only beyond
HELD = {"cuda": 2**25}


def most_held(device: torch.device) -> int:
    """How many weights had better be held there."""
    return HELD.get(device.type, SMALL)


def choose(prepared: Prepared) -> str:
    """The backend that "auto" picks, by shapes and kinds alone."""
    grid = prepared.grid
    held = prod(grid.lead) * grid.T * grid.S * prepared.score.pair_size(prepared.k)
    if held <= most_held(prepared.q.device):
        return "plain"
    served = copy.refuses(prepared) is None and prepared.q.device.type == "cuda"
    return "triton" if served else "stream"


def _named(prepared: Prepared, backend: str) -> str:
    """The backend of this name, if there is one and it serves the request."""
    if backend not in BACKENDS:
        raise unknown(backend, ["auto", *BACKENDS], kind="backend", where="copied")
    if why := BACKENDS[backend].refuses(prepared):
        able = ", ".join(repr(name) for name, kernel in BACKENDS.items() if kernel.refuses(prepared) is None)
        raise BackendError(
            f"a request that backend {backend!r} cannot serve: {why}",
            f"one of the backends {able}, or 'auto'",
            where="copied",
        )
    return backend


def _walk(part: Prepared, same: Mask, lead: tuple[slice, ...]) -> Tensor:
    """ln mass (..., T) of a part of the leading dimensions, by blocks of rows; those left out see no key."""
    done, at = [], 0
    nothing = part.q[..., :0, :].sum() + part.k[..., :0, :].sum() - torch.inf  # with a zero gradient
    for block in blocks(lead, part):
        done.append(nothing.expand(*part.grid.lead, block.rows.start - at))
        done.append(checkpoint(_block, part, same, block, use_reentrant=False, preserve_rng_state=False))
        at = block.rows.stop
    done.append(nothing.expand(*part.grid.lead, part.grid.T - at))
    return torch.cat(done, -1)


def _block(part: Prepared, same: Mask, block: Block) -> Tensor:
    rows, cols = part.index(block.rows, part.grid.T), part.index(block.cols, part.grid.S)
    scores = part.scores(block.rows, block.cols, block.inner)
    mass: Tensor = _LogMass.apply(scores, same.allowed(rows, cols, part.grid))
    return mass


class _LogMass(torch.autograd.Function):
    """ln of what own keys get of the softmax of scores (..., t, s), -inf where one may not look. `own`: which they are.

    Own keys and others have a softmax each, so that neither is lost beside the other. The slopes are as many as the
    scores and all that is kept.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, own: Tensor) -> Tensor:
        if not scores.size(-1):
            ctx.save_for_backward(scores, own)
            return scores.new_full(scores.shape[:-1], -torch.inf)
        own = own.expand_as(scores)
        mine, rest = scores.masked_fill(~own, -torch.inf), scores.masked_fill(own, -torch.inf)
        peaks = [x.amax(-1, keepdim=True) for x in (mine, rest)]
        powers = [x.sub_(_finite(peak)).exp_() for x, peak in zip((mine, rest), peaks, strict=True)]
        totals = [x.sum(-1, keepdim=True) for x in powers]
        absent, alone = (total == 0 for total in totals)
        above = _finite(peaks[0]) - _finite(peaks[1]) + totals[0].log() - totals[1].log()
        above = above.masked_fill(alone, torch.inf).masked_fill(absent, -torch.inf)
        mass = torch.nn.functional.logsigmoid(above)
        others = (-above).sigmoid().masked_fill_(absent, 0.0)
        slopes = [others / total.masked_fill_(total == 0, 1.0) for total in totals]
        ctx.save_for_backward(powers[0].mul_(slopes[0]).sub_(powers[1].mul_(slopes[1])), absent)
        return mass.squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        slopes, absent = ctx.saved_tensors
        if not slopes.size(-1):
            return slopes, None
        return slopes * grad.unsqueeze(-1).masked_fill(absent, 0.0), None


def _finite(peak: Tensor) -> Tensor:
    return peak.masked_fill(peak == -torch.inf, 0.0)
