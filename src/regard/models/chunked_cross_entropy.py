"""Total cross-entropy with label smoothing, computed in chunks so that the logits are never materialised (linear
cross-entropy).

A softmax over V words at N positions has N x V logits: more numbers than all of a small model's layers together. Here
they are computed for some positions at a time, and the gradients of states and output embeddings are taken from them
at once, so that the logits need not be kept. The definition it equals is `cross_entropy.Logits.nll`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.scores import upcast
from regard.text import IGNORED

OutputHead = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""What maps states (..., D), output embeddings (V, D) and a bias (V,) to a result: torch's `linear` gives logits."""

MAX_LOGITS = {"cpu": 2**22, "cuda": 2**29}  # logits at a time; a GPU needs thousands of positions for fast products
MIN_CHUNK = 64  # positions at a time
ALIGNMENT = 64  # on a GPU, products whose sizes are multiples of it are fast


class LinearCrossEntropy(NamedTuple):
    """Output head that gives the total cross-entropy of the targets (...) that are not IGNORED, in float32 at least.

    model(inputs, head=LinearCrossEntropy(targets))     # equals Logits(model(inputs)).nll(targets).sum()

    Under autocast the products are computed in its dtype, all else in float32. `smoothing`: label smoothing.
    """

    targets: Tensor
    smoothing: float = 0.0

    def __call__(self, states: Tensor, words: Tensor, bias: Tensor | None = None) -> Tensor:
        device = states.device.type
        if torch.is_autocast_enabled(device):
            states = states.to(torch.get_autocast_dtype(device))
        elif states.dtype != words.dtype:
            states = states.to(words.dtype)
        total: Tensor = _SummedNLL.apply(states.flatten(0, -2), words, bias, self.targets.flatten(), self.smoothing)
        return total


class _SummedNLL(torch.autograd.Function):
    """The sum, with its gradients from the same pass."""

    @staticmethod
    def forward(
        ctx: Any, states: Tensor, words: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        compute = _operator if torch.compiler.is_compiling() else _nll_and_gradients
        total, *grads = compute(states, words, bias, targets, smoothing, any(ctx.needs_input_grad))
        ctx.save_for_backward(*grads)
        ctx.has_bias = bias is not None
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states_grad, words_grad, bias_grad = (saved * grad for saved in ctx.saved_tensors)
        return states_grad, words_grad, bias_grad if ctx.has_bias else None, None, None


def _nll_and_gradients(
    states: Tensor, words: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, with_grads: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """states (N, D), words (V, D), targets (N,): the sum, and its gradients by states, words and bias (zeros without
    `with_grads`)."""
    size, dtype = len(words), states.dtype
    precise = upcast(words[:0]).dtype
    padded, padded_bias = _pad_vocabulary(words, bias, dtype)
    total = torch.zeros((), dtype=precise, device=states.device)
    states_grad, words_grad = torch.zeros_like(states), torch.zeros_like(padded, dtype=precise)
    bias_grad = torch.zeros(len(padded), dtype=precise, device=states.device)
    for chunk in _chunks(len(states), len(padded), states.device.type):
        if padded_bias is None:
            logits = states[chunk] @ padded.mT
        else:
            logits = torch.addmm(padded_bias, states[chunk], padded.mT)
        nll, grad = _nll_of_logits(logits, targets[chunk], size, smoothing)
        total += nll.sum()
        if with_grads:
            torch.mm(grad, padded, out=states_grad[chunk])
            _add_product(words_grad, grad.mT, states[chunk])
            if bias is not None:
                bias_grad += grad.sum(0, dtype=precise)
        del logits, grad  # there is never more than one chunk in memory
    bias_grad = bias_grad[:size] if bias is not None else bias_grad[:0]
    return total, states_grad, words_grad[:size].to(words.dtype), bias_grad.to(words.dtype)


_operator = torch.library.custom_op("regard::chunked_cross_entropy", _nll_and_gradients, mutates_args=())
"""The same as one custom operator, which torch.compile does not trace into."""


@_operator.register_fake
def _(
    states: Tensor, words: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, with_grads: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = states.new_empty((), dtype=upcast(words[:0]).dtype)
    bias_grad = words.new_empty(0 if bias is None else len(words))
    return total, torch.empty_like(states), words.new_empty(words.shape), bias_grad


def _add_product(total: Tensor, one: Tensor, other: Tensor) -> None:
    """total += one @ other; on a GPU in one kernel, also for half-precision factors and a float32 total."""
    if total.dtype == one.dtype:
        total.addmm_(one, other)
    elif total.device.type == "cuda":
        torch.addmm(total, one, other, out_dtype=total.dtype, out=total)
    else:
        total += one @ other


def _pad_vocabulary(words: Tensor, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Words and bias in the dtype of the products; on a GPU padded to a multiple of ALIGNMENT words."""
    more = -len(words) % ALIGNMENT if words.device.type == "cuda" else 0
    if not more:
        return words.to(dtype), None if bias is None else bias.to(dtype)
    padded = words.new_zeros(len(words) + more, words.size(1), dtype=dtype)
    padded[: len(words)] = words
    return padded, None if bias is None else torch.nn.functional.pad(bias.to(dtype), (0, more))


def _chunks(count: int, size: int, device: str) -> list[slice]:
    """All positions in even chunks, each with at most MAX_LOGITS logits."""
    limit = max(MIN_CHUNK, MAX_LOGITS.get(device, MAX_LOGITS["cuda"]) // size)
    step = -(-count // max(1, -(-count // limit)))
    step = max(1, -(-step // MIN_CHUNK) * MIN_CHUNK)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def _nll_of_logits(logits: Tensor, targets: Tensor, size: int, smoothing: float) -> tuple[Tensor, Tensor]:
    """The cross-entropy (n,) and its gradient (n, V') by logits (n, V'), of which the first `size` of a row are words;
    the logits may be overwritten."""
    if logits.device.type == "cuda" and find_spec("triton") is not None:
        from regard.models.chunked_cross_entropy_triton import nll_and_gradients

        return nll_and_gradients(logits, targets, size, smoothing)
    counted = targets != IGNORED
    picked = targets.where(counted, 0).unsqueeze(-1)
    logs = upcast(logits[:, :size]).log_softmax(-1)
    nll = -logs.gather(-1, picked).squeeze(-1)
    if smoothing:
        nll = (1 - smoothing) * nll - smoothing * logs.mean(-1)
    grad = logs.exp_()
    if smoothing:
        grad -= smoothing / size
    grad.scatter_add_(-1, picked, grad.new_full((), smoothing - 1).expand(picked.shape))
    grad.index_fill_(0, (~counted).nonzero().squeeze(-1), 0.0)
    if size < logits.size(1):
        grad = torch.nn.functional.pad(grad, (0, logits.size(1) - size))
    return nll * counted, grad.to(logits.dtype)
