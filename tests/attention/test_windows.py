"""Luong, Pham & Manning 2015, section 3.2, typed out in numpy, against the windows."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from attention.cases import size
from regard.attention import Observe, attend, masks, scores
from regard.attention.windows import LocalM, LocalP, Location

F64 = torch.float64
SEEN = Observe(weights=True, entropy=True, received=True, top=2)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def local_p(h: np.ndarray, keys: np.ndarray, Wp: np.ndarray, vp: np.ndarray, D: int) -> tuple[np.ndarray, float]:
    """Equations 9 and 10 with the dot score: alignment weights over the keys of one query h, and p_t."""
    S = len(keys)
    p = S / (1 + math.exp(-vp @ np.tanh(Wp @ h)))  # p_t = S sigmoid(v_p^T tanh(W_p h_t))
    inside = [s for s in range(S) if p - D <= s <= p + D]
    align = softmax(np.array([keys[s] @ h for s in inside]))
    sigma = D / 2
    weights = np.zeros(S)
    for s, a in zip(inside, align, strict=True):
        weights[s] = a * math.exp(-((s - p) ** 2) / (2 * sigma**2))
    return weights, p


@given(size(), size(), st.integers(1, 4), st.sampled_from(["plain", "stream", "auto"]))
def test_local_p_is_equations_9_and_10(T: int, S: int, D: int, backend: str) -> None:
    torch.manual_seed(T * 10 + S)
    window = LocalP(3, D, hidden=5).double()
    window.vector.data.mul_(4)  # so that p_t wanders over the whole source
    q, k, v = torch.randn(T, 3, dtype=F64), torch.randn(S, 3, dtype=F64), torch.randn(S, 2, dtype=F64)
    got = attend(q, k, v, score=scores.Dot(), window=window, observe=SEEN, backend=backend)
    Wp, vp = window.hidden.weight.detach().numpy(), window.vector.detach().numpy()
    want = np.stack([local_p(h, k.numpy(), Wp, vp, D)[0] for h in q.numpy()])
    np.testing.assert_allclose(got.weights.detach().numpy(), want, atol=1e-12)
    np.testing.assert_allclose(got.output.detach().numpy(), want @ v.numpy(), atol=1e-12)
    np.testing.assert_allclose(got.received.numpy(), want.sum(0), atol=1e-12)
    entropy = [-sum(w * math.log(w) for w in row if w > 0) for row in want]
    np.testing.assert_allclose(got.entropy.numpy(), entropy, atol=1e-12)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_in_local_p_s_is_the_rows_own_number_of_keys(side: str, backend: str) -> None:
    """A padded row gives what the row alone would give, wherever its padding is."""
    torch.manual_seed(0)
    window = LocalP(3, 2).double()
    lengths, S = [2, 7, 4, 1], 7
    q, k = torch.randn(4, 2, 3, dtype=F64), torch.randn(4, S, 3, dtype=F64)
    got = attend(q, k, mask=masks.Padding(lengths, side=side), window=window, observe=SEEN, backend=backend)
    for row, length in enumerate(lengths):
        real = slice(0, length) if side == "right" else slice(S - length, S)
        alone = attend(q[row], k[row, real], window=window, observe=SEEN)
        torch.testing.assert_close(got.weights[row, :, real], alone.weights)
        torch.testing.assert_close(got.output[row], alone.output)
        assert got.weights[row].sum().item() == pytest.approx(alone.weights.sum().item())


def test_in_local_p_each_query_of_a_causal_decoder_counts_its_own_past() -> None:
    torch.manual_seed(0)
    window = LocalP(3, 1).double()
    q, k = torch.randn(5, 3, dtype=F64), torch.randn(5, 3, dtype=F64)
    got = attend(q, k, mask=masks.Causal(), window=window, observe=SEEN)
    for t in range(5):
        alone = attend(q[t : t + 1], k[: t + 1], window=window, observe=SEEN)
        torch.testing.assert_close(got.weights[t, : t + 1], alone.weights[0])


@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_local_p_is_not_renormalised(backend: str) -> None:
    """Equation 10 has no denominator: the weights sum to less than one; lse is of the scores in the window alone."""
    torch.manual_seed(0)
    window = LocalP(3, 2).double()
    q, k = torch.randn(4, 3, dtype=F64), torch.randn(9, 3, dtype=F64)
    got = attend(q, k, score=scores.Dot(), window=window, observe=SEEN, backend=backend)
    total = got.weights.sum(-1)
    assert (total < 1).all() and (total > 0).all()
    Wp, vp = window.hidden.weight.detach().numpy(), window.vector.detach().numpy()
    for t, h in enumerate(q.numpy()):
        _, p = local_p(h, k.numpy(), Wp, vp, 2)
        lse = math.log(sum(math.exp(k[s].numpy() @ h) for s in range(9) if abs(s - p) <= 2))
        assert got.lse[t].item() == pytest.approx(lse, abs=1e-12)


@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_p_t_learns_through_the_gaussian(backend: str) -> None:
    """d w_s / d p = w_s (s - p) / sigma^2, carried to v_p by the chain rule."""
    torch.manual_seed(0)
    D, S = 3, 8
    window = LocalP(3, D, hidden=4).double()
    q, k = torch.randn(1, 3, dtype=F64), torch.randn(S, 3, dtype=F64)
    factors = torch.randn(S, dtype=F64)
    got = attend(q, k, score=scores.Dot(), window=window, observe=SEEN, backend=backend)
    (grad,) = torch.autograd.grad((got.weights[0] * factors).sum(), window.vector)
    Wp, vp = window.hidden.weight.detach().numpy(), window.vector.detach().numpy()
    weights, p = local_p(q[0].numpy(), k.numpy(), Wp, vp, D)
    dp = sum(f * w * (s - p) / (D / 2) ** 2 for s, (f, w) in enumerate(zip(factors.tolist(), weights, strict=True)))
    share = p / S
    want = dp * S * share * (1 - share) * np.tanh(Wp @ q[0].numpy())
    np.testing.assert_allclose(grad.numpy(), want, atol=1e-12)
    assert np.abs(want).max() > 1e-3


def test_a_local_p_that_predicts_padding_still_sees_real_keys_only() -> None:
    """sigmoid = 1 puts p_t at S, one past the row's last key, which is within every window."""
    window = LocalP(2, 1)
    torch.nn.init.eye_(window.hidden.weight)
    window.vector.data.fill_(100.0)
    mask = masks.Padding([2, 3])
    got = attend(torch.ones(2, 1, 2), torch.ones(2, 5, 2), mask=mask, window=window, observe=SEEN)
    assert (got.weights[0, 0] > 0).tolist() == [False, True, False, False, False]
    assert (got.weights[1, 0] > 0).tolist() == [False, False, True, False, False]


