"""Planned calls, and the statistics of a decoding step, in Triton's interpreter: a plan serves calls of its own kind
alone, as the first of them was served."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from attention.interpreter import Checks, for_hopper, interpreted, signature
from regard.attention import Observe, Sink, attend, masks, scores

pytest.importorskip("triton", reason="Triton is not installed")

checks = Checks(__file__)
ALL = Observe(top=4, entropy=True, received=True, thumbnail=(5, 7))


def drawn(T: int = 20, S: int = 24, D: int = 16, seed: int = 0) -> list[Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=source) for shape in ((2, 4, T, D), (2, 2, S, D), (2, 2, S, D))]


def agrees(q: Tensor, k: Tensor, v: Tensor, **how: object) -> None:
    want = attend(q.double(), k.double(), v.double(), observe=ALL, backend="plain", **how)  # type: ignore[arg-type]
    got = attend(q, k, v, observe=ALL, backend="triton-fused", **how)  # type: ignore[arg-type]
    for name in ("output", "lse", "entropy", "received", "thumbnail"):
        torch.testing.assert_close(getattr(got, name).double(), getattr(want, name), atol=1e-5, rtol=1e-5)
    assert got.top is not None and want.top is not None
    assert torch.equal(got.top.indices, want.top.indices)


@checks
def check_calls_of_one_kind_share_a_plan() -> None:
    from regard.attention.kernels import planned

    for mask in (None, masks.Causal(), masks.Window(3, 2)):
        before = len(planned._kept)
        for seed in (0, 1, 2):
            agrees(*drawn(24, 24, seed=seed), mask=mask)
        assert len(planned._kept) == before + 1


@checks
def check_every_difference_is_another_kind() -> None:
    """Whatever a kernel's launch, a choice or a check depends on."""
    from regard.attention.kernels.planned import kind_of

    q, k, v = drawn(24, 24)
    nothing = Observe()
    usual = kind_of(q, k, v, None, None, nothing, "auto")
    assert usual is not None
    assert usual == kind_of(*drawn(24, 24, seed=1), None, masks.Everything(), nothing, "auto")
    turned = k.transpose(1, 2).contiguous().transpose(1, 2)
    others = [
        kind_of(q, turned, v, None, None, nothing, "auto"),
        kind_of(q, k, turned, None, None, nothing, "auto"),
        kind_of(q[:, :, :20], k, v, None, None, nothing, "auto"),
        kind_of(q[:1], k[:1], v[:1], None, None, nothing, "auto"),
        kind_of(q, k[:, :1], v[:, :1], None, None, nothing, "auto"),
        kind_of(q, k, v, scores.Dot(), None, nothing, "auto"),
        kind_of(q, k, v, scores.ScaledDot(0.3), None, nothing, "auto"),
        kind_of(q, k, v, scores.ScaledDot(0.3, cap=2.0), None, nothing, "auto"),
        kind_of(q, k, v, None, masks.Causal(), nothing, "auto"),
        kind_of(q, k, v, None, masks.Causal(offset=2), nothing, "auto"),
        kind_of(q, k, v, None, masks.Window(2, 0), nothing, "auto"),
        kind_of(q, k, v, None, None, Observe(entropy=True), "auto"),
        kind_of(q, k, v, None, None, nothing, "triton-fused"),
    ]
    assert None not in others and len({usual, *others}) == len(others) + 1


@checks
def check_what_has_numbers_of_its_own_is_not_planned() -> None:
    from regard.attention.kernels.planned import kind_of

    q, k, v = drawn(24, 24)
    nothing = Observe()
    bilinear = scores.Bilinear(16)
    for score, mask in (
        (bilinear, None),
        (None, masks.Padding([24, 3])),
        (None, masks.Causal(offset=torch.tensor([0, 1]))),
        (None, masks.Causal() & masks.Padding([24, 3])),
        (None, masks.Past()),
        (lambda q, k: q @ k.mT, None),
    ):
        assert kind_of(q, k, v, score, mask, nothing, "auto") is None, (score, mask)
    assert kind_of(q.clone().requires_grad_(), k, v, None, None, nothing, "auto") is None
    assert kind_of(q[0], k[0], v[0], None, None, nothing, "auto") is None
    beside = torch.cat([q.flatten()[:1], q.flatten()])[1:].view(q.shape)  # an address that is no multiple of 16
    assert kind_of(beside, k, v, None, None, nothing, "auto") is None
    apart = torch.nn.functional.pad(k, (0, 1))[..., :16]  # vectors that begin at any multiple of 4 bytes
    assert kind_of(q, apart, v, None, None, nothing, "auto") is None
    for observe in (Observe(weights=True), Observe(prepared=True), Observe(values=True)):
        assert kind_of(q, k, v, None, None, observe, "auto") is None
    inside = []
    torch.func.vmap(lambda q, k, v: inside.append(kind_of(q, k, v, None, None, nothing, "auto")) or q)(
        *(x.unsqueeze(0) for x in (q, k, v))
    )
    assert inside == [None]


