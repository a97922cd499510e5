"""START HERE. Attention is a weighted average: score every key against every query, turn the scores into weights
that sum to one, average the values.

    w = softmax(score(q, k) + bias)        over the keys that the mask allows
    output = w v

`plain` below is that sentence in code and the truth for every other backend; `attend` is the one door to all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.biases import Bias
from regard.attention.grid import Grid
from regard.attention.inputs import Prepared, own_precision, prepare, share_heads
from regard.attention.kernels import fused, recurrent, sdpa, stream
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.kernels.triton import additive as triton_additive
from regard.attention.masks import Mask
from regard.attention.observe import Attended, Observe, describe
from regard.attention.scores import Additive, Score
from regard.attention.windows import LocalM, LocalP
from regard.errors import BackendError, DtypeError, SettingError, unknown


def plain(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The definition: the whole map at once, T x S."""
    weights, lse, hidden = whole_map(prepared)
    output = average(torch.nn.functional.dropout(weights, dropout), v, prepared.grid)
    return Attended(output, lse, "plain", **describe(weights, hidden, observe))


def whole_map(prepared: Prepared) -> tuple[Tensor, Tensor, Tensor]:
    """The weights (..., T, S), their log-sum-exp (..., T), and which keys a query may not see (..., T, S)."""
    prepared = prepared.precise()
    scores = prepared.scores()  # (..., T, S), -inf where a query may not look
    hidden = scores == -torch.inf
    nowhere = hidden.all(-1, keepdim=True)
    scores = scores.masked_fill(nowhere, 0.0)  # such a row has no softmax; its weights become 0 below
    weights = scores.softmax(-1).masked_fill(nowhere, 0.0)
    lse = scores.logsumexp(-1).masked_fill(nowhere.squeeze(-1), -torch.inf)
    if prepared.window is not None:
        weights = weights * prepared.gain()  # Luong's equation 10: not renormalised
    return weights, lse, hidden


def average(weights: Tensor, v: Tensor, grid: Grid) -> Tensor:
    """sum_j w_j v_j for every query, (..., T, Dv), computed in the precision of the weights."""
    return (weights @ share_heads(v, grid).to(weights.dtype)).to(v.dtype)


def attend(
    q: Tensor,
    k: Tensor | PreparedKeys,
    v: Tensor | None = None,
    *,
    score: Score | object | None = None,
    mask: Mask | None = None,
    bias: Bias | object | None = None,
    window: LocalM | LocalP | None = None,
    dropout: float = 0.0,
    observe: Observe | None = None,
    backend: str = "auto",
) -> Attended:
    """The weighted average of the values v for each query q, by how its score with each key k compares.

    q (..., T, Dq), k (..., S, Dk), v (..., S, Dv), by default v = k; leading dimensions broadcast. With four or more
    dimensions, the third from the end is heads, and keys may have fewer: query head h reads key head h // (Hq / Hk).
    PreparedKeys, for queries that come one after another, take the place of k, v, score and mask.

    score    a Score, or a callable (q, k) -> (..., T, S) that depends on each pair alone; default ScaledDot()
    mask     who may look where; default Everything()
    bias     added to the scores: DenseBias, Alibi, Relative, or any object with tile(rows, cols)
    window   Luong's local attention: LocalM, LocalP
    observe  what to report beside output and lse; it never changes one bit of them
    backend  "auto", or one of BACKENDS; `Attended.backend` and `choose` tell what auto picked

    >>> got = attend(torch.eye(2), torch.eye(2), score=Dot(), observe=Observe(weights=True))
    >>> got.weights.sum(-1)
    tensor([1., 1.])
    """
    observe = Observe() if observe is None else observe
    if not isinstance(observe, Observe):
        raise DtypeError(f"observe={observe!r}", "an Observe(...)", where="attend")
    prepared, v = _prepared(q, k, v, score, mask, bias, window, dropout)
    name, _ = _choose(prepared, v, dropout, backend, isinstance(k, PreparedKeys))
    with own_precision(v):
        got = BACKENDS[name].compute(prepared, v, dropout, observe)
        if observe.weights and got.weights is None:
            # those of the definition, whatever computed the output: handed back, they give its average
            got = replace(got, weights=whole_map(prepared)[0])
        return got.with_inputs(prepared, v, observe)


@dataclass(frozen=True)
class Choice:
    """Which backend serves a request, why, and what the others say they cannot do."""

    backend: str
    because: str
    refused: dict[str, str]


