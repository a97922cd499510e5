"""The backends "triton" and "triton-fused": fused (FlashAttention-like) attention that also reports statistics.

"triton-fused" computes output, log-sum-exp, entropy and maxima of classes of keys in one pass of our own; "triton"
leaves the output to the vendor's kernel. The weight each key received, the thumbnail and the top-k weights come from a
second pass that recomputes the scores. On Hopper both passes have twins in Gluon (kernels/hopper). Memory is linear.

Both are operators of torch.library, so that torch.compile, autograd and export know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import AttentionInputs
from regard.attention.kernels import sdpa, spans
from regard.attention.kernels.devices import INTERPRETED, on_device, triton_unsupported_reason
from regard.attention.kernels.shapes import as_bhtd
from regard.attention.kernels.spans import Spans
from regard.attention.normalise import Softmax
from regard.attention.observe import Attended, Observe, Top, attention_statistics
from regard.attention.scores import Dot

HALF_DTYPES = (torch.bfloat16, torch.float16)
MAX_WIDTH = 256
MAX_HEADS = 65535  # the largest grid of programs
MAX_TRACED_TOP = 8  # up to this k, the forward pass leaves the class maxima that the top-k search starts from
FEW_QUERIES, MANY_KEYS = 64, 512  # of the heads that share keys: then the keys are divided among programs
SCALE_RANGE = (1e-4, 1e4)  # a hidden key's score, scaled by these, is still finite and hidden


def unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why "triton-fused" cannot serve the request; None: it can."""
    k, precisions = prepared.k, (*HALF_DTYPES, torch.float32) if INTERPRETED else HALF_DTYPES
    if why := dot_unsupported_reason(prepared, precisions):
        return why
    if prepared.window is not None:
        return "it has no predicted window"
    if dropout > 0:
        return "it draws no dropout"
    if v.dtype not in precisions:
        return f"it computes in bfloat16 and float16, and got {v.dtype}"
    if v.size(-1) != k.size(-1):
        return f"it needs values as wide as keys, and got {v.size(-1)} and {k.size(-1)}"
    return None


def dot_unsupported_reason(prepared: AttentionInputs, precisions: tuple[torch.dtype, ...]) -> str | None:
    """Why kernels for dot products in these precisions cannot take its queries, keys and mask; None: they can."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    if not isinstance(prepared.score, Dot):
        return f"it computes dot products, and {type(prepared.score).__name__} is none"
    if why := triton_unsupported_reason(q):
        return why
    if prepared.bias is not None:
        return "it adds no bias"
    if not isinstance(prepared.normalise, Softmax):
        return f"it computes a softmax, and got {prepared.normalise!r}"
    if prepared.score.cap is not None:
        return "it has no soft cap"
    if not {q.dtype, k.dtype} <= set(precisions):
        named = " and ".join(str(one).removeprefix("torch.") for one in precisions)
        return f"it computes in {named}, and got {q.dtype}"
    if not 1 <= k.size(-1) <= MAX_WIDTH:
        return f"it takes keys of a width up to {MAX_WIDTH}, and got {k.size(-1)}"
    if 0 in (grid.T, grid.S, *grid.lead):
        return "it needs at least one query and one key"
    if prod(grid.lead) > MAX_HEADS:
        return f"it takes {MAX_HEADS} heads of all rows together at most, and got {prod(grid.lead)}"
    if not SCALE_RANGE[0] <= prepared.score.scale(k.size(-1)) <= SCALE_RANGE[1]:
        return f"it needs a scale from {SCALE_RANGE[0]} to {SCALE_RANGE[1]}, and got {prepared.score.scale(k.size(-1))}"
    return spans.unsupported_reason(prepared.mask)


def vendor_unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why "triton" cannot serve the request: what the vendor's kernel or the statistics pass cannot do."""
    why = sdpa.unsupported_reason(prepared, v, dropout) or unsupported_reason(prepared, v, 0.0)
    if why is None and sdpa.mask_size(prepared):
        return "the vendor's kernel would need this mask written out; 'triton-fused' does not"
    return why


