"""How surprised a model is in all, with logits that are never held as a whole.

A softmax over V words at N places has N x V logits: more numbers than all of a small model's layers together. Here they
are computed for some places at a time, and what the loss wants of the states and of the words' vectors is taken from
them at once, so that nobody needs them again.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.scores import wide
from regard.text import IGNORED

Say = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""What is made of states (..., D), the vectors of all words (V, D) and a bias (V,): torch's `linear` makes logits."""

HELD = {"cpu": 2**22, "cuda": 2**29}  # logits at a time; a GPU needs thousands of places for its products to be quick
FEWEST = 64  # places at a time
ALIGNED = 64  # on a GPU, products whose sizes are multiples of it are quick


class Surprise(NamedTuple):
    """- ln p of the targets (...), summed over those that are not IGNORED: (), in float32 at least.

    model(inputs, say=Surprise(targets))     # what Logits(model(inputs)).surprise(targets).sum() is

    Under autocast the products are computed in its dtype, all else in float32. `smoothing` spreads that share.
    """

    targets: Tensor
    smoothing: float = 0.0

    def __call__(self, states: Tensor, words: Tensor, bias: Tensor | None = None) -> Tensor:
        device = states.device.type
        if torch.is_autocast_enabled(device):
            states = states.to(torch.get_autocast_dtype(device))
        elif states.dtype != words.dtype:
            states = states.to(words.dtype)
        total: Tensor = _Total.apply(states.flatten(0, -2), words, bias, self.targets.flatten(), self.smoothing)
        return total


class _Total(torch.autograd.Function):
    """The sum, with its slopes from the same pass."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, words: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        summed = _operator if torch.compiler.is_compiling() else _summed
        total, *slopes = summed(states, words, bias, targets, smoothing, any(ctx.needs_input_grad))
        ctx.save_for_backward(*slopes)
        ctx.biased = bias is not None
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, towards: Tensor) -> tuple[Tensor | None, ...]:
        for_states, for_words, for_bias = (slope * towards for slope in ctx.saved_tensors)
        return for_states, for_words, for_bias if ctx.biased else None, None, None


def _summed(
    states: Tensor, words: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """states (N, D), words (V, D), targets (N,): the sum, and what it wants of states, words and bias; zeros if not
    `slopes`."""
    size, dtype = len(words), states.dtype
    precise = wide(words[:0]).dtype
    near, shift = _aligned(words, bias, dtype)
    total = torch.zeros((), dtype=precise, device=states.device)
    for_states, for_words = torch.zeros_like(states), torch.zeros_like(near, dtype=precise)
    for_bias = torch.zeros(len(near), dtype=precise, device=states.device)
    for places in _portions(len(states), len(near), states.device.type):
        logits = states[places] @ near.mT if shift is None else torch.addmm(shift, states[places], near.mT)
        some, slope = _of_logits(logits, targets[places], size, smoothing)
        total += some.sum()
        if slopes:
            torch.mm(slope, near, out=for_states[places])
            _accumulate(for_words, slope.mT, states[places])
            if bias is not None:
                for_bias += slope.sum(0, dtype=precise)
        del logits, slope  # there is never more than one portion in memory
    for_bias = for_bias[:size] if bias is not None else for_bias[:0]
    return total, for_states, for_words[:size].to(words.dtype), for_bias.to(words.dtype)


_operator = torch.library.custom_op("regard::summed_surprise", _summed, mutates_args=())
"""The same as one operator, which compilers need not look into."""


@_operator.register_fake
def _(
    states: Tensor, words: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, slopes: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = states.new_empty((), dtype=wide(words[:0]).dtype)
    for_bias = words.new_empty(0 if bias is None else len(words))
    return total, torch.empty_like(states), words.new_empty(words.shape), for_bias


def _accumulate(total: Tensor, one: Tensor, other: Tensor) -> None:
    """total += one @ other; on a GPU inside the product also where that is of half precision and the total is not."""
    if total.dtype == one.dtype:
        total.addmm_(one, other)
    elif total.device.type == "cuda":
        torch.addmm(total, one, other, out_dtype=total.dtype, out=total)
    else:
        total += one @ other


def _aligned(words: Tensor, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Words and bias as the products take them: on a GPU with some words more, of which nobody speaks."""
    more = -len(words) % ALIGNED if words.device.type == "cuda" else 0
    if not more:
        return words.to(dtype), None if bias is None else bias.to(dtype)
    near = words.new_zeros(len(words) + more, words.size(1), dtype=dtype)
    near[: len(words)] = words
    shift = None if bias is None else torch.nn.functional.pad(bias.to(dtype), (0, more))
    return near, shift


def _portions(count: int, size: int, device: str) -> list[slice]:
    """All places in even portions, so many that the logits of one are few enough."""
    held = max(FEWEST, HELD.get(device, HELD["cuda"]) // size)
    step = -(-count // max(1, -(-count // held)))
    step = max(1, -(-step // FEWEST) * FEWEST)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _of_logits(logits: Tensor, targets: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The surprise (n,) and its slopes (n, V') by logits (n, V'), of which the first `size` of a row are words'; the
    logits may be overwritten."""
    if logits.device.type == "cuda" and find_spec("triton") is not None:
        from regard.models.cross_entropy_triton import of_logits

        return of_logits(logits, targets, size, smoothing)
    there = targets != IGNORED
    picked = targets.where(there, 0).unsqueeze(-1)
    logs = wide(logits[:, :size]).log_softmax(-1)
    found = -logs.gather(-1, picked).squeeze(-1)
    if smoothing:
        found = (1 - smoothing) * found - smoothing * logs.mean(-1)
    slope = logs.exp_()
    if smoothing:
        slope -= smoothing / size
    slope.scatter_add_(-1, picked, slope.new_full((), smoothing - 1).expand(picked.shape))
    slope.index_fill_(0, (~there).nonzero().squeeze(-1), 0.0)
    if size < logits.size(1):
        slope = torch.nn.functional.pad(slope, (0, logits.size(1) - size))
    return found * there, slope.to(logits.dtype)
