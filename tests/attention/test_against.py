"""Against PyTorch's own attention, and against the papers' equations typed out in numpy."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, strategies as st

from attention.cases import HERE, share, size
from regard.attention import DenseBias, Observe, attend, masks, scores

F64 = torch.float64
SEEN = Observe(weights=True)
EACH = pytest.mark.parametrize("backend", HERE)


@EACH
@share(30)
@given(
    T=size(), S=size(), kind=st.sampled_from(["none", "bool", "float", "padding"]), scale=st.sampled_from([None, 0.3])
)
def test_scaled_dot_product_attention(backend: str, T: int, S: int, kind: str, scale: float | None) -> None:
    q, k, v = torch.randn(2, 3, T, 4, dtype=F64), torch.randn(2, 3, S, 4, dtype=F64), torch.randn(2, 3, S, 4, dtype=F64)
    allowed = torch.rand(2, 1, T, S) < 0.7
    allowed[..., 0] = True  # PyTorch leaves open what a query that sees nothing gets
    bias = torch.randn(3, T, S, dtype=F64)
    lengths = torch.tensor([S, (S + 1) // 2])
    ours, theirs = {
        "none": ({}, None),
        "bool": ({"mask": masks.Dense(allowed)}, allowed),
        "float": ({"bias": DenseBias(bias)}, bias),
        "padding": ({"mask": masks.Padding(lengths)}, (torch.arange(S) < lengths[:, None])[:, None, None]),
    }[kind]
    got = attend(q, k, v, score=scores.ScaledDot(scale), backend=backend, **ours)
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=theirs, scale=scale)
    torch.testing.assert_close(got.output, want, atol=1e-12, rtol=1e-12)


@EACH
@pytest.mark.parametrize(("T", "S"), [(5, 5), (3, 6), (6, 3), (1, 4)])
def test_is_causal(backend: str, T: int, S: int) -> None:
    """PyTorch puts the first query at the first key: offset 0."""
    q, k = torch.randn(2, 3, T, 4, dtype=F64), torch.randn(2, 3, S, 4, dtype=F64)
    got = attend(q, k, mask=masks.Causal(offset=0), backend=backend)
    torch.testing.assert_close(got.output, F.scaled_dot_product_attention(q, k, k, is_causal=True))


@EACH
@pytest.mark.parametrize("heads", [(4, 2), (6, 1), (6, 3)])
@pytest.mark.parametrize("causal", [True, False])
def test_enable_gqa(backend: str, heads: tuple[int, int], causal: bool) -> None:
    H, Hk = heads
    q, k, v = (
        torch.randn(2, H, 5, 4, dtype=F64),
        torch.randn(2, Hk, 5, 4, dtype=F64),
        torch.randn(2, Hk, 5, 4, dtype=F64),
    )
    got = attend(q, k, v, mask=masks.Causal() if causal else None, backend=backend)
    want = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
    torch.testing.assert_close(got.output, want)


@EACH
def test_gradients_of_scaled_dot_product_attention(backend: str) -> None:
    leaves = [torch.randn(2, 3, n, 4, dtype=F64, requires_grad=True) for n in (5, 6, 6)]
    mask = torch.rand(5, 6) < 0.7
    mask[:, 0] = True
    factors = torch.randn(2, 3, 5, 4, dtype=F64)
    ours = attend(*leaves, mask=masks.Dense(mask), backend=backend).output
    theirs = F.scaled_dot_product_attention(*leaves, attn_mask=mask)
    for got, want in zip(*(torch.autograd.grad((x * factors).sum(), leaves) for x in (ours, theirs)), strict=True):
        torch.testing.assert_close(got, want)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def average(weights: np.ndarray, annotations: np.ndarray) -> np.ndarray:
    """Bahdanau's equation 5, Luong's context vector: c_i = sum_j alpha_ij h_j."""
    return sum(weight * h for weight, h in zip(weights, annotations, strict=True))


def check(got_weights: torch.Tensor, context: torch.Tensor, energies: list[np.ndarray], h: np.ndarray) -> None:
    for t, energy in enumerate(energies):
        np.testing.assert_allclose(got_weights[t].detach().numpy(), softmax(energy), atol=1e-12)
        np.testing.assert_allclose(context[t].detach().numpy(), average(softmax(energy), h), atol=1e-12)


@pytest.mark.parametrize("backend", ["plain", "stream"])
def test_bahdanau_2015(backend: str) -> None:
    """Equations 5 and 6 and appendix A.1.2: e_ij = v_a^T tanh(W_a s_{i-1} + U_a h_j), softmax, average."""
    n, hidden, source, steps = 3, 5, 6, 4
    score = scores.Additive(n, hidden, keys=2 * n).double()  # the annotations are forward and backward states together
    s, h = torch.randn(steps, n, dtype=F64), torch.randn(source, 2 * n, dtype=F64)
    got = attend(s, h, score=score, observe=SEEN, backend=backend)
    W, U, v = (x.detach().numpy() for x in (score.query.weight, score.key.weight, score.vector))
    energies = [np.array([v @ np.tanh(W @ state + U @ note) for note in h.numpy()]) for state in s.numpy()]
    check(got.weights, got.output, energies, h.numpy())


@EACH
@pytest.mark.parametrize("form", ["dot", "general", "concat"])
def test_luong_2015_global(backend: str, form: str) -> None:
    """Equation 7 with its three scores: h_t.h_s, h_t^T W_a h_s, and v_a^T tanh(W_a [h_t; h_s])."""
    n, hidden, source, steps = 4, 5, 6, 3
    ht, hs = torch.randn(steps, n, dtype=F64), torch.randn(source, n, dtype=F64)
    general, concat = scores.Bilinear(n).double(), scores.Additive(n, hidden).double()
    W = general.weight.detach().numpy()
    joined = np.concatenate([x.weight.detach().numpy() for x in (concat.query, concat.key)], axis=1)  # W_a [h_t; h_s]
    v = concat.vector.detach().numpy()
    score, formula = {
        "dot": (scores.Dot(), lambda t, s: t @ s),
        "general": (general, lambda t, s: t @ W @ s),
        "concat": (concat, lambda t, s: v @ np.tanh(joined @ np.concatenate([t, s]))),
    }[form]
    if form == "concat" and backend == "sdpa":
        backend = "auto"  # it has no dot product to compute
    got = attend(ht, hs, score=score, observe=SEEN, backend=backend)
    check(got.weights, got.output, [np.array([formula(t, s) for s in hs.numpy()]) for t in ht.numpy()], hs.numpy())
