"""GELU feed-forward layers (GPT, BERT): torch's gelu, exact or by tanh; one kernel with the bias in code compiled for
a GPU, whose constants are in gelu_triton.py.

torch.compile uses the libraries' erf or tanh, which take longer than reading and writing the numbers, and reads the
gradient a second time to sum it for the bias. Here one operator takes the product and the bias.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from regard.attention import is_compiled_half_cuda
from regard.attention.layers import FeedForward


class GeluFeedForward(FeedForward):
    """Two linear layers with GELU between them, approximate "none" or "tanh" as in torch; in compiled half precision on
    a GPU by our own kernels."""

    activation: nn.GELU

    def __init__(self, dim: int, hidden: int, approximate: str = "none", bias: bool = True) -> None:
        super().__init__(dim, hidden, nn.GELU(approximate), bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        if not is_compiled_half_cuda(x):
            return super().forward(x)
        product = linear(x, self.inner.weight)
        activated: Tensor = _gelu_bias(product, self.inner.bias, self.activation.approximate == "tanh")
        return self.outer(self.dropout(activated))


@torch.library.custom_op("regard::gelu_bias", mutates_args=())
def _gelu_bias(product: Tensor, bias: Tensor | None, tanh: bool) -> Tensor:
    from regard.models.gelu_triton import gelu_bias

    return gelu_bias(product, bias, tanh)


@_gelu_bias.register_fake
def _(product: Tensor, bias: Tensor | None, tanh: bool) -> Tensor:
    return product.new_empty(product.shape)


@torch.library.custom_op("regard::gelu_bias_backward", mutates_args=())
def _gelu_bias_backward(grad: Tensor, product: Tensor, bias: Tensor | None, tanh: bool) -> tuple[Tensor, Tensor]:
    from regard.models.gelu_triton import gelu_bias_backward

    return gelu_bias_backward(grad, product, bias, tanh)


@_gelu_bias_backward.register_fake
def _(grad: Tensor, product: Tensor, bias: Tensor | None, tanh: bool) -> tuple[Tensor, Tensor]:
    return product.new_empty(product.shape), product.new_empty(product.size(-1), dtype=torch.float32)


def _save_inputs(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    product, bias, ctx.tanh = inputs
    ctx.save_for_backward(product, bias)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    product, bias = ctx.saved_tensors
    product_grad, bias_grad = _gelu_bias_backward(grad, product, bias, ctx.tanh)
    return product_grad, None if bias is None else bias_grad.to(bias.dtype), None


_gelu_bias.register_autograd(_backward, setup_context=_save_inputs)