def choose(
    q: Tensor,
    k: Tensor | PreparedKeys,
    v: Tensor | None = None,
    *,
    score: Score | object | None = None,
    mask: Mask | None = None,
    bias: Bias | object | None = None,
    window: LocalM | LocalP | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Choice:
    """What `attend` would pick for the same request, without computing it."""
    prepared, v = _prepared(q, k, v, score, mask, bias, window, dropout)
    chosen = _choose(prepared, v, dropout, backend, isinstance(k, PreparedKeys))
    return Choice(*chosen, _refused(prepared, v, dropout))


def _prepared(
    q: Tensor,
    k: Tensor | PreparedKeys,
    v: Tensor | None,
    score: object,
    mask: Mask | None,
    bias: object,
    window: LocalM | LocalP | None,
    dropout: float,
) -> tuple[Prepared, Tensor]:
    """What a kernel is given: the inputs, checked and prepared, and the values."""
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise SettingError(f"dropout={dropout!r}", "a share of at least 0 and below 1", where="attend")
    if not isinstance(k, PreparedKeys):
        return prepare(q, k, v, score, mask, bias, window)
    if v is not None or score is not None or mask is not None or bias is not None:
        raise SettingError(
            "values, a score, a mask or a bias beside prepared keys",
            "queries and a window alone: PreparedKeys.of takes the others",
            where="attend",
        )
    return k.inputs(q, window), k.values


class Kernel(NamedTuple):
    """A way to compute the average, and a function that says in words why it cannot serve a request (None: it can)."""

    compute: Callable[[Prepared, Tensor, float, Observe], Attended]
    refuses: Callable[[Prepared, Tensor, float], str | None] = lambda prepared, v, dropout: None


def _by_triton(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    additive = isinstance(prepared.score, Additive)
    return (triton_additive.compute if additive else fused.compute_vendor)(prepared, v, dropout, observe)


def _triton_refuses(prepared: Prepared, v: Tensor, dropout: float) -> str | None:
    additive = isinstance(prepared.score, Additive)
    return (triton_additive.refuses if additive else fused.refuses_vendor)(prepared, v, dropout)


BACKENDS = MappingProxyType(
    {
        "plain": Kernel(plain),
        "sdpa": Kernel(sdpa.compute, sdpa.refuses),
        "stream": Kernel(stream.compute),
        "recurrent": Kernel(recurrent.compute, recurrent.refuses),
        "triton": Kernel(_by_triton, _triton_refuses),
        "triton-fused": Kernel(fused.compute, fused.refuses),
    }
)

SMALL = 2**22  # numbers: a map of this size is quicker to hold than to walk through
MASKED = 2**24  # numbers: a mask of this size may be written out for a fused kernel
LONG = 8192  # queries and keys from which on our own kernel is as quick as the vendor's (measured on an H200),
LONG_64 = 4096  # and the same for vectors of 64


def _choose(prepared: Prepared, v: Tensor, dropout: float, backend: str, step: bool) -> tuple[str, str]:
    """The backend, and why. The choice looks at shapes and kinds alone, never at what is observed, so observing cannot
    change the output. `step`: a step of a decoder, whose keys were prepared before."""
    if backend != "auto":
        return _named(prepared, v, dropout, backend), "asked for by name"

    def serves(name: str) -> bool:
        return BACKENDS[name].refuses(prepared, v, dropout) is None

    if step:
        if serves("recurrent"):
            return "recurrent", "keys that were prepared for one query after another"
        return "plain", "the definition is the only other one that takes prepared keys step by step"
    grid = prepared.grid
    if prepared.q.device.type == "cuda":
        enough = LONG_64 if prepared.k.size(-1) == 64 else LONG
        long = min(grid.T, grid.S) >= enough and serves("triton-fused")
        if not long and serves("triton"):
            return "triton", "a score and a mask that have kernels"
        if long or serves("triton-fused"):
            return "triton-fused", "dot products, and a mask that is a run of keys for each query"
    by_sdpa = serves("sdpa")
    if by_sdpa and sdpa.mask_size(prepared) <= MASKED:
        return "sdpa", "dot products, and a mask that the fused kernel takes"
    held = prod(grid.lead) * grid.T * grid.S * prepared.score.pair_size(prepared.k)
    why = "its mask is too large to write out" if by_sdpa else "no fused kernel serves it"
    if held <= SMALL:
        return "plain", f"{why}, and {held} numbers are few enough to hold"
    return "stream", f"{why}, and {held} numbers are too many to hold at once"


def _named(prepared: Prepared, v: Tensor, dropout: float, backend: str) -> str:
    """The backend of this name, if there is one and it serves the request."""
    if backend not in BACKENDS:
        raise unknown(backend, ["auto", *BACKENDS], kind="backend", where="attend")
    if BACKENDS[backend].refuses(prepared, v, dropout) is not None:
        refused = _refused(prepared, v, dropout)
        able = ", ".join(repr(name) for name in BACKENDS if name not in refused)
        raise BackendError(
            f"a request that backend {backend!r} cannot serve: {refused[backend]}",
            f"one of the backends {able}, or 'auto'",
            where="attend",
        )
    return backend


def _refused(prepared: Prepared, v: Tensor, dropout: float) -> dict[str, str]:
    """What each backend that cannot serve the request says."""
    said = {name: kernel.refuses(prepared, v, dropout) for name, kernel in BACKENDS.items()}
    return {name: reason for name, reason in said.items() if reason is not None}
