"""START HERE. Attention (Bahdanau 2015; scaled dot-product attention, Vaswani 2017) is a weighted average of values:
score every key against every query, turn the scores into weights that sum to one, average the values.

    w = softmax(score(q, k) + bias)        over the keys that the mask allows
    output = w v

`plain` below is that sentence in code and the definition that every other backend is tested against; `attend` calls all
of them.
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
from regard.attention.inputs import AttentionInputs, autocast_disabled, prepare, repeat_kv
from regard.attention.kernels import fused, recurrent, sdpa, stream
from regard.attention.kernels.planned import keep_plan, kind_of, planned
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.kernels.spans import needs_bits
from regard.attention.kernels.triton import additive as triton_additive
from regard.attention.masks import All, Keys, Mask
from regard.attention.normalise import Normaliser, Sink
from regard.attention.observe import Attended, Observe, attention_statistics
from regard.attention.scores import Additive, Score
from regard.attention.transforms import active_transforms
from regard.attention.windows import LocalM, LocalP
from regard.errors import BackendError, DtypeError, SettingError, unknown


def plain(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The definition: the full map at once, T x S."""
    weights, lse, hidden = full_map(prepared)
    output = average(torch.nn.functional.dropout(weights, dropout), v, prepared.grid)
    found = attention_statistics(weights, hidden, observe)
    if observe.peak:
        found["peak"] = prepared.precise().scores().detach().amax(-1)
    return Attended(output, lse, "plain", **found)


def full_map(prepared: AttentionInputs) -> tuple[Tensor, Tensor, Tensor]:
    """The weights (..., T, S), their log-sum-exp (..., T), and which keys are hidden from each query (..., T, S)."""
    prepared = prepared.precise()
    scores = prepared.scores()  # (..., T, S), -inf where a key is hidden
    hidden = scores == -torch.inf
    empty = hidden.all(-1, keepdim=True)
    # a row without keys has no softmax: its weights become 0
    weights, lse = prepared.normalise.normalise(scores.masked_fill(empty, 0.0))
    weights, lse = weights.masked_fill(empty, 0.0), lse.masked_fill(empty.squeeze(-1), -torch.inf)
    if prepared.window is not None:
        weights = weights * prepared.window_weight()  # Luong's equation 10: not renormalised
    return weights, lse, hidden


def average(weights: Tensor, v: Tensor, grid: Grid) -> Tensor:
    """sum_j w_j v_j for every query, (..., T, Dv), computed in the precision of the weights."""
    return (weights @ repeat_kv(v, grid).to(weights.dtype)).to(v.dtype)


def attend(
    q: Tensor,
    k: Tensor | PreparedKeys,
    v: Tensor | None = None,
    *,
    score: Score | object | None = None,
    mask: Mask | None = None,
    bias: Bias | object | None = None,
    window: LocalM | LocalP | None = None,
    normalise: Normaliser | None = None,
    dropout: float = 0.0,
    observe: Observe | None = None,
    backend: str = "auto",
) -> Attended:
    """The weighted average of the values v for each query q, by the score of the query with each key k.

    q (..., T, Dq), k (..., S, Dk), v (..., S, Dv), by default v = k; leading dimensions broadcast. With four or more
    dimensions, the third from the end is heads, and keys may have fewer (grouped-query attention): query head h reads
    key head h // (Hq / Hk). PreparedKeys, for queries that come one after another, replace k, v, score and mask.

    score    a Score, or a callable (q, k) -> (..., T, S) that depends on each pair alone; default ScaledDot()
    mask     which keys each query may see; default Everything()
    bias     added to the scores: DenseBias, Alibi, Relative, or any object with tile(rows, cols)
    window   Luong's local attention: LocalM, LocalP
    normalise  how a row of scores becomes weights: Softmax(), Sink(logits), Sparsemax(), Entmax(1.5); default Softmax()
    observe  what to report beside output and lse; it never changes one bit of them
    backend  "auto", or one of BACKENDS; `Attended.backend` and `choose` say what auto picked

    >>> got = attend(torch.eye(2), torch.eye(2), score=Dot(), observe=Observe(weights=True))
    >>> got.weights.sum(-1)
    tensor([1., 1.])
    """
    observe = Observe() if observe is None else observe
    if not isinstance(observe, Observe):
        raise DtypeError(f"observe={observe!r}", "an Observe(...)", where="attend")
    kind = None
    if isinstance(q, Tensor) and isinstance(k, Tensor) and bias is None and window is None and normalise is None:
        kind = kind_of(q, k, k if v is None else v, score, mask, observe, backend) if dropout == 0 else None
        if kind is not None and (plan := planned(kind)) is not None:
            return plan.run(q, k, k if v is None else v, mask)
    prepared, v = _prepare_inputs(q, k, v, score, mask, bias, window, normalise, dropout)
    name, _ = _select_backend(prepared, v, dropout, backend, isinstance(k, PreparedKeys))
    if kind is not None and isinstance(k, Tensor):
        keep_plan(kind, prepared, q, k, v, name, observe)
    with autocast_disabled(v):
        got = _BACKENDS[name].compute(prepared, v, dropout, observe)
        if isinstance(prepared.normalise, Sink) and got.sink is None:
            got = replace(got, sink=prepared.normalise.sink(got.lse))
        if observe.weights and got.weights is None:
            # those of the definition, whatever computed the output: their average is its output
            got = replace(got, weights=full_map(prepared)[0])
        return got.with_inputs(prepared, v, observe)


