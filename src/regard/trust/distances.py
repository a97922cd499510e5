"""How far apart two distributions are: total variation, Jensen and Shannon's divergence, the mass that they share."""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST_JSD = 0.6931471805599453  # ln 2, of distributions that share nothing


def tvd(p: Tensor, q: Tensor) -> Tensor:
    """Half of sum |p - q| along the last dimension, from 0 to 1: as much of the mass lies elsewhere."""
    return (p - q).abs().sum(-1) / 2


def shared(p: Tensor, q: Tensor) -> Tensor:
    """sum min(p, q), 1 - tvd of two distributions: the mass that lies in the same places."""
    return torch.minimum(p, q).sum(-1)


def jsd(p: Tensor, q: Tensor) -> Tensor:
    """(KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2, in nats: from 0 to ln 2. Differentiable where p and q are 0."""
    m = (p + q) / 2
    return ((_part(p, m) + _part(q, m)) / 2).sum(-1).clamp(min=0)


def _part(p: Tensor, m: Tensor) -> Tensor:
    here = p > 0
    safe = torch.where(here, p, 1.0)
    return torch.where(here, safe * (safe.log() - torch.where(here, m, 1.0).log()), 0.0)
