"""The backends "triton" and "triton-fused": attention that reports at the speed of a fused kernel.

"triton-fused" computes output, log-sum-exp, entropy and the traces of the largest weights in one pass of our own;
"triton" leaves the output to the vendor's kernel. What each key received, the thumbnail and the k largest weights come
from a second pass that recomputes the scores. On Hopper both passes have twins in Gluon (kernels/hopper). Memory is
linear.

Both are operators of torch.library, so that torch.compile, autograd and export know them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import Prepared
from regard.attention.kernels import sdpa, spans
from regard.attention.kernels.devices import INTERPRETED, no_kernels, on_device
from regard.attention.kernels.shapes import as_four
from regard.attention.kernels.spans import Spans
from regard.attention.observe import Attended, Observe, Top, describe
from regard.attention.scores import Dot

HALF = (torch.bfloat16, torch.float16)
WIDEST = 256
MOST_HEADS = 65535  # what a grid of programs counts to
TRACED = 8  # so many of the largest weights leave a trace in the forward pass
FEW, MANY = 64, 512  # queries of the heads that share keys, and keys: the keys are shared out among programs
SCALES = (1e-4, 1e4)  # a hidden key's score, times one of these, is still finite and hidden


def refuses(prepared: Prepared, v: Tensor, dropout: float) -> str | None:
    """Why "triton-fused" cannot serve the request, in words; None: it can."""
    k, precisions = prepared.k, (*HALF, torch.float32) if INTERPRETED else HALF
    if why := refuses_dots(prepared, precisions):
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


def refuses_dots(prepared: Prepared, precisions: tuple[torch.dtype, ...]) -> str | None:
    """Why kernels for dot products, of these precisions, cannot take its queries, keys and mask; None: they can."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    if not isinstance(prepared.score, Dot):
        return f"it computes dot products, and {type(prepared.score).__name__} is none"
    if why := no_kernels(q):
        return why
    if prepared.bias is not None:
        return "it adds no bias"
    if not {q.dtype, k.dtype} <= set(precisions):
        named = " and ".join(str(one).removeprefix("torch.") for one in precisions)
        return f"it computes in {named}, and got {q.dtype}"
    if not 1 <= k.size(-1) <= WIDEST:
        return f"it takes keys of a width up to {WIDEST}, and got {k.size(-1)}"
    if 0 in (grid.T, grid.S, *grid.lead):
        return "it needs at least one query and one key"
    if prod(grid.lead) > MOST_HEADS:
        return f"it takes {MOST_HEADS} heads of all rows together at most, and got {prod(grid.lead)}"
    if not SCALES[0] <= prepared.score.scale(k.size(-1)) <= SCALES[1]:
        return f"it needs a scale from {SCALES[0]} to {SCALES[1]}, and got {prepared.score.scale(k.size(-1))}"
    return spans.refuses(prepared.mask)


def refuses_vendor(prepared: Prepared, v: Tensor, dropout: float) -> str | None:
    """Why "triton" cannot serve the request: what the vendor's kernel or the statistics pass cannot do."""
    why = sdpa.refuses(prepared, v, dropout) or refuses(prepared, v, 0.0)
    if why is None and sdpa.mask_size(prepared):
        return "the vendor's kernel would need this mask written out; 'triton-fused' does not"
    return why


