"""Matrices laid out for the few rows of a decoding step, whose products wait for memory and not for arithmetic.

A step multiplies one row, or a handful, with every matrix of a model. A library's product of large matrices is then
several times slower than memory allows; in another order of the same numbers it is not.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from regard.models.gpt import GPT

BAG = 384


class Packed(nn.Module):
    """x W' + b of a matrix W (out, in), in the order that `rows` rows at a time want; equal but for rounding.

    One row alone is a sum of rows of W', weighted by its numbers: what torch calls an embedding bag. That reads memory
    half as quick again as a product does, in bags narrow enough to stay in the nearest cache (measured: BAG columns).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight.detach(), bias
        self.blocked = torch.ops.mkldnn._reorder_linear_weight(self.weight) if rows > 1 else None
        if rows == 1:
            bags = -(-self.out_features // BAG)
            width = -(-self.out_features // bags)
            whole = nn.functional.pad(self.weight, (0, 0, 0, bags * width - self.out_features))
            # (bags * in, width): the columns of W' that a bag sums up, under each other
            self.table = whole.view(bags, width, self.in_features).transpose(1, 2).reshape(-1, width)
            self.places = torch.arange(len(self.table), dtype=torch.int32).view(bags, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        if self.blocked is not None:
            found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.blocked, self.bias, "none", [], "")
            return found
        if x.numel() != self.in_features:  # a prompt, or nothing at all
            return nn.functional.linear(x, self.weight, self.bias)
        each = x.reshape(1, -1).expand(self.places.shape)
        sums = nn.functional.embedding_bag(self.places, self.table, per_sample_weights=each, mode="sum")
        flat = sums.view(-1)[: self.out_features]
        return (flat if self.bias is None else flat + self.bias).view(*x.shape[:-1], self.out_features)


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
