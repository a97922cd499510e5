"""Peak, distance, spans and counted queries beside the fused kernels, in Triton's interpreter, and what the row pass
compiles to for Hopper."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from attention.interpreter import Checks, for_hopper, interpreted, signature
from regard.attention import Observe, Queries, Sink, Spans, attend, masks, scores

pytest.importorskip("triton", reason="Triton is not installed")

checks = Checks(__file__)
ROWS = ("peak", "distance", "spans", "received", "entropy")


def drawn(T: int, S: int, D: int = 16, heads: int = 4, few: int = 2) -> list[Tensor]:
    source = torch.Generator().manual_seed(T + 7 * S)
    shapes = ((2, heads, T, D), (2, few, S, D), (2, few, S, D))
    return [torch.randn(shape, generator=source) for shape in shapes]


def asked(T: int, S: int, **more: Any) -> Observe:
    spans = Spans([(0, T // 2), (T // 3, None)], [(0, S // 3), (S // 3, S // 2), (-4, None)])
    return Observe(peak=True, distance=True, entropy=True, **{"spans": spans, "received": Queries(last=3)} | more)


def agrees(q: Tensor, k: Tensor, v: Tensor, observe: Observe, **how: Any) -> None:
    want = attend(q.double(), k.double(), v.double(), observe=observe, backend="plain", **how)
    for _ in range(2):  # a call and the one that its plan serves
        got = attend(q, k, v, observe=observe, backend="triton-fused", **how)
        for name in ROWS:
            exact, mine = getattr(want, name), getattr(got, name).double()
            assert mine.shape == exact.shape, name
            assert torch.equal(mine == -torch.inf, exact == -torch.inf), name
            known = exact.isfinite()
            off = ((mine - exact).abs() / exact.abs().clamp(min=1.0))[known]
            assert float(off.max()) < 4e-6, f"{name} is off by {float(off.max()):.1e}"


@checks
def check_masks() -> None:
    T, S = 37, 45
    docs = masks.Documents(torch.arange(S) // 11, torch.arange(T) // 10)
    table = torch.rand(2, 1, T, S, generator=torch.Generator().manual_seed(0)) > 0.5
    table[:, :, 5] = False
    for mask in (None, masks.Causal(), masks.Past(0), masks.Window(9, 3), masks.Padding([S, 13], [T, 9]), docs):
        agrees(*drawn(T, S), asked(T, S), mask=mask)
    agrees(*drawn(T, S), asked(T, S), mask=masks.Dense(table))
    runs = masks.Runs.of(masks.Padding([S, 13]).dense(T, S, (2, 1)))
    agrees(*drawn(T, S), asked(T, S), mask=runs)


@checks
def check_scores_and_sinks() -> None:
    T, S = 20, 33
    agrees(*drawn(T, S), asked(T, S), score=scores.ScaledDot(cap=0.7))
    agrees(*drawn(T, S), asked(T, S), normalise=Sink(torch.tensor([0.5, -1.0, 3.0, 60.0])))
    agrees(*(6 * x for x in drawn(T, S)), asked(T, S), score=scores.ScaledDot(0.05))


@checks
def check_groups() -> None:
    T, S = 19, 40
    ids = Spans(torch.arange(T) % 4 - 1, torch.arange(S) % 70)
    many = Spans(None, [(i % S, i % S + 3) for i in range(150)])  # more than one pass takes
    marked = torch.arange(T) % 3 == 1
    for spans in (ids, many):
        agrees(*drawn(T, S), asked(T, S, spans=spans, received=marked), mask=masks.Causal())
    agrees(*drawn(T, S), asked(T, S, received=marked), mask=masks.Dense(torch.ones(T, S).bool().tril(9)))


@checks
def check_decoding_steps() -> None:
    """One query, by the kernels of a decoding step; a few by theirs."""
    for T, S, mask in ((1, 60, None), (1, 60, masks.Padding([60, 41])), (2, 600, masks.Causal()), (1, 600, None)):
        agrees(*drawn(T, S), asked(T, S, received=Queries(last=1)), mask=mask)


@checks
def check_other_statistics_are_as_without() -> None:
    q, k, v = drawn(24, 24)
    base = Observe(top=3, entropy=True, thumbnail=(4, 4))
    more = Observe(top=3, entropy=True, thumbnail=(4, 4), peak=True, distance=True, received=Queries(last=2))
    one, other = (attend(q, k, v, mask=masks.Causal(), observe=o, backend="triton-fused") for o in (base, more))
    assert torch.equal(one.output, other.output) and torch.equal(one.lse, other.lse)
    assert one.top is not None and other.top is not None
    assert torch.equal(one.top.values, other.top.values) and torch.equal(one.thumbnail, other.thumbnail)


@checks
def check_with_gradients_and_in_graphs() -> None:
    q, k, v = (x.requires_grad_() for x in drawn(18, 18))
    observe = asked(18, 18)
    agrees(q, k, v, observe, mask=masks.Causal())
    got = attend(q, k, v, mask=masks.Causal(), observe=observe, backend="triton-fused")
    got.output.sum().backward()
    assert q.grad is not None and not any(getattr(got, name).requires_grad for name in ROWS)


@interpreted
@pytest.mark.parametrize("part", [0, 1])
def test_in_the_interpreter(part: int) -> None:
    checks.repeat(part, 2)


@pytest.mark.parametrize("width", [64, 128])
def test_the_row_pass_compiles_for_hopper(width: int) -> None:
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from regard.attention.kernels.triton.row_pass import row_statistics

    constants = {"PER_BIT": 1, "D": width, "BD": width, "BM": 64, "BN": 64, "BG": 64, "PEAK": True, "DISTANCE": True}
    constants |= {"GROUPS": True, "ENDS": False, "DOCUMENTS": False, "CAPPED": False, "PACKED": False, "BITS": None}
    constants |= {"TILES": None, "COUNTS": None}
    kinds = {"*fp32": ["LSE", "PEAK_OUT", "DISTANCE_OUT", "SUMS"], "*bf16": ["Q", "K"], "*fp16": ["TABLE"]}
    kinds |= {"*i32": ["LO", "HI", "QDOC", "KDOC"], "fp32": ["c", "scale", "g"]}
    done = for_hopper(ASTSource(**signature(row_statistics, constants, kinds)), num_warps=4)
    assert done.instructions["HGMMA"] and not done.spilled


if __name__ == "__main__":
    sys.path.insert(0, "")
    checks.run()
