"""Statistics: bootstrap confidence intervals of means, distances between distributions, and Kendall's rank correlation.

The bootstrap draws whole examples, so that several decisions of one example are not several proofs. Intervals of few
examples are too narrow by the plain percentiles; they are taken further out, as far as Student's t lies from the normal
distribution (Hesterberg 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, sqrt
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from regard.errors import SettingError, ShapeError

FEWEST = 3  # examples of which an interval is told


@dataclass(frozen=True)
class Estimate:
    """A mean over `count` examples, and the interval in which it lies; without one where there are too few."""

    value: float
    low: float | None
    high: float | None
    count: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Bootstrap:
    """Draws of the examples, the same ones for every mean, so that differences of means are differences of draws."""

    def __init__(self, groups: list[int], samples: int = 1000, level: float = 0.95, seed: int = 0) -> None:
        if not groups:
            raise SettingError("no examples", "at least one", where="audit")
        self.names, which = np.unique(np.asarray(groups), return_inverse=True)
        self.level = level
        size = len(self.names)
        self._belongs = np.zeros((size, len(groups)))
        self._belongs[which, np.arange(len(groups))] = 1.0
        chance = np.random.default_rng(seed)
        self._times = chance.multinomial(size, np.full(size, 1 / size), size=samples).astype(float)  # (samples, size)

    def mean(self, values: list[float | None]) -> Estimate | None:
        """Of one number for each decision; None: unknown there. None where it is unknown everywhere."""
        known = np.array([value is not None and value == value for value in values])
        if not known.any():
            return None
        filled = np.array([value if fine else 0.0 for value, fine in zip(values, known, strict=True)], dtype=float)
        sums, counts = self._belongs @ filled, self._belongs @ known.astype(float)
        there = int((counts > 0).sum())
        value = float(sums.sum() / counts.sum())
        if there < FEWEST:
            return Estimate(value, None, None, there)
        drawn = self._times @ counts
        means = (self._times @ sums)[drawn > 0] / drawn[drawn > 0]
        tail = _tail((1 - self.level) / 2, there)
        low, high = np.quantile(means, [tail, 1 - tail])
        return Estimate(value, float(low), float(high), there)


def _tail(tail: float, count: int) -> float:
    """The share of draws to leave out at each end for `count` examples: less than `tail`, as Student's t is wider."""
    z, df = -NormalDist().inv_cdf(tail), count - 1
    # Cornish and Fisher's expansion of Student's quantile about the normal one
    t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    wide = t * sqrt(count / (count - 1))
    return (1 - erf(wide / sqrt(2))) / 2


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


def kendall_tau(maps: Tensor, other: Tensor) -> Tensor:
    """Kendall's tau-b of each of maps (M, n) with other (n,), with ties: (M,); NaN where one of the two is constant.

    tau = (concordant pairs - discordant pairs) / sqrt(pairs not tied in one * pairs not tied in the other)
    """
    if maps.dim() != 2 or other.dim() != 1 or maps.size(1) != len(other):
        came = f"{tuple(maps.shape)} and {tuple(other.shape)}"
        raise ShapeError(came, "(M, n) and (n,)", where="kendall_tau")
    a = (maps.unsqueeze(-1) - maps.unsqueeze(-2)).sign()  # (M, n, n), each pair twice
    b = (other.unsqueeze(-1) - other.unsqueeze(-2)).sign()
    agreeing = (a * b).sum((-1, -2)).double()
    return agreeing / (a.abs().sum((-1, -2)).double() * b.abs().sum().double()).sqrt()


def _part(p: Tensor, m: Tensor) -> Tensor:
    here = p > 0
    safe = torch.where(here, p, 1.0)
    return torch.where(here, safe * (safe.log() - torch.where(here, m, 1.0).log()), 0.0)
