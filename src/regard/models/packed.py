"""Matrices laid out for the few rows of a decoding step, whose products wait for memory and not for arithmetic.

A step multiplies one row, or a handful, with every matrix of a model. A library's product of large matrices is then
several times slower than memory allows; in another order of the same numbers it is not.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from regard.models.gpt import GPT


class Packed(nn.Module):
    """x W' + b of a matrix W (out, in), in the order that `rows` rows at a time want; equal but for rounding."""

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self.turned = weight.detach().t().contiguous() if rows == 1 else None  # (in, out)
        self.blocked = torch.ops.mkldnn._reorder_linear_weight(weight.detach()) if rows > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        if self.turned is None:
            found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.blocked, self.bias, "none", [], "")
            return found
        flat = x.reshape(-1, self.in_features)
        flat = flat @ self.turned if self.bias is None else torch.addmm(self.bias, flat, self.turned)
        return flat.view(*x.shape[:-1], self.out_features)


def packed(model: nn.Module, rows: int) -> nn.Module:
    """A GPT for steps of `rows` rows, without gradients; any other model, on any other device, comes back as it is.

    It shares what it does not pack with the one that it was made of, and takes the room of the matrices once more.
    """
    weights = list(model.parameters())
    plain = all(one.device.type == "cpu" and one.dtype == torch.float32 for one in weights)
    if not isinstance(model, GPT) or not plain or not torch.backends.mkldnn.is_available():
        return model
    found = deepcopy(model, {id(one): one for one in weights}).eval()
    for module in list(found.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Packed(child.weight, child.bias, rows))
    if found.output is None:
        found.output = Packed(found.embedding.weight, None, rows)
    return found
