"""The backends "triton" and "triton-fused": fused (FlashAttention-like) attention that also reports statistics.

"triton-fused" computes output, log-sum-exp, entropy and maxima of classes of keys in one pass of our own; "triton"
leaves the output to the vendor's kernel. The weight each key received, the thumbnail and the top-k weights come from a
second pass that recomputes the scores. On Hopper both passes have twins in Gluon (kernels/hopper). Memory is linear.

Both are operators of torch.library, so that torch.compile, autograd and export know them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import AttentionInputs, is_grouped
from regard.attention.kernels import sdpa, spans
from regard.attention.kernels.devices import INTERPRETED, on_device, triton_unsupported_reason
from regard.attention.kernels.operator_inputs import as_arguments, from_arguments
from regard.attention.kernels.row_statistics import counted_queries, has_rows, row_statistics, without_rows
from regard.attention.kernels.shapes import aligned, as_bhtd
from regard.attention.kernels.spans import KeySpans
from regard.attention.kernels.statistics import (
    WAITS_FOR_DEVICE,
    empty_statistics,
    request_of,
    requested,
    statistics_of,
    tensors_of,
)
from regard.attention.mask_analysis import is_trivial, runs_by_content
from regard.attention.masks import Dense
from regard.attention.normalise import Sink, Softmax
from regard.attention.observe import Attended, Observe, Top, attention_statistics
from regard.attention.operator_arguments import OperatorArguments
from regard.attention.scores import Dot
from regard.attention.transforms import is_plain_call, refuse_second_derivative

HALF_DTYPES = (torch.bfloat16, torch.float16)
MAX_WIDTH = 256
MAX_HEADS = 65535  # the largest grid of programs
MAX_TRACED_TOP = 8  # up to this k, the forward pass leaves the class maxima that the top-k search starts from
FEW_QUERIES, MANY_KEYS = 64, 512  # of the heads that share keys: then the keys are divided among programs
MIN_LENGTH, MIN_LENGTHS = 8192, {64: 4096, 128: 4096}  # queries and keys from which on it is, by width
CAP_RANGE = (1e-2, 1e4)  # as of the scale
SCALE_RANGE = (1e-4, 1e4)  # a hidden key's score, scaled by these, is still finite and hidden


def is_worth_it(prepared: AttentionInputs) -> bool:
    """Whether the output by our own pass takes at most a tenth longer than the vendor's, as measured on an H200
    (benchmarks/h200/everyday.py, part "choice"): it reports statistics for less than a pass of their own would take."""
    grid, width = prepared.grid, prepared.k.size(-1)
    enough = MIN_LENGTHS.get(width, MIN_LENGTH)
    if (width == 64 and is_trivial(prepared.mask, grid)) or (width == 128 and is_grouped(prepared.k, grid)):
        enough //= 2
    return min(grid.T, grid.S) >= enough


def unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why "triton-fused" cannot serve the request; None: it can."""
    k, precisions = prepared.k, (*HALF_DTYPES, torch.float32) if INTERPRETED else HALF_DTYPES
    if why := _product_unsupported_reason(prepared, precisions):
        return why
    if not prepared.normalise.is_softmax:
        return f"it computes a softmax, and got {prepared.normalise!r}"
    cap = _cap(prepared)
    if cap and not CAP_RANGE[0] <= cap <= CAP_RANGE[1]:
        return f"it needs a soft cap from {CAP_RANGE[0]} to {CAP_RANGE[1]}, and got {cap}"
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
    """Why kernels for a softmax of mere dot products, under a mask of runs of keys, cannot take the request; None: they
    can."""
    if why := _product_unsupported_reason(prepared, precisions):
        return why
    if not isinstance(prepared.normalise, Softmax):
        return f"it computes a softmax, and got {prepared.normalise!r}"
    if _cap(prepared):
        return "it has no soft cap"
    return spans.unsupported_reason(prepared.mask)


