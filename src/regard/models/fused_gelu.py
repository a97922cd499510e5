"""The feed-forward layers of GPT and BERT, whose bend costs no more than its memory where a GPU's code is compiled.

Compilers bend with erf or tanh as libraries compute them, which takes longer than reading and writing the numbers; and
they read the gradient a second time to sum it for the bias. Here one operator takes the product and the bias.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention import compiled_half
from regard.attention.layers import FeedForward


class GeluFeed(FeedForward):
    """Two matrices with a GELU between them, "none" or "tanh" as torch has it; on a GPU, compiled for half precision,
    by kernels of our own."""

    activation: nn.GELU

    def __init__(self, dim: int, hidden: int, approximate: str = "none", bias: bool = True) -> None:
        super().__init__(dim, hidden, nn.GELU(approximate), bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if not compiled_half(x):
            return super().forward(x)
        bent: Tensor = _bent(linear(x, self.inner.weight), self.inner.bias, self.activation.approximate == "tanh")
        return self.outer(self.dropout(bent))


@torch.library.custom_op("regard::bent", mutates_args=())
def _bent(product: Tensor, bias: Tensor | None, tanh: bool) -> Tensor:
    from regard.models.gelu_triton import bent

    return bent(product, bias, tanh)


@_bent.register_fake
def _(product: Tensor, bias: Tensor | None, tanh: bool) -> Tensor:
    return product.new_empty(product.shape)


@torch.library.custom_op("regard::bent_back", mutates_args=())
def _bent_back(towards: Tensor, product: Tensor, bias: Tensor | None, tanh: bool) -> tuple[Tensor, Tensor]:
    from regard.models.gelu_triton import bent_back

    return bent_back(towards, product, bias, tanh)


@_bent_back.register_fake
def _(towards: Tensor, product: Tensor, bias: Tensor | None, tanh: bool) -> tuple[Tensor, Tensor]:
    return product.new_empty(product.shape), product.new_empty(product.size(-1), dtype=torch.float32)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    product, bias, ctx.tanh = inputs
    ctx.save_for_backward(product, bias)


def _backward(ctx: Any, towards: Tensor) -> tuple[Tensor | None, ...]:
    product, bias = ctx.saved_tensors
    slope, total = _bent_back(towards, product, bias, ctx.tanh)
    return slope, None if bias is None else total.to(bias.dtype), None


_bent.register_autograd(_backward, setup_context=_remember)
