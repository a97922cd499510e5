"""Sinks, soft caps and sparse keys on a GPU: every field and gradient against float64, bits, memory, the choice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_triton_cuda import ALL, FIELDS, agrees, drawn, fresh_memory_is_poison
from torch import Tensor

from regard.attention import Observe, Sink, attend, choose, masks, scores
from regard.attention.masks import Mask

__all__ = ["fresh_memory_is_poison"]  # for every test here too
pytestmark = pytest.mark.gpu

LOGITS = torch.tensor([0.5, -2.0, 4.0, 0.0])
VARIANTS: dict[str, dict[str, Any]] = {
    "sink": {"sink": LOGITS},
    "cap": {"cap": 30.0},
    "tight cap": {"cap": 1.5},
    "sink and cap": {"sink": LOGITS, "cap": 5.0},
}


def how(variant: str, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    chosen = VARIANTS[variant]
    given: dict[str, Any] = {"score": scores.ScaledDot(cap=chosen["cap"])} if "cap" in chosen else {}
    return given | ({"normalise": Sink(chosen["sink"].to("cuda", dtype))} if "sink" in chosen else {})


def some(*shape: int, below: int) -> Tensor:
    source = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-1, below, shape, generator=source).cuda()


def sparse(name: str, T: int, S: int) -> Mask:
    if name == "keys":
        return masks.Keys(some(2, 1, T, 40, below=S))
    if name == "keys and causal":
        return masks.Keys(some(2, 4, T, 40, below=S)) & masks.Causal()
    if name == "blocks":
        return masks.Blocks(some(2, 4, T, 2, below=-(-S // 64)), 64) & masks.Causal()
    if name == "odd blocks":
        return masks.Blocks(some(1, T, 2, below=-(-S // 48)), 48)
    return masks.Dense(torch.rand(2, 1, T, S, device="cuda", generator=torch.Generator("cuda").manual_seed(0)) < 0.1)


SPARSE = ["keys", "keys and causal", "blocks", "odd blocks", "table"]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("width", [64, 128, 80, 256])
def test_sinks_and_caps(width: int, variant: str) -> None:
    for T, S in ((512, 512), (300, 700), (1, 77)):
        for mask in (None, masks.Causal(), masks.Past(offset=0), masks.Padding([S, S // 3], [T, T // 2])):
            agrees(*drawn(T, S, width), mask, **how(variant))


@pytest.mark.parametrize("variant", ["sink", "cap"])
@pytest.mark.parametrize("length", [2048, 8256])
def test_long_ones(length: int, variant: str) -> None:
    """From 1024 on three groups of warps work together where vectors are of 64."""
    for width in (64, 128):
        q, k, v = (x[:1] for x in drawn(length, length, width, heads=4, few=1))
        agrees(q, k, v, masks.Causal(), **how(variant))


def test_scores_far_beyond_and_far_below_their_cap() -> None:
    q, k, v = drawn(300, 512, 64)
    for loud, cap in ((30.0, 50.0), (0.01, 50.0), (3.0, 0.5)):
        soft = scores.ScaledDot(cap=cap)
        truth = attend(*(x.double() for x in (q * loud, k, v)), score=soft, observe=ALL, backend="plain")
        got = attend(q * loud, k, v, score=soft, observe=ALL, backend="triton-fused")
        near = attend(q * loud, k, v, score=soft, observe=ALL, backend="plain")
        for name in ("output", "lse", "entropy", "received"):
            exact = getattr(truth, name)
            off, allowed = (float((getattr(x, name).double() - exact).abs().max()) for x in (got, near))
            # the GPU's tanh is off by up to 2^-11 of a score, and these scores are as large as their cap
            floor = (2**-7 if name == "output" else 2**-11) * max(1.0, float(exact.abs().max()))
            assert off <= 2 * allowed + floor, f"{name} is off by {off:.1e}, PyTorch's by {allowed:.1e}"


@pytest.mark.parametrize("logit", [-1e4, 60.0, 1e4])
def test_sinks_that_take_nothing_nearly_all_and_all(logit: float) -> None:
    agrees(*drawn(300, 300, 64), masks.Causal(), normalise=Sink(torch.full((4,), logit, device="cuda")))


@pytest.mark.parametrize("name", SPARSE)
@pytest.mark.parametrize("width", [64, 128, 40])
def test_sparse_keys(width: int, name: str) -> None:
    for T, S in ((512, 512), (300, 700)):
        agrees(*drawn(T, S, width), sparse(name, T, S))
    agrees(*drawn(130, 200, width), sparse(name, 130, 200), **how("sink and cap"))


def test_a_few_queries_against_a_cache() -> None:
    for variant in VARIANTS:
        agrees(*drawn(1, 5000, 128, heads=4, few=2), masks.Padding([5000, 1234]), **how(variant))
    agrees(*drawn(1, 5000, 128, heads=4, few=2), sparse("keys", 1, 5000), **how("sink"))


@pytest.mark.parametrize("variant", [*VARIANTS, *SPARSE])
@pytest.mark.parametrize("few", [2, 4])
@pytest.mark.parametrize("width", [64, 128, 80])
def test_gradients(width: int, few: int, variant: str) -> None:
    """At most twice as far from float64 as PyTorch's operations in the same dtype. 4 of 4 heads: cuDNN's kernel."""
    tensors = [x.requires_grad_() for x in drawn(320, 320, width, heads=4, few=few)]
    chosen = VARIANTS.get(variant, {"sink": LOGITS})
    mask = sparse(variant, 320, 320) if variant in SPARSE else masks.Causal()
    logits = chosen["sink"].cuda().requires_grad_() if "sink" in chosen else None
    leaves = [*tensors, *([] if logits is None else [logits])]

    def gradients(backend: str, dtype: torch.dtype, with_lse: bool) -> list[Tensor]:
        normalise = None if logits is None else Sink(logits)
        inputs, soft = [x.to(dtype) for x in tensors], scores.ScaledDot(cap=chosen.get("cap"))
        got = attend(*inputs, mask=mask, score=soft, normalise=normalise, backend=backend)
        loss = got.output.float().square().sum()
        if with_lse:
            loss = loss + torch.where(got.lse.isfinite(), got.lse, 0.0).sin().sum()
            loss = loss + (0.0 if got.sink is None else got.sink.square().sum())
        return list(torch.autograd.grad(loss, leaves))

    for with_lse in (False, True):
        exact = gradients("plain", torch.float64, with_lse)
        near = gradients("plain", torch.bfloat16, with_lse)
        for ours, want, theirs in zip(gradients("triton-fused", torch.bfloat16, with_lse), exact, near, strict=True):
            allowed = 2 * float((theirs - want).abs().max()) + 0.01 * float(want.abs().max())
            assert float((ours - want).abs().max()) <= allowed


@pytest.mark.parametrize("width", [64, 128, 80])
def test_observing_changes_no_bit_and_twice_is_the_same(width: int) -> None:
    q, k, v = drawn(1100, 1100, width)
    for given in (how("sink and cap"), {"mask": sparse("blocks", 1100, 1100)}):
        given = {"mask": masks.Causal()} | given
        seen = [attend(q, k, v, observe=o, backend="triton-fused", **given) for o in (Observe(), ALL, ALL)]
        for one in seen[1:]:
            assert torch.equal(seen[0].output, one.output) and torch.equal(seen[0].lse, one.lse)
        for name in FIELDS:
            assert torch.equal(getattr(seen[1], name), getattr(seen[2], name)), name


def test_auto_serves_all_of_them_with_kernels() -> None:
    q, k, v = drawn(512, 512, 64, heads=4, few=4)
    for variant in VARIANTS:
        assert choose(q, k, v, **how(variant)).backend == "triton-fused"
    for name in SPARSE[:-1]:
        assert choose(q, k, v, mask=sparse(name, 512, 512)).backend == "triton-fused"
    table = sparse("table", 512, 512)
    assert choose(q, k, v, mask=table).backend == "sdpa"
    assert choose(q, k, v, mask=table, **how("cap")).backend == "triton-fused"


def test_sparse_keys_of_32768_tokens_need_little_memory() -> None:
    torch.use_deterministic_algorithms(False)
    q, k, v = (torch.randn(1, 8, 32768, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    for mask in (masks.Keys(some(32768, 256, below=32768)), masks.Blocks(some(8, 32768, 16, below=512), 64)):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        got = attend(q, k, v, mask=mask & masks.Causal())
        used = torch.cuda.max_memory_allocated() - before
        assert got.backend == "triton-fused"
        assert used <= 2**31, f"{used / 2**30:.2f} GiB"  # the map itself would have 16 GiB in bfloat16
        rows = slice(32768 - 64, 32768)
        few = type(mask)(mask.indices[..., rows, :], *([mask.size] if isinstance(mask, masks.Blocks) else []))
        exact = attend(q[:, :, rows].double(), k.double(), v.double(), mask=few & masks.Causal(), backend="plain")
        assert float((got.output[:, :, rows] - exact.output).abs().max()) < 0.02


def test_compiled_with_a_sink() -> None:
    torch.use_deterministic_algorithms(False)
    q, k, v = (x.requires_grad_() for x in drawn(256, 256, 64, heads=4, few=4))
    logits = LOGITS.cuda().requires_grad_()

    def loss(*x: Tensor) -> Tensor:
        got = attend(*x[:3], normalise=Sink(x[3]), score=scores.ScaledDot(cap=9.0), mask=masks.Causal())
        assert got.sink is not None
        return got.output.float().square().sum() + got.sink.sum()

    leaves = (q, k, v, logits)
    whole = torch.compile(loss, fullgraph=True)
    for ours, eager in zip(
        torch.autograd.grad(whole(*leaves), leaves), torch.autograd.grad(loss(*leaves), leaves), strict=True
    ):
        torch.testing.assert_close(ours, eager, rtol=2e-2, atol=2e-2)
