"""PyTorch's fused scaled dot-product attention (SDPA), with its log-sum-exp; statistics come from a second pass.

The fused kernels return the log-sum-exp only from their private operators, so those are called here, each behind the
checks of PyTorch's public function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import AttentionInputs, compute_dtype
from regard.attention.kernels.operator_inputs import as_arguments, from_arguments
from regard.attention.kernels.row_blocks import BLOCK_NUMBERS, Scratch, blocks, lead_parts
from regard.attention.kernels.shapes import aligned, as_bhtd
from regard.attention.kernels.statistics import (
    WAITS_FOR_DEVICE,
    StreamingStatistics,
    empty_statistics,
    request_of,
    requested,
    statistics_of,
    tensors_of,
)
from regard.attention.kernels.stream import exponentials
from regard.attention.mask_analysis import is_trivial
from regard.attention.masks import Window
from regard.attention.normalise import Sink
from regard.attention.observe import Attended, Observe
from regard.attention.operator_arguments import OperatorArguments
from regard.attention.scores import Dot
from regard.attention.transforms import has_addresses, refuse_second_derivative

NAME = "sdpa"
CUDNN_MAX_WIDTH, CUDNN_MIN_LENGTH = 128, 64  # widest vectors, and fewest queries or keys, for cuDNN


def unsupported_reason(prepared: AttentionInputs, v: Tensor, dropout: float) -> str | None:
    """Why this kernel cannot serve the request; None: it can."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    if not isinstance(prepared.score, Dot):
        return f"it computes dot products, and {type(prepared.score).__name__} is none"
    if prepared.window is not None:
        return "it has no predicted window"
    if q.device.type not in ("cpu", "cuda"):
        return f"it runs on cpu and cuda, not on {q.device.type}"
    if not prepared.normalise.is_softmax:
        return f"it computes a softmax, and got {prepared.normalise!r}"
    if prepared.score.cap is not None:
        return "it has no soft cap"
    if dropout > 0 and q.device.type == "cpu":
        return "on the cpu it draws no dropout"
    if v.size(-1) != k.size(-1):
        return f"it needs values as wide as prepared keys, and got {v.size(-1)} and {k.size(-1)}"
    if 0 in (grid.T, grid.S, q.size(-1), *grid.lead):
        return "it needs at least one query, one key and one number in each"
    if prepared.bias is not None and any(tensor.requires_grad for tensor in prepared.bias.tensors()):
        return "it gives no gradient to a bias"
    if q.device.type == "cuda" and (q.size(-1) % 8 or q.size(-1) > 256):
        return f"on cuda it needs a width that is a multiple of 8 up to 256, and got {q.size(-1)}"
    if q.device.type == "cuda" and q.dtype == torch.float64:
        return "on cuda it computes in float32, bfloat16 and float16"
    if q.device.type == "cuda" and q.dtype != torch.float32 and prepared.bias is not None:
        return f"on cuda it would round a bias to {q.dtype}"
    return None


def mask_size(prepared: AttentionInputs) -> int:
    """How many numbers mask and bias have when materialised for the fused operator; 0: it knows this mask."""
    if prepared.bias is None and (_is_causal(prepared) or is_trivial(prepared.mask, prepared.grid)):
        return 0
    grid = prepared.grid
    twice = torch.zeros(2, dtype=torch.long, device=grid.device)  # a tile of 2 x 2 shows which dimensions are real
    *lead, rows, cols = prepared.mask.allowed(twice, twice, grid).shape
    if prepared.bias is not None:
        lead, rows, cols = [*torch.broadcast_shapes(tuple(lead), prepared.bias.implied_lead(grid))], 2, 2
    return prod(lead) * (grid.T if rows == 2 else 1) * (grid.S if cols == 2 else 1)


