"""What a query gives to one token: the definition typed out, by every backend, in linear memory; hostile requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from attention.cases import Largest
from regard.attention import DenseBias, Observe, attend, scores
from regard.attention.copy_attention import BACKENDS, choose_copy_backend, copy_log_prob
from regard.attention.kernels import row_blocks
from regard.attention.masks import Causal, Dense, Documents, Mask, Padding, Past, Window
from regard.errors import BackendError, SettingError, ShapeError

F64 = torch.float64
T, S, D = 13, 21, 6
by_backend = pytest.mark.parametrize("backend", ["plain", "stream"])


def drawn(lead: tuple[int, ...] = (2,), keys: tuple[int, ...] | None = None, loud: float = 1.0) -> list[Tensor]:
    """Queries, keys, the tokens of keys and those that are asked about; of 5 tokens one is no key's."""
    source = torch.Generator().manual_seed(3)
    q = loud * torch.randn(*lead, T, D, generator=source, dtype=F64)
    k = torch.randn(*(lead if keys is None else keys), S, D, generator=source, dtype=F64)
    ids, targets = torch.randint(4, (2, S), generator=source), torch.randint(5, (2, T), generator=source)
    return [q.requires_grad_(), k.requires_grad_(), ids, targets]


def composed(q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, **how: object) -> Tensor:
    """The sum of whole weights over the keys that match."""
    weights = attend(q, k, observe=Observe(weights=True), backend="plain", **how).weights  # type: ignore[arg-type]
    assert weights is not None
    same = targets.unsqueeze(-1) == ids.unsqueeze(-2)
    same = same.view(-1, *[1] * (weights.dim() - 3), T, S) if weights.dim() > 2 else same[0]
    return (weights * same).sum(-1)


