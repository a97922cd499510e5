"""Distances of distributions, total variation and Jensen-Shannon divergence (JSD), and Kendall's tau of rankings."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.errors import ShapeError

MAX_JSD = 0.6931471805599453  # ln 2, of distributions with disjoint support


def tvd(p: Tensor, q: Tensor) -> Tensor:
    """Total variation distance: half of sum |p - q| along the last dimension, from 0 to 1."""
    return (p - q).abs().sum(-1) / 2


def overlap(p: Tensor, q: Tensor) -> Tensor:
    """sum min(p, q), 1 - tvd of two distributions."""
    return torch.minimum(p, q).sum(-1)


def jsd(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence: (KL(p, m) + KL(q, m)) / 2 with m = (p + q) / 2, in nats, from 0 to ln 2.

    Differentiable where p and q are 0.
    """
    m = (p + q) / 2
    return ((_kl_terms(p, m) + _kl_terms(q, m)) / 2).sum(-1).clamp(min=0)


def kendall_tau(maps: Tensor, other: Tensor) -> Tensor:
    """Kendall's tau-b, with ties, of each of maps (M, n) with other (n,): (M,); NaN where one of the two is constant.

    tau = (concordant pairs - discordant pairs) / sqrt(pairs not tied in one * pairs not tied in the other)
    """
    if maps.dim() != 2 or other.dim() != 1 or maps.size(1) != len(other):
        came = f"{tuple(maps.shape)} and {tuple(other.shape)}"
        raise ShapeError(came, "(M, n) and (n,)", where="kendall_tau")
    a = (maps.unsqueeze(-1) - maps.unsqueeze(-2)).sign()  # (M, n, n), each pair twice
    b = (other.unsqueeze(-1) - other.unsqueeze(-2)).sign()
    agreeing = (a * b).sum((-1, -2)).double()
    return agreeing / (a.abs().sum((-1, -2)).double() * b.abs().sum().double()).sqrt()


def _kl_terms(p: Tensor, m: Tensor) -> Tensor:
    here = p > 0
    safe = torch.where(here, p, 1.0)
    return torch.where(here, safe * (safe.log() - torch.where(here, m, 1.0).log()), 0.0)
