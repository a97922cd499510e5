"""Rank correlations: by hand, by their definition over all pairs, and over examples."""

from math import isnan, sqrt
from statistics import fmean, stdev

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from regard.errors import DtypeError, SettingError, ShapeError
from regard.inspection.measures.agreement import agreement, correlations, kendall, spearman

short = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=20)


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_kendall_by_hand() -> None:
    assert kendall(of(1, 2, 3, 4), of(10, 20, 30, 40)) == 1
    assert kendall(of(1, 2, 3, 4), of(4, 3, 2, 1)) == -1
    assert kendall(of(1, 2, 3, 4), of(1, 3, 2, 4)) == pytest.approx(4 / 6)  # one pair of six disagrees
    # numbers 0 and 1 are tied in a, 0 and 3 in b; 2 agrees with 0 and 1, 3 disagrees with 1 and 2
    assert kendall(of(1, 1, 2, 3), of(1, 2, 3, 1)) == 0
    # two agree, the third is tied in b: of 3 pairs untied in a and 2 in b
    assert kendall(of(1, 2, 3), of(1, 2, 2)) == pytest.approx(2 / sqrt(6))


def test_spearman_by_hand() -> None:
    assert spearman(of(1, 2, 3), of(2, 4, 9)) == pytest.approx(1)
    # squares of differences of ranks: 0, 1, 1, 0: 1 - 6 * 2 / (4 * 15)
    assert spearman(of(1, 2, 3, 4), of(1, 3, 2, 4)) == pytest.approx(0.8)
    # ranks 1, 2, 3 against 1, 2.5, 2.5: covariance 1.5 over sqrt(2 * 1.5)
    assert spearman(of(1, 2, 3), of(1, 2, 2)) == pytest.approx(1.5 / sqrt(3))


@given(short)
def test_kendall_is_its_definition_over_all_pairs(pairs) -> None:
    a, b = (torch.tensor(column).double() for column in zip(*pairs, strict=True))
    one, other = (torch.sign(x[:, None] - x).triu() for x in (a, b))
    untied = sqrt(float((one != 0).sum())) * sqrt(float((other != 0).sum()))
    got = kendall(a, b)
    if not untied:
        assert isnan(got) and isnan(spearman(a, b))
    else:
        assert got == pytest.approx(float((one * other).sum()) / untied)
        ranks = [((x[:, None] > x).sum(1) + ((x[:, None] == x).sum(1) + 1) / 2) for x in (a, b)]
        assert spearman(a, b) == pytest.approx(float(torch.corrcoef(torch.stack(ranks))[0, 1]))


def test_long_vectors_are_ranked_too() -> None:
    n = 100_003
    a = torch.arange(n)
    b = a.clone()
    b[:2] = torch.tensor([1, 0])  # one pair of n (n - 1) / 2
    assert kendall(a, b) == pytest.approx(1 - 4 / (n * (n - 1)), abs=1e-15)
    assert kendall(a, -a) == -1


def test_maps_are_ranked_row_by_row_and_only_where_one_sees() -> None:
    chance = torch.Generator().manual_seed(0)
    a, b = torch.rand(5, 5, generator=chance), torch.rand(5, 5, generator=chance)
    seen = torch.ones(5, 5).tril().bool()
    hidden = {"a": a * seen, "b": b * seen}
    got = correlations(hidden, seen)["a", "b"]
    rows = [(a[i, : i + 1], b[i, : i + 1]) for i in range(1, 5)]  # a row of one cannot be ranked
    assert got.kendall == pytest.approx(fmean(kendall(*row) for row in rows))
    assert got.spearman == pytest.approx(fmean(spearman(*row) for row in rows))
    assert correlations(hidden)["a", "b"].kendall > got.kendall  # zeros that both share would have counted


def test_a_row_for_every_two_with_mean_and_spread() -> None:
    examples = [
        {"raw": of(1, 2, 3), "slope": of(1, 2, 3), "flat": of(0, 0, 0)},
        {"raw": of(1, 2, 3), "slope": of(3, 2, 1), "flat": of(1, 1, 1)},
        {"raw": of(1, 2, 3, 4), "slope": of(1, 3, 2, 4), "flat": of(1, 2, 3, 4)},
    ]
    rows = agreement(correlations(one) for one in examples)
    assert [(row.first, row.second, row.examples) for row in rows] == [
        ("raw", "slope", 3),
        ("raw", "flat", 1),
        ("slope", "flat", 1),
    ]
    taus, rhos = [1, -1, 4 / 6], [1, -1, 0.8]
    first, second, _ = rows
    assert (first.kendall, first.kendall_spread) == (pytest.approx(fmean(taus)), pytest.approx(stdev(taus)))
    assert (first.spearman, first.spearman_spread) == (pytest.approx(fmean(rhos)), pytest.approx(stdev(rhos)))
    assert (second.kendall, second.kendall_spread) == (pytest.approx(1), 0)
    [never] = agreement([correlations({"a": of(1, 1), "b": of(1, 2)})])
    assert never.examples == 0 and isnan(never.kendall) and isnan(never.spearman_spread)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(SettingError, match="at least two"):
        correlations({"a": of(1, 2)})
    with pytest.raises(ShapeError, match="one shape"):
        correlations({"a": of(1, 2), "b": of(1, 2, 3)})
    with pytest.raises(ShapeError, match="one shape"):
        correlations({"a": of(1, 2), "b": of(1, 2)}, torch.ones(3).bool())
    with pytest.raises(DtypeError, match="no numbers"):
        correlations({"a": of(1, float("nan")), "b": of(1, 2)})
    with pytest.raises(ShapeError, match=r"\(T, S\)"):
        correlations({"a": torch.ones(1, 2, 3), "b": torch.ones(1, 2, 3)})
