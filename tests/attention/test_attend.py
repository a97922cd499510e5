"""The laws of `attend`, over every shape, dtype, score, mask, bias, window and backend."""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from attention.cases import (
    ALL,
    CONTENT,
    HERE,
    SCORES,
    STATISTICS,
    Request,
    assert_same,
    fields,
    fold,
    gradients,
    loss,
    near,
    requests,
    seeded,
    share,
    size,
)
from regard.attention import DenseBias, Observe, attend, choose, scores, windows
from regard.attention.masks import Causal, Dense, Documents, Everything, Mask, Padding, Past, Window
from regard.attention.normalise import Sink

F32, F64, BF16, F16 = torch.float32, torch.float64, torch.bfloat16, torch.float16
DTYPES = (F32, F64, BF16, F16)
CLASSES = {
    "Causal": Causal(offset=-1),
    "Past": Past(),
    "Window": Window(1, 0, offset=0),
    "Padding": Padding([2, 3]),
    "Padding left": Padding([0, 3], [2, 4], side="left"),
    "Documents": Documents(
        torch.tensor([[0, 1, 0, 2, 2], [5, 5, 0, 0, 7]]), torch.tensor([[0, 1, 1, 9], [5, 7, 7, 7]])
    ),
    "Dense": Dense(torch.tensor([[1, 0, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()),
    "not": ~Causal(offset=0),
    "or": Padding([1, 0]) | Window(0, 0, offset=3),
    "and": Padding([4, 2]) & Past(offset=0),
}
"""Masks of four queries over five keys in a batch of two, each hiding some key from every query."""


# shapes, dtypes and what comes back ---------------------------------------------------------------------------------


@share(70)
@given(requests(dtypes=DTYPES))
def test_what_comes_back_has_the_contracts_shapes_and_dtypes(request: Request) -> None:
    """Output in the values' dtype; weights, lse and statistics in float32, or in float64 from float64."""
    lead, T, S = request.lead, request.T, request.S
    working = F64 if request.q.dtype == F64 else F32
    want = {
        "output": ((*lead, T, request.v.size(-1)), request.v.dtype),
        "lse": ((*lead, T), working),
        "entropy": ((*lead, T), working),
        "received": ((*lead, S), working),
        "thumbnail": ((*lead, min(3, T), min(2, S)), working),
        "weights": ((*lead, T, S), working),
        "top.values": ((*lead, T, 3), working),
        "top.indices": ((*lead, T, 3), torch.int64),
    }
    if isinstance(request.normalise, Sink):
        want["sink"] = ((*lead, T), working)
    for backend in request.able():
        assert {name: (tuple(x.shape), x.dtype) for name, x in fields(request(backend, ALL)).items()} == want


@share(40)
@given(requests())
def test_the_inputs_are_not_changed(request: Request) -> None:
    before = [x.clone() for x in (request.q, request.k, request.v)]
    for backend in request.able():
        with torch.no_grad():
            request(backend, ALL)
        assert all(torch.equal(x, y) for x, y in zip(before, (request.q, request.k, request.v), strict=True))


@share(60)
@given(requests())
def test_strides_do_not_matter(request: Request) -> None:
    """Transposed and sliced tensors are attended like fresh ones."""
    views = {
        "q": request.q.mT.contiguous().mT,
        "k": torch.cat([request.k, request.k], -1)[..., : request.k.size(-1)],
        "v": request.v.flip(-2).flip(-2).mT.contiguous().mT,
    }
    for backend in request.able():
        got, want = request.with_(**views)(backend, STATISTICS), request(backend, STATISTICS)
        for name, x in fields(got).items():
            assert_same(x, fields(want)[name], F32, f"{backend} {name}")


@pytest.mark.parametrize("lead", [(0,), (0, 2), (2,), ()])
@pytest.mark.parametrize(("T", "S"), [(3, 5), (0, 5), (3, 0), (0, 0)])
@pytest.mark.parametrize("window", [None, windows.LocalP(4, 2)], ids=["everywhere", "LocalP"])
def test_an_empty_batch_no_queries_and_no_keys_are_served(lead: tuple[int, ...], T: int, S: int, window: Any) -> None:
    """With nothing to average, the results are empty, or zeros with an lse of -inf."""
    ids = (torch.arange(n) for n in (S, T))
    masks = [None, Causal(), Window(1, 1), ~Past(), Dense(torch.ones(T, 1).bool()), Documents(*ids)]
    masks += [Padding(torch.full(lead[:1], S), torch.full(lead[:1], T))] if lead else []
    for score, mask, backend in product([None, scores.Additive(4, 3), near], masks, ["plain", "stream", "auto"]):
        q, k = torch.zeros(*lead, T, 4, requires_grad=True), torch.zeros(*lead, S, 4, requires_grad=True)
        got = attend(q, k, score=score, mask=mask, window=window, observe=ALL, backend=backend)
        assert got.output.shape == (*lead, T, 4) and got.weights.shape == (*lead, T, S)
        assert not got.output.any() and (S > 0 or bool((got.lse == -torch.inf).all()))
        loss(got).backward()
        assert not q.grad.isnan().any() and not k.grad.isnan().any()


@share(30)
@given(requests(names=CONTENT, windowed=False))
def test_v_defaults_to_k(request: Request) -> None:
    for backend in request.with_(v=request.k).able():
        got = attend(request.q, request.k, **request.values, backend=backend)
        want = attend(request.q, request.k, request.k, **request.values, backend=backend)
        assert torch.equal(got.output, want.output) and torch.equal(got.lse, want.lse)


# what the leading dimensions mean -----------------------------------------------------------------------------------


def spread(x: Tensor, lead: tuple[int, ...]) -> Tensor:
    """x with every leading dimension written out: query head h reads head h // (H / Hk)."""
    if len(lead) >= 2 and x.dim() >= 3:
        x = x.repeat_interleave(lead[-1] // x.size(-3), dim=-3)
    return x.expand(*lead, *x.shape[-2:]).contiguous()


@given(requests(dtypes=DTYPES))
def test_broadcasting_and_shared_heads_equal_explicit_copies(request: Request) -> None:
    copies = request.with_(**{name: spread(getattr(request, name), request.lead) for name in "qkv"})
    for backend in request.able():
        if backend in copies.able():
            got, want = fields(request(backend, ALL)), fields(copies(backend, ALL))
            for name in got.keys() - {"top.indices"}:
                assert_same(got[name], want[name], request.q.dtype, f"{backend} {name}")


@given(st.sampled_from([(4, 2), (6, 2), (6, 3), (4, 1), (8, 4)]), st.sampled_from(HERE))
def test_query_head_h_reads_key_head_h_over_the_group_size(heads: tuple[int, int], backend: str) -> None:
    H, Hk = heads
    q, k, v = torch.randn(2, H, 3, 4), torch.randn(2, Hk, 5, 4), torch.randn(2, Hk, 5, 4)
    got = attend(q, k, v, backend=backend, observe=STATISTICS)
    for h in range(H):
        alone = attend(q[:, h], k[:, h // (H // Hk)], v[:, h // (H // Hk)], backend="plain", observe=STATISTICS)
        assert_same(got.output[:, h], alone.output, F32)
        assert_same(got.received[:, h], alone.received, F32)


@given(requests(names=CONTENT), st.data())
def test_every_leading_index_is_attended_by_itself(request: Request, data: st.DataObject) -> None:
    """A batch equals its rows alone: nothing leaks from one leading index to another."""
    at = tuple(data.draw(st.integers(0, n - 1)) for n in request.lead)
    lead = tuple(slice(i, i + 1) for i in at)
    q, k, v = (spread(x, request.lead)[lead] for x in (request.q, request.k, request.v))
    bias = None
    if request.bias is not None:
        tile = request.bias.tile(torch.arange(request.T), torch.arange(request.S))
        bias = DenseBias(tile.expand(*request.lead, request.T, request.S)[lead])
    window = request.window
    mask = None if request.mask is None else request.mask.part(lead)
    if isinstance(window, windows.LocalM):
        mask, window = (mask or Everything()) & window.mask.part(lead), None
    normalise = None if request.normalise is None else request.normalise.part(lead)
    alone = Request(q, k, v, (1,) * len(at), request.score, mask, bias, window, normalise)
    for backend in request.able():
        got, want = fields(request(backend, ALL)), fields(alone("plain", ALL))
        for name in got.keys() - {"top.indices"}:
            assert_same(got[name][lead], want[name], F32, f"{backend} {name}")


# the average --------------------------------------------------------------------------------------------------------


@share(60)
@given(requests(dtypes=DTYPES))
def test_weights_sum_to_one_or_zero_and_output_is_the_average_by_them(request: Request) -> None:
    """Local-p alone sums to less, since Luong does not renormalise it; a sink takes the rest."""
    v = spread(request.v, request.lead)
    for backend in request.able():
        got = request(backend, ALL)
        total, nowhere = got.weights.sum(-1), got.lse == -torch.inf
        assert (got.weights >= 0).all() and not total[nowhere].any()
        total = total if got.sink is None else total + got.sink
        if isinstance(request.window, windows.LocalP):
            assert (total <= 1 + 1e-5).all()
        else:
            torch.testing.assert_close(total, (~nowhere).to(total.dtype), atol=1e-5, rtol=0)
        assert_same(got.output, got.weights.to(F64) @ v.to(F64), request.q.dtype, backend)
        assert_same(got.entropy, torch.special.entr(got.weights.to(F64)).sum(-1), F32, backend)
        assert_same(got.received, got.weights.to(F64).sum(-2), F32, backend)


@share(80)
@given(requests(dtypes=DTYPES, names=CONTENT), st.randoms(use_true_random=False))
def test_keys_permute_with_values_and_queries_with_outputs(request: Request, dice: Any) -> None:
    """Attention is over a set: the order of the keys changes nothing, that of the queries only theirs."""
    rows, cols = (torch.tensor(dice.sample(range(n), n), dtype=torch.long) for n in (request.T, request.S))
    if isinstance(request.window, windows.LocalP):  # it looks at places, not at contents
        request = request.with_(window=None)
    mask = (request.mask or Everything()) & (request.window.mask if request.window else Everything())
    bias = None
    if request.bias is not None:
        tile = request.bias.tile(torch.arange(request.T), torch.arange(request.S)).detach()
        tile = tile.expand(*tile.shape[:-2], request.T, request.S)
        bias = DenseBias(tile[..., rows, :][..., cols])
    shuffled = request.with_(
        q=request.q[..., rows, :],
        k=request.k[..., cols, :],
        v=request.v[..., cols, :],
        mask=Dense(mask.dense(request.T, request.S, request.lead)[..., rows, :][..., cols]),
        bias=bias,
        window=None,
    )
    dtype = request.q.dtype
    for backend in shuffled.able():
        got, want = shuffled(backend, ALL), request("plain", ALL)
        assert_same(got.output, want.output[..., rows, :], dtype)
        assert_same(got.lse, want.lse[..., rows], dtype)
        assert_same(got.entropy, want.entropy[..., rows], dtype)
        assert_same(got.weights, want.weights[..., rows, :][..., cols], dtype)
        assert_same(got.received, want.received[..., cols], dtype)
        assert_same(got.top.values, want.top.values[..., rows, :], dtype)


@share(60)
@given(requests(names=["ScaledDot", "Additive", "callable"]))
def test_equal_scores_give_equal_weights(request: Request) -> None:
    """With every key the same, each query spreads evenly over those it may look at, ties lowest index first."""
    request = request.with_(k=request.k[..., :1, :].expand_as(request.k), bias=None, window=None)
    allowed = (request.mask or Everything()).dense(request.T, request.S, request.lead)
    want = allowed.float() / allowed.sum(-1, keepdim=True).clamp(min=1)
    places = torch.arange(request.S).expand(allowed.shape).masked_fill(~allowed, request.S).sort(-1).values
    for backend in request.able():
        got = request(backend, ALL)
        assert_same(got.weights, want, F32)
        n = min(3, request.S)
        first = places[..., :n].masked_fill(places[..., :n] == request.S, -1)
        assert torch.equal(got.top.indices[..., :n], first), backend


# what nobody sees, and who sees nothing -----------------------------------------------------------------------------


NO_NUMBERS = (math.nan, math.inf, -math.inf)
HUGE = (1.0, -1.0)  # times the largest number there is


def poison(x: Tensor, spared: Tensor, kinds: tuple[float, ...]) -> Tensor:
    """x with these numbers in turn wherever nobody is spared (..., n)."""
    finite = all(map(math.isfinite, kinds))
    bad = torch.tensor(kinds, dtype=x.dtype) * (torch.finfo(x.dtype).max if finite else 1)
    bad = bad.repeat(x.numel() // len(kinds) + 1)[: x.numel()].reshape(x.shape)
    return torch.where(spared.unsqueeze(-1), x, bad).detach()


def hidden_keys_never_matter(request: Request, kinds: tuple[float, ...] = NO_NUMBERS) -> None:
    """Poison all that takes no part: every result and every gradient is finite where it was, and the same."""
    # of a softmax: sparse weights of 0 are no sign that a key is hidden
    weights = request.with_(normalise=None)("plain", Observe(weights=True)).weights.detach()
    seen, looks = (weights > 0).any(-2), (weights > 0).any(-1)
    sick = request.with_(
        q=poison(request.q, fold(looks, request.q.shape[:-2]), kinds),
        k=poison(request.k, fold(seen, request.k.shape[:-2]), kinds),
        v=poison(request.v, fold(seen, request.v.shape[:-2]), kinds),
    )
    dtype = request.q.dtype
    for backend in request.able():
        with torch.no_grad():
            got, want = fields(sick(backend, ALL)), fields(request(backend, ALL))
        for name in got:
            assert_same(got[name], want[name], dtype, f"{backend} {name}")
        learns = backend != "sdpa"  # it refuses a bias that learns
        told, should = (gradients(x.to(dtype), backend, ALL, bias=learns) for x in (sick, request))
        for name in told:
            assert_same(told[name], should[name], dtype, f"{backend} gradient of {name}")


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("lead", [(2,), pytest.param((2, 2), marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["ScaledDot", "Cosine", "Additive", "callable"])
@pytest.mark.parametrize("kinds", [NO_NUMBERS, HUGE], ids=["NaN and inf", "huge"])
def test_keys_hidden_by_every_class_of_mask_never_matter(
    kind: str, lead: tuple[int, ...], name: str, kinds: tuple[float, ...]
) -> None:
    mask, (build, wider) = CLASSES[kind], SCORES[name]
    assert not mask.dense(4, 5, (2,)).any(-2).all()
    q, k, v = (torch.randn(*lead, n, 4 + more) for n, more in ((4, 0), (5, wider), (5, 0)))
    hidden_keys_never_matter(Request(q, k, v, lead, build(4, 4 + wider, lead), mask), kinds)


@pytest.mark.parametrize("kind", ["Dense", "Documents", "Causal"])
def test_keys_hidden_without_any_leading_dimension_never_matter(kind: str) -> None:
    mask = CLASSES[kind].part((slice(0, 1),))
    mask = Documents(mask.ids[0], mask.queries[0]) if isinstance(mask, Documents) else mask
    hidden_keys_never_matter(Request(torch.randn(4, 3), torch.randn(5, 3), torch.randn(5, 3), (), mask=mask))


def test_a_shared_key_is_hidden_only_when_every_query_head_masks_it() -> None:
    """Heads 0 and 1 share their keys; each sees another half of them, and nobody sees the last."""
    table = torch.zeros(4, 1, 5, dtype=torch.bool)
    table[0::2, :, :2] = table[1::2, :, 2:4] = True
    q, k, v = torch.randn(2, 4, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)
    hidden_keys_never_matter(Request(q, k, v, (2, 4), mask=Dense(table)))


@share(40)
@given(requests(dtypes=DTYPES, names=CONTENT, hiding_bias=False, windowed=False))
def test_keys_hidden_by_any_mask_never_matter(request: Request) -> None:
    hidden_keys_never_matter(request)
    hidden_keys_never_matter(request, HUGE)


@share(50)
@given(requests(dtypes=(F32, F64), names=CONTENT, hiding_bias=False))
def test_keys_hidden_by_a_window_never_matter(request: Request) -> None:
    """Local-p included: keys that no query's predicted window reaches."""
    if request.window is None:
        window = windows.LocalP(request.q.size(-1), 1).to(request.q.dtype)
        request = request.with_(window=window, normalise=None)
    hidden_keys_never_matter(request)


@share(30)
@given(requests(names=CONTENT, windowed=False, lengths=size))
def test_keys_hidden_by_a_bias_never_matter(request: Request) -> None:
    """A float attention mask hides with -inf."""
    table = torch.randn(request.T, request.S, generator=seeded(0))
    table[:, torch.rand(request.S, generator=seeded(request.S)) < 0.4] = -torch.inf
    hidden_keys_never_matter(request.with_(bias=DenseBias(table)))


def test_a_value_that_no_query_matches_never_matters() -> None:
    """A dict gives the value that was asked for, whatever lies under its other keys."""
    hidden_keys_never_matter(
        Request(
            torch.tensor([[1.0], [2.0]]),
            torch.tensor([[1.0], [2.0], [3.0]]),
            torch.tensor([[10.0], [20.0], [30.0]]),
            (),
            scores.Match(),
        )
    )


@share(60)
@given(requests(names=CONTENT, lengths=size), st.data())
def test_keys_hidden_from_one_query_change_nothing_for_it(request: Request, data: st.DataObject) -> None:
    i = data.draw(st.integers(0, request.T - 1))
    mine = request.with_(normalise=None)("plain", Observe(weights=True)).weights.detach()[..., i, :] > 0
    source = seeded(i)
    changed = {
        name: torch.where(fold(mine, x.shape[:-2]).unsqueeze(-1), x, 1e4 * torch.randn(x.shape, generator=source))
        for name, x in (("k", request.k), ("v", request.v))
    }
    for backend in request.able():
        got, want = request.with_(**changed)(backend, ALL), request(backend, ALL)
        for name in ("output", "weights", "top.values", "top.indices"):
            assert_same(fields(got)[name][..., i, :], fields(want)[name][..., i, :], F32, f"{backend} {name}")
        assert_same(got.lse[..., i], want.lse[..., i], F32, backend)
        assert_same(got.entropy[..., i], want.entropy[..., i], F32, backend)


@share(60)
@given(requests(dtypes=DTYPES, lengths=size), st.data())
def test_a_query_without_keys_gets_zeros(request: Request, data: st.DataObject) -> None:
    """Output, weights and statistics 0, indices -1, lse -inf, gradient zero, and never a NaN."""
    blind = torch.tensor(data.draw(st.lists(st.booleans(), min_size=request.T, max_size=request.T)))
    request = request.with_(mask=(request.mask or Everything()) & Dense(~blind[:, None]))
    for backend in request.able():
        got = request(backend, ALL)
        assert (got.lse[..., blind] == -torch.inf).all()
        assert (got.top.indices[..., blind, :] == -1).all()
        for x in (got.output, got.weights, got.top.values, got.entropy.unsqueeze(-1)):
            assert not x[..., blind, :].any()
        assert not any(x.isnan().any() for x in fields(got).values())
        told = gradients(request.to(request.q.dtype), backend, ALL, bias=backend != "sdpa")
        assert all(x.isfinite().all() for x in told.values())
        assert not told["q"][..., blind, :].any()


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize(
    "mask", [~Everything(), Padding([0, 0]), Padding([3, 3], [0, 0]), Window(0, 0, offset=9)], ids=repr
)
def test_a_map_whose_keys_are_all_masked(backend: str, mask: Mask) -> None:
    q, k = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 3, 4, requires_grad=True)
    got = attend(q, k, mask=mask, observe=ALL, backend=backend)
    assert (got.lse == -torch.inf).all() and (got.top.indices == -1).all()
    assert not any(x.any() for x in (got.output, got.weights, got.entropy, got.received, got.thumbnail, got.top.values))
    loss(got).backward()
    assert not q.grad.any() and not k.grad.any()


# scores at the edge of the numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("score", [scores.ScaledDot(), scores.Dot(), near], ids=["scaled", "dot", "callable"])
@pytest.mark.parametrize("mask", [None, Causal(), Padding([3, 5])], ids=["everywhere", "causal", "padded"])
@pytest.mark.parametrize(("dtype", "scale"), [(F16, 300.0), (BF16, 1e15), (F32, 1e15), (F64, 1e15), (F32, 1e4)])
def test_huge_scores_stay_finite(score: Any, mask: Mask | None, dtype: torch.dtype, scale: float) -> None:
    """float16 inputs whose scores pass 65504, and scores of 1e30 and both signs: a hard choice, not a NaN."""
    q, k, v = (torch.randn(2, 5, 8, generator=seeded(n)) for n in range(3))
    request = Request((q * scale).to(dtype), (k * scale).to(dtype), v.to(dtype), (2,), score, mask)
    best = request.to(F64)("plain", ALL)
    for backend in (*request.able(), "auto"):
        got = request(backend, ALL)
        unfit = [name for name, x in fields(got).items() if not x.isfinite().all()]
        assert not unfit, f"{backend}: {unfit}"
        kind = {"dtype": got.weights.dtype}
        torch.testing.assert_close(got.weights.sum(-1), torch.ones(2, 5, **kind))
        torch.testing.assert_close(got.received.sum(-1), torch.full((2,), 5.0, **kind), msg=f"received of {backend}")
        assert (got.entropy >= -1e-6).all() and (got.entropy <= math.log(5) + 1e-6).all()
        assert torch.equal(got.top.indices[..., 0], best.top.indices[..., 0])
        torch.testing.assert_close(got.top.values[..., 0].double(), best.top.values[..., 0], atol=1e-2, rtol=0)
        assert all(x.isfinite().all() for x in gradients(request.to(dtype), backend).values())


@pytest.mark.parametrize("backend", HERE)
def test_float16_queries_that_a_score_makes_larger_than_float16_stay_finite(backend: str) -> None:
    """q W k is 9e4 x 1e-3: fine in float32, though q W alone is more than float16 holds."""
    score = scores.Bilinear(2).half()
    score.weight.data.copy_(300 * torch.eye(2))
    q, k = torch.tensor([[300.0, 0.0]]).half(), torch.tensor([[1e-3, 0.0], [0.0, 1e-3]]).half()
    got = attend(q, k, score=score, observe=Observe(weights=True), backend=backend)
    assert got.weights[0].tolist() == pytest.approx([1, 0]) and got.lse.item() == pytest.approx(90, rel=1e-2)


@pytest.mark.parametrize("backend", HERE)
def test_a_bias_is_added_in_the_precision_of_the_scores(backend: str) -> None:
    """Not in that of the inputs: 1e5 is no float16, and 0.001 beside 8 is nothing in bfloat16."""
    q, k = torch.zeros(1, 2), torch.eye(2)
    got = attend(q.half(), k.half(), bias=DenseBias(torch.tensor([[1e5, 1e5 + 1]])), backend=backend)
    torch.testing.assert_close(got.output.float(), torch.tensor([[1, math.e]]) / (1 + math.e), atol=1e-3, rtol=0)
    got = attend(q.bfloat16(), k.bfloat16(), bias=DenseBias(torch.tensor([[8.0, 8.02]])), backend=backend)
    assert got.lse.item() == pytest.approx(math.log(math.exp(8) + math.exp(8.02)), abs=1e-5)
    low = DenseBias(torch.full((1, 2), -1e5))  # low, but not hidden
    assert attend(q.half(), k.half(), bias=low, backend=backend).output.tolist() == [[0.5, 0.5]]


# a dict, relaxed ----------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(-9, 9)), min_size=1, max_size=8),
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.sampled_from(["plain", "stream", "auto"]),
)
def test_match_is_a_dicts_look_up_with_ties_averaged(
    table: list[tuple[int, int]], wanted: list[int], backend: str
) -> None:
    codes = torch.eye(7)
    keys, values = zip(*table, strict=True)
    q, k, v = codes[wanted], codes[list(keys)], torch.tensor(values, dtype=F32)[:, None]
    got = attend(q, k, v, score=scores.Match(), observe=ALL, backend=backend)
    for i, key in enumerate(wanted):
        under = [value for own, value in table if own == key]
        assert got.output[i].item() == pytest.approx(sum(under) / len(under) if under else 0.0, abs=1e-5)
        assert got.lse[i].item() == pytest.approx(math.log(len(under)) if under else -math.inf)
        assert got.top.indices[i].tolist() == [*[j for j, own in enumerate(keys) if own == key], -1, -1, -1][:3]


def test_attention_at_low_temperature_becomes_the_look_up() -> None:
    """Scaled dot products of one-hot codes, scale -> infinity: the soft average turns into Match."""
    q, k, v = torch.eye(5)[[3, 0]], torch.eye(5), torch.randn(5, 2)
    hard = attend(q, k, v, score=scores.Match()).output
    apart = [(attend(q, k, v, score=scores.ScaledDot(scale=c)).output - hard).abs().max() for c in (1.0, 5.0, 200.0)]
    assert apart[0] > apart[1] > apart[2] and apart[2] < 1e-6


# observing ----------------------------------------------------------------------------------------------------------


@share(60)
@given(requests(dtypes=DTYPES), st.booleans(), st.sampled_from([0.0, 0.4]))
def test_observing_never_changes_one_bit(request: Request, learning: bool, dropout: float) -> None:
    if learning:
        request.learning(bias=False)
    for backend in (*request.able(dropout), "auto"):
        results = []
        for observe in (None, STATISTICS, ALL):
            torch.manual_seed(0)
            results.append(request(backend, observe, dropout))
        blind, *others = results
        for got in others:
            assert got.backend == blind.backend
            assert torch.equal(got.output, blind.output) and torch.equal(got.lse, blind.lse), backend


@share(40)
@given(requests(dtypes=(F32, F64)), st.sampled_from([0.0, 0.4]))
def test_observing_never_changes_one_bit_of_a_gradient(request: Request, dropout: float) -> None:
    for backend in request.able(dropout):
        told = []
        for observe in (None, STATISTICS):
            torch.manual_seed(0)
            leaves = list(request.learning(bias=backend != "sdpa").values())
            told.append(torch.autograd.grad(loss(request(backend, observe, dropout)), leaves, allow_unused=True))
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(*told, strict=True)), backend


@pytest.mark.parametrize("backend", HERE)
def test_statistics_are_detached_and_lse_and_weights_differentiable(backend: str) -> None:
    q, k = torch.randn(2, 3, 4, requires_grad=True), torch.randn(2, 5, 4, requires_grad=True)
    got = attend(q, k, observe=ALL, backend=backend)
    learns = {name: x.requires_grad for name, x in fields(got).items()}
    assert {name for name, does in learns.items() if does} == {"output", "lse", "weights"}
    assert torch.autograd.grad(got.lse.sum(), q, retain_graph=True)[0].abs().max() > 0.01
    assert torch.autograd.grad(got.weights[..., 0].sum(), k, retain_graph=True)[0].abs().max() > 0.01
    assert torch.autograd.grad(got.output.sum(), q)[0].abs().max() > 0.01


@share(60)
@given(requests(dtypes=DTYPES, lengths=size), st.data())
def test_any_tile_of_prepared_is_that_part_of_the_weights(request: Request, data: st.DataObject) -> None:
    """By slices and by index tensors, in any order, from whichever backend."""
    index = [data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4)) for n in (request.T, request.S)]
    cuts = [slice(1, 3), slice(None), slice(-2, None), slice(0, None, 2)]
    rows, cols = data.draw(st.sampled_from(cuts)), data.draw(st.sampled_from(cuts))
    for backend in request.able():
        got = request(backend, ALL)
        for i, j in ((rows, cols), (torch.tensor(index[0]), torch.tensor(index[1])), (rows, torch.tensor(index[1]))):
            assert_same(got.prepared.tile(i, j), got.weights[..., i, :][..., j], F32, backend)
        assert_same(got.prepared.tile(), got.weights, F32, backend)


@pytest.mark.parametrize("backend", HERE)
def test_a_tile_of_hard_scores_is_a_weight_still(backend: str) -> None:
    """At scores of 1e6, where neighbouring float32 numbers lie 0.06 apart, a tile must not leave [0, 1]."""
    q, k = (1e3 * torch.randn(40, 64, generator=seeded(n)) for n in (0, 1))
    got = attend(q, k, score=scores.Dot(), observe=ALL, backend=backend)
    for i, j in ((slice(None), slice(None)), (slice(3, 4), slice(0, 17))):
        assert_same(got.prepared.tile(i, j), got.weights[i, j], F16)


# the choice among backends ------------------------------------------------------------------------------------------


@share(60)
@given(requests(dtypes=DTYPES), st.sampled_from([0.0, 0.5]))
def test_choose_predicts_what_attend_does(request: Request, dropout: float) -> None:
    picked = choose(request.q, request.k, request.v, **request.values, dropout=dropout)
    assert request("auto", None, dropout).backend == picked.backend and picked.backend not in picked.unsupported
    assert picked.reason and all(picked.unsupported.values())
    for name in HERE:
        if name not in picked.unsupported:
            assert request(name, None, dropout).backend == name
            asked = choose(request.q, request.k, request.v, **request.values, dropout=dropout, backend=name)
            assert asked.backend == name and asked.reason == "requested by name"


@pytest.mark.parametrize(
    ("changes", "backend"),
    [
        ({}, "sdpa"),
        ({"mask": Causal()}, "sdpa"),
        ({"mask": Causal() & Padding([3, 5])}, "sdpa"),
        ({"score": scores.Cosine()}, "sdpa"),
        ({"score": scores.Bilinear(4)}, "sdpa"),
        ({"window": windows.LocalM(1)}, "sdpa"),
        ({"bias": DenseBias(torch.zeros(3, 5))}, "sdpa"),
        ({"bias": DenseBias(torch.zeros(3, 5, requires_grad=True))}, "plain"),
        ({"score": scores.Additive(4, 3)}, "plain"),
        ({"score": scores.Match()}, "plain"),
        ({"score": near}, "plain"),
        ({"window": windows.LocalP(4, 1)}, "plain"),
    ],
)
def test_auto_takes_the_fused_kernel_wherever_it_can(changes: dict[str, Any], backend: str) -> None:
    assert choose(torch.randn(2, 3, 4), torch.randn(2, 5, 4), **changes).backend == backend


def test_auto_streams_maps_too_large_to_hold() -> None:
    for score, length in ((near, 4096), (scores.Additive(2, 64), 512)):
        picked = choose(torch.zeros(length, 2), torch.zeros(length, 2), score=score)
        assert picked.backend == "stream" and "too large to hold" in picked.reason
    long = 3 * 2**12  # a mask of 1.5e8 numbers would have to be written out for the fused kernel
    q = torch.zeros(long, 2)
    assert choose(q, q, mask=Causal()).backend == "sdpa"
    assert choose(q, q, mask=Window(10, 0)).backend == "stream"


# precision under autocast -------------------------------------------------------------------------------------------


def learned(name: str) -> Request:
    """A small request with this score, or with a predicted window."""
    build, wider = SCORES.get(name, SCORES["ScaledDot"])
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4 + wider), torch.randn(2, 5, 4 + wider)
    return Request(q, k, v, (2,), build(4, 4 + wider, (2,)), window=windows.LocalP(4, 2) if name == "LocalP" else None)


@pytest.mark.parametrize("name", [*SCORES, "LocalP"])
def test_autocast_does_not_change_the_precision_of_float32_inputs(name: str) -> None:
    request = learned(name)
    for backend in request.able():
        want = fields(request(backend, ALL))
        with torch.autocast("cpu", torch.bfloat16):
            got = fields(request(backend, ALL))
        for field, x in got.items():
            assert x.dtype == want[field].dtype and torch.equal(x, want[field]), f"{backend} {field}"


@pytest.mark.parametrize("name", ["ScaledDot", "Bilinear", "Additive", "Cosine", "LocalP"])
def test_under_autocast_bfloat16_inputs_go_with_float32_parameters(name: str) -> None:
    exact = learned(name)
    mixed = exact.with_(q=exact.q.bfloat16(), k=exact.k.bfloat16(), v=exact.v.bfloat16())
    for backend in exact.able():
        with torch.autocast("cpu", torch.bfloat16):
            got = mixed(backend)
        assert got.output.dtype == BF16
        assert_same(got.output, exact(backend).output, BF16, backend)


# dropout ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["plain", "stream"])
@pytest.mark.parametrize("window", [None, windows.LocalP(4, 2)], ids=["everywhere", "LocalP"])
def test_dropout_is_right_on_average(backend: str, window: Any) -> None:
    """The mean of many draws lies within five standard errors of the output without dropout."""
    q, k, v = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 2)
    torch.manual_seed(0)
    with torch.no_grad():
        want = attend(q, k, v, window=window).output
        draws = attend(q.expand(4000, 3, 4), k, v, window=window, dropout=0.3, backend=backend).output
    assert draws.std(0).min() > 0.01
    assert ((draws.mean(0) - want).abs() <= 5 * draws.std(0) / 4000**0.5).all()


@pytest.mark.parametrize("backend", ["plain", "stream"])
@pytest.mark.parametrize("learning", [True, False])
def test_a_weight_is_either_dropped_or_scaled_up(backend: str, learning: bool) -> None:
    """One key of weight 1: the output is 0 or v / (1 - p), and the gradient, computed later, knows which."""
    torch.manual_seed(0)
    v = torch.rand(500, 1, 3) + 1
    v.requires_grad_(learning)
    got = attend(torch.randn(500, 1, 2), torch.randn(500, 1, 2), v, dropout=0.25, backend=backend).output
    kept = got[..., :1] > 0
    assert 0.7 < kept.float().mean() < 0.8
    torch.testing.assert_close(got, v * kept / 0.75)
    if learning:
        torch.rand(7)  # whatever was drawn meanwhile must not matter
        (grad,) = torch.autograd.grad(got.sum(), v)
        torch.testing.assert_close(grad, (kept / 0.75).expand_as(v))


@share(50)
@given(requests(lengths=size), st.sampled_from(["plain", "stream"]))
def test_statistics_describe_the_weights_before_dropout(request: Request, backend: str) -> None:
    with torch.no_grad():
        got, want = fields(request(backend, ALL, 0.5)), fields(request(backend, ALL))
    for name in got.keys() - {"output"}:
        assert torch.equal(got[name], want[name]), name


# sequences ----------------------------------------------------------------------------------------------------------


@share(40)
@given(st.integers(1, 6), st.integers(0, 6), st.sampled_from(HERE))
def test_cached_decoding_equals_uncached(new: int, cached: int, backend: str) -> None:
    S = new + cached
    q, k = torch.randn(2, S, 4, generator=seeded(S)), torch.randn(2, S, 4, generator=seeded(new))
    for mask in (Causal(), Past(), Window(2, 0), Causal() & Documents(torch.arange(S) // 3)):
        whole, last = (attend(x, k, mask=mask, backend=backend, observe=STATISTICS) for x in (q, q[:, cached:]))
        assert_same(last.output, whole.output[:, cached:], F32)
        assert_same(last.lse, whole.lse[:, cached:], F32)
        assert torch.equal(last.top.indices, whole.top.indices[:, cached:])


@share(40)
@given(
    st.integers(0, 99),
    st.sampled_from(["right", "left"]),
    st.sampled_from([None, Causal(), Past(), Window(2, 1)]),
    st.booleans(),
)
def test_a_padded_batch_equals_its_rows_alone(seed: int, side: str, mask: Mask | None, predicted: bool) -> None:
    lengths = torch.randint(1, 7, (3,), generator=seeded(seed)).tolist()
    q, k, v = (torch.randn(3, 6, 4, generator=seeded(seed + n)) for n in range(3))
    torch.manual_seed(seed)
    window = windows.LocalP(4, 2) if predicted else None
    padding = Padding(lengths, lengths, side=side)
    request = Request(q, k, v, (3,), mask=padding if mask is None else padding & mask, window=window)
    for backend in request.able():
        got = request(backend, ALL)
        for row, n in enumerate(lengths):
            real = slice(0, n) if side == "right" else slice(6 - n, 6)
            alone = attend(q[row, real], k[row, real], v[row, real], mask=mask, window=window, observe=ALL)
            assert_same(got.output[row, real], alone.output, F32, backend)
            assert_same(got.lse[row, real], alone.lse, F32, backend)
            assert_same(got.weights[row, real, real], alone.weights, F32, backend)
            assert_same(got.received[row, real], alone.received, F32, backend)
            assert_same(got.entropy[row, real], alone.entropy, F32, backend)
            outside = torch.ones(6, dtype=torch.bool)
            outside[real] = False
            assert not got.weights[row, outside].any() and not got.weights[row][:, outside].any()


@pytest.mark.parametrize("backend", HERE)
@pytest.mark.parametrize("mode", [nullcontext, torch.no_grad, torch.inference_mode])
def test_it_serves_in_every_mode_of_torch(backend: str, mode: Any) -> None:
    score = scores.Bilinear(4)
    with mode():
        got = attend(torch.randn(3, 4), torch.randn(5, 4), score=score, mask=Causal(), observe=ALL, backend=backend)
    assert got.output.requires_grad == (mode is nullcontext)


def test_forward_stores_nothing() -> None:
    """No hidden state: neither score nor window holds a tensor of the call afterwards."""
    score, window = scores.Additive(4, 3), windows.LocalP(4, 2)
    before = {name: set(vars(part)) for name, part in (("score", score), ("window", window))}
    attend(torch.randn(3, 4), torch.randn(5, 4), score=score, window=window, observe=ALL)
    assert before == {"score": set(vars(score)), "window": set(vars(window))}
    assert all(
        isinstance(x, nn.Parameter) for part in (score, window) for x in part.state_dict(keep_vars=True).values()
    )
