"""Memory-efficient attention, block by block of rows, on any device, for every score, mask, bias and window.

A block of rows against all of its keys is computed, observed and freed; with gradients it is recomputed in the backward
pass (torch.utils.checkpoint), so neither pass ever holds T x S numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.inputs import AttentionInputs, compute_dtype, cut_heads, repeat_kv
from regard.attention.kernels.row_blocks import Block, Scratch, blocks, lead_parts
from regard.attention.kernels.statistics import StreamingStatistics
from regard.attention.observe import Attended, Observe
from regard.attention.scores import CustomScore

NAME = "stream"


def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The whole average, block by block."""
    precise = prepared.precise()
    values = v.to(compute_dtype(v.dtype))
    statistics = StreamingStatistics(observe, prepared.grid, values.dtype) if observe.statistics else None
    needs_grad = _needs_grad(precise, v)
    scratch = None if needs_grad else Scratch(values)
    with torch.set_grad_enabled(needs_grad):
        results = []
        for lead, part in lead_parts(precise):
            walk = RowBlockAttention(part, cut_heads(values, lead, prepared.grid), dropout, statistics, scratch)
            results.append(walk.all_rows(lead, checkpointed=needs_grad))
        if statistics is not None:
            statistics.closed = True
        output, lse = _assemble(results, prepared.grid.lead)
    found = {} if statistics is None else statistics.found()
    return Attended(output.to(v.dtype), lse, NAME, **found)


class RowBlockAttention:
    """Attention of one part of the leading dimensions, block by block of rows."""

    def __init__(
        self,
        part: AttentionInputs,
        values: Tensor,
        dropout: float,
        statistics: StreamingStatistics | None,
        scratch: Scratch | None,
    ) -> None:
        self.part, self.dropout, self.statistics = part, dropout, statistics
        self.scratch = scratch  # None: with gradients, every block needs memory of its own
        self.values = repeat_kv(values, part.grid)

    def all_rows(self, lead: tuple[slice, ...], *, checkpointed: bool) -> tuple[Tensor, Tensor]:
        """output (..., T, Dv), lse (..., T); `checkpointed`: recomputed in the backward pass."""
        done: list[tuple[Tensor, Tensor]] = []
        at = 0
        for block in blocks(lead, self.part):
            if block.rows.start > at:
                done.append(self.no_keys(block.rows.start - at))
            if checkpointed:
                rows = checkpoint(self.block, block, use_reentrant=False, preserve_rng_state=self.dropout > 0)
            else:
                rows = self.block(block)
            done.append(rows)
            at = block.rows.stop
        if at < self.part.grid.T or not done:
            done.append(self.no_keys(self.part.grid.T - at))
        output, lse = zip(*done, strict=True)
        return torch.cat(output, -2), torch.cat(lse, -1)

    def block(self, block: Block) -> tuple[Tensor, Tensor]:
        """The rows of one block: softmax of whole rows, averaged."""
        if block.cols.start >= block.cols.stop:
            return self.no_keys(block.rows.stop - block.rows.start)
        logs, powers, total, peak = exponentials(self.part, block, self.scratch)
        empty = None if block.all_live else total == 0
        total = total if empty is None else total.masked_fill(empty, 1.0)
        lse = total.log() + peak
        lse = (lse if empty is None else lse.masked_fill(empty, -torch.inf)).squeeze(-1)
        values = self.values[..., block.cols, :]
        windowed = self.part.window is not None
        if windowed:
            powers = powers / total * self.part.window_weight(block.rows, block.cols)
        output = torch.nn.functional.dropout(powers, self.dropout) @ values
        output = output if windowed else output / total
        if self.statistics is not None and not self.statistics.closed:
            self.statistics.add(block, powers, logs, None if windowed else total)
        return output, lse

    def no_keys(self, rows: int) -> tuple[Tensor, Tensor]:
        """Rows without keys: zeros, and a log-sum-exp of -inf."""
        lead = self.part.grid.lead
        zero = sum(x[..., :0, :].sum() for x in (self.part.q, self.part.k, self.values))  # with a zero gradient
        return (
            self.values.new_zeros(*lead, rows, self.values.size(-1)) + zero,
            self.values.new_full((*lead, rows), -torch.inf) + zero,
        )


def exponentials(part: AttentionInputs, block: Block, scratch: Scratch | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ln w, w and its sum (..., t, 1) before division, and the peak (..., t, 1) that was subtracted."""
    shape = block.shape(part)
    buffer = None if scratch is None else scratch.buffer("scores", shape)
    scores = part.scores(block.rows, block.cols, block.inner, out=buffer)
    peak = scores.detach().amax(-1, keepdim=True)
    if not block.all_live:
        peak = peak.masked_fill(peak == -torch.inf, 0.0)
    logs = scores - peak if scratch is None else scores.sub_(peak)
    powers = torch.exp(logs, out=None if scratch is None else scratch.buffer("powers", shape))
    return logs, powers, powers.sum(-1, keepdim=True), peak


def _assemble(results: list[tuple[Tensor, Tensor]], lead: tuple[int, ...]) -> list[Tensor]:
    """Join the parts: they come in order, so stacking them restores the dimensions that were split."""
    if len(results) == 1:
        return list(results[0])
    return [torch.stack(pieces).reshape(*lead, *pieces[0].shape[len(lead) :]) for pieces in zip(*results, strict=True)]


def _needs_grad(prepared: AttentionInputs, v: Tensor) -> bool:
    """Whether a gradient may be needed. A user's function may hold parameters that we cannot see."""
    if not torch.is_grad_enabled():
        return False
    tensors = [prepared.q, prepared.k, v, *prepared.score.parameters()]
    tensors += [] if prepared.predicted is None else [prepared.predicted]
    tensors += [] if prepared.bias is None else list(prepared.bias.tensors())
    return isinstance(prepared.score, CustomScore) or any(tensor.requires_grad for tensor in tensors)
