"""The backends of Triton against the definition in float64, in its interpreter; what the kernels become for Hopper."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from attention.interpreter import Checks, for_hopper, interpreted, signature
from regard.attention import Attended, Entmax, Observe, Sink, attend, choose, masks, scores
from regard.attention.masks import Mask
from regard.errors import BackendError

pytest.importorskip("triton", reason="Triton is not installed")

checks = Checks(__file__)
ALL = Observe(top=5, entropy=True, received=True, thumbnail=(7, 5))
FIELDS = ("output", "lse", "entropy", "received", "thumbnail")


def drawn(T: int, S: int, D: int, dtype: torch.dtype = torch.float32, heads: int = 4, few: int = 2) -> list[Tensor]:
    source = torch.Generator().manual_seed(T + 7 * S + 31 * D)
    shapes = ((2, heads, T, D), (2, few, S, D), (2, few, S, D))
    return [torch.randn(shape, generator=source).to(dtype) for shape in shapes]


def agrees(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, observe: Observe = ALL, **how: object
) -> Attended:
    """No further from float64 than twice plain float32, and some roundings of numbers of size 1; the same keys."""
    want, near = (
        attend(*(x.to(dtype) for x in (q, k, v)), mask=mask, observe=observe, backend="plain", **how)  # type: ignore[arg-type]
        for dtype in (torch.float64, torch.float32)
    )
    got = attend(q, k, v, mask=mask, observe=observe, backend="triton-fused", **how)  # type: ignore[arg-type]
    assert got.backend == "triton-fused"
    fine = torch.finfo(q.dtype).eps
    for name in (*FIELDS, "sink"):
        exact, usual, ours = (getattr(one, name) for one in (want, near, got))
        if exact is None:
            assert ours is None, name
            continue
        known = exact.isfinite()
        assert torch.equal(ours.double()[~known], exact[~known]), f"{name}: -inf in other places"
        scale = max(1.0, float(exact[known].abs().max())) if known.any() else 1.0
        unit = 4 * fine if name == "output" else 8 * torch.finfo(torch.float32).eps
        allowed = 2 * float((usual.double() - exact)[known].abs().max()) + unit * scale if known.any() else 0.0
        off = float((ours.double() - exact)[known].abs().max()) if known.any() else 0.0
        assert off <= allowed, f"{name} is off by {off:.1e}, allowed {allowed:.1e}"
    if want.top is not None and got.top is not None:
        assert float((got.top.values.double() - want.top.values).abs().max()) < 2e-6
        told = (want.top.values > 1e-30) | (want.top.indices < 0)
        assert torch.equal(got.top.indices[told], want.top.indices[told]), "other keys are the largest"
    return got


@checks
def check_every_mask_at_lengths_that_are_no_multiple_of_a_block() -> None:
    T, S = 21, 37
    for mask in (
        None,
        masks.Causal(),
        masks.Past(),
        masks.Past(offset=0),
        masks.Window(5, 3),
        masks.Window(5, 3, torch.tensor([2, 9])),
        masks.Padding([S, S // 3], [T, T // 2]),
        masks.Padding([S, 4], side="left"),
        masks.Causal() & masks.Padding([S, S // 2]) & masks.Window(9, 0),
        masks.Documents(torch.arange(S) // 5 % 3, torch.arange(T) // 5 % 3),
        masks.Causal() & masks.Documents(torch.stack((torch.arange(S) // 7, torch.arange(S) // 30))),
    ):
        agrees(*drawn(T, S, 24), mask)


@checks
def check_widths_heads_and_leading_dimensions() -> None:
    agrees(*drawn(5, 18, 40, heads=3, few=3))
    agrees(*drawn(1, 33, 16, heads=4, few=1), masks.Causal())
    q, k, v = drawn(9, 20, 16)
    agrees(q[0, 0], k[0, 0], v[0, 0], masks.Causal(offset=0))
    agrees(q[:, 0], k[:, 0], v[:, 0], masks.Padding([20, 3]))
    agrees(q.reshape(2, 2, 2, 9, 16), k[:, None], v[:, None], masks.Padding([20, 7]))
    agrees(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)))


@checks
def check_half_precision() -> None:
    agrees(*drawn(19, 30, 32, torch.float16), masks.Causal())


@checks
def check_other_scores_of_the_dot_family() -> None:
    q, k, v = drawn(9, 20, 16)
    for score in (scores.Dot(), scores.ScaledDot(3.0), scores.Cosine(0.1)):
        agrees(q, k, v, masks.Causal(), score=score)


@checks
def check_hostile_inputs() -> None:
    q, k, v = drawn(17, 40, 16)
    agrees(q * 300, k * 300, v, masks.Causal())  # scores of a million
    agrees(q, k[..., :1, :], v[..., :1, :])  # one key
    agrees(q, k, v, masks.Padding([0, 40]))  # nothing to see
    whole = [x.mul(2).round() for x in (q, k[..., :1, :].expand_as(k), v)]  # so that equal keys get equal scores
    agrees(*whole, masks.Causal())  # repeated maxima: the first come first
    agrees(torch.zeros_like(q), k, v)


def sparse(T: int, S: int) -> list[Mask]:
    """Masks that are packed."""
    source = torch.Generator().manual_seed(T + S)

    def some(*shape: int, below: int) -> Tensor:
        return torch.randint(-1, below, shape, generator=source)

    return [
        masks.Keys(some(2, 1, T, 6, below=S)),
        masks.Keys(some(4, T, 3, below=S)) & masks.Causal(),
        masks.Blocks(some(2, 4, T, 2, below=S // 5), 5) & masks.Padding([S, S // 2]),
        masks.Blocks(some(1, 2, below=-(-S // 16)), 16),
        masks.Dense(torch.rand(2, 1, T, S, generator=source) < 0.2),
        masks.Causal() & masks.Documents(torch.arange(S) // 7) & ~masks.Padding([3, 5]),
    ]


@checks
def check_sinks_and_caps() -> None:
    source = torch.Generator().manual_seed(3)
    sink, soft = Sink(torch.randn(4, generator=source)), scores.ScaledDot(cap=3.0)
    q, k, v = drawn(21, 37, 24)
    agrees(q, k, v, masks.Past(offset=0), normalise=sink)
    agrees(q, k, v, masks.Padding([37, 0]), score=soft)
    agrees(q, k, v, masks.Causal(), normalise=sink, score=soft)
    most = Observe(entropy=True, received=True)  # in float32 other keys are equal than in float64
    agrees(q * 100, k, v, None, most, score=scores.ScaledDot(cap=30.0))  # most scores are as large as they can be
    agrees(q * 0.1, k, v, None, score=scores.ScaledDot(cap=50.0))  # none of them is near
    for loud in (-1e4, 40.0, 1e4):  # takes nothing, nearly all, all
        agrees(q, k, v, masks.Causal(), normalise=Sink(torch.full((4,), loud)))
    agrees(q, k, v, masks.Causal(), normalise=Sink(torch.randn(2, 1, generator=source).half()))
    agrees(q[0, 0], k[0, 0], v[0, 0], normalise=Sink(torch.tensor(0.5)))
    agrees(q, k, v, masks.Causal(), Observe(top=1, entropy=True), normalise=sink, score=soft)
    few = drawn(3, 600, 16, heads=4, few=1)  # a few queries against a cache
    agrees(*few, masks.Causal(), normalise=sink, score=soft)
    agrees(*few, masks.Padding([600, 0]), normalise=sink)


@checks
def check_sparse_keys() -> None:
    for mask in sparse(21, 37):
        agrees(*drawn(21, 37, 24), mask)
    soft, sink = scores.ScaledDot(cap=3.0), Sink(torch.tensor([0.3, -1.0, 2.0, 0.0]))
    agrees(*drawn(40, 70, 16), sparse(40, 70)[0], score=soft, normalise=sink)
    agrees(*drawn(1, 600, 16), masks.Keys(torch.tensor([[3, 599]])))
    agrees(*drawn(17, 40, 16), masks.Keys(torch.full((17, 2), -1)))  # nothing to see
    q, k, v = drawn(9, 33, 16)
    agrees(q.reshape(2, 2, 2, 9, 16), k[:, None], v[:, None], masks.Keys(torch.randint(0, 33, (2, 1, 9, 4))))


@checks
def check_every_statistic_alone() -> None:
    tensors = drawn(12, 26, 16)
    for observe in (Observe(), Observe(top=1), Observe(top=40), Observe(entropy=True), Observe(received=True)):
        agrees(*tensors, masks.Causal(), observe)
    for size in ((1, 1), (12, 26), (100, 3)):
        agrees(*tensors, masks.Causal(), Observe(thumbnail=size))


@checks
def check_observing_changes_no_bit() -> None:
    q, k, v = drawn(20, 20, 16)
    alone, seen = (attend(q, k, v, mask=masks.Causal(), observe=o, backend="triton-fused") for o in (Observe(), ALL))
    assert torch.equal(alone.output, seen.output) and torch.equal(alone.lse, seen.lse)


@checks
def check_gradients() -> None:
    for mask in (None, masks.Causal(), masks.Padding([30, 9]), masks.Past(offset=0)):

        def gradients(backend: str, dtype: torch.dtype, mask: Mask | None = mask) -> list[Tensor]:
            tensors = [x.to(dtype).requires_grad_() for x in drawn(19, 30, 16)]
            got = attend(*tensors, mask=mask, observe=ALL, backend=backend)
            lse = torch.where(got.lse.isfinite(), got.lse, 0.0)
            return list(torch.autograd.grad(got.output.square().sum() + lse.sin().sum(), tensors))

        exact, near = gradients("plain", torch.float64), gradients("plain", torch.float32)
        for ours, want, usual in zip(gradients("triton-fused", torch.float32), exact, near, strict=True):
            allowed = 2 * float((usual - want).abs().max()) + 4e-6
            assert float((ours - want).abs().max()) <= allowed


@checks
def check_gradients_of_sinks_caps_and_sparse_keys() -> None:
    soft = scores.ScaledDot(cap=2.0)
    for mask in (None, masks.Past(offset=0), *sparse(19, 30)[:3]):

        def gradients(backend: str, dtype: torch.dtype, mask: Mask | None = mask) -> list[Tensor]:
            tensors = [x.to(dtype).requires_grad_() for x in drawn(19, 30, 16)]
            logits = torch.tensor([0.3, -1.0, 2.0, 0.0], dtype=dtype, requires_grad=True)
            how: dict[str, Any] = {"mask": mask, "score": soft, "normalise": Sink(logits), "observe": ALL}
            got = attend(*tensors, backend=backend, **how)
            lse = torch.where(got.lse.isfinite(), got.lse, 0.0)
            assert got.sink is not None
            loss = got.output.square().sum() + lse.sin().sum() + got.sink.square().sum()
            return list(torch.autograd.grad(loss, [*tensors, logits]))

        exact, near = gradients("plain", torch.float64), gradients("plain", torch.float32)
        for ours, want, usual in zip(gradients("triton-fused", torch.float32), exact, near, strict=True):
            allowed = 2 * float((usual - want).abs().max()) + 4e-6 * max(1.0, float(want.abs().max()))
            assert float((ours - want).abs().max()) <= allowed


@checks
def check_a_sinks_gradient_alone() -> None:
    """As it is computed where another kernel has those of queries, keys and values."""
    from regard.attention.kernels.triton.backward import sink_gradient

    q, k, v = drawn(70, 30, 16)
    logits = torch.randn(2, 4, requires_grad=True)
    got = attend(q, k, v, mask=masks.Past(offset=0), normalise=Sink(logits), backend="plain")
    told = torch.randn(got.output.shape)
    want = torch.autograd.grad((got.output * told).sum(), logits)[0]
    torch.testing.assert_close(sink_gradient(told, got.output.detach(), got.lse.detach(), logits.detach()), want)


@checks
def check_hidden_poison_never_matters() -> None:
    q, k, v = drawn(10, 24, 16)
    mask = masks.Padding([24, 11])
    clean = attend(q, k, v, mask=mask, observe=ALL, backend="triton-fused")
    k, v = k.clone(), v.clone()
    k[1, :, 11:], v[1, :, 11:] = torch.nan, torch.inf
    poisoned = attend(q, k, v, mask=mask, observe=ALL, backend="triton-fused")
    for name in FIELDS:
        assert torch.equal(getattr(clean, name), getattr(poisoned, name)), name


@checks
def check_outputs_are_wholly_written() -> None:
    """Fresh memory holds NaN and huge whole numbers; none of them comes back."""
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    for mask in (masks.Padding([0, 13], [11, 4]), masks.Causal()):
        agrees(*drawn(11, 23, 16), mask)
    torch.use_deterministic_algorithms(False)


@checks
def check_candidates_are_put_in_order() -> None:
    """What Hopper's passes leave behind for small kernels that run anywhere: lists of keys and scores."""
    from regard.attention.kernels.triton import statistics as kernels

    source = torch.Generator().manual_seed(0)
    lines, room, top = 37, 32, 5
    count = torch.randint(0, room + 2, (lines,), generator=source, dtype=torch.int32)
    scores = torch.randn(lines, room, generator=source)
    scores[3] = scores[3].round()  # equal ones
    keys = torch.stack([torch.randperm(999, generator=source)[:room] for _ in range(lines)]).int()
    found = torch.stack([keys, scores.view(torch.int32)], -1).view(torch.int64)
    for weights in (False, True):
        values, places = torch.full((lines, top), torch.nan), torch.full((lines, top), -7)
        how = {"FEW": False, "TOP": top, "CAPACITY": room, "WEIGHTS": weights, "BM": 16}
        sizes = lines, lines, 999, -(2**30), 1
        kernels.topk_select[(3,)](found, count, torch.zeros(lines), values, places, *sizes, 1.0, **how)
        told = count.clone()  # a causal row that lacks keys is left for `topk_by_scan` too
        kernels.topk_select[(3,)](found, told, torch.zeros(lines), values, places, *sizes, 1.0, **how | {"FEW": True})
        lacks = count < torch.arange(1, lines + 1).clamp(max=top)
        assert lacks.any() and torch.equal(told[~lacks], count[~lacks]) and (told[lacks] > room).all()
        for line, some in enumerate(count.tolist()):
            if some > room:  # left for `topk_by_scan`
                assert values[line].isnan().all()
                continue
            ordered = sorted(zip((-scores[line, :some]).tolist(), keys[line, :some].tolist(), strict=True))[:top]
            rest = [0] * (top - len(ordered))
            assert places[line].tolist() == [key for _, key in ordered] + [-1 for _ in rest]
            worth = [-score * 2.0**-14 if weights else 2.0**-score for score, _ in ordered]
            torch.testing.assert_close(values[line], torch.tensor(worth + rest).clamp(max=1.0))


