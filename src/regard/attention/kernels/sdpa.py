"""The dot family through PyTorch's fused attention, with its log-sum-exp; statistics come from a second pass.

The fused kernels return the log-sum-exp only from their private operators, so those are called here, each behind the
checks that PyTorch's public function would make.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import Prepared, working
from regard.attention.kernels.row_blocks import COMFORT, Scratch, blocks, parts
from regard.attention.kernels.shapes import as_four
from regard.attention.kernels.statistics import Statistics
from regard.attention.kernels.stream import exponentials
from regard.attention.mask_analysis import hides_nothing
from regard.attention.masks import Window
from regard.attention.observe import Attended, Observe
from regard.attention.scores import Dot

NAME = "sdpa"
CUDNN_WIDEST, CUDNN_FEWEST = 128, 64  # a vector's numbers, and queries or keys, that cuDNN is asked for


def refuses(prepared: Prepared, v: Tensor, dropout: float) -> str | None:
    """Why this kernel cannot serve the request, in words; None: it can."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    if not isinstance(prepared.score, Dot):
        return f"it computes dot products, and {type(prepared.score).__name__} is none"
    if prepared.window is not None:
        return "it has no predicted window"
    if q.device.type not in ("cpu", "cuda"):
        return f"it runs on cpu and cuda, not on {q.device.type}"
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


def mask_size(prepared: Prepared) -> int:
    """How many numbers the mask and bias would fill for the fused operator; 0: it knows this mask by itself."""
    if prepared.bias is None and (_is_causal(prepared) or hides_nothing(prepared.mask, prepared.grid)):
        return 0
    grid = prepared.grid
    twice = torch.zeros(2, dtype=torch.long, device=grid.device)  # a tile of 2 x 2 tells which dimensions are real
    *lead, rows, cols = prepared.mask.allowed(twice, twice, grid).shape
    if prepared.bias is not None:
        lead, rows, cols = [*torch.broadcast_shapes(tuple(lead), prepared.bias.own_lead(grid))], 2, 2
    return prod(lead) * (grid.T if rows == 2 else 1) * (grid.S if cols == 2 else 1)