def _product_unsupported_reason(prepared: AttentionInputs, precisions: tuple[torch.dtype, ...]) -> str | None:
    """Why kernels for dot products in these precisions cannot take its queries and keys; None: they can."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    if not isinstance(prepared.score, Dot):
        return f"it computes dot products, and {type(prepared.score).__name__} is none"
    if why := triton_unsupported_reason(q):
        return why
    if prepared.bias is not None:
        return "it adds no bias"
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
    return None


def _cap(prepared: AttentionInputs) -> float:
    """The soft cap of the scores; 0: none."""
    return getattr(prepared.score, "cap", None) or 0.0


def vendor_unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why "triton" cannot serve the request: what the vendor's kernel or the statistics pass cannot do."""
    why = sdpa.unsupported_reason(prepared, v, dropout) or unsupported_reason(prepared, v, 0.0)
    if why is None and isinstance(prepared.normalise, Sink):
        return "the vendor's kernel has no sink; 'triton-fused' has"
    if why is None and sdpa.mask_size(prepared):
        return "the vendor's kernel would need this mask written out; 'triton-fused' does not"
    return why


def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output, log-sum-exp and statistics by our own kernels."""
    return Request.of(prepared, v).attend(observe)


def compute_vendor(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output and log-sum-exp by the vendor's kernel, statistics by ours."""
    got = sdpa.compute(prepared, v, dropout, Observe())
    found: dict[str, Any] = {}
    if observe.statistics:
        with torch.no_grad():
            in_graph = torch.compiler.is_compiling() and isinstance(prepared.mask, Dense)
            compute = _read_table_first if in_graph else recompute_statistics
            found = compute(prepared, v, got.lse, observe)
    return Attended(got.output, got.lse, "triton", **found)


def _read_table_first(prepared: AttentionInputs, v: Tensor, lse: Tensor, observe: Observe) -> dict[str, Any]:
    """The same in a compiled graph, where a mask is a table: whether it is runs of keys, which take a fraction of the
    time, is known when the graph runs."""
    packed, form = as_arguments(prepared)
    others = packed.text((v, lse))
    return statistics_of(observe, _table_statistics(*packed.all(), form, others, packed.text(request_of(observe))))


@torch.library.custom_op("regard::table_statistics", mutates_args=(), tags=WAITS_FOR_DEVICE)
def _table_statistics(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float], form: str, others: str,
    request: str,
) -> list[Tensor]:  # fmt: skip
    """The requested statistics, in the order of `tensors_of`."""
    packed = OperatorArguments(shape, tensors, sizes, numbers)
    prepared, (v, lse), observe = from_arguments(packed, form), packed.value(others), requested(packed.value(request))
    assert isinstance(prepared.mask, Dense)
    prepared = replace(prepared, mask=runs_by_content(prepared.mask.table) or prepared.mask)
    found = recompute_statistics(prepared, v, lse, observe)
    return tensors_of(found)


@_table_statistics.register_fake
def _(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float], form: str, others: str,
    request: str,
) -> list[Tensor]:  # fmt: skip
    packed = OperatorArguments(shape, tensors, sizes, numbers)
    return empty_statistics(requested(packed.value(request)), packed.grid, torch.float32)


def recompute_statistics(prepared: AttentionInputs, v: Tensor, lse: Tensor, observe: Observe) -> dict[str, Any]:
    """Statistics of what another kernel computed."""
    return Request.of(prepared, v).statistics_of(lse, observe)