@checks
def check_the_largest_is_found_among_the_keys_that_are_left() -> None:
    """What Hopper's forward pass leaves of it: four keys, or half a block where several classes have it."""
    from regard.attention.kernels.spans import KeySpans
    from regard.attention.kernels.triton.statistics_pass import StatisticsPass

    q, k, _ = drawn(40, 230, 16)
    k[:, :, 131] = k[:, :, 130]  # equal ones: the first counts
    scores = q @ k.repeat_interleave(2, 1).mT
    scores[1] = scores[1].masked_fill(torch.arange(230) < 7, -torch.inf)
    seen = torch.arange(230) < torch.arange(40)[:, None] + 191
    want = scores.masked_fill(~seen, -torch.inf).max(-1).indices
    want[..., 10:] = torch.where(torch.arange(30) % 5 == 0, 130, want[..., 10:])  # as if these were the largest
    q[:, :, 10::5] = k.repeat_interleave(2, 1)[:, :, 130:131] * 50
    first = want // 64 * 64 + want % 32 // 2 * 2
    places = torch.where(torch.arange(40) % 3 == 0, want // 64 * 64 * 2 + 1, first * 2)
    places[:, :, 4] = -1
    want[:, :, 4] = -1
    lo = torch.tensor([0, 7], dtype=torch.int32)[:, None, None].expand(2, 4, 40).contiguous()
    reach = KeySpans(shift_hi=191, lo=lo, hi=torch.full_like(lo, 230))
    places = places.unsqueeze(-1).contiguous()
    StatisticsPass(q, k, scores.logsumexp(-1), reach, 0.25).argmax_indices(places)
    assert torch.equal(places[..., 0], want)


@checks
def check_floors_are_what_the_last_of_the_largest_reach() -> None:
    """Scores, or weights where there are any to compare with; of other rows there are too many from the outset."""
    from regard.attention.kernels.triton import statistics as kernels

    strips = torch.randn(70, 16, generator=torch.Generator().manual_seed(1))
    strips[5, 4:] = -1e34  # fewer keys than classes
    lse = strips.logsumexp(-1)
    lse[7], lse[8] = 300.0, -torch.inf  # all weights too small for float32; a row that sees nothing
    want = strips.sort(-1, descending=True).values[:, 7]
    floor, count = torch.full((70,), torch.nan), torch.full((70,), -7, dtype=torch.int32)
    kernels.topk_thresholds[(2,)](strips, lse, floor, count, 70, 1.0, FEW=False, TOP=8, WEIGHTS=False, BM=64)
    assert torch.equal(floor, want.clamp(min=-5e33)) and not count.any()
    kernels.topk_thresholds[(2,)](strips, lse, floor, count, 70, 1 / math.log(2), FEW=False, TOP=8, WEIGHTS=True, BM=64)
    odd = [5, 7, 8]
    assert floor[odd].isinf().all() and count[odd].tolist() == [kernels.OVERFLOW.value, kernels.OVERFLOW.value, 0]
    usual = [row for row in range(70) if row not in odd]
    assert not count[usual].any()
    worth = (want - lse).exp()[usual] * 2**14
    torch.testing.assert_close(floor[usual], worth, rtol=1e-4, atol=0)
    assert (floor[usual] < worth).all()  # a key of that very weight is not missed for a rounding
    kernels.topk_thresholds[(2,)](strips, lse, floor, count, 70, 1 / math.log(2), FEW=True, TOP=8, WEIGHTS=True, BM=64)
    assert 0 < floor[5] < 1e-20 and count[odd].tolist() == [0, kernels.OVERFLOW.value, 0]


@checks
def check_only_rows_with_too_many_candidates_are_gone_through_again() -> None:
    from regard.attention.kernels.spans import KeySpans
    from regard.attention.kernels.triton.statistics_pass import MAX_CANDIDATES, StatisticsPass

    q, k, v = drawn(40, 50, 16, few=4)
    want = attend(q, k, v, mask=masks.Causal(), observe=Observe(top=3), backend="plain")
    assert want.top is not None
    count = torch.zeros(2, 4, 40, dtype=torch.int32)
    count[1, 2, 17] = MAX_CANDIDATES + 1
    values, places = torch.full((2, 4, 40, 3), torch.nan), torch.full((2, 4, 40, 3), -7)
    StatisticsPass(q, k, want.lse, KeySpans(shift_hi=11), 0.25).topk_by_scan(values, places, 3, count)
    again = count > MAX_CANDIDATES
    assert torch.equal(places[again], want.top.indices[again]) and bool((places[~again] == -7).all())
    torch.testing.assert_close(values[again], want.top.values[again])


@checks
def check_operators_are_known_to_the_compiler() -> None:
    from regard.attention.kernels import fused

    q, k, v = (x.requires_grad_() for x in drawn(6, 9, 16))
    none, sink = (None,) * 6, torch.randn(4, requires_grad=True).expand(2, 4)
    torch.library.opcheck(fused._forward, (q, k, v, *none, None, -(2**30), 4, 1, 0.25, 0.0, True, 0))
    torch.library.opcheck(fused._forward, (q, k, v, *none, sink, -(2**30), 4, 1, 0.25, 5.0, True, 1))
    lse, empty = torch.zeros(2, 4, 6), torch.empty(0)
    torch.library.opcheck(
        fused._statistics, (q.detach(), k.detach(), lse, empty, *none, -(2**30), 4, 1, 0.25, 5.0, True, 3, 2, 4)
    )
    got = torch.compile(lambda *x: attend(*x, mask=masks.Causal(), backend="triton-fused").output, backend="aot_eager")
    torch.testing.assert_close(got(q, k, v), attend(q, k, v, mask=masks.Causal(), backend="plain").output)


@checks
def check_what_cannot_be_served_there_is_said_in_words() -> None:
    many = torch.zeros(8192, 9, 1, 1)
    q, k, v = drawn(4, 6, 16)
    requests: list[tuple[str, list[Tensor], dict[str, object]]] = [
        ("65535 heads", [many, many], {}),
        ("no dropout", [q, k, v], {"dropout": 0.1}),
        ("a soft cap from", [q, k, v], {"score": scores.ScaledDot(cap=1e-4)}),
        ("it computes a softmax", [q, k, v], {"normalise": Entmax(1.5)}),
        ("a scale from", [q, k, v], {"score": scores.ScaledDot(-1.0)}),
        ("Match is none", [q, k, v], {"score": scores.Match()}),
        ("values as wide as keys", [q, k, v[..., :3]], {}),
    ]
    for why, tensors, how in requests:
        with pytest.raises(BackendError, match=why):
            attend(*tensors, backend="triton-fused", **how)  # type: ignore[arg-type]
    keys = masks.Keys(torch.zeros(4, 1, dtype=torch.long))
    for why, how in (("has no sink", {"normalise": Sink(torch.zeros(4))}), ("written out", {"mask": keys})):
        with pytest.raises(BackendError, match=why):
            attend(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1), backend="triton", **how)  # type: ignore[arg-type]


