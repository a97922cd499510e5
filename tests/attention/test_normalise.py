"""Normalisers: sparsemax and entmax equal the package entmax's with their gradients; a sink is one more key without a
value; every backend that does not have them says so."""

from __future__ import annotations

import entmax
import pytest
import torch
from torch import Tensor

from regard.attention import Observe, attend
from regard.attention.masks import Causal
from regard.attention.normalise import Entmax, Normaliser, Sink, Softmax, Sparsemax
from regard.errors import BackendError, DtypeError, SettingError, ShapeError

THEIRS = {
    1.25: lambda scores: entmax.entmax_bisect(scores, 1.25, n_iter=100),
    1.5: entmax.entmax15,
    1.7: lambda scores: entmax.entmax_bisect(scores, 1.7, n_iter=100),
    2.0: entmax.sparsemax,
    3.0: lambda scores: entmax.entmax_bisect(scores, 3.0, n_iter=100),
}


def scores(*shape: int, size: float = 2.0, seed: int = 0) -> Tensor:
    return size * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("alpha", THEIRS)
@pytest.mark.parametrize("size", [0.1, 2.0, 40.0])
def test_weights_and_gradients_are_those_of_the_package(alpha: float, size: float) -> None:
    ours, theirs = (scores(3, 7, 11, size=size).requires_grad_() for _ in range(2))
    weights, expected = Entmax(alpha).normalise(ours)[0], THEIRS[alpha](theirs)
    torch.testing.assert_close(weights, expected, atol=1e-9, rtol=0)
    factors = scores(3, 7, 11, seed=1)
    (weights * factors).sum().backward()
    (expected * factors).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("normalise", [Softmax(), Sparsemax(), Entmax(1.5), Entmax(1.25)], ids=repr)
def test_the_threshold_gives_any_weight(normalise: Normaliser) -> None:
    given = scores(4, 9)
    weights, lse = normalise.normalise(given)
    torch.testing.assert_close(normalise.weights(given[:, 3:5], lse), weights[:, 3:5], atol=1e-9, rtol=0)


@pytest.mark.parametrize("backend", ["plain", "stream", "sdpa"])
def test_a_sink_is_one_more_key_without_a_value(backend: str) -> None:
    """Its logit is the score of a last key that every query sees, whose value is zero."""
    q, k, v = (scores(2, 3, 5, 4, seed=n).requires_grad_() for n in range(3))
    logits = scores(3, seed=3).requires_grad_()
    got = attend(q, k, v, mask=Causal(), normalise=Sink(logits), backend=backend, observe=Observe(weights=True))
    hidden = torch.ones(5, 5).triu(1).bool()
    own = (q @ k.mT / 2).masked_fill(hidden, -torch.inf)
    full = torch.cat([own, logits.view(1, 3, 1, 1).expand(2, 3, 5, 1)], -1)
    weights = full.softmax(-1)
    torch.testing.assert_close(got.weights, weights[..., :-1])
    torch.testing.assert_close(got.sink, weights[..., -1])
    torch.testing.assert_close(got.output, weights[..., :-1] @ v)
    torch.testing.assert_close(got.lse, full.logsumexp(-1))
    factors = scores(2, 3, 5, 4, seed=4)
    leaves = (q, k, v, logits)
    ours, theirs = (torch.autograd.grad((x * factors).sum(), leaves) for x in (got.output, weights[..., :-1] @ v))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("backend", ["sdpa", "triton", "triton-fused"])
@pytest.mark.parametrize("normalise", [Sparsemax(), Entmax(1.5)], ids=repr)
def test_fused_kernels_have_no_sparse_weights_and_say_so(backend: str, normalise: Normaliser) -> None:
    q = torch.randn(1, 2, 4, 8)
    with pytest.raises(BackendError, match=rf"{backend}.*({type(normalise).__name__}|softmax|cuda)"):
        attend(q, q, normalise=normalise, backend=backend)
    assert attend(q, q, normalise=normalise).backend == "plain"


def test_what_fits_no_map_is_refused() -> None:
    q = torch.randn(2, 4, 5, 8)
    with pytest.raises(ShapeError, match=r"logits of shape \(3,\).*broadcasts to the leading dimensions \(2, 4\)"):
        attend(q, q, normalise=Sink(torch.zeros(3)))
    with pytest.raises(DtypeError, match="a floating-point tensor, one logit a head"):
        Sink(torch.zeros(3, dtype=torch.long))
    with pytest.raises(SettingError, match=r"Softmax\(\) is the limit for 1"):
        Entmax(1.0)
    with pytest.raises(DtypeError, match="normalise='sparsemax'"):
        attend(q, q, normalise="sparsemax")
