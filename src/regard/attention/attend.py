"""START HERE. Attention is a weighted average: score every key against every query, turn the scores into weights
that sum to one, average the values.

    w = softmax(score(q, k) + bias)        over the keys that the mask allows
    output = w v

`plain` below is that sentence in code and the truth for every other backend; `attend` is the one door to all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention import reach
from regard.attention.biases import Bias, as_bias
from regard.attention.grid import Grid
from regard.attention.kernels import fused, sdpa, stream, triton_additive
from regard.attention.masks import Mask, as_mask
from regard.attention.observe import Attended, Observe, describe
from regard.attention.prepared import Prepared, grouped, share_heads, working
from regard.attention.scores import Additive, Score, as_score
from regard.attention.windows import LocalM, LocalP, as_window
from regard.errors import BackendError, DeviceError, DtypeError, SettingError, ShapeError, unknown


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
    k: Tensor,
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
    prepared, v, dropout = prepare(q, k, v, score, mask, bias, window, dropout)
    name, _ = _choose(prepared, v, dropout, backend)
    with own_precision(v):
        got = BACKENDS[name].compute(prepared, v, dropout, observe)
        return told_more(got, prepared, v, observe)


def told_more(got: Attended, prepared: Prepared, v: Tensor, observe: Observe) -> Attended:
    """What was attended, with what it was computed from, as far as that is asked for.

    Whole weights are those of the definition, whatever computed the output: handed back, they give its average.
    """
    if observe.weights and got.weights is None:
        got = replace(got, weights=whole_map(prepared)[0])
    if not observe.prepared and not observe.values:
        return got
    return replace(
        got,
        prepared=prepared.kept(got.lse) if observe.prepared else None,
        values=v.detach() if observe.values else None,
    )


def own_precision(x: Tensor) -> AbstractContextManager[object]:
    """The precision is the inputs' own (see `working`): autocast, where it is on, is switched off inside."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


@dataclass(frozen=True)
class Choice:
    """Which backend serves a request, why, and what the others say they cannot do."""

    backend: str
    because: str
    refused: dict[str, str]


def choose(
    q: Tensor,
    k: Tensor,
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
    prepared, v, dropout = prepare(q, k, v, score, mask, bias, window, dropout)
    return Choice(*_choose(prepared, v, dropout, backend), _refused(prepared, v, dropout))


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
        "triton": Kernel(_by_triton, _triton_refuses),
        "triton-fused": Kernel(fused.compute, fused.refuses),
    }
)

SMALL = 2**22  # numbers: a map of this size is quicker to hold than to walk through
MASKED = 2**24  # numbers: a mask of this size may be written out for a fused kernel
LONG = 8192  # queries and keys from which on our own kernel is as quick as the vendor's (measured on an H200),
LONG_64 = 4096  # and the same for vectors of 64


def _choose(prepared: Prepared, v: Tensor, dropout: float, backend: str) -> tuple[str, str]:
    """The backend, and why. The choice looks at shapes and kinds alone, never at what is observed, so observing cannot
    change the output."""
    if backend != "auto":
        return _named(prepared, v, dropout, backend), "asked for by name"

    def serves(name: str) -> bool:
        return BACKENDS[name].refuses(prepared, v, dropout) is None

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


def prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor | None,
    score: object,
    mask: Mask | None,
    bias: object,
    window: object,
    dropout: float,
) -> tuple[Prepared, Tensor, float]:
    """Check everything, clean what nobody may look at, and let the score prepare queries and keys."""
    v = k if v is None else v
    check_tensors(q, k, v)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise SettingError(f"dropout={dropout!r}", "a share of at least 0 and below 1", where="attend")
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
    return Prepared(asked, asking, keys, where, added, near, aim, grid), v, dropout


def _clean(raw: Prepared, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros for queries that look nowhere and keys that nobody sees: they may hold NaN or inf, and 0 x NaN is NaN.

    On the CPU a glance at the largest numbers tells if nothing needs cleaning; elsewhere it would wait for the device,
    and while a graph is compiled there are no numbers.
    """
    q, k, grid = raw.q, raw.k, raw.grid
    more_hides = raw.window is not None or not raw.score.finite or not (raw.bias is None or raw.bias.finite)
    calm = not more_hides and reach.all_take_part(raw.mask, grid)
    at_hand = q.device.type == "cpu" and not torch.compiler.is_compiling()
    if calm or (at_hand and all(map(_tame, (q, k, v)))):
        return q, k, v
    looks, seen = reach.looks_and_seen(raw.mask, grid)
    q = torch.where(looks.unsqueeze(-1), q, 0.0)
    if more_hides:
        with torch.no_grad():
            aim = None if raw.window is None else raw.window.aim(q).to(working(q.dtype))
            looks, seen = reach.looks_and_seen(raw.mask, grid, more=replace(raw, q=q, aim=aim).shown)
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
