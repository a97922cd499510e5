"""GELU by kernels of our own, in Triton's interpreter: no further from the truth than torch's in the same numbers."""

from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from attention.interpreter import Checks, interpreted
from regard.models.blocks import gelu_feedforward as feed
from regard.models.gelu import GeluFeedForward, _gelu_bias, _gelu_bias_backward

checks = Checks(__file__)
HALF = torch.float16  # the interpreter cuts bfloat16 off where a GPU rounds it


@interpreted
def test_the_kernels_do_what_they_should() -> None:
    pytest.importorskip("triton")
    checks.repeat()


def usual(x: Tensor, bias: Tensor | None, tanh: bool) -> Tensor:
    """What torch makes of it, in the numbers of x throughout."""
    return gelu(x if bias is None else x + bias.to(x.dtype), approximate="tanh" if tanh else "none")


def whole(bend: object, x: Tensor, bias: Tensor | None, tanh: bool, towards: Tensor) -> list[Tensor]:
    """The bent numbers, and the slopes."""
    leaves = [one.clone().requires_grad_() for one in (x, bias) if one is not None]
    found = bend(leaves[0], leaves[1] if bias is not None else None, tanh)  # type: ignore[operator]
    return [found.detach(), *torch.autograd.grad(found, leaves, towards.to(x.dtype))]


@checks
def it_errs_no_more_than_twice_what_torch_does() -> None:
    torch.manual_seed(0)
    x = torch.cat([torch.linspace(-14, 14, 20001), 3 * torch.randn(9995), torch.tensor([0.0, -0.0, 6e4, -6e4])])
    near, towards = x.to(HALF).view(240, 125), torch.randn(240, 125).to(HALF)
    for tanh in (False, True):
        truth = whole(usual, near.double(), None, tanh, towards)
        plain = whole(usual, near, None, tanh, towards)
        for got, other, true in zip(whole(_gelu_bias, near, None, tanh, towards), plain, truth, strict=True):
            assert got.dtype == HALF
            scale = 1e-3 + true.abs()  # far below 0 torch's own is wrong by as much as it says
            error, allowed = (((one - true).abs() / scale).max() for one in (got, other))
            assert error <= 2 * allowed, (tanh, error, allowed)


@checks
def it_takes_any_size_with_a_bias() -> None:
    """Widths that no block divides, rows that no walk divides; the bias learns the sum of the slopes."""
    torch.manual_seed(0)
    for shape, tanh in product([(3, 7, 50), (33, 256), (1, 300), (70, 520), (2, 1), (0, 30)], (False, True)):
        x, towards = (torch.randn(shape).to(HALF) for _ in range(2))
        bias = torch.randn(shape[-1])
        truth = whole(usual, x.double(), bias.double(), tanh, towards)
        plain = whole(usual, x, bias, tanh, towards)
        for got, other, true in zip(whole(_gelu_bias, x, bias, tanh, towards), plain, truth, strict=True):
            assert got.dtype == other.dtype and got.shape == other.shape
            if got.numel():
                error, allowed = ((one - true).abs().max() for one in (got, other))
                assert error <= 2 * allowed + 1e-6 * true.abs().max(), (shape, tanh, error, allowed)


@checks
def what_does_not_lie_row_by_row_is_taken_as_well() -> None:
    torch.manual_seed(0)
    x, towards = (torch.randn(40, 6, dtype=torch.float16).mT for _ in range(2))
    assert torch.equal(_gelu_bias(x, None, False), _gelu_bias(x.contiguous(), None, False))
    mine = _gelu_bias_backward(towards, x, None, False)
    assert all(map(torch.equal, mine, _gelu_bias_backward(towards.contiguous(), x.contiguous(), None, False)))


@checks
def what_is_no_number_stays_none() -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0], dtype=HALF)
    for tanh in (False, True):
        got, slope = whole(_gelu_bias, x, None, tanh, torch.ones(4))
        assert got.isnan().tolist() == slope.isnan().tolist() == [True, False, False, False]
        assert got[1] == torch.inf and got[2] == 0 and slope[1:3].tolist() == [1, 0]


@checks
def the_same_again_is_the_same_bit_for_bit() -> None:
    torch.manual_seed(0)
    x, towards, bias = torch.randn(300, 70).half(), torch.randn(300, 70).half(), torch.randn(70)
    first = _gelu_bias_backward(towards, x, bias, False)
    assert all(map(torch.equal, first, _gelu_bias_backward(towards, x, bias, False)))


@checks
def compilers_see_operators_that_keep_their_word() -> None:
    """Shapes, types and gradients as promised, and one graph of them."""
    x, bias = torch.randn(4, 9, 24).half().requires_grad_(), torch.randn(24, requires_grad=True)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(_gelu_bias, (x, bias, False), test_utils=tests, atol=0, rtol=0)
    weight = torch.randn(24, 24).half()
    compiled = torch.compile(lambda x, b: _gelu_bias(linear(x, weight), b, True), backend="aot_eager", fullgraph=True)
    leaves = [x, bias]
    mine, other = (compiled(x, bias), _gelu_bias(linear(x, weight), bias, True))
    assert torch.equal(mine, other)
    for one, two in zip(*(torch.autograd.grad(got.sum(), leaves) for got in (mine, other)), strict=True):
        assert torch.equal(one, two)


def test_elsewhere_it_is_torchs_own() -> None:
    torch.manual_seed(0)
    layer, x = feed(8, 32, approximate="tanh"), torch.randn(5, 8)
    assert isinstance(layer, GeluFeedForward)
    expected = layer.outer(gelu(layer.inner(x), approximate="tanh"))
    assert torch.equal(layer(x), expected)
    assert torch.equal(torch.compile(layer, backend="eager", fullgraph=True)(x), expected)


def test_on_a_gpu_one_operator_takes_product_and_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one here: the graph of a layer whose kernels are said to be there."""
    from regard.models import gelu

    monkeypatch.setattr(gelu, "is_compiled_half_cuda", lambda x: True)
    torch._dynamo.reset()
    seen: list[str] = []

    def keep(graph: torch.fx.GraphModule, inputs: object) -> object:
        seen.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph

    layer, x = feed(8, 32), torch.randn(5, 8)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True), torch.autocast("cpu", torch.bfloat16):
        torch.compile(layer, backend=keep, fullgraph=True)(x)
    assert [one for one in seen if "gelu" in one] == ["regard.gelu_bias.default"]


if __name__ == "__main__":
    from regard.models import gelu_triton

    gelu_triton.PROGRAMS = 6  # so that they have a way to walk
    torch.use_deterministic_algorithms(True)  # memory that nobody has written to is not a number
    checks.run()
