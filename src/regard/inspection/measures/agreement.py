"""Do measures agree? Rank correlations between every two of them, for one example and over many.

rows = agreement([correlations({"raw": raw, "gradient": slope, "zeroing": zeroed}) for ... in examples])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import isnan, nan, sqrt
from statistics import fmean, stdev

import torch
from torch import Tensor

from regard.errors import DtypeError, SettingError, ShapeError

Pair = tuple[str, str]


@dataclass(frozen=True)
class Correlation:
    """From -1 to 1; not a number where one of the two does not vary, so that there is nothing to rank."""

    kendall: float
    spearman: float


@dataclass(frozen=True)
class Row:
    """Two measures over all examples: means and standard deviations (0 of a single one), over the `examples` in which
    both vary."""

    first: str
    second: str
    kendall: float
    kendall_spread: float
    spearman: float
    spearman_spread: float
    examples: int


def correlations(measures: Mapping[str, Tensor], seen: Tensor | None = None) -> dict[Pair, Correlation]:
    """Every two measures of one example: (S,), or (T, S), of which each row is ranked and rows are averaged.

    `seen`, booleans of the same shape: what is ranked at all. Tokens that a query may not see have a measure of zero
    whatever the measure, and would make all of them agree.
    """
    if len(measures) < 2:
        raise SettingError(f"{len(measures)} measures", "at least two to compare", where="correlations")
    flat = {name: _rows(x, name) for name, x in measures.items()}
    shapes = {name: tuple(x.shape) for name, x in measures.items()} | ({} if seen is None else {"seen": seen.shape})
    if len(set(map(tuple, shapes.values()))) > 1:
        came = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ShapeError(came, "one shape for all", where="correlations")
    shape = next(iter(flat.values())).shape
    where = torch.ones(shape, dtype=torch.bool) if seen is None else seen.detach().cpu().bool().reshape(shape)
    return {
        (first, second): _mean(
            [
                Correlation(kendall(a[ranked], b[ranked]), spearman(a[ranked], b[ranked]))
                for a, b, ranked in zip(flat[first], flat[second], where, strict=True)
            ]
        )
        for first, second in combinations(flat, 2)
    }


def agreement(examples: Iterable[Mapping[Pair, Correlation]]) -> list[Row]:
    """A row for every two measures, over examples that `correlations` described."""
    found: dict[Pair, list[Correlation]] = {}
    for example in examples:
        for pair, one in example.items():
            found.setdefault(pair, []).append(one)
    rows = []
    for (first, second), every in found.items():
        known = [one for one in every if not isnan(one.kendall)]
        taus, rhos = [one.kendall for one in known], [one.spearman for one in known]
        rows.append(Row(first, second, *_spread(taus), *_spread(rhos), len(known)))
    return rows


def kendall(a: Tensor, b: Tensor) -> float:
    """Kendall's tau-b of two vectors (n,), exact, with ties, in n log n (Knight 1966).

    tau = (agreeing pairs - disagreeing pairs) / sqrt(pairs not tied in a * pairs not tied in b)
    """
    x, y = _ranks(a, b)
    n = len(x)
    order = torch.argsort(x * n + y)  # by x, and where x is tied by y: then no such pair looks as if it disagreed
    against = _inversions(y[order])
    pairs, tied_x, tied_y, tied = n * (n - 1) // 2, _ties(x), _ties(y), _ties(x * n + y)
    if pairs in (tied_x, tied_y):
        return nan
    for_it = pairs - tied_x - tied_y + tied - against
    return (for_it - against) / sqrt((pairs - tied_x) * (pairs - tied_y))


def spearman(a: Tensor, b: Tensor) -> float:
    """Spearman's rho of two vectors (n,): the correlation of their ranks, tied ones sharing the mean of theirs."""
    x, y = (_shared(one) for one in _ranks(a, b))
    x, y = x - x.mean(), y - y.mean()
    size = float(x.norm() * y.norm()) if len(x) else 0.0
    return float(x @ y) / size if size else nan


def _ranks(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Each value's number among the different ones, (n,)."""
    if a.dim() != 1 or a.shape != b.shape:
        raise ShapeError(f"{tuple(a.shape)} and {tuple(b.shape)}", "two vectors of one length", where="correlation")
    for one in (a, b):
        if one.isnan().any():
            raise DtypeError("values that are no numbers", "numbers, which have an order", where="correlation")
    return a.detach().cpu().unique(return_inverse=True)[1], b.detach().cpu().unique(return_inverse=True)[1]


def _shared(ranks: Tensor) -> Tensor:
    """The mean place, in order, of everything that has the same rank."""
    counts = ranks.bincount().double()
    return (counts.cumsum(0) - (counts + 1) / 2)[ranks]


def _ties(ranks: Tensor) -> int:
    """How many pairs are tied."""
    counts = ranks.unique(return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _inversions(ranks: Tensor) -> int:
    """How many pairs stand in the wrong order, by merging ever longer sorted runs."""
    if len(ranks) < 2:
        return 0
    size = 1 << (len(ranks) - 1).bit_length()
    runs = ranks.new_full((size, 1), int(ranks.max()) + 1)  # what is filled up at the end is out of order with nothing
    runs[: len(ranks), 0] = ranks
    found = 0
    while len(runs) > 1:
        left, right = runs[0::2].contiguous(), runs[1::2].contiguous()
        not_above = torch.searchsorted(left, right, right=True)
        found += int((left.size(1) - not_above).sum())
        runs = torch.cat((left, right), 1).sort(1).values
    return found


def _rows(x: Tensor, name: str) -> Tensor:
    if x.dim() not in (1, 2):
        raise ShapeError(f"{name} of shape {tuple(x.shape)}", "(S,) or (T, S)", where="correlations")
    return x.detach().cpu().reshape(-1, x.size(-1))


def _mean(rows: list[Correlation]) -> Correlation:
    """Over the rows in which both vary."""
    known = [one for one in rows if not isnan(one.kendall)]
    if not known:
        return Correlation(nan, nan)
    return Correlation(fmean(one.kendall for one in known), fmean(one.spearman for one in known))


def _spread(values: list[float]) -> tuple[float, float]:
    if not values:
        return nan, nan
    return fmean(values), stdev(values) if len(values) > 1 else 0.0