@given(
    size(),
    size(),
    st.integers(1, 3),
    st.sampled_from([0, 1, -1, 3, None]),
    st.sampled_from(["plain", "stream", "sdpa"]),
)
def test_local_m_is_a_softmax_over_the_keys_around_t(T: int, S: int, D: int, offset: int | None, backend: str) -> None:
    q, k = torch.randn(T, 4, dtype=F64), torch.randn(S, 4, dtype=F64)
    window = LocalM(D) if offset == 0 else LocalM(D, offset)  # 0 is the default
    got = attend(q, k, score=scores.Dot(), window=window, observe=SEEN, backend=backend)
    for t in range(T):
        here = t + (S - T if offset is None else offset)
        inside = [s for s in range(S) if here - D <= s <= here + D]
        want = np.zeros(S)
        if inside:
            want[inside] = softmax(np.array([k[s].numpy() @ q[t].numpy() for s in inside]))
        np.testing.assert_allclose(got.weights[t].numpy(), want, atol=1e-12)


def test_local_m_by_rows_of_the_batch() -> None:
    """Offsets (B,): each row of a batch may be at its own step of decoding."""
    q, k, at = torch.randn(3, 1, 4), torch.randn(3, 6, 4), torch.tensor([0, 2, 5])
    got = attend(q, k, window=LocalM(1, at), observe=SEEN)
    for row in range(3):
        alone = attend(q[row], k[row], window=LocalM(1, int(at[row])), observe=SEEN)
        torch.testing.assert_close(got.weights[row], alone.weights)


def test_local_m_joins_the_mask() -> None:
    q, k = torch.randn(2, 4, 3), torch.randn(2, 6, 3)
    mask = masks.Padding([3, 6])
    got = attend(q, k, mask=mask, window=LocalM(2), observe=SEEN)
    want = attend(q, k, mask=mask & masks.Window(2, 2, offset=0), observe=SEEN)
    assert torch.equal(got.weights, want.weights) and torch.equal(got.output, want.output)


@given(size(), size(), st.sampled_from(["plain", "stream", "sdpa"]))
def test_location_is_equation_8(T: int, S: int, backend: str) -> None:
    """a_t = softmax(W_a h_t), cut to the places there are; what the keys hold is never looked at."""
    score = Location(4, max_length=7).double()
    q, v = torch.randn(T, 4, dtype=F64), torch.randn(S, 4, dtype=F64)
    got = attend(q, torch.randn(S, 4, dtype=F64), v, score=score, observe=SEEN, backend=backend)
    W = score.weight.detach().numpy()
    want = np.stack([softmax((W @ h)[:S]) for h in q.numpy()])
    np.testing.assert_allclose(got.weights.detach().numpy(), want, atol=1e-12)
    np.testing.assert_allclose(got.output.detach().numpy(), want @ v.numpy(), atol=1e-12)


@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_local_p_without_keys_gives_zeros(backend: str) -> None:
    got = attend(torch.randn(2, 3, 4), torch.randn(2, 0, 4), window=LocalP(4, 2), backend=backend)
    assert (got.lse == -torch.inf).all() and not got.output.any()