def compute(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """Output and log-sum-exp from the fused operator, then whatever is to be observed."""
    fused = _Fused.of(prepared, v)
    output, raw_lse = fused.run(dropout)
    grid = prepared.grid
    output = output.reshape(*grid.lead, grid.T, v.size(-1)).to(v.dtype)
    lse = fused.differentiable(raw_lse.detach()).reshape(*grid.lead, grid.T)
    if fused.added is not None:
        empty = (fused.added == -torch.inf).all(-1).expand(raw_lse.shape).reshape(lse.shape)
        lse = lse.masked_fill(empty, -torch.inf)
        output = output.masked_fill(empty.unsqueeze(-1), 0.0)
    found = {} if not observe.statistics else _statistics(prepared, observe)
    return Attended(output, lse, NAME, **found)


@torch.no_grad()
def _statistics(prepared: Prepared, observe: Observe) -> dict[str, Any]:
    """The second pass: weights without their average. It takes each row's own maximum and sum, since the operator's
    log-sum-exp is off by more than a weight can bear where scores are huge, or in half precision."""
    statistics = Statistics(observe, prepared.grid, working(prepared.q.dtype))
    precise = prepared.precise()
    scratch = Scratch(precise.q)
    for lead, part in parts(precise):
        for block in blocks(lead, part):
            logs, weights, total, _ = exponentials(part, block, scratch)
            statistics.add(block, weights, logs, total if block.sighted else total.masked_fill(total == 0, 1.0))
    return dict(statistics.found())


@dataclass(frozen=True)
class _Fused:
    """The request in the shape that the fused operators take: (B, H, T, D), one float mask."""

    q: Tensor
    k: Tensor
    v: Tensor
    added: Tensor | None
    causal: bool
    scale: float

    @classmethod
    def of(cls, prepared: Prepared, v: Tensor) -> _Fused:
        assert isinstance(prepared.score, Dot)
        lead = prepared.grid.lead
        q, k, v = as_four(prepared, v)
        if q.device.type == "cpu":  # its operator is no quicker in half precision (measured: 1.0 to 1.8 times float32's
            q, k, v = (x.to(working(x.dtype)) for x in (q, k, v))  # time) and less exact
        added = None if mask_size(prepared) == 0 else _four_mask(_added(prepared), lead)
        causal = added is None and _is_causal(prepared) and not hides_nothing(prepared.mask, prepared.grid)
        return cls(q, k, v, added, causal, prepared.score.scale(k.size(-1)))

    def run(self, dropout: float) -> tuple[Tensor, Tensor]:
        """output (B, H, T, D), and lse (B, H, T) as it is before dropout."""
        aten = torch.ops.aten
        q, k, v = self.q, self.k, self.v
        if q.device.type == "cpu":
            return aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, self.causal, attn_mask=self.added, scale=self.scale
            )
        if self._suits_cudnn():
            output, lse = aten._scaled_dot_product_cudnn_attention(
                q, k, v, None, True, dropout, self.causal, scale=self.scale
            )[:2]
            return output, lse.reshape(q.shape[:3])
        if self.added is None and q.dtype != torch.float32:
            return aten._scaled_dot_product_flash_attention(q, k, v, dropout, self.causal, scale=self.scale)[:2]
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) if x.size(1) < q.size(1) else x for x in (k, v))
        added = self.added
        if added is not None:  # the kernel reads rows of the mask from addresses that are multiples of 8 numbers
            room = added.new_empty(*added.shape[:3], -(-k.size(2) // 8) * 8).narrow(-1, 0, k.size(2))
            added = room.copy_(added).expand(*q.shape[:3], -1)
        output, lse, _, _ = aten._scaled_dot_product_efficient_attention(
            q, k, v, added, True, dropout, self.causal, scale=self.scale
        )
        return output, lse[..., : q.size(2)]

    def _suits_cudnn(self) -> bool:
        """Whether cuDNN's operator serves it, and is the quickest (measured: 1.4 to 1.8 times flash on Hopper)."""
        q, k, v = self.q, self.k, self.v
        return (
            self.added is None
            and q.dtype in (torch.bfloat16, torch.float16)
            and q.size(1) == k.size(1) == v.size(1)
            and q.size(3) <= CUDNN_WIDEST
            and min(q.size(2), k.size(2)) >= CUDNN_FEWEST
            and _has_cudnn(q.device.index)
        )

    def differentiable(self, lse: Tensor) -> Tensor:
        """The operators' log-sum-exp (B, H, T) has no gradient of its own."""
        if torch.is_grad_enabled() and (self.q.requires_grad or self.k.requires_grad):
            return _LogSumExp.apply(lse, self.q, self.k, self.added, self.causal, self.scale)
        return lse


class _LogSumExp(torch.autograd.Function):
    """A log-sum-exp that is known already, and its gradient, computed if ever asked for."""

    @staticmethod
    def forward(
        ctx: Any, lse: Tensor, q: Tensor, k: Tensor, added: Tensor | None, causal: bool, scale: float
    ) -> Tensor:
        ctx.save_for_backward(q, k, added)
        ctx.causal, ctx.scale = causal, scale
        return lse.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None, None, None]:
        q, k, added = ctx.saved_tensors
        for_q, for_k = _slopes(grad, q, k, added, ctx.causal, ctx.scale)
        return None, for_q, for_k, None, None, None


@torch.library.custom_op("regard::lse_slopes", mutates_args=())  # one operator, so that compilers need not look inside
def _slopes(
    grad: Tensor, q: Tensor, k: Tensor, added: Tensor | None, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """What moves sum(grad * lse) when q (B, H, T, D) or k (B, few, S, D) move: weights, some rows of them at a time."""
    precise = working(q.dtype)
    group = q.size(1) // k.size(1)
    keys = k.to(precise).repeat_interleave(group, 1)
    for_q, for_k = torch.empty_like(q), torch.zeros_like(keys)
    cols = torch.arange(k.size(2), device=q.device)
    for rows in torch.arange(q.size(2), device=q.device).split(max(1, COMFORT // (prod(q.shape[:2]) * k.size(2)))):
        asking = q[:, :, rows].to(precise) * scale
        scores = asking @ keys.mT
        if added is not None:
            scores = scores + (added if added.size(2) == 1 else added[:, :, rows])
        if causal:
            scores = scores.masked_fill(cols > rows.unsqueeze(-1), -torch.inf)
        weights = scores.softmax(-1).masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
        weights = weights * grad[:, :, rows].unsqueeze(-1).to(precise)
        for_q[:, :, rows] = (weights @ keys * scale).to(q.dtype)
        for_k += weights.mT @ asking
    return for_q, for_k.unflatten(1, (k.size(1), group)).sum(2).to(k.dtype)


@_slopes.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, added: Tensor | None, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), k.new_empty(k.shape)


def _has_cudnn(device: int) -> bool:
    """Whether this device is one for which cuDNN has such an operator."""
    return torch.backends.cudnn.is_available() and torch.cuda.get_device_capability(device) in ((9, 0), (10, 0))


# what torch.compiler.assume_constant_result does, which would import the whole compiler
_has_cudnn._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _is_causal(prepared: Prepared) -> bool:
    mask, grid = prepared.mask, prepared.grid
    return (
        isinstance(mask, Window)
        and (mask.left is None and mask.right == 0)
        and (mask.offset is None or (isinstance(mask.offset, int) and mask.offset == 0))
        and grid.T == grid.S
    )


def _added(prepared: Prepared) -> Tensor:
    """Mask and bias as one tensor of numbers to add, no larger than it has to be."""
    grid = prepared.grid
    i, j = prepared.index(slice(None), grid.T), prepared.index(slice(None), grid.S)
    allowed = prepared.mask.allowed(i, j, grid)
    dtype = (
        working(prepared.q.dtype)
        if grid.device.type == "cpu"
        else torch.promote_types(prepared.q.dtype, prepared.k.dtype)
    )
    if prepared.bias is None:
        return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -torch.inf)
    return prepared.bias.tile(i, j).to(dtype).masked_fill(~allowed, -torch.inf)


def _four_mask(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """A mask (..., t, s) with dimensions of size 1 kept where the operator spreads them out itself."""
    if len(lead) < 2:
        x = x.unsqueeze(-3)
    if len(lead) <= 2:
        return x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))
    heads = x.size(-3) if x.dim() >= 3 else 1
    return x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:])