def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output and log-sum-exp from the fused operator, then the requested statistics."""
    fused = SdpaRequest.of(prepared, v)
    output, raw_lse = fused.run(dropout)
    refuse_second_derivative(output, NAME)
    grid = prepared.grid
    output = output.reshape(*grid.lead, grid.T, v.size(-1)).to(v.dtype)
    lse = fused.differentiable(raw_lse.detach()).reshape(*grid.lead, grid.T)
    if fused.attn_mask is not None:
        empty = (fused.attn_mask == -torch.inf).all(-1).expand(raw_lse.shape).reshape(lse.shape)
        lse = lse.masked_fill(empty, -torch.inf)
        output = output.masked_fill(empty.unsqueeze(-1), 0.0)
    if isinstance(prepared.normalise, Sink):
        output, lse = prepared.normalise.fold(output, lse)
    found = {} if not observe.statistics else _statistics(prepared, observe)
    return Attended(output, lse, NAME, **found)


@torch.no_grad()
def _statistics(prepared: AttentionInputs, observe: Observe) -> Mapping[str, Any]:
    """The second pass, which a compiled graph calls as one operator."""
    if not torch.compiler.is_compiling():
        return second_pass(prepared, observe)
    packed, form = as_arguments(prepared)
    request = packed.text(request_of(observe))
    return statistics_of(observe, _second_pass_operator(*packed.all(), form, request))


def second_pass(prepared: AttentionInputs, observe: Observe) -> Mapping[str, Any]:
    """Statistics of weights without their average. It takes each row's own maximum and sum, since the operator's
    log-sum-exp is too inexact for weights where scores are huge, or in half precision."""
    dtype = compute_dtype(torch.promote_types(prepared.q.dtype, prepared.k.dtype))
    statistics = StreamingStatistics(observe, prepared.grid, dtype, isinstance(prepared.normalise, Sink))
    precise = prepared.precise()
    scratch = Scratch(precise.q)
    for lead, part in lead_parts(precise):
        for block in blocks(lead, part):
            logs, weights, total, _, peak = exponentials(part, block, scratch)
            statistics.add(block, weights, logs, total, peak)
    return statistics.found()


@torch.library.custom_op("regard::statistics", mutates_args=(), tags=WAITS_FOR_DEVICE)
def _second_pass_operator(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float], form: str, request: str
) -> list[Tensor]:
    """The requested statistics, in the order of `tensors_of`; the request and the inputs are texts, so that another
    statistic needs no other operator."""
    packed = OperatorArguments(shape, tensors, sizes, numbers)
    return tensors_of(second_pass(from_arguments(packed, form), requested(packed.value(request))))


@_second_pass_operator.register_fake
def _(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float], form: str, request: str
) -> list[Tensor]:
    packed = OperatorArguments(shape, tensors, sizes, numbers)
    dtype = compute_dtype(torch.promote_types(tensors[0].dtype, tensors[1].dtype))
    return empty_statistics(requested(packed.value(request)), packed.grid, dtype)


@dataclass(frozen=True)
class SdpaRequest:
    """The request in the shape that the fused operators take: (B, H, T, D), one float mask."""

    q: Tensor
    k: Tensor
    v: Tensor
    attn_mask: Tensor | None
    causal: bool
    scale: float

    @classmethod
    def of(cls, prepared: AttentionInputs, v: Tensor) -> SdpaRequest:
        assert isinstance(prepared.score, Dot)
        lead = prepared.grid.lead
        q, k, v = as_bhtd(prepared, v)
        if q.device.type == "cuda" and has_addresses():  # cuDNN reads odd ones wrongly; torch's own call sees to that
            q, k, v = aligned(q), aligned(k), aligned(v)
        if q.device.type == "cpu":  # its operator is no quicker in half precision (measured: 1.0 to 1.8 times float32's
            q, k, v = (x.to(compute_dtype(x.dtype)) for x in (q, k, v))  # time) and less exact
        attn_mask = None if mask_size(prepared) == 0 else _four_mask(_additive_mask(prepared), lead)
        causal = attn_mask is None and _is_causal(prepared) and not is_trivial(prepared.mask, prepared.grid)
        return cls(q, k, v, attn_mask, causal, prepared.score.scale(k.size(-1)))

    def run(self, dropout: float) -> tuple[Tensor, Tensor]:
        """output (B, H, T, D), and lse (B, H, T) as it is before dropout."""
        aten = torch.ops.aten
        q, k, v = self.q, self.k, self.v
        if q.device.type == "cpu":
            return aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, self.causal, attn_mask=self.attn_mask, scale=self.scale
            )
        if self.suits_cudnn:
            attn_mask = None if self.attn_mask is None else _padded_rows(self.attn_mask, k.size(2))
            output, lse = aten._scaled_dot_product_cudnn_attention(
                q, k, v, attn_mask, True, dropout, self.causal, scale=self.scale
            )[:2]
            return output, lse.reshape(q.shape[:3])
        if self.suits_flash:
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout, self.causal, scale=self.scale)[:2]
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) if x.size(1) < q.size(1) else x for x in (k, v))
        attn_mask = self.attn_mask
        if attn_mask is not None:
            attn_mask = _padded_rows(attn_mask, k.size(2)).expand(*q.shape[:3], -1)
        output, lse, _, _ = aten._scaled_dot_product_efficient_attention(
            q, k, v, attn_mask, True, dropout, self.causal, scale=self.scale
        )
        return output, lse[..., : q.size(2)]

    @property
    def suits_flash(self) -> bool:
        """Whether PyTorch's own flash operator serves it."""
        return self.attn_mask is None and self.q.dtype != torch.float32

    @property
    def suits_cudnn(self) -> bool:
        """Whether cuDNN's operator serves it, the fastest (measured: 1.4 to 1.8 times flash on Hopper; with a mask 3
        times the other kernel that takes one). Of heads that share keys, and of masks, it knows the forward pass."""
        q, k, v = self.q, self.k, self.v
        learns = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad)
        return (
            q.dtype in (torch.bfloat16, torch.float16)
            and ((self.attn_mask is None and q.size(1) == k.size(1) == v.size(1)) or not learns)
            and q.size(3) <= CUDNN_MAX_WIDTH
            and (q.size(2) >= CUDNN_MIN_LENGTH or (q.size(2) == 1 and not learns))
            and k.size(2) >= CUDNN_MIN_LENGTH
            and _has_cudnn(q.device.index)
        )

    def differentiable(self, lse: Tensor) -> Tensor:
        """The operators' log-sum-exp (B, H, T) has no gradient of its own."""
        if torch.is_grad_enabled() and (self.q.requires_grad or self.k.requires_grad):
            lse = _LogSumExp.apply(lse, self.q, self.k, self.attn_mask, self.causal, self.scale)
            refuse_second_derivative(lse, NAME)
        return lse