@checks
def check_a_plan_does_not_outlive_what_it_knows() -> None:
    """Calls that look alike but for a window that hides a query, a sink, dropout, a gradient."""
    q, k, v = drawn(24, 24)
    for _ in range(2):
        agrees(q, k, v)
    for _ in range(2):
        agrees(q, k, v, normalise=Sink(torch.tensor([0.5, -1.0, 0.0, 2.0])))
        agrees(q, k, v, mask=masks.Window(2, -1))  # the first query sees nothing
        agrees(*drawn(24, 20), mask=masks.Causal())  # the first four see nothing
    learns = q.clone().requires_grad_()
    attend(learns, k, v, backend="triton-fused").output.sum().backward()
    assert learns.grad is not None and learns.grad.abs().sum() > 0


@checks
def check_the_statistics_of_a_decoding_step() -> None:
    """Ties, few keys, groups of heads, a soft cap; launches that were planned for a shorter cache."""
    from regard.attention.kernels.triton.decode_statistics import decode_statistics

    source = torch.Generator().manual_seed(3)
    for B, H, heads, D, cap in ((2, 4, 2, 16, 0.0), (1, 8, 1, 24, 0.0), (2, 3, 3, 16, 2.0)):
        launches: dict[object, object] = {}
        for S in (5, 33, 77):
            q, k = torch.randn(B, H, 1, D, generator=source), torch.randn(B, heads, S, D, generator=source)
            if S > 40:
                k[:, :, 40] = k[:, :, 10]  # equal ones: the first comes first
            observe = Observe(top=8, entropy=True, received=True, thumbnail=(3, 20))
            want = attend(
                q.double(), k.double(), score=scores.ScaledDot(cap=cap or None), observe=observe, backend="plain"
            )
            lse = want.lse[..., 0].float().contiguous()
            how = D**-0.5, cap, True, 8, min(20, S), launches
            weights, entropy, values, keys, thumbnail = decode_statistics(q, k, lse, *how)
            assert want.top is not None and torch.equal(keys, want.top.indices[..., 0, :])
            for got, exact in (
                (weights, want.received),
                (entropy, want.entropy[..., 0]),
                (values, want.top.values[..., 0, :]),
                (thumbnail, want.thumbnail[..., 0, :]),
            ):
                torch.testing.assert_close(got.double(), exact, atol=2e-6, rtol=0)


@interpreted
def test_in_the_interpreter() -> None:
    checks.repeat()


@pytest.mark.parametrize("top", [0, 8])
def test_rows_of_a_decoding_step_compile_for_hopper(top: int) -> None:
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from regard.attention.kernels.triton.decode_statistics import row_statistics

    constants = {"ENTROPY": True, "TOP": top, "BT": 8, "THUMBNAIL": True, "BLOCK": 1024, "CELLS": 256}
    kinds = {"*fp32": ["WEIGHTS", "ENT", "VALUES", "THUMB"], "*i64": ["INDICES"]}
    done = for_hopper(ASTSource(**signature(row_statistics, constants, kinds)), num_warps=4)
    assert done.instructions["MUFU"] and not done.spilled


@pytest.mark.parametrize(("high", "wide"), [(1, 2), (2, 2), (4, 4), (8, 8), (2, 8), (8, 1), (32, 4)])
def test_small_cells_of_a_thumbnail_compile_for_hopper(high: int, wide: int) -> None:
    """Sums over b bits of a lane's number take 32 - 32 / 2^b exchanges, not 32 b."""
    from triton.experimental.gluon._runtime import GluonASTSource  # type: ignore[import-untyped]

    from attention.test_triton import FLOATS, NUMBERS, described
    from regard.attention.kernels.hopper.statistics import statistics
    from regard.attention.kernels.triton.statistics_pass import ThumbnailTiling

    R, C = 1024 // high, 1024 // wide
    tiling = ThumbnailTiling.of(1024, 1024, R, C)
    assert tiling.high == high and tiling.columns == 128 // wide and tiling.exclusive
    constants = {"D": 64, "BN": 128, "STAGES": 2, "CELLS": tiling.columns, "EVEN": True, "EXCLUSIVE": True}
    constants |= {"HIGH": high, "RECEIVED": False, "TOP": False, "CAPACITY": 32, "ENDS": False, "CAPPED": False}
    kinds = {"*fp32": [*FLOATS, "THUMB"], "*i32": NUMBERS, "*i64": ["CANDIDATES", "BUFFERS"], "fp32": ["c", "g"]}
    kinds |= described(64, Q=64, K=128)
    done = for_hopper(GluonASTSource(**signature(statistics, constants, kinds)), num_warps=4, maxnreg=168)
    assert done.instructions["HGMMA"]
    if high <= 8 and 2 <= wide <= 8:
        bits = (high.bit_length() - 1) + max(wide.bit_length() - 2, 0)
        assert 32 - 32 // 2**bits <= done.instructions["SHFL"] <= 64


if __name__ == "__main__":
    checks.run()
    sys.exit()