def compute(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Everything by our own kernels."""
    request = Request.of(prepared, v)
    grid = prepared.grid
    if request.is_few:
        return request.cached(observe)
    top = observe.top if observe.top <= TRACED else 0
    output, lse, entropy, strips, best = _forward(*request.tensors(), *request.numbers(), observe.entropy, top)
    found = request.observed(observe, lse.detach(), strips, best)
    if observe.entropy:
        found["entropy"] = entropy.reshape(*grid.lead, grid.T)
    shape = (*grid.lead, grid.T)
    return Attended(output.reshape(*shape, v.size(-1)), lse.reshape(shape), "triton-fused", **found)


def compute_vendor(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output and log-sum-exp by the vendor's kernel, what is observed by ours."""
    got = sdpa.compute(prepared, v, dropout, Observe())
    found: dict[str, Any] = {}
    if observe.statistics:
        with torch.no_grad():
            found = observe_again(prepared, v, got.lse, observe)
    return Attended(got.output, got.lse, "triton", **found)


def observe_again(prepared: Prepared, v: Tensor, lse: Tensor, observe: Observe) -> dict[str, Any]:
    """Statistics of what another kernel computed. Entropy and the traces of the largest weights belong to our forward
    pass, whose own log-sum-exp then goes with them."""
    request = Request.of(prepared, v)
    grid = prepared.grid
    top = observe.top if observe.top <= TRACED else 0
    nothing = lse.new_empty(0)
    flat, strips, best, entropy = lse.detach().reshape(request.q.shape[:3]), nothing, nothing.long(), nothing
    if observe.entropy or top:
        _, flat, entropy, strips, best = _forward(*request.tensors(), *request.numbers(), observe.entropy, top)
    found = request.observed(observe, flat, strips, best)
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
    def of(cls, prepared: Prepared, v: Tensor) -> Request:
        assert isinstance(prepared.score, Dot)
        q, k, v = as_four(prepared, v)
        return cls(
            q, k, v, Spans.of(prepared.mask, prepared.grid), prepared.score.scale(k.size(-1)), prepared.grid.lead
        )

    @property
    def is_few(self) -> bool:
        """Whether a few queries ask a long cache, and no gradient is wanted."""
        (_, H, T, _), (heads, S) = self.q.shape, self.k.shape[1:3]
        learns = torch.is_grad_enabled() and any(x.requires_grad for x in (self.q, self.k, self.v))
        return not learns and H // heads * T <= FEW and max(MANY, 64 * T) <= S

    def cached(self, observe: Observe) -> Attended:
        """A few queries against a long cache: their scores are few enough to hold, statistics are by definition."""
        output, lse, scores = _cached(*self.tensors(), *self.numbers(), observe.statistics)
        shape = (*self.lead, self.q.size(2))
        found: Mapping[str, Any] = {}
        if observe.statistics:
            hidden = scores == -torch.inf
            weights = (scores - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1)).exp().clamp_(max=1.0)
            whole = (*shape, scores.size(-1))
            found = describe(weights.reshape(whole), hidden.reshape(whole), replace(observe, weights=False))
        return Attended(output.reshape(*shape, -1), lse.reshape(shape), "triton-fused", **found)

    def tensors(self) -> tuple[Tensor | None, ...]:
        s = self.spans
        return self.q, self.k, self.v, s.lo, s.hi, s.asking, s.asked

    def numbers(self) -> tuple[int, int, float]:
        return self.spans.shift_lo, self.spans.shift_hi, self.scale

    def observed(self, observe: Observe, lse: Tensor, strips: Tensor, best: Tensor) -> dict[str, Any]:
        """The fields of an Attended that need the second pass; lse (B, H, T)."""
        if not (observe.top or observe.received or observe.thumbnail):
            return {}
        told, (R, C) = self.tensors()[3:], observe.thumbnail or (0, 0)
        q, k, values, places = self.q.detach(), self.k.detach(), strips, best
        again = 0 if observe.top == 1 else observe.top  # the largest alone came with the output
        if again or observe.received or observe.thumbnail:
            received, thumbnail, several, theirs = _statistics(
                q, k, lse, strips, *told, *self.numbers(), observe.received, R, C, again
            )
            values, places = (several, theirs) if again else (values, places)
        T, S, found = self.q.size(2), self.k.size(2), {}
        if observe.received:
            found["received"] = received.reshape(*self.lead, S)
        if observe.thumbnail:
            found["thumbnail"] = thumbnail.reshape(*self.lead, *thumbnail.shape[2:])
        if observe.top:
            shape = (*self.lead, T, observe.top)
            found["top"] = Top(values.reshape(shape), places.reshape(shape))
        return found