class _LogSumExp(torch.autograd.Function):
    """A log-sum-exp that is known already, and its gradient, computed only when needed."""

    @staticmethod
    def forward(
        ctx: Any, lse: Tensor, q: Tensor, k: Tensor, attn_mask: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        ctx.save_for_backward(q, k, attn_mask)
        ctx.causal, ctx.scale = causal, scale
        return lse.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        q, k, attn_mask = ctx.saved_tensors
        grad_q, grad_k = _lse_gradients(grad, q, k, attn_mask, ctx.causal, ctx.scale)
        return None, grad_q, grad_k, None, None, None


@torch.library.custom_op("regard::lse_gradients", mutates_args=())  # one operator, opaque to compilers
def _lse_gradients(
    grad: Tensor, q: Tensor, k: Tensor, attn_mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """The gradients of sum(grad * lse) by q (B, H, T, D) and k (B, key heads, S, D), some rows at a time."""
    precise = compute_dtype(q.dtype)
    group = q.size(1) // k.size(1)
    keys = k.to(precise).repeat_interleave(group, 1)
    grad_q, grad_k = torch.empty_like(q), torch.zeros_like(keys)
    cols = torch.arange(k.size(2), device=q.device)
    for rows in torch.arange(q.size(2), device=q.device).split(
        max(1, BLOCK_NUMBERS // (prod(q.shape[:2]) * k.size(2)))
    ):
        queries = q[:, :, rows].to(precise) * scale
        scores = queries @ keys.mT
        if attn_mask is not None:
            scores = scores + (attn_mask if attn_mask.size(2) == 1 else attn_mask[:, :, rows])
        if causal:
            scores = scores.masked_fill(cols > rows.unsqueeze(-1), -torch.inf)
        weights = scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
        weights = weights * grad[:, :, rows].unsqueeze(-1).to(precise)
        grad_q[:, :, rows] = (weights @ keys * scale).to(q.dtype)
        grad_k += weights.mT @ queries
    return grad_q, grad_k.unflatten(1, (k.size(1), group)).sum(2).to(k.dtype)


@_lse_gradients.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, attn_mask: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), k.new_empty(k.shape)


def _has_cudnn(device: int) -> bool:
    """Whether this device is one for which cuDNN has such an operator."""
    return torch.backends.cudnn.is_available() and torch.cuda.get_device_capability(device) in ((9, 0), (10, 0))


# as torch.compiler.assume_constant_result does, which would import the whole compiler
_has_cudnn._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _is_causal(prepared: AttentionInputs) -> bool:
    mask, grid = prepared.mask, prepared.grid
    return (
        isinstance(mask, Window)
        and (mask.left is None and mask.right == 0)
        and (mask.offset is None or (isinstance(mask.offset, int) and mask.offset == 0))
        and grid.T == grid.S
    )


def _additive_mask(prepared: AttentionInputs) -> Tensor:
    """Mask and bias as one additive tensor, no larger than necessary."""
    grid = prepared.grid
    allowed = prepared.mask.table_of(grid)
    dtype = (
        compute_dtype(prepared.q.dtype)
        if grid.device.type == "cpu"
        else torch.promote_types(prepared.q.dtype, prepared.k.dtype)
    )
    if prepared.bias is None:
        return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -torch.inf)
    i, j = prepared.index(slice(None), grid.T), prepared.index(slice(None), grid.S)
    return prepared.bias.tile(i, j).to(dtype).masked_fill(~allowed, -torch.inf)


def _padded_rows(attn_mask: Tensor, length: int) -> Tensor:
    """A float mask (B or 1, H or 1, T or 1, length or 1) whose rows begin at multiples of 8 numbers, where kernels read
    them."""
    room = attn_mask.new_empty(*attn_mask.shape[:3], -(-length // 8) * 8).narrow(-1, 0, length)
    return room.copy_(attn_mask)


def _four_mask(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """A mask (..., t, s) with dimensions of size 1 kept where the operator broadcasts them itself."""
    if len(lead) < 2:
        x = x.unsqueeze(-3)
    if len(lead) <= 2:
        return x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))
    heads = x.size(-3) if x.dim() >= 3 else 1
    return x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:])
