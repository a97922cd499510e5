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
from regard.attention.normalise import Sink
from regard.attention.observe import Attended, Observe
from regard.attention.scores import CustomScore
from regard.attention.transforms import uncompiled

NAME = "stream"


@uncompiled
def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The whole average, block by block."""
    precise = prepared.precise()
    values = v.to(compute_dtype(v.dtype))
    statistics = None
    if observe.statistics:
        has_sink = isinstance(prepared.normalise, Sink)
        statistics = StreamingStatistics(observe, prepared.grid, values.dtype, has_sink)
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
        if not self.part.normalise.is_softmax:
            return self.normalised_block(block)
        logs, powers, total, lse = exponentials(self.part, block, self.scratch)
        windowed = self.part.window is not None
        if windowed:
            powers = powers / total * self.part.window_weight(block.rows, block.cols)
        output = torch.nn.functional.dropout(powers, self.dropout) @ self.values[..., block.cols, :]
        output = output if windowed else output / total
        self.observe(block, powers, logs, None if windowed else total)
        return output, lse.squeeze(-1)

    def normalised_block(self, block: Block) -> tuple[Tensor, Tensor]:
        """The rows of one block by a normaliser that needs the scores of a whole row at once: sparsemax, entmax."""
        scores = self.part.scores(block.rows, block.cols, block.inner)
        empty = (scores == -torch.inf).all(-1, keepdim=True)
        weights, lse = self.part.normalise.normalise(scores.masked_fill(empty, 0.0))
        weights = weights.masked_fill(empty, 0.0)
        output = torch.nn.functional.dropout(weights, self.dropout) @ self.values[..., block.cols, :]
        self.observe(block, weights.detach().clone(), scores, None)
        return output, lse.masked_fill(empty.squeeze(-1), -torch.inf)

    def observe(self, block: Block, weights: Tensor, logs: Tensor, total: Tensor | None) -> None:
        if self.statistics is not None and not self.statistics.closed:
            self.statistics.add(block, weights, logs, total)

    def no_keys(self, rows: int) -> tuple[Tensor, Tensor]:
        """Rows without keys: zeros, and a log-sum-exp of -inf."""
        lead = self.part.grid.lead
        zero = sum(x[..., :0, :].sum() for x in (self.part.q, self.part.k, self.values))  # with a zero gradient
        return (
            self.values.new_zeros(*lead, rows, self.values.size(-1)) + zero,
            self.values.new_full((*lead, rows), -torch.inf) + zero,
        )


def exponentials(part: AttentionInputs, block: Block, scratch: Scratch | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ln w and w before division, what they are divided by (..., t, 1), and the log-sum-exp (..., t, 1).

    A sink counts in what they are divided by; a row without keys is divided by 1, and its log-sum-exp is -inf.
    """
    shape = block.shape(part)
    buffer = None if scratch is None else scratch.buffer("scores", shape)
    scores = part.scores(block.rows, block.cols, block.inner, out=buffer)
    peak = scores.detach().amax(-1, keepdim=True)
    empty = None if block.all_live else peak == -torch.inf
    sink = part.normalise.column(scores.dtype).unsqueeze(-1) if isinstance(part.normalise, Sink) else None
    if sink is not None:
        peak = torch.maximum(peak, sink.detach())
    if empty is not None:
        peak = peak.masked_fill(empty, 0.0)
    logs = scores - peak if scratch is None else scores.sub_(peak)
    powers = torch.exp(logs, out=None if scratch is None else scratch.buffer("powers", shape))
    total = powers.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - peak)
    if empty is None:
        return logs, powers, total, total.log() + peak
    total = total.masked_fill(empty, 1.0)
    return logs, powers, total, (total.log() + peak).masked_fill(empty, -torch.inf)


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
    tensors += list(prepared.normalise.tensors())
    return isinstance(prepared.score, CustomScore) or any(tensor.requires_grad for tensor in tensors)
