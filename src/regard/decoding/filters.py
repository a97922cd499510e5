"""What chance may choose from: each filter takes ln p (B, V) of tokens and gives them changed, or -inf where left out.

They need not be normalised, neither before nor after; a row keeps at least its likeliest token.
"""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor


def repeated(log_probs: Tensor, written: Tensor, penalty: float) -> Tensor:
    """Tokens that were `written` (B, V) get p^penalty: less likely above 1, likelier below (Keskar et al. 2019)."""
    return torch.where(written, log_probs * penalty, log_probs)


def top_k(log_probs: Tensor, count: int) -> Tensor:
    """The `count` likeliest tokens."""
    values, places = log_probs.topk(min(count, log_probs.size(-1)), -1)
    return torch.full_like(log_probs, -inf).scatter(-1, places, values)


def top_p(log_probs: Tensor, share: float) -> Tensor:
    """The fewest likeliest tokens whose probabilities together reach `share` (Holtzman et al. 2020)."""
    values, places = log_probs.sort(-1, descending=True)
    probs = values.softmax(-1)
    needed = probs.cumsum(-1) - probs < share  # those before it do not reach it
    needed[..., 0] = True
    return torch.full_like(log_probs, -inf).scatter(-1, places, values.masked_fill(~needed, -inf))


def min_p(log_probs: Tensor, share: float) -> Tensor:
    """Tokens at least `share` times as likely as the likeliest one."""
    least = log_probs.amax(-1, keepdim=True) + torch.tensor(share, dtype=log_probs.dtype).log().item()
    return log_probs.masked_fill(log_probs < least, -inf)


def drawn(log_probs: Tensor, chances: Tensor) -> Tensor:
    """The token (B,) at which the probabilities of row b, added up, pass chances[b] in [0, 1) of their sum."""
    sums = log_probs.double().softmax(-1).cumsum(-1)
    # a chance is at most 1 - 2^-53, so this is below the sum even after rounding, and what has no share never comes
    bars = chances.unsqueeze(-1) * sums[:, -1:]
    found = torch.searchsorted(sums, bars, right=True).squeeze(-1)
    return found.clamp(max=log_probs.size(-1) - 1)  # where nothing has any probability
