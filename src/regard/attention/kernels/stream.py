"""Memory-efficient attention, block by block of rows, on any device, for every score, mask, bias and window.

A block of rows against all of its keys is computed, observed and freed; with gradients it is recomputed in the backward
pass (torch.utils.checkpoint), so neither pass ever holds T x S numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard.attention.inputs import AttentionInputs, compute_dtype, cut_heads, repeat_kv
from regard.attention.kernels.operator_inputs import as_arguments, from_arguments, unsupported_reason
from regard.attention.kernels.row_blocks import Block, Scratch, blocks, lead_parts
from regard.attention.kernels.statistics import (
    WAITS_FOR_DEVICE,
    StreamingStatistics,
    empty_statistics,
    request_of,
    requested,
    statistics_of,
    tensors_of,
)
from regard.attention.normalise import Sink
from regard.attention.observe import Attended, Observe
from regard.attention.operator_arguments import OperatorArguments
from regard.attention.scores import CustomScore
from regard.attention.transforms import autograd_inside_operator, uncompiled

NAME = "stream"


def compute(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Attended:
    """The whole average, block by block; a compiled graph calls it as one operator."""
    if torch.compiler.is_compiling() and unsupported_reason(prepared) is None:
        output, lse, found = _by_operator(prepared, v, dropout, observe)
    else:
        output, lse, found = _uncompiled(prepared, v, dropout, observe)
    return Attended(output, lse, NAME, **found)


Streamed = tuple[Tensor, Tensor, Mapping[str, Any]]


@uncompiled(
    "The backend 'stream' calls this score or normaliser, which is Python code of its own, block by block, and a "
    "graph would be one for each length. Compile without fullgraph, or pass backend='plain', which holds the whole map."
)
def _uncompiled(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Streamed:
    return in_blocks(prepared, v, dropout, observe, _needs_grad(prepared, v))


def in_blocks(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe, needs_grad: bool) -> Streamed:
    """Output (..., T, Dv), log-sum-exp (..., T), statistics."""
    precise = prepared.precise()
    values = v.to(compute_dtype(v.dtype))
    statistics = None
    if observe.statistics:
        has_sink = isinstance(prepared.normalise, Sink)
        statistics = StreamingStatistics(observe, prepared.grid, values.dtype, has_sink)
    scratch = None if needs_grad else Scratch(values)
    with torch.set_grad_enabled(needs_grad):
        results = []
        for lead, part in lead_parts(precise):
            walk = RowBlockAttention(part, cut_heads(values, lead, prepared.grid), dropout, statistics, scratch)
            results.append(walk.all_rows(lead, checkpointed=needs_grad))
        if statistics is not None:
            statistics.closed = True
        output, lse = _assemble(results, prepared.grid.lead)
    return output.to(v.dtype), lse, {} if statistics is None else statistics.found()


def _by_operator(prepared: AttentionInputs, v: Tensor, dropout: float, observe: Observe) -> Streamed:
    packed, form = as_arguments(prepared)
    value_name = packed.text(v)
    # dropout of the forward pass and of the one that is repeated for gradients draws from one seed
    seed = torch.randint(2**62, (), device="cpu") if dropout > 0 else None
    request = packed.text(request_of(observe))
    output, lse, *found = _operator(*packed.all(), value_name, form, request, dropout, seed)
    return output, lse, statistics_of(observe, [x.detach() for x in found])


@torch.library.custom_op("regard::stream", mutates_args=(), tags=WAITS_FOR_DEVICE)
def _operator(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float],
    value_name: str, form: str, request: str, dropout: float, seed: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """Output, log-sum-exp, and the requested statistics."""
    packed = OperatorArguments(shape, tensors, sizes, numbers)
    v, inputs = packed.value(value_name), from_arguments(packed, form)
    observe = requested(packed.value(request))
    with seeded_dropout(seed, v):
        output, lse, found = in_blocks(inputs, v, dropout, observe, needs_grad=False)
    return [output.contiguous(), lse.contiguous(), *(tensors_of(found) if observe.statistics else [])]


@_operator.register_fake
def _(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float],
    value_name: str, form: str, request: str, dropout: float, seed: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    packed = OperatorArguments(shape, tensors, sizes, numbers)
    v, observe, grid = packed.value(value_name), requested(packed.value(request)), packed.grid
    output, dtype = v.new_empty(*grid.lead, grid.T, v.size(-1)), compute_dtype(v.dtype)
    precise = compute_dtype(torch.promote_types(tensors[0].dtype, tensors[1].dtype))
    return [output, v.new_empty(*grid.lead, grid.T, dtype=precise), *empty_statistics(observe, grid, dtype)]


@torch.library.custom_op("regard::stream_gradients", mutates_args=(), tags=WAITS_FOR_DEVICE)
def _gradients(
    grad_output: Tensor, grad_lse: Tensor, wanted: list[int],
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float],
    value_name: str, form: str, dropout: float, seed: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    """The gradients of the tensors of these numbers."""
    inputs = [x.detach().requires_grad_(n in wanted) for n, x in enumerate(tensors)]
    packed = OperatorArguments(shape, inputs, sizes, numbers)
    with autograd_inside_operator(), seeded_dropout(seed, grad_output):
        v, prepared = packed.value(value_name), from_arguments(packed, form)
        output, lse, _ = in_blocks(prepared, v, dropout, Observe(), needs_grad=True)
        leaves, results = [inputs[n] for n in wanted], [(output, grad_output), (lse, grad_lse)]
        roots, grads = zip(*(pair for pair in results if pair[0].requires_grad), strict=True)
        found = torch.autograd.grad(roots, leaves, grads, allow_unused=True)
    return [torch.zeros_like(x) if one is None else one.contiguous() for x, one in zip(leaves, found, strict=True)]


@_gradients.register_fake
def _(
    grad_output: Tensor, grad_lse: Tensor, wanted: list[int],
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float],
    value_name: str, form: str, dropout: float, seed: Tensor | None,
) -> list[Tensor]:  # fmt: skip
    return [tensors[n].new_empty(tensors[n].shape) for n in wanted]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    tensors, *ctx.numbers, ctx.value_name, ctx.form, _, ctx.dropout, seed = inputs
    ctx.save_for_backward(*tensors, *([] if seed is None else [seed]))
    ctx.count = len(tensors)
    # an empty list passes for one of tensors, whose gradients are an empty list
    ctx.rest = [[] if isinstance(one, list) and not one else None for one in inputs[1:]]


def _backward(ctx: Any, grads: list[Tensor | None]) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    tensors, seed = saved[: ctx.count], saved[ctx.count] if len(saved) > ctx.count else None
    wanted = [n for n, x in enumerate(tensors) if ctx.needs_input_grad[0][n] and x.is_floating_point()]
    found: list[Tensor | None] = [None] * ctx.count
    how = tensors, *ctx.numbers, ctx.value_name, ctx.form, ctx.dropout, seed
    for n, grad in zip(wanted, _gradients(grads[0], grads[1], wanted, *how), strict=True):
        found[n] = grad
    return found, *ctx.rest


_operator.register_autograd(_backward, setup_context=_setup_context)


@contextmanager
def seeded_dropout(seed: Tensor | None, like: Tensor) -> Iterator[None]:
    """Inside, random numbers come from this seed, and the generators are as before afterwards."""
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[like.device] if like.is_cuda else []):
        torch.manual_seed(int(seed))
        yield


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
        logs, powers, total, lse, peak = exponentials(self.part, block, self.scratch)
        windowed = self.part.window is not None
        if windowed:
            powers = powers / total * self.part.window_weight(block.rows, block.cols)
        output = torch.nn.functional.dropout(powers, self.dropout) @ self.values[..., block.cols, :]
        output = output if windowed else output / total
        self.observe(block, powers, logs, None if windowed else total, peak)
        return output, lse.squeeze(-1)

    def normalised_block(self, block: Block) -> tuple[Tensor, Tensor]:
        """The rows of one block by a normaliser that needs the scores of a whole row at once: sparsemax, entmax."""
        scores = self.part.scores(block.rows, block.cols, block.inner)
        empty = (scores == -torch.inf).all(-1, keepdim=True)
        weights, lse = self.part.normalise.normalise(scores.masked_fill(empty, 0.0))
        weights = weights.masked_fill(empty, 0.0)
        output = torch.nn.functional.dropout(weights, self.dropout) @ self.values[..., block.cols, :]
        self.observe(block, weights.detach().clone(), scores, None, scores.detach().amax(-1, keepdim=True))
        return output, lse.masked_fill(empty.squeeze(-1), -torch.inf)

    def observe(self, block: Block, weights: Tensor, logs: Tensor, total: Tensor | None, peak: Tensor) -> None:
        if self.statistics is not None and not self.statistics.closed:
            self.statistics.add(block, weights, logs, total, peak)

    def no_keys(self, rows: int) -> tuple[Tensor, Tensor]:
        """Rows without keys: zeros, and a log-sum-exp of -inf."""
        lead = self.part.grid.lead
        zero = sum(x[..., :0, :].sum() for x in (self.part.q, self.part.k, self.values))  # with a zero gradient
        return (
            self.values.new_zeros(*lead, rows, self.values.size(-1)) + zero,
            self.values.new_full((*lead, rows), -torch.inf) + zero,
        )


def exponentials(
    part: AttentionInputs, block: Block, scratch: Scratch | None
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """ln w and w before division, what they are divided by, the log-sum-exp and the largest score (..., t, 1).

    A sink counts in what they are divided by; a row without keys is divided by 1, and its log-sum-exp is -inf.
    """
    shape = block.shape(part)
    buffer = None if scratch is None else scratch.buffer("scores", shape)
    scores = part.scores(block.rows, block.cols, block.inner, out=buffer)
    largest = peak = scores.detach().amax(-1, keepdim=True)
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
        return logs, powers, total, total.log() + peak, largest
    total = total.masked_fill(empty, 1.0)
    return logs, powers, total, (total.log() + peak).masked_fill(empty, -torch.inf), largest


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
