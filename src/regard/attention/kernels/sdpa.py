"""The dot family through PyTorch's fused attention, with its log-sum-exp; statistics come from a second pass.

The fused kernels return the log-sum-exp only from their private operators, so those are called here, each behind the
checks that PyTorch's public function would make. From it, exp(score - lse) gives the final weight of any pair, and one
pass over blocks of rows, without maxima or sums of its own, tells every statistic.
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
from regard.attention.masks import Window, hides_nothing
from regard.attention.observe import Attended, Observe
from regard.attention.prepared import Prepared
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
    if not q.dtype == k.dtype == v.dtype:
        return f"it needs one dtype, and got prepared queries of {q.dtype}, keys of {k.dtype}, values of {v.dtype}"
    if dropout > 0:
        return "it draws no dropout"
    if v.size(-1) != k.size(-1):
        return f"it needs values as wide as prepared keys, and got {v.size(-1)} and {k.size(-1)}"
    if v.dim() >= 3 and k.dim() >= 3 and v.size(-3) != k.size(-3) and len(grid.lead) >= 2:
        return f"it needs as many value heads as key heads, and got {v.size(-3)} and {k.size(-3)}"
    if 0 in (grid.T, grid.S, q.size(-1), *grid.lead):
        return "it needs at least one query, one key and one number in each"
    if prepared.bias is not None and any(tensor.requires_grad for tensor in prepared.bias.tensors()):
        return "it gives no gradient to a bias"
    if q.device.type == "cuda" and (q.size(-1) % 8 or q.size(-1) > 256):
        return f"on cuda it needs a width that is a multiple of 8 up to 256, and got {q.size(-1)}"
    if q.device.type == "cuda" and q.dtype == torch.float64:
        return "on cuda it computes in float32, bfloat16 and float16"
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
    output = output.reshape(*grid.lead, grid.T, v.size(-1))
    lse = raw_lse.detach().reshape(*grid.lead, grid.T)
    if fused.added is not None:
        empty = (fused.added == -torch.inf).all(-1).expand(raw_lse.shape).reshape(lse.shape)
        lse = lse.masked_fill(empty, -torch.inf)
        output = output.masked_fill(empty.unsqueeze(-1), 0.0)
    found = {} if not observe.statistics else _statistics(prepared, lse, observe)
    if torch.is_grad_enabled() and (prepared.q.requires_grad or prepared.k.requires_grad):
        lse = _LogSumExp.apply(prepared, lse, prepared.q, prepared.k)
    weights = stream.compute(prepared, v, 0.0, Observe(weights=True)).weights if observe.weights else None
    return Attended(output, lse, NAME, weights=weights, **found)


@torch.no_grad()
def _statistics(prepared: Prepared, lse: Tensor, observe: Observe) -> dict[str, Any]:
    """The pass from the log-sum-exp: every block of weights is final as soon as it is computed."""
    statistics = Statistics(observe, prepared.grid, lse.dtype)
    precise = replace(prepared.precise(), lse=lse.masked_fill(lse == -torch.inf, 0.0))
    scratch = Scratch(precise.q)
    for lead, part in parts(precise):
        assert part.lse is not None
        for block in blocks(lead, part):
            shape = block.shape(part)
            logs = part.scores(block.rows, block.cols, block.inner, out=scratch.table("scores", shape))
            logs.sub_(part.lse[..., block.rows].unsqueeze(-1))
            statistics.add(block, torch.exp(logs, out=scratch.table("powers", shape)), logs)
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
        q, k, v = (_four(x, lead) for x in (prepared.q, prepared.k, v))
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
    dtype = prepared.q.dtype
    if prepared.bias is None:
        return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, -torch.inf)
    return prepared.bias.tile(i, j).to(dtype).masked_fill(~allowed, -torch.inf)


def _four(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """x (..., n, D) with all leading dimensions but the heads spread out and joined: (B, H or Hk, n, D)."""
    heads = x.size(-3) if len(lead) >= 2 and x.dim() >= 3 else 1
    outer = lead[:-1] if len(lead) >= 2 else lead
    if len(lead) < 2:
        x = x.unsqueeze(-3)
    return x.expand(*outer, heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:])


def _four_mask(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """A mask (..., t, s) with dimensions of size 1 kept where the operator spreads them out itself."""
    if len(lead) < 2:
        x = x.unsqueeze(-3)
    if len(lead) <= 2:
        return x.reshape((1,) * (4 - x.dim()) + tuple(x.shape))
    heads = x.size(-3) if x.dim() >= 3 else 1
    return x.expand(*lead[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:])
