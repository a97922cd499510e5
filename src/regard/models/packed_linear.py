"""Linear layers packed for fast decoding on a CPU, where a step has few rows and is bound by memory bandwidth.

A step multiplies one row, or a handful, by every matrix of a model. The library's matrix product is then several times
slower than memory allows; with another layout of the same weights it is not.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn

from regard.models.gpt import GPT

BAG_WIDTH = 384


class PackedLinear(nn.Module):
    """x W' + b of a matrix W (out, in), laid out for `rows` rows at a time; equal up to rounding.

    For a single row it is a weighted sum of the rows of W': torch's embedding bag. That reads memory 1.5 times as fast
    as a product does, in bags narrow enough for the L1 cache (measured: BAG_WIDTH columns).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, rows: int) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.weight, self.bias = weight.detach(), bias
        self.blocked = torch.ops.mkldnn._reorder_linear_weight(self.weight) if rows > 1 else None
        if rows == 1:
            bags = -(-self.out_features // BAG_WIDTH)
            width = -(-self.out_features // bags)
            padded = nn.functional.pad(self.weight, (0, 0, 0, bags * width - self.out_features))
            # (bags * in, width): the columns of W' of each bag, one bag below the other
            self.table = padded.view(bags, width, self.in_features).transpose(1, 2).reshape(-1, width)
            self.places = torch.arange(len(self.table), dtype=torch.int32).view(bags, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        if self.blocked is not None:
            found: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.blocked, self.bias, "none", [], "")
            return found
        if x.numel() != self.in_features:  # a prompt, or no row
            return nn.functional.linear(x, self.weight, self.bias)
        each = x.reshape(1, -1).expand(self.places.shape)
        sums = nn.functional.embedding_bag(self.places, self.table, per_sample_weights=each, mode="sum")
        flat = sums.view(-1)[: self.out_features]
        return (flat if self.bias is None else flat + self.bias).view(*x.shape[:-1], self.out_features)


def pack_for_decoding(model: nn.Module, rows: int) -> nn.Module:
    """A GPT packed for steps of `rows` rows, without gradients; any other model or device is returned unchanged.

    It shares all but the matrices with the given model; the matrices take their memory once more.
    """
    weights = list(model.parameters())
    plain = all(one.device.type == "cpu" and one.dtype == torch.float32 for one in weights)
    if not isinstance(model, GPT) or not plain or not torch.backends.mkldnn.is_available():
        return model
    found = deepcopy(model, {id(one): one for one in weights}).eval()
    for module in list(found.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, PackedLinear(child.weight, child.bias, rows))
    if found.output is None:
        found.output = PackedLinear(found.embedding.weight, None, rows)
    return found
