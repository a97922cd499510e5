"""The function that transformers calls for attention, by itself."""

from __future__ import annotations

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="transformers is not installed")

from regard.attention import attend
from regard.attention.scores import ScaledDot
from regard.hub.attention_interface import attention


def test_a_scale_that_is_a_tensor_is_read_at_every_call() -> None:
    source = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 5, 4, generator=source) for _ in range(3))
    scale = torch.tensor(0.5)
    for number in (0.5, 2.0):
        scale.fill_(number)
        got, _ = attention(nn.Identity(), q, k, v, None, scaling=scale, is_causal=False)  # type: ignore[arg-type]
        torch.testing.assert_close(got.transpose(1, 2), attend(q, k, v, score=ScaledDot(number)).output)