def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output, log-sum-exp and statistics by our own kernels."""
    request = Request.of(prepared, v)
    grid = prepared.grid
    if request.is_decoding:
        return request.decode(observe)
    top = observe.top if observe.top <= MAX_TRACED_TOP else 0
    output, lse, entropy, class_maxima, argmax = _forward(*request.tensors(), *request.scalars(), observe.entropy, top)
    found = request.statistics(observe, lse.detach(), class_maxima, argmax)
    if observe.entropy:
        found["entropy"] = entropy.reshape(*grid.lead, grid.T)
    shape = (*grid.lead, grid.T)
    return Attended(output.reshape(*shape, v.size(-1)), lse.reshape(shape), "triton-fused", **found)


def compute_vendor(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output and log-sum-exp by the vendor's kernel, statistics by ours."""
    got = sdpa.compute(prepared, v, dropout, Observe())
    found: dict[str, Any] = {}
    if observe.statistics:
        with torch.no_grad():
            found = recompute_statistics(prepared, v, got.lse, observe)
    return Attended(got.output, got.lse, "triton", **found)


def recompute_statistics(prepared: AttentionInputs, v: Tensor, lse: Tensor, observe: Observe) -> dict[str, Any]:
    """Statistics of what another kernel computed. Entropy and class maxima come from our forward pass, and then its own
    log-sum-exp goes with them."""
    request = Request.of(prepared, v)
    grid = prepared.grid
    top = observe.top if observe.top <= MAX_TRACED_TOP else 0
    nothing = lse.new_empty(0)
    flat, class_maxima, argmax, entropy = lse.detach().reshape(request.q.shape[:3]), nothing, nothing.long(), nothing
    if observe.entropy or top:
        _, flat, entropy, class_maxima, argmax = _forward(*request.tensors(), *request.scalars(), observe.entropy, top)
    found = request.statistics(observe, flat, class_maxima, argmax)
    if observe.entropy:
        found["entropy"] = entropy.reshape(*grid.lead, grid.T)
    return found


@dataclass(frozen=True, eq=False)
class Request:
    """The request as the kernels take it: (B, H, T, D), runs of keys, one scale."""

    q: Tensor
    k: Tensor
    v: Tensor
    spans: Spans
    scale: float
    lead: tuple[int, ...]

    @classmethod
    def of(cls, prepared: AttentionInputs, v: Tensor) -> Request:
        assert isinstance(prepared.score, Dot)
        q, k, v = as_bhtd(prepared, v)
        return cls(
            q, k, v, Spans.of(prepared.mask, prepared.grid), prepared.score.scale(k.size(-1)), prepared.grid.lead
        )

    @property
    def is_decoding(self) -> bool:
        """Whether this is a decoding step: a few queries, a long KV cache, and no gradient."""
        (_, H, T, _), (heads, S) = self.q.shape, self.k.shape[1:3]
        learns = torch.is_grad_enabled() and any(x.requires_grad for x in (self.q, self.k, self.v))
        return not learns and H // heads * T <= FEW_QUERIES and max(MANY_KEYS, 64 * T) <= S

    def decode(self, observe: Observe) -> Attended:
        """A few queries against a long KV cache: their scores fit in memory, and statistics follow by definition."""
        output, lse, scores = _decode(*self.tensors(), *self.scalars(), observe.statistics)
        shape = (*self.lead, self.q.size(2))
        found: Mapping[str, Any] = {}
        if observe.statistics:
            hidden = scores == -torch.inf
            weights = (scores - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1)).exp().clamp_(max=1.0)
            full = (*shape, scores.size(-1))
            found = attention_statistics(weights.reshape(full), hidden.reshape(full), replace(observe, weights=False))
        return Attended(output.reshape(*shape, -1), lse.reshape(shape), "triton-fused", **found)

    def tensors(self) -> tuple[Tensor | None, ...]:
        s = self.spans
        return self.q, self.k, self.v, s.lo, s.hi, s.query_docs, s.key_docs

    def scalars(self) -> tuple[int, int, float]:
        return self.spans.shift_lo, self.spans.shift_hi, self.scale

    def statistics(self, observe: Observe, lse: Tensor, class_maxima: Tensor, argmax: Tensor) -> dict[str, Any]:
        """The fields of an Attended that the second pass computes; lse (B, H, T)."""
        if not (observe.top or observe.received or observe.thumbnail):
            return {}
        mask_tensors, (R, C) = self.tensors()[3:], observe.thumbnail or (0, 0)
        q, k, values, indices = self.q.detach(), self.k.detach(), class_maxima, argmax
        top = 0 if observe.top == 1 else observe.top  # top 1 came with the output
        if top or observe.received or observe.thumbnail:
            received, thumbnail, top_values, top_keys = _statistics(
                q, k, lse, class_maxima, *mask_tensors, *self.scalars(), observe.received, R, C, top
            )
            values, indices = (top_values, top_keys) if top else (values, indices)
        T, S, found = self.q.size(2), self.k.size(2), {}
        if observe.received:
            found["received"] = received.reshape(*self.lead, S)
        if observe.thumbnail:
            found["thumbnail"] = thumbnail.reshape(*self.lead, *thumbnail.shape[2:])
        if observe.top:
            shape = (*self.lead, T, observe.top)
            found["top"] = Top(values.reshape(shape), indices.reshape(shape))
        return found


