"""torch.func, forward-mode and second derivatives: equal to the definition's, or refused in a sentence."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, func

from attention.cases import SCORES, near, seeded
from regard.attention import Entmax, Sink, Sparsemax, attend, choose, scores
from regard.attention.masks import Causal, Padding
from regard.attention.positions import Relative
from regard.attention.transforms import active_transforms
from regard.attention.windows import LocalP
from regard.errors import BackendError

HOW: dict[str, dict[str, Any]] = {
    "dot": {},
    "causal": {"mask": Causal()},
    "capped": {"score": scores.ScaledDot(cap=2.0)},
    "cosine": {"score": scores.Cosine(0.5)},
    "callable": {"score": near, "mask": Causal()},
    "additive": {"score": scores.Additive(4, 3).double()},
    "bias": {"bias": Relative(3, 4).double().requires_grad_(False)},
    "window": {"window": LocalP(4, 2).double(), "mask": Causal()},
    "sink": {"normalise": Sink(torch.tensor([0.1, -1.0, 2.0], dtype=torch.float64))},
    "entmax": {"normalise": Entmax(1.5)},
    "sparsemax": {"normalise": Sparsemax()},
}


def drawn(T: int = 4, S: int = 5) -> list[Tensor]:
    source = seeded(T + S)
    return [torch.randn(2, 3, n, 4, dtype=torch.float64, generator=source) for n in (T, S, S)]


def average(q: Tensor, k: Tensor, v: Tensor, **how: Any) -> Tensor:
    return attend(q, k, v, **how).output


@pytest.mark.parametrize("name", HOW)
def test_grad_vmap_and_jvp_are_those_of_autograd(name: str) -> None:
    """As `attend` chooses by itself: the definition."""
    run, tensors = partial(average, **HOW[name]), drawn()
    leaves = [x.clone().requires_grad_() for x in tensors]
    output = run(*leaves)
    wanted = torch.autograd.grad(output.square().sum(), leaves)
    found = func.grad(lambda *x: run(*x).square().sum(), argnums=(0, 1, 2))(*tensors)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)
    tangents = tuple(torch.randn(x.shape, dtype=x.dtype, generator=seeded(9)) for x in tensors)
    _, slope = func.jvp(lambda *x: run(*x).square().sum(), tuple(tensors), tangents)
    torch.testing.assert_close(slope, sum((g * t).sum() for g, t in zip(wanted, tangents, strict=True)))
    torch.testing.assert_close(func.vmap(run)(*tensors), output.detach())
    assert active_transforms() == []


def test_a_gradient_for_each_example() -> None:
    tensors = drawn()
    each = func.vmap(func.grad(lambda *x: average(*x, mask=Causal()).square().sum()))(*tensors)
    leaf = tensors[0].clone().requires_grad_()
    [whole] = torch.autograd.grad(average(leaf, *tensors[1:], mask=Causal()).square().sum(), leaf)
    torch.testing.assert_close(each, whole)


@pytest.mark.parametrize("name", ["dot", "causal", "capped", "sink"])
def test_second_derivatives_are_those_of_differences(name: str) -> None:
    for backend in ("plain", "stream"):
        run = partial(average, **HOW[name], backend=backend)
        leaves = [x.requires_grad_() for x in drawn(2, 3)]
        assert torch.autograd.gradgradcheck(lambda *x, run=run: run(*x), leaves)


@pytest.mark.parametrize("what", ["output", "lse"])
def test_a_second_derivative_that_a_kernel_lacks_is_refused(what: str) -> None:
    q, k, v = drawn()
    q.requires_grad_()
    got = attend(q, k, v, backend="sdpa")
    [first] = torch.autograd.grad(getattr(got, what).square().sum(), q, create_graph=True)
    leaf = q.detach().clone().requires_grad_()
    [want] = torch.autograd.grad(getattr(attend(leaf, k, v, backend="plain"), what).square().sum(), leaf)
    torch.testing.assert_close(first.detach(), want)  # a first one is not refused, nor changed
    with pytest.raises(BackendError, match=r"no second derivatives.*backend='plain'"):
        first.square().sum().backward()


@pytest.mark.parametrize("backend", ["sdpa", "stream"])
def test_a_kernel_inside_a_transform_is_refused_by_name(backend: str) -> None:
    q, k, v = drawn()
    for transform in (func.grad, func.jacfwd):
        with pytest.raises(BackendError, match=r"transforms of torch\.func"):
            transform(lambda q: average(q, k, v, backend=backend).sum())(q)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(BackendError, match="jvp"):
        average(torch.autograd.forward_ad.make_dual(q, q), k, v, backend=backend)


def test_choose_says_why() -> None:
    def told(q: Tensor) -> Tensor:
        chosen.append(choose(q, q))
        return q.sum()

    chosen: list[Any] = []
    func.vmap(func.grad(told))(drawn()[0])
    assert chosen[0].backend == "plain" and "vmap of grad" in chosen[0].reason
    assert choose(*drawn()).backend == "sdpa"


def test_lengths_that_are_mapped_over() -> None:
    """Numbers cannot be read while they stand for many, and need not be."""
    q, k, v = drawn()
    lengths = torch.tensor([[3, 2, 5], [1, 4, 0]])
    want = torch.stack([average(*(x[b] for x in (q, k, v)), mask=Padding(lengths[b])) for b in range(2)])
    got = func.vmap(lambda q, k, v, n: average(q, k, v, mask=Padding(n)))(q, k, v, lengths)
    torch.testing.assert_close(got, want)


def test_every_score_keeps_float64() -> None:
    for name, (build, wider) in SCORES.items():
        torch.manual_seed(0)
        score = build(4, 4 + wider, (2, 3))
        score = score.double() if isinstance(score, torch.nn.Module) else score
        q, k = torch.randn(2, 3, 4, 4, dtype=torch.float64), torch.randn(2, 3, 5, 4 + wider, dtype=torch.float64)
        got = attend(q, k, score=score)
        assert got.output.dtype == got.lse.dtype == torch.float64, name