@dataclass(frozen=True)
class BackendChoice:
    """Which backend serves a request, the reason, and why the unsupported ones cannot."""

    backend: str
    reason: str
    unsupported: dict[str, str]


def choose(
    q: Tensor,
    k: Tensor | PreparedKeys,
    v: Tensor | None = None,
    *,
    score: Score | object | None = None,
    mask: Mask | None = None,
    bias: Bias | object | None = None,
    window: LocalM | LocalP | None = None,
    normalise: Normaliser | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> BackendChoice:
    """The backend that `attend` would pick for the same request, without computing it."""
    prepared, v = _prepare_inputs(q, k, v, score, mask, bias, window, normalise, dropout)
    chosen = _select_backend(prepared, v, dropout, backend, isinstance(k, PreparedKeys))
    return BackendChoice(*chosen, _unsupported_reasons(prepared, v, dropout))


def _prepare_inputs(
    q: Tensor,
    k: Tensor | PreparedKeys,
    v: Tensor | None,
    score: object,
    mask: Mask | None,
    bias: object,
    window: LocalM | LocalP | None,
    normalise: object,
    dropout: float,
) -> tuple[AttentionInputs, Tensor]:
    """The inputs of a kernel, checked and prepared, and the values."""
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise SettingError(f"dropout={dropout!r}", "a share of at least 0 and below 1", where="attend")
    if not isinstance(k, PreparedKeys):
        return prepare(q, k, v, score, mask, bias, window, normalise)
    if v is not None or score is not None or mask is not None or bias is not None:
        raise SettingError(
            "PreparedKeys hold their values, score and mask already",
            where="attend",
            advice="Pass those to PreparedKeys.of, and here the queries and a window alone; a bias is not supported.",
        )
    return k.inputs(q, window, normalise), k.values


def _no_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    return None


class Backend(NamedTuple):
    """A way to compute the average, and a function that says why it cannot serve a request (None: it can)."""

    compute: Callable[[AttentionInputs, Tensor, float, Observe], Attended]
    unsupported_reason: Callable[[AttentionInputs, Tensor, float], str | None] = _no_reason


def _by_triton(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    additive = isinstance(prepared.score, Additive)
    return (triton_additive.compute if additive else fused.compute_vendor)(prepared, v, dropout, observe)


def _by_sdpa(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    table = prepared.q.is_cuda and observe.statistics and needs_bits(prepared.mask)
    if table and fused.unsupported_reason(prepared, v, 0.0) is None:  # far quicker than the second pass of sdpa
        return replace(fused.compute_vendor(prepared, v, dropout, observe), backend=sdpa.NAME)
    return sdpa.compute(prepared, v, dropout, observe)


def _triton_unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    additive = isinstance(prepared.score, Additive)
    return (triton_additive.unsupported_reason if additive else fused.vendor_unsupported_reason)(prepared, v, dropout)


_BACKENDS = {  # read here: torch.compile does not trace a MappingProxyType where some dict is changed
    "plain": Backend(plain),
    "sdpa": Backend(_by_sdpa, sdpa.unsupported_reason),
    "stream": Backend(stream.compute),
    "recurrent": Backend(recurrent.compute, recurrent.unsupported_reason),
    "triton": Backend(_by_triton, _triton_unsupported_reason),
    "triton-fused": Backend(fused.compute, fused.unsupported_reason),
}
BACKENDS = MappingProxyType(_BACKENDS)

PLAIN_LIMIT = 2**22  # numbers: a map up to this size is faster at once than in blocks
LIMIT = f"at most {PLAIN_LIMIT:,} numbers"
MASK_LIMIT = 2**24  # numbers: a mask up to this size may be materialised for a fused kernel


def _select_backend(prepared: AttentionInputs, v: Tensor, dropout: float, backend: str, step: bool) -> tuple[str, str]:
    """The backend, and why. The choice looks at shapes and kinds alone, never at what is observed, so observing cannot
    change the output. `step`: a step of a decoder, whose keys were prepared before."""
    if backend != "auto":
        return _backend_named(prepared, v, dropout, backend), "requested by name"

    def serves(name: str) -> bool:
        return _unsupported_reason(name, prepared, v, dropout) is None

    if transforms := active_transforms():
        return "plain", f"only the definition serves every transform, and this is inside {' of '.join(transforms)}"
    if step:
        if serves("recurrent"):
            return "recurrent", "keys that were prepared for one query after another"
        return "plain", "the definition is the only other one that takes prepared keys step by step"
    grid = prepared.grid
    if prepared.q.device.type == "cuda":
        long = fused.is_worth_it(prepared) and serves("triton-fused")
        if not long and serves("triton"):
            return "triton", "a score and a mask that have kernels"
        table = needs_bits(prepared.mask) and not _has_keys(prepared.mask)  # one that sdpa is made for, if it is small
        small = table and serves("sdpa") and sdpa.mask_size(prepared) <= MASK_LIMIT
        if not small and (long or serves("triton-fused")):
            return "triton-fused", "dot products, which our own kernels take with any mask"
    by_sdpa = serves("sdpa")
    if by_sdpa and sdpa.mask_size(prepared) <= MASK_LIMIT:
        return "sdpa", "dot products, and a mask that the fused kernel takes"
    held = prod(grid.lead) * grid.T * grid.S * prepared.score.pair_size(prepared.k)
    why = "its mask is too large to materialise" if by_sdpa else "no fused kernel serves it"
    # the number itself would stand in a compiled graph, which would serve no other
    if held <= PLAIN_LIMIT:
        return "plain", f"{why}, and its map is small enough to hold: {LIMIT}"
    return "stream", f"{why}, and its map is too large to hold at once: not {LIMIT}"


def _has_keys(mask: Mask) -> bool:
    """Whether sparse keys are part of a mask."""
    return isinstance(mask, Keys) or (isinstance(mask, All) and any(map(_has_keys, mask.masks)))


def _backend_named(prepared: AttentionInputs, v: Tensor, dropout: float, backend: str) -> str:
    """The backend of this name, if there is one and it serves the request."""
    if backend not in BACKENDS:
        raise unknown(backend, ["auto", *BACKENDS], kind="backend", where="attend")
    if _unsupported_reason(backend, prepared, v, dropout) is not None:
        unsupported = _unsupported_reasons(prepared, v, dropout)
        able = ", ".join(repr(name) for name in BACKENDS if name not in unsupported)
        raise BackendError(
            f"Backend {backend!r} cannot serve this request: {unsupported[backend]}",
            where="attend",
            advice=f"Use one of {able}, or 'auto'.",
        )
    return backend


def _unsupported_reason(name: str, prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why a backend cannot serve the request; None: it can."""
    transforms = active_transforms()
    if transforms and name != "plain" and not (name == "sdpa" and set(transforms) == {"vmap"}):
        return f"it is not made for transforms of torch.func, and this is inside {' of '.join(transforms)}"
    return _BACKENDS[name].unsupported_reason(prepared, v, dropout)


def _unsupported_reasons(prepared: AttentionInputs, v: Tensor, dropout: float) -> dict[str, str]:
    """Why each backend that cannot serve the request cannot."""
    reasons = {name: _unsupported_reason(name, prepared, v, dropout) for name in BACKENDS}
    return {name: reason for name, reason in reasons.items() if reason is not None}
