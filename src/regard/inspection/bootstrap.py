"""Bootstrap confidence intervals over examples: their level, their resamples, and the percentile interval.

The audit has all its numbers at hand (Bootstrap): it resamples whole examples, so that several decisions about one
example do not count as independent. The percentile interval is too narrow for few examples; its quantiles are moved
outwards as far as Student's t lies from the normal distribution (Hesterberg 2015).

The atlas adds text after text to sums (poisson_counts): a text counts 0, 1, 2, ... times in a resample. Its interval is
the percentile interval as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, sqrt
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from regard.errors import SettingError

CONFIDENCE_LEVEL = 0.95  # of every interval, unless another level is asked for
STANDARD_ERRORS = 3.92  # the width of a normal interval of that level
MIN_EXAMPLES = 3  # for an interval


@dataclass(frozen=True)
class ConfidenceInterval:
    """A mean over `count` examples with its bootstrap confidence interval; low and high are None for too few."""

    value: float
    low: float | None
    high: float | None
    count: int

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


class Bootstrap:
    """Bootstrap samples of the examples, the same ones for every mean, so that differences of means are paired."""

    def __init__(self, groups: list[int], samples: int = 1000, level: float = CONFIDENCE_LEVEL, seed: int = 0) -> None:
        if not groups:
            raise SettingError("There are no examples", where="audit")
        self.names, which = np.unique(np.asarray(groups), return_inverse=True)
        self.level = level
        size = len(self.names)
        self._membership = np.zeros((size, len(groups)))
        self._membership[which, np.arange(len(groups))] = 1.0
        rng = np.random.default_rng(seed)
        self._draws = rng.multinomial(size, np.full(size, 1 / size), size=samples).astype(float)  # (samples, size)

    def mean(self, values: list[float | None]) -> ConfidenceInterval | None:
        """The mean of one number for each decision; None: unknown there. None where all are unknown."""
        known = np.array([value is not None and value == value for value in values])
        if not known.any():
            return None
        filled = np.array([value if fine else 0.0 for value, fine in zip(values, known, strict=True)], dtype=float)
        sums, counts = self._membership @ filled, self._membership @ known.astype(float)
        there = int((counts > 0).sum())
        value = float(sums.sum() / counts.sum())
        if there < MIN_EXAMPLES:
            return ConfidenceInterval(value, None, None, there)
        drawn = self._draws @ counts
        means = (self._draws @ sums)[drawn > 0] / drawn[drawn > 0]
        tail = _tail_quantile((1 - self.level) / 2, there)
        low, high = np.quantile(means, [tail, 1 - tail])
        return ConfidenceInterval(value, float(low), float(high), there)


def poisson_counts(number: int, seed: int, samples: int) -> Tensor:
    """(samples,): how often example `number` counts in each resample, Poisson with mean 1. It depends on nothing else,
    so examples may be added in any order, by any process."""
    rng = torch.Generator().manual_seed(seed * 1_000_003 + number)
    return torch.poisson(torch.ones(samples), generator=rng).long()


def percentile_interval(resampled: Tensor, level: float = CONFIDENCE_LEVEL) -> tuple[Tensor, Tensor]:
    """The two ends (...) of the interval that holds the share `level` of resampled statistics (samples, ...); NaN does
    not count."""
    tail = (1 - level) / 2
    low, high = torch.nanquantile(resampled, torch.tensor([tail, 1 - tail], dtype=torch.float64), dim=0)
    return low, high


def _tail_quantile(tail: float, count: int) -> float:
    """The quantile to cut off at each end for `count` examples: less than `tail`, as Student's t is wider."""
    z, df = -NormalDist().inv_cdf(tail), count - 1
    # Cornish and Fisher's expansion of Student's quantile about the normal one
    t = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    wide = t * sqrt(count / (count - 1))
    return (1 - erf(wide / sqrt(2))) / 2
