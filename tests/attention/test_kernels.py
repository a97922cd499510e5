"""Every backend computes what "plain" computes: to rounding, in linear memory, with every gradient."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils.checkpoint import set_checkpoint_early_stop

from attention.cases import (
    ALL,
    HERE,
    SCORES,
    STATISTICS,
    Largest,
    Request,
    Slope,
    fields,
    gradients,
    near,
    requests,
    seeded,
    share,
    size,
)
from regard.attention import DenseBias, Observe, attend, scores, windows
from regard.attention.kernels import row_blocks
from regard.attention.kernels.statistics import _top_k
from regard.attention.masks import Causal, Dense, Documents, Everything, Mask, Padding, Past, Window
from regard.attention.observe import top_k

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
LONG = pytest.mark.long
TINY = [None, (1, 1, 1), (12, 24, 2), (60, 60, 3)]  # BLOCK_NUMBERS, MAX_BLOCK_NUMBERS, MIN_ROWS; None: as they are


@contextmanager
def blocks_of(sizes: tuple[int, int, int] | None) -> Iterator[None]:
    """Blocks small enough that a small map is walked through in many."""
    if sizes is None:
        yield
        return
    with patch.multiple(
        row_blocks, **dict(zip(("BLOCK_NUMBERS", "MAX_BLOCK_NUMBERS", "MIN_ROWS"), sizes, strict=True))
    ):
        yield


# the walk -----------------------------------------------------------------------------------------------------------


@given(requests(lengths=size), st.sampled_from(TINY))
def test_parts_and_blocks_cover_visible_pairs_exactly_once(
    request: Request, sizes: tuple[int, int, int] | None
) -> None:
    """Parts share out the leading dimensions, blocks the rows; what they leave out may look nowhere."""
    prepared = request("plain", Observe(prepared=True)).prepared
    allowed = prepared.allowed(slice(None), slice(None)).expand(*request.lead, request.T, request.S)
    visits = torch.zeros(*request.lead, request.T)
    with blocks_of(sizes):
        for lead, part in row_blocks.lead_parts(prepared):
            for block in row_blocks.blocks(lead, part):
                visits[(*block.lead, block.rows)] += 1
                here = allowed[block.lead][..., block.rows, :]
                outside = torch.ones(request.S, dtype=torch.bool)
                outside[block.cols] = False
                assert not here[..., outside].any(), "a key between the ends that a block skips"
                if block.inner is not None:
                    assert here[..., block.inner].all(), "a key called free that is hidden from someone"
    assert (visits <= 1).all() and not allowed.any(-1)[visits == 0].any()


def test_tiny_blocks_are_many_blocks() -> None:
    """The sizes above do what they are for."""
    q = torch.randn(2, 2, 5, 4)
    prepared = attend(q, q, observe=Observe(prepared=True)).prepared
    counts = []
    for sizes in TINY:
        with blocks_of(sizes):
            counts.append(sum(len(list(row_blocks.blocks(*one))) for one in row_blocks.lead_parts(prepared)))
    assert counts == [1, 20, 12, 2]


# as exact as plain --------------------------------------------------------------------------------------------------


def error(got: Tensor, want: Tensor) -> float:
    """The largest distance from the truth; -inf must stand in the same places."""
    assert got.shape == want.shape
    finite = want.isfinite()
    assert torch.equal(got.isfinite(), finite)
    return float((got.double() - want)[finite].abs().max()) if finite.any() else 0.0


def greatest(values: Tensor) -> float:
    finite = values.detach()[values.isfinite()]
    return float(finite.abs().max()) if len(finite) else 0.0


def as_exact_as_plain(
    got: dict[str, Tensor],
    plain: dict[str, Tensor],
    true: dict[str, Tensor],
    reach: float,
    who: str,
    steep: float | None = None,
) -> None:
    """The error against float64 is at most twice what plain makes, plus a floor of a few ulp of the largest value.

    The floor is there because on a small map plain may hit the truth by luck, while another order of the same sums is
    as good and lands some roundings away: eight ulp of the largest value of its kind. And a weight exp(score - lse)
    inherits the absolute rounding of its score and its lse, so two ulp of `reach`, the largest of those, come on top.
    Gradients are of one kind, since they flow into each other; and what a short vector passes on to its gradient when
    it was scaled to length one (Cosine) grows by `steep`, one over its length, though at width 1 nothing is left of it.
    """
    for name in got.keys() - {"top.indices"}:
        x, y, truth = (found[name].detach() for found in (got, plain, true))
        largest = greatest(truth) if steep is None else steep * max(map(greatest, true.values()))
        floor = torch.finfo(x.dtype).eps * max(largest, 1.0) * (8 + 2 * reach)
        mine, theirs = error(x, truth), error(y, truth)
        assert mine <= 2 * theirs + floor, f"{who} {name}: error {mine:.2e}, plain makes {theirs:.2e}"


def backends_agree(request: Request, sizes: tuple[int, int, int] | None, observe: Observe = ALL) -> None:
    dtype, exact = request.q.dtype, request.to(F64)
    true, plain = fields(exact("plain", observe)), fields(request("plain", observe))
    true_told, plain_told = gradients(exact, "plain", observe), gradients(request.to(dtype), "plain", observe)
    reach = float(true["lse"].detach().abs().nan_to_num(posinf=0.0).max()) if true["lse"].numel() else 0.0
    lengths = torch.cat([request.q.norm(dim=-1).reshape(-1), request.k.norm(dim=-1).reshape(-1)])
    scaled = isinstance(request.score, scores.Cosine) and len(lengths) > 0
    steep = max(1.0, 1 / max(float(lengths.min()), 1e-3)) if scaled else 1.0
    for backend in request.able():
        if backend == "plain":
            continue
        with blocks_of(sizes):
            with torch.no_grad():
                got = fields(request(backend, observe))
            told = gradients(request.to(dtype), backend, observe, bias=backend != "sdpa")  # it gives none to a bias
        as_exact_as_plain(got, plain, true, reach, backend)
        as_exact_as_plain(told, plain_told, true_told, reach, f"{backend} gradient of", steep)
        missing, at = got["top.indices"] < 0, got["top.indices"].clamp(min=0)
        assert torch.equal(missing, true["top.indices"] < 0)
        if request.S:  # near ties may swap places, so what lies at each place must be as large as what should
            found = {"top.values": true["weights"].gather(-1, at).masked_fill(missing, 0.0).to(got["top.values"].dtype)}
            as_exact_as_plain(found, plain, true, reach, f"{backend} at its places,")


@given(requests(), st.sampled_from(TINY))
def test_every_backend_is_as_exact_as_plain(request: Request, sizes: tuple[int, int, int] | None) -> None:
    backends_agree(request, sizes)


@pytest.mark.parametrize("dtype", [BF16, F16])
@share(25)
@given(data=st.data())
def test_in_half_precision_too(dtype: torch.dtype, data: st.DataObject) -> None:
    """The truth is of the rounded inputs; a learned score or window rounds while it prepares, which all share."""
    names = ["ScaledDot", "Dot", "hot", "callable", "Match"]
    backends_agree(data.draw(requests((dtype,), names, windowed=False)), data.draw(st.sampled_from(TINY)))


@pytest.mark.parametrize("name", [name for name in SCORES if name != "default"])
@pytest.mark.parametrize("what", ["mask", "bias", "LocalP"])
def test_every_score_meets_every_kind_of_value(name: str, what: str) -> None:
    """A fixed middle-sized case of each, so that no draw can miss one."""
    build, wider = SCORES[name]
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 11, 8 + wider), torch.randn(2, 2, 11, 8 + wider)
    q, k = (q.round(), k.round()) if name == "Match" else (q, k)
    request = Request(q, k, v, (2, 4), build(8, 8 + wider, (2, 4)), Causal() & Padding([7, 11]))
    if what == "bias":
        request = request.with_(bias=DenseBias(torch.randn(4, 9, 11)))
    if what == "LocalP":
        request = request.with_(window=windows.LocalP(8, 2))
    backends_agree(request, (60, 60, 3))


MASKS = [
    Everything(),
    ~Everything(),
    Window(None, None),
    Window(None, 2),
    Window(1, None, offset=1),
    Window(2, 1),
    Causal(),
    Causal(offset=0),
    Causal(torch.tensor([0, 4])),
    Past(offset=3),
    Padding([7, 11]),
    Padding([3, 0], [9, 4], side="left"),
    Documents(torch.arange(11) // 3),
    Documents((torch.arange(22) % 3).reshape(2, 11), (torch.arange(18) % 4).reshape(2, 9)),
    Dense(torch.rand(2, 4, 9, 11, generator=seeded(0)) < 0.5),
    Dense(torch.rand(4, 1, 11, generator=seeded(1)) < 0.5),
    Dense(torch.rand(9, 1, generator=seeded(2)) < 0.5),
    Padding([7, 11]) & Window(3, 0) & Dense(torch.rand(9, 11, generator=seeded(3)) < 0.7),
    Padding([2, 1]) | ~Causal(),
]


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: type(mask).__name__)
@pytest.mark.parametrize("bias", [None, (4, 1, 11), *(pytest.param(x, marks=LONG) for x in ((9, 11), (2, 1, 9, 1)))])
def test_every_mask_meets_every_shape_of_bias(mask: Mask, bias: tuple[int, ...] | None) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 9, 8), torch.randn(2, 2, 11, 8), torch.randn(2, 2, 11, 8)
    added = None if bias is None else DenseBias(torch.randn(bias))
    backends_agree(Request(q, k, v, (2, 4), mask=mask, bias=added), (60, 60, 3))


@LONG
@pytest.mark.parametrize("dtype", [F32, BF16, F16])
@pytest.mark.parametrize("name", ["ScaledDot", "Cosine", "Bilinear", "Additive", "callable"])
@pytest.mark.parametrize("mask", [None, Causal(), Window(40, 3), Padding([200, 150]) & Causal()], ids=repr)
@pytest.mark.parametrize("width", [64, 128])
def test_at_the_sizes_of_real_models(dtype: torch.dtype, name: str, mask: Mask | None, width: int) -> None:
    build, _ = SCORES[name]
    torch.manual_seed(width)
    q, k, v = torch.randn(2, 4, 150, width), torch.randn(2, 2, 200, width), torch.randn(2, 2, 200, width)
    backends_agree(Request(q, k, v, (2, 4), build(width, width, (2, 4)), mask).to(dtype), (20_000, 40_000, 16))


@pytest.mark.parametrize("top", [1, 2, 5])
@pytest.mark.parametrize("S", [1, 6, 513, 1100, 4099])
def test_top_finds_the_same_as_sorting_ties_and_all(S: int, top: int) -> None:
    """The kernels search where the definition sorts: long rows, few distinct values, hidden keys, any total."""
    source = seeded(S + top)
    weights = torch.randint(1, 9, (2, 7, S), generator=source).float()
    weights[0] = torch.rand(7, S, generator=source)
    hidden = torch.rand(2, 7, S, generator=source) < 0.3
    hidden[1, 0] = True
    weights[1, 1] = 1.0
    for total in (None, weights.masked_fill(hidden, 0.0).sum(-1, keepdim=True).clamp(min=1)):
        want = top_k(weights if total is None else weights / total, hidden, top)
        got = _top_k(weights.masked_fill(hidden, -1.0), total, top)
        assert torch.equal(got.indices, want.indices) and torch.equal(got.values, want.values)


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("thumbnail", [(1, 1), (3, 4), (5, 7), (9, 9), (1, 9), (100, 100)])
def test_thumbnails_of_every_shape(backend: str, thumbnail: tuple[int, int]) -> None:
    """Cells that do not divide the map evenly, across blocks that do not divide the cells evenly."""
    q, k = torch.randn(2, 9, 4, dtype=F64), torch.randn(2, 9, 4, dtype=F64)
    asked = Observe(thumbnail=thumbnail, received=True)
    want = attend(q, k, mask=Causal(), observe=asked, backend="plain")
    for sizes in TINY:
        with blocks_of(sizes):
            got = attend(q, k, mask=Causal(), observe=asked, backend=backend)
        torch.testing.assert_close(got.thumbnail, want.thumbnail)
        torch.testing.assert_close(got.received, want.received)


# gradients ----------------------------------------------------------------------------------------------------------


def small(name: str, what: str) -> Request:
    build, wider = SCORES[name]
    torch.manual_seed(1)
    q, k, v = torch.randn(2, 2, 2), torch.randn(2, 3, 2 + wider), torch.randn(2, 3, 2 + wider)
    mask: Mask = Padding([2, 3]) & Dense(torch.tensor([[True], [False]]))
    request = Request(q, k, v, (2,), build(2, 2 + wider, (2,)), mask)
    if what == "DenseBias":
        request = request.with_(bias=DenseBias(torch.randn(2, 2, 3)))
    if what == "Slope":
        request = request.with_(bias=Slope((2,)).requires_grad_(False))
    if what == "LocalP":
        request = request.with_(window=windows.LocalP(2, 2))
    if what == "LocalM":
        request = request.with_(window=windows.LocalM(1))
    return request.to(F64)


def told(request: Request, backend: str) -> tuple[object, tuple[Tensor, ...]]:
    """A function for gradcheck, which moves the leaves themselves, and those leaves."""
    leaves = request.learning(bias=backend != "sdpa")

    def everything(*_: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        got = request(backend, Observe(weights=True))
        return got.output, torch.where(got.lse.isfinite(), got.lse, 0.0), got.weights

    return everything, tuple(leaves.values())


DIFFERENTIABLE = [name for name in SCORES if name not in ("default", "Match", "hot")]


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize(
    ("name", "what"),
    [*product(DIFFERENTIABLE, ["nothing"]), *product(["ScaledDot"], ["DenseBias", "Slope", "LocalP", "LocalM"])],
)
def test_gradcheck(name: str, what: str, backend: str) -> None:
    """Output, lse and weights with respect to q, k, v and all parameters, against differences in float64."""
    request = small(name, what)
    if backend not in request.able():
        assert backend == "sdpa" and (what == "LocalP" or name in ("capped", "Additive", "callable", "PerHead"))
        return
    with blocks_of((3, 3, 1)):
        assert gradcheck(*told(request, backend))


@pytest.mark.parametrize("backend", ["plain", "stream"])
@pytest.mark.parametrize("name", ["ScaledDot", "Additive"])
def test_gradients_of_gradients(name: str, backend: str) -> None:
    request = small(name, "nothing").with_(mask=None)
    with blocks_of((3, 3, 1)):
        assert gradgradcheck(*told(request, backend))


@pytest.mark.parametrize("backend", HERE)
def test_masked_queries_and_keys_have_no_gradient(backend: str) -> None:
    request = small("ScaledDot", "nothing")
    got = gradients(request, backend, ALL)
    assert not got["q"][:, 1].any() and not got["k"][0, 2].any() and not got["v"][0, 2].any()
    assert got["q"][:, 0].all() and got["k"][1].all()


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("early", [True, False])
def test_the_backward_pass_does_not_change_statistics(backend: str, early: bool) -> None:
    """Blocks that are computed again for the gradient are not counted again, even when they are computed to the end."""
    q, k = torch.randn(2, 5, 4, requires_grad=True), torch.randn(2, 6, 4, requires_grad=True)
    with blocks_of((12, 24, 2)), set_checkpoint_early_stop(early):
        got = attend(q, k, mask=Causal(), observe=ALL, backend=backend)
        before = {name: x.detach().clone() for name, x in fields(got).items()}
        (got.output.sum() + got.lse.sum() + got.weights.square().sum()).backward()
    assert all(torch.equal(x, before[name]) for name, x in fields(got).items())


# memory -------------------------------------------------------------------------------------------------------------


def largest_of(request: Request, backend: str, observe: Observe | None) -> int:
    """The most numbers in one tensor that any operator made, forward and backward."""
    leaves = list(request.learning().values())
    with Largest() as largest:
        got = request(backend, observe)
        torch.autograd.grad(got.output.sum() + got.lse.sum(), leaves, allow_unused=True)
    return largest.numel


def long(T: int, score: object = None, mask: Mask | None = None) -> Request:
    q, k, v = (torch.randn(T, 8, generator=seeded(n)) for n in range(3))
    return Request(q, k, v, (), score, mask)


def test_the_memory_watcher_sees_a_full_map() -> None:
    """Proof that the tests below can fail: plain makes T x S, and Additive T x S x hidden."""
    assert largest_of(long(256), "plain", None) == 256 * 256
    assert largest_of(long(64, scores.Additive(8, 16)), "plain", None) == 64 * 64 * 16


@pytest.mark.parametrize("observe", [None, STATISTICS], ids=["blind", "observed"])
@pytest.mark.parametrize("backend", ["stream", "sdpa"])
@pytest.mark.parametrize("mask", [None, Causal()], ids=["everywhere", "causal"])
def test_no_tensor_is_as_large_as_the_map(backend: str, observe: Observe | None, mask: Mask | None) -> None:
    T = 4096
    assert largest_of(long(T, mask=mask), backend, observe) <= row_blocks.MAX_BLOCK_NUMBERS < T * T


@pytest.mark.parametrize("observe", [None, STATISTICS], ids=["blind", "observed"])
def test_additive_never_holds_its_hidden_layer_for_every_pair(observe: Observe | None) -> None:
    T, hidden = 512, 32
    score = scores.Additive(8, hidden)
    assert largest_of(long(T, score), "stream", observe) <= row_blocks.MAX_BLOCK_NUMBERS < T * T * hidden


@LONG
@pytest.mark.parametrize("score", [near, scores.Additive(8, 16)], ids=["callable", "additive"])
def test_custom_scores_stay_within_bounds_at_length(score: object) -> None:
    T = 4096
    pair = 8 if score is near else 1  # what a callable makes of a pair is its own affair: here D numbers
    assert largest_of(long(T, score), "stream", STATISTICS) <= row_blocks.MAX_BLOCK_NUMBERS * pair < T * T * 16


def test_the_window_of_a_long_text_costs_its_width() -> None:
    """Blocks look only between the first and the last key that any of their rows may see."""
    prepared = long(4096, mask=Window(50, 0))("stream", Observe(prepared=True)).prepared
    widths = [
        block.cols.stop - block.cols.start
        for one in row_blocks.lead_parts(prepared)
        for block in row_blocks.blocks(*one)
    ]
    assert max(widths) < 1000 and sum(widths) < 4096 * 8