@dataclass(frozen=True, eq=False)
class Request:
    """The request as the kernels take it: (B, H, T, D), runs of keys, one scale, one cap (0: none), sinks (B, H)."""

    q: Tensor
    k: Tensor
    v: Tensor
    spans: KeySpans
    scale: float
    lead: tuple[int, ...]
    cap: float = 0.0
    sink: Tensor | None = None
    launches: dict[Any, Any] | None = None  # that were planned for these shapes, where they are known already
    is_plain: bool = False  # whether the call is known to be watched by nothing

    @classmethod
    def of(cls, prepared: AttentionInputs, v: Tensor) -> Request:
        assert isinstance(prepared.score, Dot)
        q, k, v = as_bhtd(prepared, v)
        lead, normalise = prepared.grid.lead, prepared.normalise
        sink = normalise.logits.expand(lead).reshape(q.shape[:2]) if isinstance(normalise, Sink) else None
        spans = KeySpans.of(prepared.mask, prepared.grid)
        return cls(q, k, v, spans, prepared.score.scale(k.size(-1)), lead, _cap(prepared), sink)

    def attend(self, observe: Observe) -> Attended:
        """Output, log-sum-exp and statistics."""
        if self.is_decoding:
            return self.decode(observe)
        top = observe.top if observe.top <= MAX_TRACED_TOP else 0
        output, lse, entropy, class_maxima, argmax, taken = self._forward(observe.entropy, top)
        refuse_second_derivative(output, "triton-fused")
        found = self.statistics(without_rows(observe), lse.detach(), class_maxima, argmax)
        found |= self._rows(observe, lse.detach())
        shape = (*self.lead, self.q.size(2))
        if observe.entropy:
            found["entropy"] = entropy.reshape(shape)
        if self.sink is not None:
            found["sink"] = taken.reshape(shape)
        return Attended(output.reshape(*shape, output.size(-1)), lse.reshape(shape), "triton-fused", **found)

    def statistics_of(self, lse: Tensor, observe: Observe) -> dict[str, Any]:
        """Statistics of what another kernel computed, with this log-sum-exp (*lead, T). Entropy and class maxima come
        from our forward pass, and then its own log-sum-exp goes with them."""
        if has_rows(observe):
            flat = lse.detach().reshape(self.q.shape[:3]).contiguous()
            return self.statistics_of(lse, without_rows(observe)) | self._rows(observe, flat)
        if self._is_one_query(observe):
            return self._decode_statistics(lse, observe)
        top = observe.top if observe.top <= MAX_TRACED_TOP else 0
        flat = lse if self.is_plain else lse.detach().reshape(self.q.shape[:3])
        flat = flat.contiguous()
        of = self if self.sink is None else replace(self, sink=None)
        if observe.entropy or top:
            _, flat, entropy, class_maxima, argmax, _ = of._forward(observe.entropy, top, flat)
            found = of.statistics(observe, flat, class_maxima, argmax)
        else:
            found, entropy = of.statistics(observe, flat, None, None), flat
        if observe.entropy:
            found["entropy"] = self._as_lead(entropy)
        return found

    def _rows(self, observe: Observe, lse: Tensor) -> dict[str, Any]:
        """Peak, distance, spans, and what the queries that count gave to each key; lse (B, H, T)."""
        if not has_rows(observe):
            return {}
        q, k = self.q.detach(), self.k.detach()
        found: dict[str, Any] = dict(row_statistics(q, k, lse, self.spans, self.scale, self.cap, observe))
        if (counted := observe.counted) is not None:
            q, some, spans = counted_queries(q, lse, self.spans, counted, k.size(2))
            of = replace(self, q=q, k=k, v=self.v.detach(), spans=spans, launches=None, is_plain=False)
            found["received"] = of._statistics(some, None, (True, 0, 0, 0))[0]
        return {name: self._as_lead(x) for name, x in found.items()}

    def _as_lead(self, x: Tensor) -> Tensor:
        """(B, H, ...) with the leading dimensions of the request."""
        return x if len(self.lead) == 2 else x.reshape(*self.lead, *x.shape[2:])

    def _is_one_query(self, observe: Observe) -> bool:
        """Whether one query a head sees the whole KV cache: a decoding step."""
        (_, H, T, _), (heads, S), spans = self.q.shape, self.k.shape[1:3], self.spans
        sees_all = spans.shift_lo <= 0 and spans.shift_hi >= S and spans.lo is None and spans.query_docs is None
        fits = H // heads <= FEW_QUERIES and observe.top <= FEW_QUERIES and max(self.k.stride()) < 2**31
        return T == 1 and sees_all and spans.bits is None and self.sink is None and fits and self._is_plain()

    def _decode_statistics(self, lse: Tensor, observe: Observe) -> dict[str, Any]:
        from regard.attention.kernels.triton.decode_statistics import decode_statistics
        from regard.attention.kernels.triton.launch import launches_of

        q, k, (B, H), S = aligned(self.q), aligned(self.k), self.q.shape[:2], self.k.size(2)
        if (launches := self.launches) is None:
            launches = launches_of((q, k[:, :, :1]), KeySpans(), self.scale, self.cap)
        cells = min(observe.thumbnail[1], S) if observe.thumbnail else 0
        received, entropy, values, indices, thumbnail = decode_statistics(
            q, k, lse.reshape(B, H).contiguous(), self.scale, self.cap, observe.entropy, observe.top, cells, launches
        )
        found: dict[str, Any] = {}
        if observe.received:
            found["received"] = received.reshape(*self.lead, S)
        if observe.entropy:
            found["entropy"] = entropy.reshape(*self.lead, 1)
        if observe.thumbnail:
            found["thumbnail"] = thumbnail.reshape(*self.lead, 1, cells)
        if observe.top:
            shape = (*self.lead, 1, observe.top)
            found["top"] = Top(values.reshape(shape), indices.reshape(shape))
        return found

    def _forward(self, entropy: bool, top: int, known: Tensor | None = None) -> tuple[Tensor, ...]:
        if not self._is_plain():
            return _forward(*self.tensors(), self.sink, *self.scalars(), entropy, top)
        from regard.attention.kernels.triton.dispatch import forward

        numbers = self.scale, entropy, top, self.cap
        q, k, v = self.q, self.k, self.v
        if not self.is_plain:
            q, k, v = aligned(q), aligned(k), aligned(v)
        with on_device(q):
            return forward(q, k, v, self.spans, *numbers, self.sink, self.launches, known)

    def _statistics(
        self, lse: Tensor, class_maxima: Tensor | None, wanted: tuple[bool, int, int, int]
    ) -> tuple[Tensor, ...]:
        if not self._is_plain():
            maxima = lse.new_empty(0) if class_maxima is None else class_maxima
            q, k = self.q.detach(), self.k.detach()
            return _statistics(q, k, lse, maxima, *self.tensors()[3:], *self.scalars(), *wanted)
        from regard.attention.kernels.triton.statistics_pass import requested, statistics

        q, k = (self.q, self.k) if self.is_plain else (aligned(self.q), aligned(self.k))
        with on_device(q):
            numbers = self.scale, requested(*wanted), self.cap
            return statistics(q, k, lse, class_maxima, self.spans, *numbers, self.launches)

    def _is_plain(self) -> bool:
        return self.is_plain or is_plain_call(self.q, self.k, self.v, *(() if self.sink is None else (self.sink,)))

    @property
    def is_decoding(self) -> bool:
        """Whether this is a decoding step: a few queries, a long KV cache, and no gradient."""
        (_, H, T, _), (heads, S) = self.q.shape, self.k.shape[1:3]
        tensors = (self.q, self.k, self.v, self.q if self.sink is None else self.sink)
        learns = torch.is_grad_enabled() and any(x.requires_grad for x in tensors)
        few = T == 1 or max(MANY_KEYS, 64 * T) <= S
        return self.spans.bits is None and not learns and H // heads * T <= FEW_QUERIES and few

    def decode(self, observe: Observe) -> Attended:
        """A few queries against a long KV cache: their scores fit in memory, and statistics follow by definition."""
        shifts_and_scale = (self.spans.shift_lo, self.spans.shift_hi, self.scale, self.cap)
        output, lse, scores = _decode(*self.tensors()[:7], *shifts_and_scale, observe.statistics)
        if self.sink is not None:
            output, lse = Sink(self.sink).fold(output, lse)
        shape = (*self.lead, self.q.size(2))
        found: dict[str, Any] = {}
        if observe.statistics:
            hidden = scores == -torch.inf
            weights = (scores - lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1)).exp().clamp_(max=1.0)
            full = (*shape, scores.size(-1))
            found = attention_statistics(weights.reshape(full), hidden.reshape(full), replace(observe, weights=False))
            if observe.peak:
                found["peak"] = scores.amax(-1).reshape(shape)
        return Attended(output.reshape(*shape, -1), lse.reshape(shape), "triton-fused", **found)

    def tensors(self) -> tuple[Tensor | None, ...]:
        s = self.spans
        return self.q, self.k, self.v, s.lo, s.hi, s.query_docs, s.key_docs, s.bits, s.tiles

    def scalars(self) -> tuple[int, int, int, float, float]:
        return self.spans.shift_lo, self.spans.shift_hi, self.spans.unit, self.scale, self.cap

    def statistics(
        self, observe: Observe, lse: Tensor, class_maxima: Tensor | None, argmax: Tensor | None
    ) -> dict[str, Any]:
        """The fields of an Attended that the second pass computes; lse (B, H, T)."""
        if not (observe.top or observe.received or observe.thumbnail):
            return {}
        R, C = observe.thumbnail or (0, 0)
        values, indices = class_maxima, argmax
        top = 0 if observe.top == 1 else observe.top  # top 1 came with the output
        if top or observe.received or observe.thumbnail:
            wanted = (bool(observe.received), R, C, top)
            received, thumbnail, top_values, top_keys = self._statistics(lse, class_maxima, wanted)
            values, indices = (top_values, top_keys) if top else (values, indices)
        found: dict[str, Any] = {}
        if observe.received:
            found["received"] = self._as_lead(received)
        if observe.thumbnail:
            found["thumbnail"] = self._as_lead(thumbnail)
        if observe.top:
            assert values is not None and indices is not None
            found["top"] = Top(self._as_lead(values), self._as_lead(indices))
        return found