@interpreted
@pytest.mark.parametrize("part", range(4))
def test_in_the_interpreter(part: int) -> None:
    checks.repeat(part, parts=4)


def test_what_cannot_be_served_is_said_in_words() -> None:
    q, k, v = drawn(4, 6, 16)
    for backend in ("triton", "triton-fused"):
        with pytest.raises(BackendError, match="it runs on cuda, not on cpu"):
            attend(q, k, v, backend=backend)
    assert set(choose(q, k, v).unsupported) >= {"triton", "triton-fused"}


FLOATS, NUMBERS = (
    ("LSE", "ENT", "MAXIMA", "THRESHOLD", "COLUMN_SUM", "SINK", "TAKEN"),
    ("COUNT", "NEXT_JOB", "SLOT_FLAGS", "LO", "HI", "BOUNDS", "TILES", "COUNTS", "BITS"),
)


@pytest.mark.parametrize("more", [False, True], ids=["", "sink and cap"])
@pytest.mark.parametrize(
    ("width", "groups", "top", "average"),
    [
        *((64, 2, 8, True), (64, 3, 0, True), (64, 3, 1, True), (128, 2, 8, True), (128, 2, 1, True)),
        *((64, 3, 1, False), (64, 4, 8, False), (128, 4, 8, False)),
    ],
)
def test_hoppers_forward_pass_runs_on_tensor_cores_and_in_registers(
    width: int, groups: int, top: int, average: bool, more: bool
) -> None:
    if more and not average:
        pytest.skip("the vendor's kernel has neither sink nor cap")
    from triton.experimental.gluon._runtime import GluonASTSource  # type: ignore[import-untyped]

    from regard.attention.kernels.hopper.forward import forward

    constants = {"D": width, "BN": 128, "GROUPS": groups, "STAGES": 2, "ENTROPY": True, "TOP": top, "ENDS": False}
    constants |= {"DEFER": average and top == 1 and groups == 3, "SHARED": top <= 1 and groups == 2}
    constants |= {"SINKS": more, "CAPPED": more, "AVERAGE": average}
    kinds = {"*fp32": FLOATS, "*i32": NUMBERS, "*i64": ["ARGMAX"], "*bf16": ["OUT"], "fp32": ["c", "g"]}
    kinds |= described(width, Q=64, K=128, V=128)
    done = for_hopper(GluonASTSource(**signature(forward, constants, kinds)), num_warps=4)
    assert done.instructions["HGMMA"] and done.instructions["UTMALDG"] and not done.instructions["HMMA"]
    # of thousands of live numbers; where the argmax is deferred, Triton 3.8 spills four of them in the inner loop, and
    # of four groups, whose lanes have the fewest registers, 66 (Triton 3.6, by which they were timed, 10)
    assert done.spilled <= (288 if groups == 4 else 64 if constants["DEFER"] or more else 32)