@torch.library.custom_op("regard::attend", mutates_args=())
def _forward(
    q: Tensor, k: Tensor, v: Tensor, lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, entropy: bool, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """output (B, H, T, D), lse, entropy (B, H, T), and of the largest weights: the one and its key, (B, H, T, 1), or
    maxima of classes of keys (B, H, T, 16); what is not asked for is empty."""
    from regard.attention.kernels.triton import dispatch as launch

    seen = Spans(shift_lo, shift_hi, lo, hi, asking, asked)
    with on_device(q):
        return launch.forward(q, k, v, seen, scale, entropy, top)


@_forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
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


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, lo, hi, asking, asked, shift_lo, shift_hi, scale, _, _ = inputs
    ctx.save_for_backward(q, k, v, output[0], output[1], lo, hi, asking, asked)
    ctx.numbers = (shift_lo, shift_hi, scale)
    ctx.mark_non_differentiable(*output[2:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, of_lse: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    q, k, v, output, lse, *told = ctx.saved_tensors
    if grad is None and of_lse is None:
        return (None,) * 12
    grad = torch.zeros_like(output) if grad is None else grad
    return (*_gradients(grad, of_lse, q, k, v, output, lse, *told, *ctx.numbers), *(None,) * 9)


_forward.register_autograd(_backward, setup_context=_keep)


@torch.library.custom_op("regard::attend_cached", mutates_args=())
def _cached(
    q: Tensor, k: Tensor, v: Tensor, lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, wants_scores: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """output (B, H, T, D), lse (B, H, T), and the scores (B, H, T, S) if they are wanted, for a few queries."""
    from regard.attention.kernels.triton.decode import decode

    output, lse, scores = decode(q, k, v, Spans(shift_lo, shift_hi, lo, hi, asking, asked), scale, wants_scores)
    return output, lse, lse.new_empty(0) if scores is None else scores


@_cached.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, wants_scores: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return q.new_empty(q.shape), lse, lse.new_empty((*lse.shape, k.size(2)) if wants_scores else (0,))


@torch.library.custom_op("regard::attend_gradients", mutates_args=())
def _gradients(
    grad: Tensor, of_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v."""
    from regard.attention.kernels.triton import dispatch as launch

    seen = Spans(shift_lo, shift_hi, lo, hi, asking, asked)
    with on_device(q):
        return launch.gradients(grad, of_lse, q, k, v, output, lse, seen, scale)


@_gradients.register_fake
def _(
    grad: Tensor, of_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


@torch.library.custom_op("regard::attend_statistics", mutates_args=())
def _statistics(
    q: Tensor, k: Tensor, lse: Tensor, strips: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, received: bool, rows: int, cols: int, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """received (B, H, S), thumbnail (B, H, R, C), and the largest weights (B, H, T, top) with their keys; what is not
    asked for is empty."""
    from regard.attention.kernels.triton import statistics_pass as launch

    seen = Spans(shift_lo, shift_hi, lo, hi, asking, asked)
    with on_device(q):
        return launch.statistics(q, k, lse, strips, seen, scale, launch.Wanted(received, rows, cols, top))


@_statistics.register_fake
def _(
    q: Tensor, k: Tensor, lse: Tensor, strips: Tensor,
    lo: Tensor | None, hi: Tensor | None, asking: Tensor | None, asked: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, received: bool, rows: int, cols: int, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    B, H, T, _ = q.shape
    S = k.size(2)
    cells = (B, H, min(rows, T), min(cols, S)) if rows else (0,)
    most = (B, H, T, top) if top else (0,)
    return (
        lse.new_empty((B, H, S) if received else (0,)),
        lse.new_empty(cells),
        lse.new_empty(most),
        lse.new_empty(most, dtype=torch.int64),
    )
