"""What a beam makes of a sum of ln p: texts of different lengths compared, and sources that were left out."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite

from torch import Tensor

from regard.errors import SettingError


@dataclass(frozen=True)
class LengthPenalty:
    """What a sum of n terms ln p is divided by: ((start + n) / (start + 1))^alpha; the end is one of the terms.

    LengthPenalty()              1: texts are ranked by their probability
    LengthPenalty(0.6)           Wu et al. 2016, eq. 14: longer texts are forgiven a part of their length
    LengthPenalty(1.0, start=0)  n: texts are ranked by their mean ln p
    """

    alpha: float = 0.0
    start: float = 5.0

    def __post_init__(self) -> None:
        if not isfinite(self.alpha):
            raise SettingError(f"alpha={self.alpha}", "a number", where="LengthPenalty")
        if not 0 <= self.start < inf:
            raise SettingError(f"start={self.start}", "0 or more", where="LengthPenalty")

    def __call__(self, terms: int) -> float:
        return float(((self.start + terms) / (self.start + 1)) ** self.alpha)

    def most(self, fewest: int, longest: int) -> float:
        """The largest divisor of `fewest` to `longest` terms; it rises or falls all the way, so it is at an end."""
        return max(self(fewest), self(longest))


SUM = LengthPenalty()


def uncovered(attention: Tensor) -> Tensor:
    """Wu et al. 2016, eq. 14: the sum over the source of ln min(attention it got in all, 1), of (N, S): (N,).

    A place that got none at all is padding.
    """
    return attention.where(attention > 0, 1.0).clamp(max=1.0).log().sum(-1)
