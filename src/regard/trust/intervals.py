"""How sure is a mean? Bootstrap intervals over examples, of many means at once.

Decisions of one example belong together: whole examples are drawn, so a sentence asked about twice is not two proofs.
Intervals of few examples are too narrow by the plain percentiles; they are taken further out, as far as Student's t
lies from the normal distribution (Hesterberg 2015).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, sqrt
from statistics import NormalDist

import numpy as np

from regard.errors import SettingError

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
