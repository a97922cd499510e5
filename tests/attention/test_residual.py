"""A residual stream that is added to when it is normed: the plain lines, and the kernels in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attention.interpreter import Checks, interpreted
from regard.attention import residual
from regard.attention.layers import AddNorm, EncoderBlock, FeedForward, MultiHead
from regard.attention.residual import Residual, _add_norm, _add_norm_backward

checks = Checks(__file__)
Way = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@interpreted
def test_the_kernels_do_what_they_should() -> None:
    pytest.importorskip("triton")
    checks.repeat()


def mine(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    total, normed, *_ = _add_norm(x, more, weight, bias, 1e-5)
    return total, normed


def plain(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    total = x + more
    return total, nn.functional.layer_norm(total, total.shape[-1:], weight, bias).to(more.dtype)


def everything(way: Way, *leaves: Tensor, towards: tuple[Tensor, Tensor]) -> list[Tensor]:
    leaves = tuple(one.detach().clone().requires_grad_() for one in leaves)
    found = way(*leaves)
    slopes = torch.autograd.grad(found, leaves, [w.to(f.dtype) for w, f in zip(towards, found, strict=True)])
    return [*(one.detach() for one in found), *slopes]


def drawn(*shape: int) -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
    """x, more, weight and bias; what sum and norm are wanted to be."""
    torch.manual_seed(0)
    x, more = 3 + torch.randn(shape), torch.randn(shape).half()
    weight, bias = 1 + 0.3 * torch.randn(2, shape[-1])
    return [x, more, weight, bias], (torch.randn(shape), torch.randn(shape).half())


@checks
def it_errs_no_more_than_twice_the_plain_lines() -> None:
    """Widths that are no power of two, one number in a vector, vectors all alike, no vectors at all."""
    for shape in ((2, 9, 48), (33, 24), (5, 64), (1, 1), (3, 130), (0, 16)):
        leaves, towards = drawn(*shape)
        if shape == (5, 64):
            leaves[0][1], leaves[1][1] = 2.0, 0.0
        truth = everything(plain, *(one.double() for one in leaves), towards=towards)
        usual = everything(plain, *leaves, towards=towards)
        got = everything(mine, *leaves, towards=towards)
        for number, (one, other, true) in enumerate(zip(got, usual, truth, strict=True)):
            assert one.dtype == other.dtype and one.shape == other.shape
            if one.numel():
                error, allowed = ((found - true).abs().max() for found in (one, other))
                assert error <= 2 * allowed + 1e-5 * true.abs().max(), (shape, number, error, allowed)


@checks
def gradients_in_two_precisions_are_one() -> None:
    leaves, towards = drawn(40, 24)
    _, _, for_x, for_more, *_ = everything(mine, *leaves, towards=towards)
    assert for_x.dtype == torch.float32 and torch.equal(for_x.half(), for_more)


@checks
def the_same_again_is_the_same_bit_for_bit() -> None:
    leaves, towards = drawn(50, 24)
    one, other = (everything(mine, *leaves, towards=towards) for _ in range(2))
    assert all(map(torch.equal, one, other))


@checks
def compilers_see_operators_that_keep_their_word() -> None:
    leaves, towards = drawn(2, 3, 24)
    ready = tuple(one.requires_grad_() for one in leaves)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")
    torch.library.opcheck(_add_norm, (*ready, 1e-5), test_utils=tests)
    total, _, mean, sharp = (one.detach() for one in _add_norm(*ready, 1e-5))
    back = (*towards, total, leaves[2].detach(), mean, sharp)
    torch.library.opcheck(_add_norm_backward, back, test_utils=("test_schema", "test_faketensor"))


@checks
def a_block_compiled_as_one_graph_gives_the_same() -> None:
    """With half precision by autocast, as a GPU has it."""
    torch.manual_seed(0)
    block = EncoderBlock(MultiHead(16, 2), FeedForward(16, 32), lambda dim: AddNorm(dim, "pre"))
    x = torch.randn(2, 5, 16, requires_grad=True)

    def late(x: Tensor) -> Tensor:
        return block(block(Residual(x))).total()

    ways: list[Callable[[Tensor], Tensor]] = [
        lambda x: block(block(x)),
        late,
        torch.compile(late, backend="aot_eager", fullgraph=True),
    ]
    found = []
    for way in ways:
        with torch.autocast("cpu", torch.float16):
            out = way(x)
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), [x, *block.parameters()])])
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            torch.testing.assert_close(two, one, rtol=0, atol=1e-2 * max(1.0, float(one.abs().max())))


@pytest.mark.parametrize("order", ["pre", "post"])
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_in_full_precision_and_with_other_norms_it_is_the_plain_sum(
    order: str, norm: Callable[[int], nn.Module]
) -> None:
    torch.manual_seed(0)
    block = EncoderBlock(MultiHead(16, 2), FeedForward(16, 32), lambda dim: AddNorm(dim, order, norm=norm))
    x = torch.randn(2, 5, 16)
    assert torch.equal(block(Residual(x)).total(), block(x))
    assert torch.equal(block(block(Residual(x))).total(), block(block(x)))


def test_kernels_serve_what_they_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(x: Tensor, more: Tensor, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, ...]:
        calls.append(eps)
        return (*plain(x, more, weight, bias), x, x)

    monkeypatch.setattr(residual, "_add_norm", counted)
    x, more = torch.randn(3, 8), torch.randn(3, 8).bfloat16()
    served = nn.LayerNorm(8, eps=1e-3)
    assert Residual(x, more).add_norm(served)[1].dtype == torch.bfloat16 and calls == [1e-3]
    for norm in (nn.RMSNorm(8), nn.LayerNorm(8, bias=False), nn.LayerNorm(8, elementwise_affine=False)):
        assert Residual(x, more).add_norm(norm)[1].dtype == torch.float32
    wide = torch.randn(2, residual.MAX_WIDTH + 1)
    Residual(wide, wide.bfloat16()).add_norm(nn.LayerNorm(wide.size(1)))
    Residual(x, x).add_norm(served)
    Residual(x).add_norm(served)
    assert len(calls) == 1


if __name__ == "__main__":
    from regard.attention.kernels.triton import residual as triton_residual

    triton_residual.FORWARD_PROGRAMS = triton_residual.BACKWARD_PROGRAMS = 4  # so that they take several rows
    torch.use_deterministic_algorithms(True)  # memory that nobody has written to is not a number
    checks.run()
