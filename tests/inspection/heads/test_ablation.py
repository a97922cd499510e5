"""Ablating a head equals setting its columns to zero."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from regard.attention.layers import MultiHead
from regard.attention.pooling import AttentionPooling
from regard.inspection.heads.ablation import ablate


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = MultiHead(12, 3), MultiHead(12, 2), AttentionPooling(12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.first(x)
        return self.last(x + self.second(x))


@torch.no_grad()
def test_every_head_is_ablated_once() -> None:
    torch.manual_seed(0)
    model, x = Small(), torch.randn(2, 5, 12)
    told: list[int] = []
    found = ablate(model, lambda: float(model(x).square().sum()), on_progress=told.append)
    assert found.baseline == pytest.approx(float(model(x).square().sum()))
    assert {place: len(numbers) for place, numbers in found.without.items()} == {"first": 3, "second": 2, "last": 1}
    assert sum(told) == 6
    columns = model.first.out.weight[:, 4:8].clone()
    model.first.out.weight[:, 4:8] = 0
    without = float(model(x).square().sum())
    model.first.out.weight[:, 4:8] = columns
    assert found.without["first"][1] == pytest.approx(without, rel=1e-4)
    assert found.changes["first"][1] == pytest.approx(without - found.baseline, abs=1e-2)


@torch.no_grad()
def test_a_head_may_be_made_uniform_instead() -> None:
    torch.manual_seed(0)
    model, x = Small(), torch.randn(2, 5, 12)
    found = ablate(model, lambda: float(model(x).sum()), "last", "uniform")
    y = x + model.first(x)
    expected = (y + model.second(y)).mean(1).sum()
    assert found.without == {"last": [pytest.approx(float(expected), rel=1e-4)]}
