"""The backends of Triton on a GPU: every field against float64, hostile inputs, bits, memory, gradients, operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from error_bounds import has_even_cells, loudest_score, statistics_bound
from torch import Tensor

from regard.attention import Attended, Observe, attend, choose, masks, scores
from regard.attention.masks import Mask

pytestmark = pytest.mark.gpu

ALL = Observe(top=8, entropy=True, received=True, thumbnail=(16, 16))
CAPPED_FLOOR = (
    1e-5  # beyond twice PyTorch's error, of a field with a soft cap: the GPU's tanh is off by 2^-11 of a score
)
FIELDS = ("output", "lse", "entropy", "received", "thumbnail")
MASKS = {
    "everything": lambda T, S: None,
    "causal": lambda T, S: masks.Causal(),
    "past": lambda T, S: masks.Past(offset=0),
    "window": lambda T, S: masks.Window(170, 50),
    "padding": lambda T, S: masks.Padding([S, S // 3], [T, T // 2]),
    "causal and padding": lambda T, S: masks.Causal() & masks.Padding([S, S // 2]),
    "documents": lambda T, S: masks.Documents(torch.arange(S) // 37, torch.arange(T) // 37),
    "nothing": lambda T, S: masks.Padding([0, S]),
}


@pytest.fixture(autouse=True)
def fresh_memory_is_poison() -> Iterator[None]:
    """What a kernel leaves unwritten is NaN, or a huge whole number."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


def drawn(T: int, S: int, D: int, dtype: torch.dtype = torch.bfloat16, heads: int = 4, few: int = 2) -> list[Tensor]:
    torch.manual_seed(T + 7 * S + 31 * D)
    return [torch.randn(shape, device="cuda").to(dtype) for shape in ((2, heads, T, D), (2, few, S, D), (2, few, S, D))]


def usual(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, observe: Observe = ALL, **how: Any) -> dict[str, Any]:
    """The same by PyTorch's operations in the dtype of the inputs, weights and all."""
    k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
    whole = attend(q, k, v, mask=mask, observe=Observe(weights=True), backend="plain", **how)
    assert whole.weights is not None
    weights = whole.weights.to(q.dtype)
    output = weights @ v
    weights = weights.float()
    from regard.attention.observe import attention_statistics

    hidden = torch.zeros_like(weights, dtype=torch.bool)
    return {"output": output, "lse": whole.lse, "sink": whole.sink} | dict(
        attention_statistics(weights, hidden, observe)
    )


def agrees(q: Tensor, k: Tensor, v: Tensor, mask: Mask | None, backend: str = "triton-fused", **how: Any) -> Attended:
    """Statistics within the bounds of float32 from float64; the output at most twice as far as PyTorch's operations in
    the dtype of the inputs, as its fused kernels are. A soft cap has a bound of its own: CAPPED_FLOOR."""
    capped = getattr(how.get("score"), "cap", None) is not None
    truth = attend(*(x.double() for x in (q, k, v)), mask=mask, observe=ALL, backend="plain", **how)
    near = usual(q, k, v, mask, **how)
    got = attend(q, k, v, mask=mask, observe=ALL, backend=backend, **how)
    assert got.backend == backend
    assert truth.top is not None and got.top is not None
    even = has_even_cells(q.size(2), k.size(2), *ALL.thumbnail)  # type: ignore[misc]
    loudest = loudest_score(q, k, how.get("normalise"))
    pairs = {name: (getattr(truth, name), getattr(got, name).double(), near[name].double()) for name in FIELDS}
    pairs["top"] = truth.top.values, got.top.values.double(), near["top"].values.double()
    if truth.sink is not None:
        assert got.sink is not None
        pairs["sink"] = truth.sink, got.sink.double(), near["sink"].double()
    for name, (exact, ours, theirs) in pairs.items():
        known = exact.isfinite()
        assert torch.equal(ours[~known], exact[~known]), f"{name}: -inf in other places"
        if not known.any():
            continue
        if name == "output" or capped:
            least = torch.finfo(q.dtype).eps if name == "output" else CAPPED_FLOOR
            allowed = 2 * (theirs - exact)[known].abs().max() + least * exact[known].abs().max().clamp(min=1.0)
        else:
            allowed = statistics_bound(name, exact, loudest, even_cells=even)[known]
        off = (ours - exact)[known].abs()
        over = float((off / allowed).max())
        assert over <= 1, f"{name} is off by {float(off.max()):.1e}, {over:.2f} of its bound"
    told = (truth.top.values > 1e-30) | (truth.top.indices < 0)
    same = (got.top.indices == truth.top.indices)[told].float().mean()
    assert not told.any() or same > 0.99, f"{same:.3f} of the largest are the same keys"
    return got


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("sizes", [(512, 512), (300, 700), (1, 777), (129, 1)], ids=str)
@pytest.mark.parametrize("width", [64, 128])
def test_hoppers_kernels(width: int, sizes: tuple[int, int], name: str) -> None:
    agrees(*drawn(*sizes, width), MASKS[name](*sizes))


