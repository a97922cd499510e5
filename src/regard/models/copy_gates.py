"""Copying: attention's weights as a distribution over the tokens that were seen, beside the softmax over all words.

p(w) = share softmax(w) + rest (the sum of the weights of the seen tokens that are w)

The three ways differ in who decides how much is copied: nobody (Average), a gate that looks at what was found (Gate),
or attention itself, for which "I look at nothing" is one more thing to look at (Sentinel).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from regard.attention import Attended
from regard.errors import SettingError


class Shares(NamedTuple):
    """How the mass is dealt out: share (B, T) to the softmax, the rest (B, T) to the seen tokens; together 1."""

    share: Tensor
    rest: Tensor


class Copy(Protocol):
    """A way to share: from the states (B, T, D) that asked, and what they attended to.

    Where nothing was seen, the softmax gets everything.
    """

    def __call__(self, states: Tensor, got: Attended) -> Shares: ...


class Average(nn.Module):
    """Half and half."""

    def forward(self, states: Tensor, got: Attended) -> Shares:
        return _dealt(torch.full_like(got.lse, 0.5), got)


class Gate(nn.Module):
    """share = sigmoid(w.[state, context] + b): learned, of what is known and of what was found (See et al. 2017)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(2 * _width(width, "Gate"), 1)

    def forward(self, states: Tensor, got: Attended) -> Shares:
        open_ = self.gate(torch.cat((states, got.output), -1)).squeeze(-1).sigmoid()
        return _dealt(open_.to(got.lse.dtype), got)


class Sentinel(nn.Module):
    """A learned vector s joins the softmax over the scores with a score q.s, and its weight is the softmax's share.

    Merity et al. 2016: softmax([scores, q.s]). The scores' own log-sum-exp says all that is needed of them.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(_width(width, "Sentinel")))

    def forward(self, states: Tensor, got: Attended) -> Shares:
        own = (states @ self.vector.to(states.dtype)).to(got.lse.dtype)  # (B, T)
        total = torch.logaddexp(got.lse, own)
        return Shares((own - total).exp(), (got.lse - total).exp())


def _dealt(share: Tensor, got: Attended) -> Shares:
    share = torch.where(got.lse == -torch.inf, 1.0, share)
    return Shares(share, 1 - share)


def _width(width: int, where: str) -> int:
    if width < 1:
        raise SettingError(f"width={width}", "a width of at least 1", where=where)
    return width
