"""Copy gates of language models: how they split probability between the softmax (p_generate) and copying from the text.

p(w) = p_generate softmax(w) + p_copy (the sum of the attention weights of the tokens that are w)

The three gates differ in what decides the split: a constant (Average), a learned gate on state and context (Gate), or
a sentinel that competes with the keys in the attention softmax (Sentinel, the pointer sentinel). The translator that
copies from its source (pointer.py) has its gate inside it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.attention import Attended
from regard.errors import SettingError


class CopyShares(NamedTuple):
    """The split: generate (B, T) for the softmax, copy (B, T) for the attended tokens; together 1."""

    generate: Tensor
    copy: Tensor


class CopyGate(Protocol):
    """A function from query states (B, T, D) and their attention to CopyShares.

    Where there is nothing to attend to, the softmax gets everything.
    """

    def __call__(self, states: Tensor, got: Attended) -> CopyShares: ...


class Average(nn.Module):
    """One half each."""

    def forward(self, states: Tensor, got: Attended) -> CopyShares:
        return _split_mass(torch.full_like(got.lse, 0.5), got)


class Gate(nn.Module):
    """p_generate = sigmoid(w.[state, context] + b), a learned gate (See et al. 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * _width(width, "Gate"), 1)

    def forward(self, states: Tensor, got: Attended) -> CopyShares:
        p_generate = self.gate(torch.cat((states, got.output), -1)).squeeze(-1).sigmoid()
        return _split_mass(p_generate.to(got.lse.dtype), got)


class Sentinel(nn.Module):
    """The pointer sentinel (Merity et al. 2016): a learned vector s with score q.s, whose weight is p_generate.

    softmax([scores, q.s]); of the scores, their log-sum-exp is all that it needs.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(_width(width, "Sentinel")))

    def forward(self, states: Tensor, got: Attended) -> CopyShares:
        score = (states @ self.vector.to(states.dtype)).to(got.lse.dtype)  # (B, T)
        total = torch.logaddexp(got.lse, score)
        return CopyShares((score - total).exp(), (got.lse - total).exp())


def _split_mass(generate: Tensor, got: Attended) -> CopyShares:
    generate = torch.where(got.lse == -torch.inf, 1.0, generate)
    return CopyShares(generate, 1 - generate)


def _width(width: int, where: str) -> int:
    if width < 1:
        raise SettingError(f"width={width}", "a width of at least 1", where=where)
    return width