def _own(found: tuple[Tensor, ...]) -> Any:
    """The results of an operator, which must not share what stands for those that were not requested."""
    return tuple(x if x.numel() else torch.empty_like(x) for x in found)


@torch.library.custom_op("regard::attend", mutates_args=())
def _forward(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, sink: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float,
    entropy: bool, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """output (B, H, T, D), lse, entropy (B, H, T); the largest weight with its key, both (B, H, T, 1), or the maxima of
    16 classes of keys (B, H, T, 16); what the sink takes (B, H, T). What is not requested is empty."""
    from regard.attention.kernels.triton import dispatch as launch

    seen = KeySpans(shift_lo, shift_hi, lo, hi, query_docs, key_docs, bits, tiles, unit)
    with on_device(q):
        return _own(launch.forward(aligned(q), aligned(k), aligned(v), seen, scale, entropy, top, cap, sink))


@_forward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, sink: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float,
    entropy: bool, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    B, H, T, _ = q.shape
    output = q.new_empty(B, T, H, v.size(-1)).transpose(1, 2)
    lse = q.new_empty(B, H, T, dtype=torch.float32)
    return (
        output,
        lse,
        torch.empty_like(lse) if entropy else lse.new_empty(0),
        lse.new_empty((B, H, T, 16 if top > 1 else 1) if top else (0,)),
        lse.new_empty((B, H, T, 1) if top == 1 else (0,), dtype=torch.int64),
        lse.new_empty(0) if sink is None else torch.empty_like(lse),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, sink, shift_lo, shift_hi, unit, scale, cap, _, _ = inputs
    ctx.save_for_backward(output[0], output[1], output[5], *tensors, sink)
    ctx.scalars = (shift_lo, shift_hi, unit, scale, cap)
    ctx.mark_non_differentiable(*output[2:5], *(() if sink is not None else output[5:]))
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None, *more: Any) -> tuple[Tensor | None, ...]:
    output, lse, taken, q, k, v, *mask_tensors, sink = ctx.saved_tensors
    grad_taken = None if sink is None else more[3]
    if grad is None and grad_lse is None and grad_taken is None:
        return (None,) * 17
    grad = torch.zeros_like(output) if grad is None else grad
    if grad_taken is not None:  # what a sink takes is e^(sink - lse)
        grad_taken = grad_taken * taken
        grad_lse = -grad_taken if grad_lse is None else grad_lse - grad_taken
    found = _gradients(grad, grad_lse, q, k, v, output, lse, *mask_tensors, sink, *ctx.scalars)
    grad_sink = None
    if sink is not None:
        grad_sink = found[3] if grad_taken is None else found[3] + grad_taken.sum(-1)
        grad_sink = grad_sink.to(sink.dtype)
    return (*found[:3], *(None,) * 6, grad_sink, *(None,) * 7)


_forward.register_autograd(_backward, setup_context=_setup_context)


@torch.library.custom_op("regard::attend_cached", mutates_args=())
def _decode(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, cap: float, wants_scores: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """output (B, H, T, D), lse (B, H, T), and with `wants_scores` the scores (B, H, T, S), for a few queries."""
    from regard.attention.kernels.triton.decode import decode

    output, lse, scores = decode(
        q, k, v, KeySpans(shift_lo, shift_hi, lo, hi, query_docs, key_docs), scale, wants_scores, cap=cap
    )
    return output, lse, lse.new_empty(0) if scores is None else scores


@_decode.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None,
    shift_lo: int, shift_hi: int, scale: float, cap: float, wants_scores: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    lse = q.new_empty(q.shape[:3], dtype=torch.float32)
    return q.new_empty(q.shape), lse, lse.new_empty((*lse.shape, k.size(2)) if wants_scores else (0,))


@torch.library.custom_op("regard::attend_gradients", mutates_args=())
def _gradients(
    grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, sink: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v, and of the sink (B, H), empty without one."""
    from regard.attention.kernels.triton import dispatch as launch

    seen = KeySpans(shift_lo, shift_hi, lo, hi, query_docs, key_docs, bits, tiles, unit)
    with on_device(q):
        return launch.gradients(grad, grad_lse, q, k, v, output, lse, seen, scale, cap, sink)


@_gradients.register_fake
def _(
    grad: Tensor, grad_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, sink: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    grad_sink = lse.new_empty((0,) if sink is None else sink.shape)
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), grad_sink


@torch.library.custom_op("regard::attend_statistics", mutates_args=())
def _statistics(
    q: Tensor, k: Tensor, lse: Tensor, class_maxima: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float,
    received: bool, rows: int, cols: int, top: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """received (B, H, S), thumbnail (B, H, R, C), and the top-k weights (B, H, T, top) with their keys; what is not
    requested is empty."""
    from regard.attention.kernels.triton import statistics_pass as launch

    seen = KeySpans(shift_lo, shift_hi, lo, hi, query_docs, key_docs, bits, tiles, unit)
    with on_device(q):
        wanted = launch.RequestedStatistics(received, rows, cols, top)
        return _own(launch.statistics(aligned(q), aligned(k), lse, class_maxima, seen, scale, wanted, cap))


@_statistics.register_fake
def _(
    q: Tensor, k: Tensor, lse: Tensor, class_maxima: Tensor,
    lo: Tensor | None, hi: Tensor | None, query_docs: Tensor | None, key_docs: Tensor | None, bits: Tensor | None,
    tiles: Tensor | None, shift_lo: int, shift_hi: int, unit: int, scale: float, cap: float,
    received: bool, rows: int, cols: int, top: int,
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