@pytest.mark.parametrize("name", ["everything", "causal and padding", "documents"])
@pytest.mark.parametrize("width", [32, 40, 80, 256])
def test_other_widths(width: int, name: str) -> None:
    agrees(*drawn(200, 333, width, torch.float16), MASKS[name](200, 333))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sizes", [(8192, 8192), (8256, 8200)], ids=str)
def test_long_ones(sizes: tuple[int, int], dtype: torch.dtype) -> None:
    """From here on three groups of warps work together."""
    q, k, v = (x[:1] for x in drawn(*sizes, 64, dtype, heads=2, few=1))
    agrees(q, k, v, masks.Causal())


@pytest.mark.parametrize("name", ["everything", "causal"])
def test_the_vendors_output_with_our_statistics(name: str) -> None:
    agrees(*drawn(512, 512, 64, heads=4, few=4), MASKS[name](512, 512), "triton")


def test_hostile_inputs() -> None:
    q, k, v = drawn(300, 512, 64)
    agrees(q * 30, k * 30, v, masks.Causal())
    agrees(torch.zeros_like(q), k, v, None)


def test_equal_weights_come_in_the_order_of_their_keys() -> None:
    q, k, v = drawn(260, 1024, 64)
    same = k[:, :, :1].expand_as(k)
    got = attend(q, same, v, observe=Observe(top=8), backend="triton-fused")
    assert got.top is not None
    assert torch.equal(got.top.indices, torch.arange(8, device="cuda").expand_as(got.top.indices))
    one = attend(q, same, v, observe=Observe(top=1), backend="triton-fused")
    assert one.top is not None and not one.top.indices.any()


def test_maxima_that_return_every_128_keys_are_all_found() -> None:
    """More candidates of one class than there is room for: those rows are gone through again."""
    q, k, v = drawn(128, 8192, 64)
    k[:, :, 5::128] = 4 * q[:, ::2, :1]
    agrees(q, k, v, None)


def test_argmax_is_the_first_of_the_largest() -> None:
    q, k, v = drawn(500, 900, 128)
    for mask in (None, masks.Causal(), masks.Padding([900, 77])):
        one, eight = (attend(q, k, v, mask=mask, observe=Observe(top=n), backend="triton-fused").top for n in (1, 8))
        assert one is not None and eight is not None
        torch.testing.assert_close(one.values, eight.values[..., :1])
        assert (one.indices == eight.indices[..., :1]).float().mean() > 0.999


@pytest.mark.parametrize("width", [64, 128, 80])
@pytest.mark.parametrize("length", [700, 8192])
def test_observing_changes_no_bit_and_twice_is_the_same(width: int, length: int) -> None:
    q, k, v = (x[:1] for x in drawn(length, length, width))
    seen = [attend(q, k, v, mask=masks.Causal(), observe=o, backend="triton-fused") for o in (Observe(), ALL, ALL)]
    for one in seen[1:]:
        assert torch.equal(seen[0].output, one.output) and torch.equal(seen[0].lse, one.lse)
    for name in FIELDS:
        assert torch.equal(getattr(seen[1], name), getattr(seen[2], name)), name


