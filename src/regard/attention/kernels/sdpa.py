"""The dot family through PyTorch's fused attention, with its log-sum-exp; statistics come from a second pass.

The fused kernels return the log-sum-exp only from their private operators, so those are called here, each behind the
checks that PyTorch's public function would make.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels import stream
from regard.attention.kernels.blocks import Scratch, blocks, parts
from regard.attention.kernels.statistics import Statistics
from regard.attention.kernels.stream import exponentials
from regard.attention.masks import Window
from regard.attention.observe import Attended, Observe
from regard.attention.prepared import Prepared, working
from regard.attention.reach import hides_nothing
from regard.attention.scores import Dot

NAME = "sdpa"


def refuses(prepared: Prepared, v: Tensor, dropout: float) -> str | None:
    """Why this kernel cannot serve the request, in words; None: it can."""
    q, k, grid = prepared.q, prepared.k, prepared.grid
    if not isinstance(prepared.score, Dot):
        return f"it computes dot products, and {type(prepared.score).__name__} is none"
    if prepared.window is not None:
        return "it has no predicted window"
    if q.device.type not in ("cpu", "cuda"):
        return f"it runs on cpu and cuda, not on {q.device.type}"
    if dropout > 0:
        return "it draws no dropout"
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
    output, raw_lse = fused.run()
    grid = prepared.grid
    output = output.reshape(*grid.lead, grid.T, v.size(-1)).to(v.dtype)
    lse = raw_lse.detach().reshape(*grid.lead, grid.T)
    if fused.added is not None:
        empty = (fused.added == -torch.inf).all(-1).expand(raw_lse.shape).reshape(lse.shape)
        lse = lse.masked_fill(empty, -torch.inf)
        output = output.masked_fill(empty.unsqueeze(-1), 0.0)
    found = {} if not observe.statistics else _statistics(prepared, observe)
    if torch.is_grad_enabled() and (prepared.q.requires_grad or prepared.k.requires_grad):
        lse = _LogSumExp.apply(prepared, lse, prepared.q, prepared.k)
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
        own = {_heads(x, lead) for x in (prepared.k, v)}
        few = own.pop() if len(own) == 1 else lead[-1]  # keys and values with as many heads, each shared by a group
        q = _four(prepared.q, lead, lead[-1] if lead else 1)
        k, v = _four(prepared.k, lead, few), _four(v, lead, few)
        # A score may have prepared one of them in float32. The CPU's operator is no quicker in half precision
        # (measured: 1.0 to 1.8 times float32's time) and less exact, so there all of them are float32.
        common = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
        common = working(common) if q.device.type == "cpu" else common
        q, k, v = (x.to(common) for x in (q, k, v))
        added = None if mask_size(prepared) == 0 else _four_mask(_added(prepared), lead)
        causal = added is None and _is_causal(prepared) and not hides_nothing(prepared.mask, prepared.grid)
        return cls(q, k, v, added, causal, prepared.score.scale(k.size(-1)))

    def run(self) -> tuple[Tensor, Tensor]:
        """output (B, H, T, D) and lse (B, H, T)."""
        aten = torch.ops.aten
        q, k, v = self.q, self.k, self.v
        if q.device.type == "cpu":
            return aten._scaled_dot_product_flash_attention_for_cpu(
                q, k, v, 0.0, self.causal, attn_mask=self.added, scale=self.scale
            )
        if self.added is None and q.dtype != torch.float32:
            return aten._scaled_dot_product_flash_attention(q, k, v, 0.0, self.causal, scale=self.scale)[:2]
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) if x.size(1) < q.size(1) else x for x in (k, v))
        added = self.added
        if added is not None:  # the kernel reads rows of the mask from addresses that are multiples of 8 numbers
            room = added.new_empty(*q.shape[:3], -(-k.size(2) // 8) * 8).narrow(-1, 0, k.size(2))
            added = room.copy_(added.expand(room.shape))
        output, lse, _, _ = aten._scaled_dot_product_efficient_attention(
            q, k, v, added, True, 0.0, self.causal, scale=self.scale
        )
        return output, lse[..., : q.size(2)]


class _LogSumExp(torch.autograd.Function):
    """The operators' log-sum-exp has no gradient of its own: it is the streamed one's, computed if ever asked for."""

    @staticmethod
    def forward(ctx: Any, prepared: Prepared, lse: Tensor, q: Tensor, k: Tensor) -> Tensor:
        ctx.prepared = prepared
        ctx.save_for_backward(q, k)
        return lse.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, Tensor | None, Tensor | None]:
        q, k = (x.detach().requires_grad_() for x in ctx.saved_tensors)
        with torch.enable_grad():
            again = replace(ctx.prepared, q=q, k=k)
            values = torch.zeros(*k.shape[:-1], 1, dtype=k.dtype, device=k.device)
            lse = stream.compute(again, values, 0.0, Observe()).lse
        for_q, for_k = torch.autograd.grad(lse, (q, k), grad)
        return None, None, for_q, for_k


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


def _heads(x: Tensor, lead: tuple[int, ...]) -> int:
    return x.size(-3) if len(lead) >= 2 and x.dim() >= 3 else 1


def _four(x: Tensor, lead: tuple[int, ...], heads: int) -> Tensor:
    """x (..., n, D) with all leading dimensions but the heads spread out and joined: (B, heads, n, D)."""
    if len(lead) < 2:
        return _side_by_side(x.expand(*lead, *x.shape[-2:]).reshape(-1, 1, *x.shape[-2:]))
    if 1 < _heads(x, lead) < heads:
        x = x.repeat_interleave(heads // x.size(-3), -3)
    return _side_by_side(x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:]))


def _side_by_side(x: Tensor) -> Tensor:
    """The operators take a vector's numbers to lie side by side, and do not look."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _four_mask(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """A mask (..., t, s) with dimensions of size 1 kept where the operator spreads them out itself."""
    if len(lead) < 2:
        x = x.unsqueeze(-3)
    if len(lead) <= 2:
        return x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))
    heads = x.size(-3) if x.dim() >= 3 else 1
    return x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:])