def slopes(mass: Tensor, inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Gradients of a sum that weighs every query differently; those without a share have none."""
    weigh = torch.arange(mass.numel(), dtype=F64).reshape(mass.shape).sin()
    return torch.autograd.grad((mass.where(mass.isfinite(), 0.0) * weigh).sum(), inputs)


def agrees(q: Tensor, k: Tensor, ids: Tensor, targets: Tensor, backend: str, **how: object) -> Tensor:
    got = copy_log_prob(q, k, ids, targets, backend=backend, **how)  # type: ignore[arg-type]
    share = composed(q, k, ids, targets, **how)
    torch.testing.assert_close(got.exp(), share)
    assert torch.equal(got == -torch.inf, share == 0)
    inputs = [q, k, *(p for p in getattr(how.get("score"), "parameters", list)())]
    expected = slopes(share.where(share > 0, 1.0).log(), inputs)
    torch.testing.assert_close(slopes(got, inputs), expected)
    return got


@contextmanager
def many_blocks() -> Iterator[None]:
    with patch.multiple(row_blocks, BLOCK_NUMBERS=2 * S, MAX_BLOCK_NUMBERS=4 * S, MIN_ROWS=2):
        yield


MASKS: list[Mask | None] = [
    None,
    Causal(),
    Past(),
    Past(0),
    Window(3, 2),
    Window(1, 9, torch.tensor([0, 5])),
    Padding([S, 3], [T, 4]),
    Past() & Documents(torch.arange(S) // 6, torch.arange(T) // 4),
    Dense(torch.arange(T * S).reshape(T, S) % 3 > 0),
]


@by_backend
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_it_is_the_sum_of_the_weights_of_the_keys_that_match(mask: Mask | None, backend: str) -> None:
    for given in (drawn(), drawn((2, 4), (2, 2)), drawn((2, 3), (1,))):
        agrees(*given, backend, mask=mask)
        with many_blocks():
            agrees(*given, backend, mask=mask)


@by_backend
def test_any_score_and_any_bias(backend: str) -> None:
    torch.manual_seed(1)
    for score in (
        scores.Dot(),
        scores.Bilinear(D),
        scores.Cosine(0.3),
        scores.Additive(D, 5),
        lambda q, k: -(q.unsqueeze(-2) - k.unsqueeze(-3)).abs().sum(-1),
    ):
        score = score.double() if isinstance(score, scores.Score) else score
        with many_blocks():
            agrees(*drawn(), backend, score=score, mask=Past())
    agrees(*drawn(), backend, bias=DenseBias(torch.randn(T, S, dtype=F64)), mask=Causal())


@by_backend
def test_shares_of_all_tokens_sum_to_one(backend: str) -> None:
    q, k, ids, _ = drawn()
    total = sum(
        copy_log_prob(q, k, ids, torch.full((2, T), one), mask=Past(0), backend=backend).exp() for one in range(4)
    )
    torch.testing.assert_close(total, torch.ones(2, T, dtype=F64).index_fill(1, torch.tensor([0]), 0.0))


@by_backend
def test_an_absent_token_has_probability_zero_and_no_gradient(backend: str) -> None:
    q, k, ids, targets = drawn()
    targets[:, ::2] = 77
    got = copy_log_prob(q, k, ids, targets, mask=Causal(), backend=backend)
    assert (got[:, ::2] == -torch.inf).all()
    dq, dk = torch.autograd.grad(got, (q, k), torch.where(got == -torch.inf, torch.nan, 1.0))
    assert not dq[:, ::2].any() and dq.isfinite().all() and dk.isfinite().all() and dk.any()


@by_backend
def test_all_keys_masked(backend: str) -> None:
    q, k, ids, targets = drawn()
    for mask in (Padding([0, 0]), Window(None, -50), Dense(torch.zeros(T, S, dtype=torch.bool))):
        got = copy_log_prob(q, k, ids, targets, mask=mask, backend=backend)
        assert (got == -torch.inf).all()
        assert not any(slope.any() for slope in torch.autograd.grad(got, (q, k), torch.full_like(got, torch.nan)))
    assert copy_log_prob(q, k[:, :0], ids[:, :0], targets, backend=backend).eq(-torch.inf).all()
    assert copy_log_prob(q[:, :0], k, ids, targets[:, :0], backend=backend).shape == (2, 0)


@by_backend
def test_a_token_of_all_keys_has_probability_one_and_no_gradient(backend: str) -> None:
    q, k, ids, targets = drawn()
    got = copy_log_prob(q, k, ids * 0, targets * 0, mask=Causal(), backend=backend)
    assert not got.any() and not any(slope.any() for slope in torch.autograd.grad(got.sum(), (q, k)))


@by_backend
def test_an_underflowing_probability_has_a_logarithm_and_a_gradient(backend: str) -> None:
    q, k = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[3000.0], [0.0], [-2000.0]], requires_grad=True)
    got = copy_log_prob(q, k, torch.tensor([1, 2, 2]), torch.tensor([2]), score=scores.Dot(), backend=backend)
    torch.testing.assert_close(got, torch.tensor([-3000.0]))
    dq, dk = torch.autograd.grad(got.sum(), (q, k))
    torch.testing.assert_close(dq, torch.tensor([[-3000.0]]))
    torch.testing.assert_close(dk, torch.tensor([[-1.0], [1.0], [0.0]]))


@by_backend
def test_float32_is_as_exact_as_composition(backend: str) -> None:
    for loud in (1.0, 30.0):
        q, k, ids, targets = drawn(loud=loud)
        want = composed(q, k, ids, targets, mask=Past()).detach()
        there = want > 1e-30
        near = composed(q.float(), k.float(), ids, targets, mask=Past()).detach()
        got = copy_log_prob(q.float(), k.float(), ids, targets, mask=Past(), backend=backend).detach()
        assert got.dtype == torch.float32
        off, allowed = ((x[there].double().exp() - want[there]).abs().max() for x in (got, near.log()))
        assert off <= 2 * allowed + 4 * torch.finfo(torch.float32).eps


@by_backend
def test_masked_keys_may_hold_anything(backend: str) -> None:
    q, k, ids, targets = drawn()
    want = copy_log_prob(q, k, ids, targets, mask=Padding([S - 4, 9]), backend=backend)
    spoiled = k.detach().clone()
    spoiled[0, S - 4 :], spoiled[1, 9:] = torch.nan, torch.inf
    spoiled.requires_grad_()
    got = copy_log_prob(q, spoiled, ids, targets, mask=Padding([S - 4, 9]), backend=backend)
    torch.testing.assert_close(got, want)
    assert torch.autograd.grad(got[got.isfinite()].sum(), spoiled)[0].isfinite().all()


def test_memory_grows_with_the_length_not_with_its_square() -> None:
    found = {}
    for length in (256, 1024):
        q = torch.randn(2, length, 8, requires_grad=True)
        ids = torch.randint(9, (2, length))
        with patch.multiple(row_blocks, BLOCK_NUMBERS=2**13, MAX_BLOCK_NUMBERS=2**13, MIN_ROWS=8), Largest() as largest:
            copy_log_prob(q, q, ids, ids.roll(1, 1), mask=Past(), backend="stream").exp().sum().backward()
        found[length] = largest.numel
    assert found[1024] <= 4 * found[256] and found[1024] < 1024 * 1024 / 16


def test_large_maps_are_streamed() -> None:
    small, large = (torch.zeros(2, length, 4) for length in (64, 2048))
    chosen = [
        choose_copy_backend(attend(x, x, observe=Observe(prepared=True)).prepared)  # type: ignore[arg-type]
        for x in (small, large)
    ]
    assert chosen == ["plain", "stream"]


def test_what_cannot_be_is_refused_in_words() -> None:
    q, k, ids, targets = drawn()
    with pytest.raises(ShapeError, match=r"integers \(21,\) or \(B, 21\)"):
        copy_log_prob(q, k, targets, targets)
    with pytest.raises(ShapeError, match=r"integers \(13,\) or \(B, 13\)"):
        copy_log_prob(q, k, ids, ids)
    with pytest.raises(SettingError, match="Did you mean 'stream'"):
        copy_log_prob(q, k, ids, targets, backend="steam")
    with pytest.raises(BackendError, match=r"it runs on cuda, not on cpu.*'plain', 'stream'"):
        copy_log_prob(q, k, ids, targets, backend="triton")
    with pytest.raises(BackendError, match="it computes dot products, and Additive is none"):
        copy_log_prob(q, k, ids, targets, score=scores.Additive(D, 3).double(), backend="triton")
    assert list(BACKENDS) == ["plain", "stream", "triton"]
