"""The average in linear memory, on any device, for every score, mask, bias and window: some rows at a time.

A block of rows against all of its keys is computed, observed and forgotten; when gradients are wanted, it is computed
again in the backward pass (torch.utils.checkpoint), so that neither pass ever holds T x S numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.inputs import Prepared, cut_heads, share_heads, working
from regard.attention.kernels.row_blocks import Block, Scratch, blocks, parts
from regard.attention.kernels.statistics import Statistics
from regard.attention.observe import Attended, Observe
from regard.attention.scores import Custom

NAME = "stream"


def compute(prepared: Prepared, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The whole average, block by block."""
    precise = prepared.precise()
    values = v.to(working(v.dtype))
    statistics = Statistics(observe, prepared.grid, values.dtype) if observe.statistics else None
    learns = _learns(precise, v)
    scratch = None if learns else Scratch(values)
    with torch.set_grad_enabled(learns):
        results = []
        for lead, part in parts(precise):
            walk = Walk(part, cut_heads(values, lead, prepared.grid), dropout, statistics, scratch)
            results.append(walk.all_rows(lead, again=learns))
        if statistics is not None:
            statistics.sealed = True
        output, lse = _assemble(results, prepared.grid.lead)
    found = {} if statistics is None else statistics.found()
    return Attended(output.to(v.dtype), lse, NAME, **found)


class Walk:
    """One part of the leading dimensions, walked through by blocks of rows."""

    def __init__(
        self,
        part: Prepared,
        values: Tensor,
        dropout: float,
        statistics: Statistics | None,
        scratch: Scratch | None,
    ) -> None:
        self.part, self.dropout, self.statistics = part, dropout, statistics
        self.scratch = scratch  # None: gradients are wanted, so every block needs memory of its own
        self.values = share_heads(values, part.grid)

    def all_rows(self, lead: tuple[slice, ...], *, again: bool) -> tuple[Tensor, Tensor]:
        """output (..., T, Dv), lse (..., T); `again`: computed anew in the backward pass."""
        done: list[tuple[Tensor, Tensor]] = []
        at = 0
        for block in blocks(lead, self.part):
            if block.rows.start > at:
                done.append(self.nowhere(block.rows.start - at))
            if again:
                rows = checkpoint(self.block, block, use_reentrant=False, preserve_rng_state=self.dropout > 0)
            else:
                rows = self.block(block)
            done.append(rows)
            at = block.rows.stop
        if at < self.part.grid.T or not done:
            done.append(self.nowhere(self.part.grid.T - at))
        output, lse = zip(*done, strict=True)
        return torch.cat(output, -2), torch.cat(lse, -1)

    def block(self, block: Block) -> tuple[Tensor, Tensor]:
        """The rows of one block: softmax of whole rows, averaged."""
        if block.cols.start >= block.cols.stop:
            return self.nowhere(block.rows.stop - block.rows.start)
        logs, powers, total, peak = exponentials(self.part, block, self.scratch)
        empty = None if block.sighted else total == 0
        total = total if empty is None else total.masked_fill(empty, 1.0)
        lse = total.log() + peak
        lse = (lse if empty is None else lse.masked_fill(empty, -torch.inf)).squeeze(-1)
        values = self.values[..., block.cols, :]
        faded = self.part.window is not None
        if faded:
            powers = powers / total * self.part.gain(block.rows, block.cols)
        output = torch.nn.functional.dropout(powers, self.dropout) @ values
        output = output if faded else output / total
        if self.statistics is not None and not self.statistics.sealed:
            self.statistics.add(block, powers, logs, None if faded else total)
        return output, lse

    def nowhere(self, rows: int) -> tuple[Tensor, Tensor]:
        """Rows that may look at no key: zeros, and a log-sum-exp of -inf."""
        lead = self.part.grid.lead
        nothing = sum(x[..., :0, :].sum() for x in (self.part.q, self.part.k, self.values))  # 0, with a zero gradient
        return (
            self.values.new_zeros(*lead, rows, self.values.size(-1)) + nothing,
            self.values.new_full((*lead, rows), -torch.inf) + nothing,
        )


def exponentials(part: Prepared, block: Block, scratch: Scratch | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """ln w, w and its sum (..., t, 1) before division, and the peak (..., t, 1) that was taken off the scores."""
    shape = block.shape(part)
    table = None if scratch is None else scratch.table("scores", shape)
    scores = part.scores(block.rows, block.cols, block.inner, out=table)
    peak = scores.detach().amax(-1, keepdim=True)
    if not block.sighted:
        peak = peak.masked_fill(peak == -torch.inf, 0.0)
    logs = scores - peak if scratch is None else scores.sub_(peak)
    powers = torch.exp(logs, out=None if scratch is None else scratch.table("powers", shape))
    return logs, powers, powers.sum(-1, keepdim=True), peak


def _assemble(results: list[tuple[Tensor, Tensor]], lead: tuple[int, ...]) -> list[Tensor]:
    """The parts together again: they come in order, so stacking them restores the dimensions that were split."""
    if len(results) == 1:
        return list(results[0])
    return [torch.stack(pieces).reshape(*lead, *pieces[0].shape[len(lead) :]) for pieces in zip(*results, strict=True)]


def _learns(prepared: Prepared, v: Tensor) -> bool:
    """Whether any gradient could be wanted. A function of the user's may hold parameters that we cannot see."""
    if not torch.is_grad_enabled():
        return False
    tensors = [prepared.q, prepared.k, v, *prepared.score.parameters()]
    tensors += [] if prepared.aim is None else [prepared.aim]
    tensors += [] if prepared.bias is None else list(prepared.bias.tensors())
    return isinstance(prepared.score, Custom) or any(tensor.requires_grad for tensor in tensors)