@pytest.mark.parametrize("name", ["everything", "causal", "window", "padding", "documents"])
@pytest.mark.parametrize("width", [64, 128, 80])
def test_gradients(width: int, name: str) -> None:
    """At most twice as far from float64 as PyTorch's fused attention in the same dtype."""
    tensors = [x.requires_grad_() for x in drawn(300, 300, width, heads=4, few=2)]
    mask = MASKS[name](300, 300)

    def gradients(backend: str, dtype: torch.dtype, *, with_lse: bool) -> list[Tensor]:
        inputs = [x.to(dtype) for x in tensors]
        got = attend(*inputs, mask=mask, backend=backend)
        loss = got.output.float().square().sum()
        loss = loss + torch.where(got.lse.isfinite(), got.lse, 0.0).sin().sum() if with_lse else loss
        return list(torch.autograd.grad(loss, tensors))

    for with_lse in (False, True):
        exact = gradients("plain", torch.float64, with_lse=with_lse)
        near = gradients("plain", torch.bfloat16, with_lse=with_lse)
        for ours, want, theirs in zip(
            gradients("triton-fused", torch.bfloat16, with_lse=with_lse), exact, near, strict=True
        ):
            allowed = 2 * float((theirs - want).abs().max()) + 0.01 * float(want.abs().max())
            assert float((ours - want).abs().max()) <= allowed


def test_memory_is_linear_and_at_most_twice_the_inputs() -> None:
    torch.use_deterministic_algorithms(False)
    q, k, v = (torch.randn(2, 16, 4096, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    observe = Observe(top=8, entropy=True, received=True, thumbnail=(256, 256))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    attend(q, k, v, mask=masks.Causal(), observe=observe, backend="triton-fused")
    used = torch.cuda.max_memory_allocated() - before
    assert used <= 2 * sum(x.numel() * 2 for x in (q, k, v)) + 2**26


def test_few_queries_against_a_cache() -> None:
    for T in (1, 3):
        q, k, v = drawn(T, 5000, 128, heads=8, few=2)
        agrees(q, k, v, masks.Causal())
        agrees(q, k, v, masks.Padding([5000, 1234]))


def test_auto_knows_what_is_fast() -> None:
    q, k, v = drawn(512, 512, 64, heads=4, few=4)
    assert choose(q, k, v).backend == "triton"
    assert choose(q, k, v, mask=masks.Padding([512, 3])).backend == "triton-fused"
    assert choose(q, k, v, mask=masks.Dense(torch.ones(512, 512, dtype=torch.bool))).backend == "sdpa"
    long = [x.expand(1, 1, 8192, 64) for x in (q[:1, :1, :1], k[:1, :1, :1], v[:1, :1, :1])]
    assert choose(*long).backend == "triton-fused"
    additive = scores.Additive(64, 32).cuda().to(torch.bfloat16)
    assert choose(q, k, v, score=additive).backend == "triton"


def test_operators_are_known_to_the_compiler() -> None:
    torch.use_deterministic_algorithms(False)
    q, k, v = (x.requires_grad_() for x in drawn(256, 256, 64, heads=4, few=4))

    def loss(*x: Tensor) -> Tensor:
        got = attend(*x, mask=masks.Causal(), observe=ALL, backend="triton-fused")
        assert got.received is not None
        return got.output.float().square().sum() + 0 * got.received.sum()

    whole = torch.compile(loss, fullgraph=True)
    for ours, eager in zip(
        torch.autograd.grad(whole(q, k, v), (q, k, v)), torch.autograd.grad(loss(q, k, v), (q, k, v)), strict=True
    ):
        torch.testing.assert_close(ours, eager)
