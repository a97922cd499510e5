"""Attention over prepared keys, query by query, is attend over all of them; so are its steps with their derivative."""

import pytest
import torch
from torch import Tensor, nn

from attention.cases import assert_same, fields
from regard.attention import DenseBias, Observe, PreparedKeys, Tap, attend, capture, choose, masks, scores, windows
from regard.attention.attend import BACKENDS
from regard.attention.kernels import recurrent
from regard.attention.kernels.recurrent import AdditiveGradients, AdditiveSteps, HiddenKeys
from regard.attention.masks import Grid
from regard.attention.tap import TapListener, listen, places_of
from regard.errors import BackendError, SettingError, ShapeError

LENGTHS = torch.tensor([5, 3, 0])
SCORES = [scores.Dot(), scores.ScaledDot(), scores.Cosine(0.5), scores.Bilinear(4), scores.Additive(4, 6)]
ALL = Observe(weights=True, top=2, entropy=True, received=True, thumbnail=(2, 3), prepared=True, values=True)
MASKS = [
    None,
    masks.Padding(LENGTHS),
    masks.Padding(LENGTHS, side="left"),
    masks.Dense(torch.rand(3, 1, 5, generator=torch.Generator().manual_seed(1)) < 0.5),
]


def tensors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    chance = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, n, w, generator=chance).to(dtype) for n, w in ((2, 4), (5, 4), (5, 3)))
    return q, k, v


def compared(got: object, expected: object, dtype: torch.dtype = torch.float64) -> None:
    ours, theirs = fields(got), fields(expected)  # type: ignore[arg-type]
    assert ours.keys() == theirs.keys()
    for name, x in ours.items():
        assert_same(x, theirs[name], dtype, name)