@torch.library.custom_op("regard::attend", mutates_args=())
def _forward(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, entropy: bool, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """output (B, H, T, D), lse, entropy (B, H, T), and the largest weight with its key, both (B, H, T, 1), or the
    maxima of 16 classes of keys (B, H, T, 16); what is not requested is empty."""
    from regard.attention.kernels.triton import dispatch as launch

    seen = Spans(shift_lo, shift_hi, lo, hi, query_docs, key_docs)
    with on_device(q):
        return launch.forward(q, k, v, seen, scale, entropy, top)


@_forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, entropy: bool, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    B, H, T, _ = q.shape
    output = q.new_empty(B, T, H, v.size(-1)).transpose(1, 2)
    lse = q.new_empty(B, H, T, dtype=torch.float32)
    return (
        output,
        lse,
        torch.empty_like(lse) if entropy else lse.new_empty(0),
        lse.new_empty((B, H, T, 16 if top > 1 else 1) if top else (0,)),
        lse.new_empty((B, H, T, 1) if top == 1 else (0,), dtype=torch.int64),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, lo, hi, query_docs, key_docs, shift_lo, shift_hi, scale, _, _ = inputs
    ctx.save_for_backward(q, k, v, output[0], output[1], lo, hi, query_docs, key_docs)
    ctx.scalars = (shift_lo, shift_hi, scale)
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    q, k, v, output, lse, *mask_tensors = ctx.saved_tensors
    if grad is None and grad_lse is None:
        return (None,) * 12
    grad = torch.zeros_like(output) if grad is None else grad
    return (*_gradients(grad, grad_lse, q, k, v, output, lse, *mask_tensors, *ctx.scalars), *(None,) * 9)


_forward.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op("regard::attend_cached", mutates_args=())
def _decode(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, wants_scores: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """output (B, H, T, D), lse (B, H, T), and with `wants_scores` the scores (B, H, T, S), for a few queries."""
    from regard.attention.kernels.triton.decode import decode

    output, lse, scores = decode(q, k, v, Spans(shift_lo, shift_hi, lo, hi, query_docs, key_docs), scale, wants_scores)
    return output, lse, lse.new_empty(0) if scores is None else scores


@_decode.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, wants_scores: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return q.new_empty(q.shape), lse, lse.new_empty((*lse.shape, k.size(2)) if wants_scores else (0,))


@torch.library.custom_op("regard::attend_gradients", mutates_args=())
def _gradients(
    grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v."""
    from regard.attention.kernels.triton import dispatch as launch

    seen = Spans(shift_lo, shift_hi, lo, hi, query_docs, key_docs)
    with on_device(q):
        return launch.gradients(grad, grad_lse, q, k, v, output, lse, seen, scale)


@_gradients.register_fake
def _(
    grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@torch.library.custom_op("regard::attend_statistics", mutates_args=())
def _statistics(
    q: Tensor, k: Tensor, lse: Tensor, class_maxima: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, received: bool, rows: int, cols: int, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """received (B, H, S), thumbnail (B, H, R, C), and the top-k weights (B, H, T, top) with their keys; what is not
    requested is empty."""
    from regard.attention.kernels.triton import statistics_pass as launch

    seen = Spans(shift_lo, shift_hi, lo, hi, query_docs, key_docs)
    with on_device(q):
        wanted = launch.RequestedStatistics(received, rows, cols, top)
        return launch.statistics(q, k, lse, class_maxima, seen, scale, wanted)


@_statistics.register_fake
def _(
    q: Tensor, k: Tensor, lse: Tensor, class_maxima: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, received: bool, rows: int, cols: int, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    B, H, T, _ = q.shape
    S = k.size(2)
    cells = (B, H, min(rows, T), min(cols, S)) if rows else (0,)
    shape_top = (B, H, T, top) if top else (0,)
    return (
        lse.new_empty((B, H, S) if received else (0,)),
        lse.new_empty(cells),
        lse.new_empty(shape_top),
        lse.new_empty(shape_top, dtype=torch.int64),
    )
