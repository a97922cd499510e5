"""Distances between distributions: by hand, within their bounds, symmetric, and smooth where p is 0."""

from __future__ import annotations

from itertools import combinations
from math import isnan, log, nan, sqrt

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from regard.errors import ShapeError
from regard.inspection.distances import MAX_JSD, jsd, kendall_tau, overlap, tvd


def some(count: int = 200, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Pairs of distributions over five, of which some have zeros."""
    rng = torch.Generator().manual_seed(seed)
    found = torch.rand(2, count, 5, generator=rng, dtype=torch.float64)
    found *= torch.rand(found.shape, generator=rng) < 0.6
    found[..., 0] += 1e-3
    p, q = found / found.sum(-1, keepdim=True)
    return p, q


def test_by_hand() -> None:
    p, q = torch.tensor([0.5, 0.5, 0.0]), torch.tensor([0.0, 0.5, 0.5])
    assert (float(tvd(p, q)), float(overlap(p, q))) == (0.5, 0.5)
    assert float(jsd(p, q)) == pytest.approx(0.5 * log(2))
    p, q = torch.tensor([0.9, 0.1]), torch.tensor([0.4, 0.6])
    parts = [0.9 * log(0.9 / 0.65), 0.1 * log(0.1 / 0.35), 0.4 * log(0.4 / 0.65), 0.6 * log(0.6 / 0.35)]
    assert float(jsd(p, q)) == pytest.approx(sum(parts) / 2)
    assert float(tvd(p, q)) == pytest.approx(0.5)


def test_disjoint_distributions_have_the_maximum_distance() -> None:
    p, q = torch.tensor([[0.3, 0.7, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 1.0, 0.0]])
    assert jsd(p, q).tolist() == pytest.approx([log(2)]) and log(2) == MAX_JSD
    assert (tvd(p, q).item(), overlap(p, q).item()) == (1.0, 0.0)


def test_bounds_symmetry_and_identity() -> None:
    p, q = some()
    for far in (tvd, jsd):
        assert torch.equal(far(p, q), far(q, p))
        assert not far(p, p).abs().gt(1e-12).any()
        assert far(p, q).min() >= 0
    assert jsd(p, q).max() <= MAX_JSD + 1e-12 and tvd(p, q).max() <= 1 + 1e-12
    torch.testing.assert_close(tvd(p, q), 1 - overlap(p, q))
    # both bound each other (Lin 1991)
    assert (jsd(p, q) <= log(2) * tvd(p, q) + 1e-12).all() and (jsd(p, q) >= tvd(p, q) ** 2 / 2 - 1e-12).all()


def test_leading_dimensions_are_kept_and_broadcast() -> None:
    p, q = some(6)
    whole = jsd(p.view(2, 3, 5), q.view(2, 3, 5))
    assert whole.shape == (2, 3) and torch.equal(whole.flatten(), jsd(p, q))
    assert torch.equal(tvd(p.unsqueeze(1), q)[2], tvd(p[2], q))


def test_the_gradient_is_finite_at_zero() -> None:
    """Also where neither has anything: a search may start there, and must not end there."""
    p = torch.tensor([1.0, 0.0, 0.0], requires_grad=True)
    jsd(p, torch.tensor([0.0, 1.0, 0.0])).backward()
    assert p.grad is not None and p.grad.isfinite().all()
    logits = torch.tensor([0.3, -0.2, -torch.inf], requires_grad=True)
    jsd(logits.softmax(-1), torch.tensor([0.2, 0.8, 0.0])).backward()
    assert logits.grad is not None and logits.grad[:2].isfinite().all() and logits.grad[:2].abs().min() > 0


def test_the_gradient_is_that_of_the_divergence() -> None:
    p, q = (x + 0.05 for x in some(8, seed=1))
    assert torch.autograd.gradcheck(lambda x: jsd(x, q), (p.requires_grad_(),))


def counted(a: list[float], b: list[float]) -> float:
    """Tau-b, pair by pair."""
    agree = tied_a = tied_b = 0
    pairs = list(combinations(range(len(a)), 2))
    for i, j in pairs:
        x, y = a[i] - a[j], b[i] - b[j]
        agree += (x * y > 0) - (x * y < 0)
        tied_a, tied_b = tied_a + (x == 0), tied_b + (y == 0)
    size = sqrt((len(pairs) - tied_a) * (len(pairs) - tied_b))
    return agree / size if size else nan


def test_kendall_by_hand() -> None:
    maps = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [1.0, 1.0, 2.0]])
    other = torch.tensor([10.0, 20.0, 30.0])
    assert kendall_tau(maps, other).tolist() == pytest.approx([1.0, -1.0, 1 / 3, 2 / sqrt(2 * 3)])


@pytest.mark.parametrize("values", [3, 50])
def test_every_pair_is_counted_ties_and_all(values: int) -> None:
    rng = torch.Generator().manual_seed(values)
    for length in (2, 3, 7, 20):
        maps = torch.randint(values, (6, length), generator=rng).double()
        other = torch.randint(values, (length,), generator=rng).double()
        found = kendall_tau(maps, other).tolist()
        for one, tau in zip(maps, found, strict=True):
            assert tau == pytest.approx(counted(one.tolist(), other.tolist()), nan_ok=True)


def test_tau_of_constants_is_nan() -> None:
    flat, order = torch.zeros(4), torch.arange(4.0)
    assert kendall_tau(torch.stack((flat, order)), flat).isnan().all()
    assert isnan(kendall_tau(flat.unsqueeze(0), order).item())


def kendall(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(kendall_tau(a.unsqueeze(0), b))


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values)


def test_kendall_of_ties_by_hand() -> None:
    assert kendall(of(1, 2, 3, 4), of(10, 20, 30, 40)) == 1
    assert kendall(of(1, 2, 3, 4), of(4, 3, 2, 1)) == -1
    assert kendall(of(1, 2, 3, 4), of(1, 3, 2, 4)) == pytest.approx(4 / 6)  # one pair of six disagrees
    # numbers 0 and 1 are tied in a, 0 and 3 in b; 2 agrees with 0 and 1, 3 disagrees with 1 and 2
    assert kendall(of(1, 1, 2, 3), of(1, 2, 3, 1)) == 0
    # two agree, the third is tied in b: of 3 pairs untied in a and 2 in b
    assert kendall(of(1, 2, 3), of(1, 2, 2)) == pytest.approx(2 / sqrt(6))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=20))
def test_kendall_is_its_definition_over_all_pairs(pairs) -> None:
    a, b = (torch.tensor(column).double() for column in zip(*pairs, strict=True))
    assert kendall(a, b) == pytest.approx(counted(a.tolist(), b.tolist()), nan_ok=True)


def test_maps_of_another_length_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"\(M, n\)"):
        kendall_tau(torch.ones(2, 3), torch.ones(4))