def test_hoppers_passes_and_their_launches_agree_on_sizes() -> None:
    from regard.attention.kernels.hopper import argmax, ptx, statistics as hopper, topk
    from regard.attention.kernels.triton import statistics as general, statistics_pass as launch

    assert ptx.KEY_BLOCK.value == launch.KEY_BLOCK
    assert topk.BUFFER_STRIPS.value * topk.STRIP_BYTES.value * 32 == launch.WARP_BUFFER_BYTES  # of a warp's lanes
    assert general.OVERFLOW.value > launch.MAX_CANDIDATES
    assert general.WEIGHT_SHIFT.value == hopper.WEIGHT_SHIFT.value
    assert (
        general.HALF.value == argmax.HALF.value == 16 * argmax.SUBCLASSES.value
    )  # two keys of a class in any 32, twice


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(
    ("cells", "even", "collects", "capped"),
    [(0, False, False, False), (8, True, True, False), (16, False, False, False), (8, True, True, True)],
)
def test_hoppers_statistics_pass_runs_on_tensor_cores(
    width: int, cells: int, even: bool, collects: bool, capped: bool
) -> None:
    from triton.experimental.gluon._runtime import GluonASTSource

    from regard.attention.kernels.hopper.statistics import statistics

    constants = {"D": width, "BN": 128, "STAGES": 2, "CELLS": cells, "EVEN": even, "RECEIVED": True, "TOP": collects}
    constants |= {"EXCLUSIVE": even, "HIGH": 0, "CAPACITY": 32, "ENDS": False, "CAPPED": capped}
    kinds = {"*fp32": [*FLOATS, *(["THUMB"] if even else [])], "*i32": NUMBERS, "fp32": ["c", "g"]}
    kinds |= {"*i64": ["CANDIDATES", "BUFFERS", *([] if even else ["THUMB"])]} | described(width, Q=64, K=128)
    registers = 224 if capped else 168
    done = for_hopper(GluonASTSource(**signature(statistics, constants, kinds)), num_warps=4, maxnreg=registers)
    assert done.instructions["HGMMA"] and done.instructions["UTMALDG"] and not done.instructions["HMMA"]
    assert done.spilled <= 32 or (cells and not even)  # none inside the loop that sees every query


