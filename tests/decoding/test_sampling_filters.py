"""Laws of the filters: what stays, what goes, and that chance chooses among what stays as often as it is likely."""

from __future__ import annotations

from math import inf, log

import pytest
import torch
from hypothesis import given, strategies as st

from regard.decoding import sampling

SHARES = torch.tensor([[0.1, 0.4, 0.05, 0.25, 0.2]], dtype=torch.float64)


def stays(log_probs: torch.Tensor) -> list[list[int]]:
    return [(row > -inf).nonzero().squeeze(1).tolist() for row in log_probs]


def rows(seed: int, count: int = 3, size: int = 9) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log_softmax(-1)


def test_by_hand() -> None:
    logs = SHARES.log()
    assert stays(sampling.top_k(logs, 2)) == [[1, 3]]
    assert stays(sampling.top_k(logs, 99)) == [[0, 1, 2, 3, 4]]
    assert stays(sampling.top_p(logs, 0.4)) == stays(sampling.top_p(logs, 1e-9)) == [[1]]
    assert stays(sampling.top_p(logs, 0.41)) == stays(sampling.top_p(logs, 0.65)) == [[1, 3]]
    assert stays(sampling.top_p(logs, 1.0)) == [[0, 1, 2, 3, 4]]
    assert stays(sampling.min_p(logs, 0.5)) == [[1, 3, 4]]
    assert stays(sampling.min_p(logs, 1.0)) == [[1]]
    written = torch.tensor([[True, False, False, False, True]])
    got = sampling.penalise_repetition(logs, written, 2.0).exp()
    torch.testing.assert_close(got, torch.tensor([[0.01, 0.4, 0.05, 0.25, 0.04]], dtype=torch.float64))


@given(seed=st.integers(0, 999), count=st.integers(1, 9), share=st.floats(0.01, 1.0))
def test_what_stays_is_unchanged_and_likelier_than_what_goes(seed: int, count: int, share: float) -> None:
    logs = rows(seed)
    for kept in (sampling.top_k(logs, count), sampling.top_p(logs, share), sampling.min_p(logs, share)):
        there = kept > -inf
        assert there.any(-1).all() and torch.equal(kept[there], logs[there])
        least = logs.where(there, inf).amin(-1)
        assert (logs.where(~there, -inf).amax(-1) < least).all()
    assert ((sampling.top_k(logs, count) > -inf).sum(-1) == count).all()
    nucleus = sampling.top_p(logs, share)
    assert (nucleus.exp().sum(-1) >= share - 1e-9).all()
    fewer = nucleus.exp().sum(-1) - nucleus.where(nucleus > -inf, inf).amin(-1).exp()  # without its last one
    assert (fewer < share).all()
    assert torch.equal(sampling.min_p(logs, share) > -inf, logs - logs.amax(-1, keepdim=True) >= log(share))


@given(seed=st.integers(0, 999), shift=st.floats(-5, 5), share=st.floats(0.01, 0.99))
def test_a_constant_changes_nothing(seed: int, shift: float, share: float) -> None:
    """They need not be normalised."""
    logs = rows(seed)
    for one in (lambda x: sampling.top_k(x, 3), lambda x: sampling.top_p(x, share), lambda x: sampling.min_p(x, share)):
        assert torch.equal(one(logs) > -inf, one(logs + shift) > -inf)


def test_what_is_drawn_follows_the_sum_of_shares() -> None:
    logs = SHARES.log().expand(6, -1)
    chances = torch.tensor([0.0, 0.0999, 0.1001, 0.4999, 0.5001, 1 - 2**-53], dtype=torch.float64)
    assert sampling.draw(logs, chances).tolist() == [0, 0, 1, 1, 2, 4]


@given(seed=st.integers(0, 999), chance=st.sampled_from([0.0, 0.3, 0.999, 1 - 2**-53]))
def test_what_was_left_out_is_never_drawn(seed: int, chance: float) -> None:
    logs = sampling.top_k(rows(seed, 40, 7), 2)
    found = sampling.draw(logs, torch.full((40,), chance, dtype=torch.float64))
    assert (logs.gather(1, found.unsqueeze(1)) > -inf).all()


def test_rows_of_nothing_give_some_token() -> None:
    found = sampling.draw(torch.full((1, 4), -inf), torch.tensor([0.5], dtype=torch.float64))
    assert 0 <= int(found) < 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_are_served(dtype) -> None:
    logs = SHARES.log().to(dtype)
    assert (
        stays(sampling.top_k(logs, 2))
        == stays(sampling.top_p(logs, 0.6))
        == stays(sampling.min_p(logs, 0.6))
        == [[1, 3]]
    )
