"""A sum of surprises with logits some places at a time: the same as all at once, in little memory, on any device."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard.models import chunked_cross_entropy
from regard.models.chunked_cross_entropy import LinearCrossEntropy
from regard.models.cross_entropy import Logits
from regard.text.examples import IGNORED

N, V, D = 150, 77, 16


def drawn(dtype: torch.dtype, biased: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    torch.manual_seed(0)
    states, words = (torch.randn(size, D, dtype=dtype, requires_grad=True) for size in (N, V))
    bias = torch.randn(V, dtype=dtype, requires_grad=True) if biased else None
    targets = torch.randint(0, V, (N,))
    targets[5:30] = IGNORED
    return states, words, bias, targets


def usual(
    states: Tensor, words: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The sum with all logits at once, and its gradients."""
    leaves = [x for x in (states, words, bias) if x is not None]
    logits = torch.nn.functional.linear(states, words, bias)
    total = torch.nn.functional.cross_entropy(
        logits, targets, reduction="sum", ignore_index=IGNORED, label_smoothing=smoothing
    )
    return total, torch.autograd.grad(total, leaves)


@pytest.fixture(params=[1, V * 64, 2**22], ids=["few", "some", "all"])
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many logits at a time."""
    monkeypatch.setitem(chunked_cross_entropy.MAX_LOGITS, "cpu", request.param)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("biased", [False, True])
def test_it_is_the_usual_sum(biased: bool, smoothing: float) -> None:
    states, words, bias, targets = drawn(torch.float64, biased)
    expected, slopes = usual(states, words, bias, targets, smoothing)
    total = LinearCrossEntropy(targets, smoothing)(states, words, bias)
    torch.testing.assert_close(total, expected)
    leaves = [x for x in (states, words, bias) if x is not None]
    for got, slope in zip(torch.autograd.grad(0.25 * total, leaves), slopes, strict=True):
        torch.testing.assert_close(got, 0.25 * slope)
    rows = Logits(torch.nn.functional.linear(states, words, bias)).nll(targets, smoothing)
    torch.testing.assert_close(total, rows.sum())


@pytest.mark.usefixtures("held")
def test_places_may_have_any_shape_and_be_none() -> None:
    states, words, bias, targets = drawn(torch.float64)
    whole = LinearCrossEntropy(targets)(states, words, bias)
    torch.testing.assert_close(LinearCrossEntropy(targets.view(3, -1))(states.view(3, -1, D), words, bias), whole)
    nothing = LinearCrossEntropy(targets[:0])(states[:0], words, bias)
    nothing.backward()
    assert nothing.item() == 0 and not words.grad.any() and states.grad.shape == states.shape
    with torch.no_grad():
        assert LinearCrossEntropy(targets)(states, words, bias) == whole


def test_under_autocast_it_errs_no_more_than_twice_the_usual() -> None:
    exact = drawn(torch.float64)
    truth = usual(*exact)
    states, words, bias, targets = (
        x.detach().float().requires_grad_() if x.is_floating_point() else x for x in exact if x is not None
    )
    with torch.autocast("cpu", torch.bfloat16):
        plain = usual(states, words, bias, targets)
        total = LinearCrossEntropy(targets)(states, words, bias)
    assert total.dtype == torch.float32
    ours = (total, torch.autograd.grad(total, [states, words, bias]))
    assert abs(ours[0] - truth[0]) <= 2 * abs(plain[0] - truth[0]) + 1e-3 * abs(truth[0])
    for got, at_once, true in zip(ours[1], plain[1], truth[1], strict=True):
        assert got.dtype == torch.float32
        assert (got - true).abs().max() <= 2 * (at_once - true).abs().max()


class Largest(TorchDispatchMode):
    """The most numbers in one tensor that any operator made."""

    numel = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = operator(*args, **(kwargs or {}))
        for one in found if isinstance(found, tuple | list) else [found]:
            if isinstance(one, Tensor):
                self.numel = max(self.numel, one.numel())
        return found


def test_nobody_holds_all_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chunked_cross_entropy.MAX_LOGITS, "cpu", 64 * V)
    states, words, bias, targets = drawn(torch.float32)
    with Largest() as largest:
        LinearCrossEntropy(targets)(states, words, bias).backward()
    assert largest.numel == 64 * V < N * V
    with Largest() as largest:
        usual(states, words, bias, targets)
    assert largest.numel == N * V


def test_portions_are_even_and_whole() -> None:
    portions = chunked_cross_entropy._chunks(32768, 50304, "cuda")
    sizes = [one.stop - one.start for one in portions]
    assert (
        sum(sizes) == 32768
        and min(sizes[:-1]) >= 4096
        and max(sizes) * 50304 <= 1.1 * chunked_cross_entropy.MAX_LOGITS["cuda"]
    )
    assert chunked_cross_entropy._chunks(0, 10, "cpu") == []


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_kernel_of_a_gpu_gives_the_same(smoothing: float) -> None:
    """In Triton's interpreter, which must be asked for before triton is imported."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "SMOOTHING": str(smoothing)}
    subprocess.run([sys.executable, "-c", INTERPRETED], env=environment, check=True)


INTERPRETED = """
import os
import torch
from regard.models import chunked_cross_entropy_triton
from regard.models.chunked_cross_entropy_triton import LANES, nll_and_gradients
smoothing = float(os.environ["SMOOTHING"])
torch.manual_seed(0)
for dtype, ulp in ((torch.float32, 2e-6), (torch.float16, 2e-3)):
    pair = 2 * LANES * 16 // dtype.itemsize  # what is walked over at once
    for size, row in ((3 * pair + 1, 3 * pair + 64), (pair, pair), (pair - 1, pair + 64), (50, 64), (1, 64), (64, 64)):
        chunked_cross_entropy_triton.PROGRAMS = 4 if size < pair else 264  # some take two rows, one after the other
        logits = (3 * torch.randn(6, row)).to(dtype)
        logits[1] *= 30  # huge
        logits[2] = 1.0  # all alike
        logits[:, size:] = torch.nan  # nobody's
        targets = torch.randint(0, size, (6,))
        targets[3] = -100
        exact = logits[:, :size].double().requires_grad_()
        expected = torch.nn.functional.cross_entropy(
            exact, targets, reduction="none", ignore_index=-100, label_smoothing=smoothing
        )
        (slopes,) = torch.autograd.grad(expected.sum(), exact)
        found, got = nll_and_gradients(logits.clone(), targets, size, smoothing)
        torch.testing.assert_close(found, expected.detach().float(), rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(got[:, :size].double(), slopes, rtol=0, atol=ulp)
        assert not got[:, size:].any() and not got[3].any() and found[3] == 0
"""