@pytest.mark.parametrize("more", ["", "sink and cap", "packed"])
@pytest.mark.parametrize("width", [32, 64, 128, 256])
def test_the_general_forward_pass_runs_on_tensor_cores(width: int, more: str) -> None:
    from triton.compiler import ASTSource  # type: ignore[import-untyped]

    from regard.attention.kernels.triton.descriptors import dot_tiling
    from regard.attention.kernels.triton.forward import forward

    tile = dot_tiling(width, torch.bfloat16)
    constants = {"D": width, "BD": width, "BM": tile.queries, "BN": tile.keys, "ENTROPY": True}
    constants |= {
        "ENDS": True,
        "DOCUMENTS": False,
        "SINKS": bool(more),
        "CAPPED": bool(more),
        "PACKED": more == "packed",
        "PER_BIT": 1,
    }
    kinds = {"*bf16": ["Q", "K", "V", "OUT"], "*fp32": FLOATS, "*i32": [*NUMBERS, "QDOC", "KDOC"], "fp32": ["c", "g"]}
    source = ASTSource(**signature(forward, constants, kinds))
    done = for_hopper(source, num_warps=tile.warps, num_stages=tile.stages)
    assert done.instructions["HGMMA"] and done.spilled <= (128 if more else 32)
    assert (done.instructions["MUFU"] > 0) and not done.instructions["CALL"]


def described(width: int, **rows: int) -> dict[str, list[str]]:
    """The kinds of tensors that the tensor memory accelerator fetches, so many rows at a time."""
    from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

    kinds: dict[str, list[str]] = {}
    for name, count in rows.items():
        layout = gl.NVMMASharedLayout.get_default_for([1, 1, count, width], gl.bfloat16)
        kinds.setdefault(f"tensordesc<bf16[1, 1, {count}, {width}],{layout!r}>", []).append(name)
    return kinds


if __name__ == "__main__":
    checks.run()
    sys.exit()