@pytest.mark.parametrize("mask", MASKS, ids=["none", "padding", "padding left", "dense"])
@pytest.mark.parametrize("score", SCORES, ids=lambda one: type(one).__name__)
def test_prepared_keys_are_attended_to_like_any(score: scores.Score, mask: masks.Mask | None) -> None:
    q, k, v = tensors()
    keys = PreparedKeys.of(k, v, score=score.double(), mask=mask)
    got, expected = attend(q, keys, observe=ALL), attend(q, k, v, score=score, mask=mask, observe=ALL, backend="plain")
    assert got.backend == "recurrent" and choose(q, keys).backend == "recurrent"
    compared(got, expected)
    assert got.prepared is not None and expected.prepared is not None
    torch.testing.assert_close(got.prepared.tile(), expected.prepared.tile())
    assert torch.equal(got.values, v) if mask is None else got.values is not None
    compared(attend(q, keys, observe=ALL, backend="plain"), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("score", SCORES, ids=lambda one: type(one).__name__)
def test_its_gradients_are_those_of_the_definition(score: scores.Score, dtype: torch.dtype) -> None:
    score = score.to(dtype)
    mask, told = masks.Padding(LENGTHS), []
    for prepared in (True, False):
        leaves = [x.requires_grad_() for x in tensors(dtype)]
        q, k, v = leaves
        if prepared:
            got = attend(q, PreparedKeys.of(k, v, score=score, mask=mask), observe=Observe(weights=True))
        else:
            got = attend(q, k, v, score=score, mask=mask, observe=Observe(weights=True), backend="plain")
        assert got.weights is not None
        seen = torch.where(got.lse.isfinite(), got.lse, 0.0)
        total = got.output.float().square().sum() + seen.sum() + got.weights.square().sum()
        told.append(torch.autograd.grad(total, [*leaves, *score.parameters()]))
    for ours, theirs in zip(*told, strict=True):
        assert ours.isfinite().all()
        assert_same(ours, theirs, dtype, type(score).__name__)


@pytest.mark.parametrize("window", [windows.LocalM(1, offset=1), windows.LocalP(4, 2).double()])
@pytest.mark.parametrize("queries", [1, 2])
def test_prepared_keys_take_windows(window: windows.LocalM | windows.LocalP, queries: int) -> None:
    (q, k, v), mask = tensors(), masks.Padding(LENGTHS)
    q = q[:, :queries]
    keys = PreparedKeys.of(k, v, mask=mask)
    got = attend(q, keys, window=window, observe=ALL)
    compared(got, attend(q, k, v, mask=mask, window=window, backend="plain", observe=ALL))
    one_row = isinstance(window, windows.LocalM) and queries == 1
    assert got.backend == ("recurrent" if one_row else "plain")


@pytest.mark.parametrize("backend", ["recurrent", "plain"])
def test_masked_keys_and_queries_without_keys_may_hold_anything(backend: str) -> None:
    (q, k, v), mask = tensors(), masks.Padding(LENGTHS)
    score = scores.Additive(4, 6).double()
    before = attend(q, PreparedKeys.of(k, v, score=score, mask=mask), backend=backend).output
    k[1, 3:], v[1, 4], q[2] = torch.nan, torch.inf, torch.nan
    leaves = [x.requires_grad_() for x in (q, k, v)]
    got = attend(q, PreparedKeys.of(k, v, score=score, mask=mask), backend=backend)
    torch.testing.assert_close(got.output, before)
    assert not before[2].any() and (got.lse[2] == -torch.inf).all()
    told = torch.autograd.grad(got.output.sum() + got.lse[:2].sum(), [*leaves, *score.parameters()])
    assert all(one.isfinite().all() for one in told)
    assert not told[0][2].any() and not told[1][2].any() and not told[1][1, 3:].any()


def test_some_rows_of_prepared_keys_are_the_prepared_keys_of_those_rows() -> None:
    (q, k, v), rows = tensors(), torch.tensor([1, 0, 0])
    keys = PreparedKeys.of(k, v, score=scores.Additive(4, 6).double(), mask=masks.Padding(LENGTHS))
    torch.testing.assert_close(attend(q[rows], keys.rows(rows)).output, attend(q, keys).output[rows])


def test_a_tap_reports_each_step_and_may_replace_its_weights() -> None:
    q, k, v = tensors()
    tap, keys = Tap(), PreparedKeys.of(k, v)
    model = nn.ModuleDict({"cross": tap})
    with capture(model) as heard:
        one = tap(q[:, :1], keys)
        tap(q[:, 1:], keys)
        assert tap.has_listeners and not tap.is_replaceable
    assert torch.equal(one.output, attend(q[:, :1], keys).output)
    assert one.weights is None
    assert [call.weights.shape for call in heard.calls("cross")] == [(3, 1, 5), (3, 1, 5)]
    even = TapListener(places_of(model), Observe(weights=True), lambda _, got: torch.full_like(got.weights, 0.2))
    with listen(even):
        assert tap.is_replaceable
        torch.testing.assert_close(tap(q[:, :1], keys).output, v.mean(1, keepdim=True))


def test_what_it_cannot_serve_is_refused_in_words() -> None:
    q, k, v = tensors()
    keys = PreparedKeys.of(k, v)
    with pytest.raises(ShapeError, match="PreparedKeys"):
        attend(q[:2], keys)
    with pytest.raises(SettingError, match=r"PreparedKeys\.of"):
        attend(q, keys, mask=masks.Padding(LENGTHS))
    for asked, words in (
        ({"mask": masks.Causal()}, "differs among the queries"),
        ({"mask": masks.Padding(LENGTHS, queries=LENGTHS.clamp(max=2))}, "differs among the queries"),
        ({"bias": DenseBias(torch.zeros(2, 5).double())}, "no bias"),
        ({"window": windows.LocalP(4, 2).double()}, "LocalP"),
        ({"score": scores.Match()}, "-inf"),
    ):
        with pytest.raises(BackendError, match=words):
            attend(q, k, v, backend="recurrent", **asked)  # type: ignore[arg-type]
    assert attend(q[:, :1], k, v, mask=masks.Causal(), backend="recurrent").backend == "recurrent"  # one row of it
    assert choose(q, k, v).backend != "recurrent", "keys that were not prepared go to the other kernels"
    assert "recurrent" in BACKENDS


def test_one_row_of_a_mask_is_a_mask() -> None:
    grid = Grid((3,), 2, 5, torch.device("cpu"))
    row = HiddenKeys.of(masks.Padding(LENGTHS), grid)
    assert row is not None and row.empty_rows is not None and row.empty_rows.flatten().tolist() == [False, False, True]
    assert torch.equal(row.dense(2, 5, (3,)), masks.Padding(LENGTHS).dense(2, 5, (3,)))
    part = row.part((slice(1, 2),))
    assert torch.equal(part.dense(2, 5, (1,)), row.dense(2, 5, (3,))[1:2]) and row.implied_lead() == (3,)
    assert HiddenKeys.of(masks.Everything(), grid) is None


def additive(hide: bool) -> tuple[scores.Additive, PreparedKeys, Tensor]:
    q, k, v = tensors()
    torch.manual_seed(3)
    score = scores.Additive(4, 6).double()
    mask = masks.Padding(LENGTHS.clamp(min=1)) if hide else None
    return score, PreparedKeys.of(k, v, score=score, mask=mask), q


@pytest.mark.parametrize("hide", [True, False])
@pytest.mark.parametrize("use_scores", [True, False])
def test_steps_and_their_gradients_are_those_of_the_definition(hide: bool, use_scores: bool) -> None:
    score, keys, q = additive(hide)
    queries, own_keys, values = (
        x.detach().requires_grad_() for x in (score.queries(q), keys.keys, keys.values)
    )  # (B, T, A), (B, S, A), (B, S, M)
    vector = score.vector.detach().requires_grad_()
    steps = AdditiveSteps(own_keys.detach(), values.detach(), keys.hidden, vector.detach(), T=2)
    for t, step in enumerate(steps):
        steps.forward(2 * queries.detach()[:, t : t + 1], step)

    compared_scores = torch.tanh(queries.unsqueeze(2) + own_keys.unsqueeze(1)) @ vector
    if keys.hidden is not None:
        compared_scores = compared_scores.masked_fill(keys.hidden, -torch.inf)
    weights = compared_scores.softmax(-1)
    contexts = weights @ values
    for ours, theirs in ((steps.scores, compared_scores), (steps.weights, weights), (steps.contexts, contexts)):
        torch.testing.assert_close(ours.transpose(0, 1), theirs.detach())

    towards = torch.randn_like(contexts)
    total = (contexts * towards).sum()
    to_scores = None
    if use_scores:
        total = total + compared_scores.logsumexp(-1).sum()
        to_scores = steps.weights.clone()  # the derivative of a log-sum-exp
    found = AdditiveGradients(
        steps.pairs, steps.weights, values.detach(), vector.detach(), towards.transpose(0, 1).clone(), to_scores
    )
    for step in reversed(list(found)):
        found.backward(step)
    expected = torch.autograd.grad(total, (queries, own_keys, values, vector))
    ours = (found.queries.transpose(0, 1), found.keys(), found.values(), found.vector())
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("hide", [True, False])
def test_a_step_reports_what_attend_does(hide: bool) -> None:
    score, keys, q = additive(hide)
    steps = AdditiveSteps(keys.keys.detach(), keys.values, keys.hidden, score.vector.detach(), T=1)
    queries = score.queries(q[:, :1]).detach()
    steps.forward(2 * queries, next(iter(steps)))
    got = keys.as_attended(queries, steps.scores.transpose(0, 1), steps.contexts.transpose(0, 1), ALL)
    compared(got, attend(q[:, :1], keys, observe=ALL, backend="plain"))
    assert got.prepared is not None and torch.equal(got.values, keys.values)
    torch.testing.assert_close(got.prepared.tile(), got.weights)


def test_steps_refuse_in_words_what_they_cannot_serve() -> None:
    score, keys, _ = additive(True)
    assert recurrent.steps_unsupported_reason(keys, torch.float64) is None
    assert "precision" in str(recurrent.steps_unsupported_reason(keys, torch.float32))
    _, k, v = tensors()
    assert "Dot" in str(recurrent.steps_unsupported_reason(PreparedKeys.of(k, v, score=scores.Dot()), torch.float64))
    nowhere = PreparedKeys.of(k, v, score=score, mask=masks.Padding(LENGTHS))
    assert "without a key" in str(recurrent.steps_unsupported_reason(nowhere, torch.float64))
