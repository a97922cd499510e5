"""Copy attention (pointer networks): the log-probability of copying a token, by the weights of its keys.

    ln sum_j w_j [ids_j = target]  =  ln sigmoid(lse of the keys that are the target - lse of the others)

Keys stand for tokens, so the weights are a distribution over tokens. Training a model that copies needs only the
probability of the target token, so the map, T x S, is never held: neither here nor in the backward pass.
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

from regard.attention.attend import PLAIN_LIMIT
from regard.attention.inputs import AttentionInputs, autocast_disabled, prepare
from regard.attention.kernels.row_blocks import Block, blocks, lead_parts
from regard.attention.kernels.triton import copy
from regard.attention.masks import Documents, Mask
from regard.attention.scores import Score
from regard.errors import BackendError, unknown


def copy_log_prob(
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
    """ln of the weight (..., T) that attend(q, k, ...) gives to all keys of each query's target token.

    ids (S,) or (B, S): the token of each key; targets (T,) or (B, T): the target of each query. -inf, and a gradient of
    zero, where the query sees no key of that token. `backend`: "auto", or one of BACKENDS.

    >>> copy_log_prob(torch.zeros(1, 2), torch.zeros(4, 2), torch.tensor([7, 8, 7, 9]), torch.tensor([7])).exp()
    tensor([0.5000])
    """
    prepared, _ = prepare(q, k, None, score, mask, bias, None)
    return log_mass(prepared, Documents(ids, targets), backend)


def log_mass(prepared: AttentionInputs, same: Documents, backend: str = "auto") -> Tensor:
    """The same for prepared queries and keys; `same`: which keys are of the target token of each query."""
    same.check(prepared.grid)
    name = choose_copy_backend(prepared) if backend == "auto" else _named(prepared, backend)
    with autocast_disabled(prepared.q):
        return BACKENDS[name].compute(prepared, same)


def plain(prepared: AttentionInputs, same: Documents) -> Tensor:
    """The definition: the full map at once, T x S."""
    precise = prepared.precise()
    everywhere = precise.index(slice(None), precise.grid.T), precise.index(slice(None), precise.grid.S)
    mass: Tensor = _LogMass.apply(precise.scores(), same.allowed(*everywhere, precise.grid))
    return mass


def stream(prepared: AttentionInputs, same: Documents) -> Tensor:
    """Some rows at a time, recomputed in the backward pass: for every score, mask and bias, on any device."""
    precise = prepared.precise()
    masses = [_by_row_blocks(part, same.part(lead), lead) for lead, part in lead_parts(precise)]
    lead = prepared.grid.lead
    return masses[0] if len(masses) == 1 else torch.stack(masses).reshape(*lead, prepared.grid.T)


class CopyBackend(NamedTuple):
    """A way to compute it, and a function that says why it cannot serve a request (None: it can)."""

    compute: Callable[[AttentionInputs, Documents], Tensor]
    unsupported_reason: Callable[[AttentionInputs], str | None] = lambda prepared: None


BACKENDS = MappingProxyType(
    {
        "plain": CopyBackend(plain),
        "stream": CopyBackend(stream),
        "triton": CopyBackend(copy.compute, copy.unsupported_reason),
    }
)


# weights to materialise at most, half a gigabyte with what they need: below, that is faster
MATERIALIZE_LIMITS = {"cuda": 2**25}


def max_materialized(device: torch.device) -> int:
    """How many weights to materialise at most on this device."""
    return MATERIALIZE_LIMITS.get(device.type, PLAIN_LIMIT)


def choose_copy_backend(prepared: AttentionInputs) -> str:
    """The backend that "auto" picks, by shapes and kinds alone."""
    grid = prepared.grid
    held = prod(grid.lead) * grid.T * grid.S * prepared.score.pair_size(prepared.k)
    if held <= max_materialized(prepared.q.device):
        return "plain"
    served = copy.unsupported_reason(prepared) is None and prepared.q.device.type == "cuda"
    return "triton" if served else "stream"


def _named(prepared: AttentionInputs, backend: str) -> str:
    """The backend of this name, if there is one and it serves the request."""
    if backend not in BACKENDS:
        raise unknown(backend, ["auto", *BACKENDS], kind="backend", where="copy_log_prob")
    if why := BACKENDS[backend].unsupported_reason(prepared):
        able = ", ".join(repr(name) for name, kernel in BACKENDS.items() if kernel.unsupported_reason(prepared) is None)
        raise BackendError(
            f"Backend {backend!r} cannot serve this request: {why}",
            where="copy_log_prob",
            advice=f"Use one of {able}, or 'auto'.",
        )
    return backend


def _by_row_blocks(part: AttentionInputs, same: Mask, lead: tuple[slice, ...]) -> Tensor:
    """ln mass (..., T) of a part of the leading dimensions, by blocks of rows; rows outside of blocks see no key."""
    done, at = [], 0
    nothing = part.q[..., :0, :].sum() + part.k[..., :0, :].sum() - torch.inf  # with a zero gradient
    for block in blocks(lead, part):
        done.append(nothing.expand(*part.grid.lead, block.rows.start - at))
        done.append(checkpoint(_row_block, part, same, block, use_reentrant=False, preserve_rng_state=False))
        at = block.rows.stop
    done.append(nothing.expand(*part.grid.lead, part.grid.T - at))
    return torch.cat(done, -1)


def _row_block(part: AttentionInputs, same: Mask, block: Block) -> Tensor:
    rows, cols = part.index(block.rows, part.grid.T), part.index(block.cols, part.grid.S)
    scores = part.scores(block.rows, block.cols, block.inner)
    mass: Tensor = _LogMass.apply(scores, same.allowed(rows, cols, part.grid))
    return mass


class _LogMass(torch.autograd.Function):
    """ln of the softmax weight of the keys that `match`, of scores (..., t, s), -inf where a key is hidden.

    Matching keys and the rest have a softmax each, so that neither underflows beside the other. The gradients, as many
    as the scores, are all that is saved.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, match: Tensor) -> Tensor:
        if not scores.size(-1):
            ctx.save_for_backward(scores, match)
            return scores.new_full(scores.shape[:-1], -torch.inf)
        match = match.expand_as(scores)
        matching, rest = scores.masked_fill(~match, -torch.inf), scores.masked_fill(match, -torch.inf)
        peaks = [x.amax(-1, keepdim=True) for x in (matching, rest)]
        powers = [x.sub_(_finite_or_zero(peak)).exp_() for x, peak in zip((matching, rest), peaks, strict=True)]
        totals = [x.sum(-1, keepdim=True) for x in powers]
        no_match, no_rest = (total == 0 for total in totals)
        above = _finite_or_zero(peaks[0]) - _finite_or_zero(peaks[1]) + totals[0].log() - totals[1].log()
        above = above.masked_fill(no_rest, torch.inf).masked_fill(no_match, -torch.inf)
        mass = torch.nn.functional.logsigmoid(above)
        others = (-above).sigmoid().masked_fill_(no_match, 0.0)
        grads = [others / total.masked_fill_(total == 0, 1.0) for total in totals]
        ctx.save_for_backward(powers[0].mul_(grads[0]).sub_(powers[1].mul_(grads[1])), no_match)
        return mass.squeeze(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grads, no_match = ctx.saved_tensors
        if not grads.size(-1):
            return grads, None
        return grads * grad.unsqueeze(-1).masked_fill(no_match, 0.0), None


def _finite_or_zero(peak: Tensor) -> Tensor:
    return peak.masked_fill(peak == -torch.inf, 0.0)
