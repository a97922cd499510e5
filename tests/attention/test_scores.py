"""Every score is its formula, depends on each pair alone, and prepares what it says it prepares."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor, nn

from attention.cases import SCORES, Largest, Request, assert_same, near, requests, seeded
from regard.attention import scores
from regard.attention.scores import Additive, Bilinear, Cosine, CustomScore, Dot, Match, ScaledDot, as_score, soft_cap

F64 = torch.float64


def dot(a: list[float], b: list[float]) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def times(matrix: Tensor, vector: list[float]) -> list[float]:
    return [dot(row, vector) for row in matrix.tolist()]


def capped(score: float, cap: float | None) -> float:
    return score if cap is None else cap * math.tanh(score / cap)


# what each score says of one pair, in Python
FORMULAS: dict[type, Any] = {
    Dot: lambda s, q, k: dot(q, k),
    ScaledDot: lambda s, q, k: capped(dot(q, k) * (len(k) ** -0.5 if s.fixed is None else s.fixed), s.cap),
    Bilinear: lambda s, q, k: dot(q, times(s.weight, k)),
    Cosine: lambda s, q, k: dot(q, k) / math.sqrt(dot(q, q) * dot(k, k)) / s.temperature,
    Additive: lambda s, q, k: dot(
        s.vector.tolist(),
        [math.tanh(x + y) for x, y in zip(times(s.query.weight, q), times(s.key.weight, k), strict=True)],
    ),
    Match: lambda s, q, k: 0.0 if q == k else -math.inf,
    CustomScore: lambda s, q, k: -math.fsum((x - y) ** 2 for x, y in zip(q, k, strict=True)),
}


@pytest.mark.parametrize("name", [name for name in SCORES if name not in ("Location", "PerHead")])
@pytest.mark.parametrize("seed", range(3))
def test_a_score_is_its_formula(name: str, seed: int) -> None:
    build, wider = SCORES[name]
    torch.manual_seed(seed)
    score = as_score(build(3, 3 + wider, ())).double()
    q, k = torch.randn(4, 3, dtype=F64), torch.randn(5, 3 + wider, dtype=F64)
    if name == "Match":
        q[1], q[2] = k[4], k[0]
    formula = FORMULAS[type(score)]
    want = torch.tensor([[formula(score, a, b) for b in k.tolist()] for a in q.tolist()], dtype=F64)
    torch.testing.assert_close(score(q, k).detach(), want, rtol=1e-12, atol=1e-12)


@given(requests(biased=False, windowed=False, names=[name for name in SCORES if name not in ("Location", "PerHead")]))
def test_a_pair_is_scored_by_itself(request: Request) -> None:
    """Any part of the map can be computed from that part of the queries and keys."""
    score = as_score(request.score)
    q, k = request.q, request.k
    if q.dim() >= 4 or k.dim() >= 4:  # a score knows nothing of shared heads
        q, k = q[(0,) * (q.dim() - 2)], k[(0,) * (k.dim() - 2)]
    whole = score(q, k)
    for rows, cols in ((slice(1, 3), slice(2, None)), (slice(0, 1), slice(0, 1)), (slice(1, 1), slice(None))):
        assert_same(score(q[..., rows, :], k[..., cols, :]), whole[..., rows, cols], torch.float32)


@given(requests(biased=False, windowed=False, names=[n for n in SCORES if n not in ("PerHead", "callable", "Match")]))
def test_the_dot_family_compares_by_scaled_dot_products(request: Request) -> None:
    """What a fused kernel may rely on: scores = scale * q' k'^T of what was prepared, under its soft cap."""
    score = as_score(request.score)
    if not isinstance(score, Dot):
        assert isinstance(score, Additive)
        return
    q, k = (x[(0,) * (x.dim() - 2)] for x in (request.q, request.k))
    q, k = score.prepare(q, k)
    assert q.size(-1) == k.size(-1)
    products = score.scale(k.size(-1)) * (q @ k.mT)
    assert_same(score.compare(q, k), soft_cap(products, score.cap), torch.float32)


@pytest.mark.parametrize("name", [name for name in SCORES if name != "PerHead"])
def test_scores_are_a_fresh_tensor(name: str) -> None:
    """The caller may overwrite them without touching queries, keys or parameters."""
    build, wider = SCORES[name]
    score = as_score(build(3, 3 + wider, ()))
    q, k = torch.randn(4, 3), torch.randn(5, 3 + wider)
    with torch.no_grad():
        before = score(q, k).clone()
        score(q, k).fill_(7.0)
        assert torch.equal(score(q, k), before)


def test_a_callables_tensor_is_never_overwritten() -> None:
    table = torch.randn(4, 5)
    score = CustomScore(lambda q, k: table)
    before = table.clone()
    with torch.no_grad():
        score(torch.randn(4, 2), torch.randn(5, 2)).fill_(7.0)
    assert torch.equal(table, before)


@pytest.mark.parametrize("name", ["ScaledDot", "Bilinear", "Cosine", "Additive", "Match", "Location"])
def test_pair_size_is_the_memory_of_a_pair(name: str) -> None:
    build, wider = SCORES[name]
    score = as_score(build(3, 3 + wider, ()))
    q, k = score.prepare(torch.randn(11, 3), torch.randn(12, 3 + wider))
    with torch.no_grad(), Largest() as largest:
        score.compare(q, k)
    assert largest.numel == 11 * 12 * score.pair_size(k)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.05, 5))
def test_cosine_sees_only_directions(a: float, b: float, temperature: float) -> None:
    q, k = torch.randn(4, 3, generator=seeded(0), dtype=F64), torch.randn(5, 3, generator=seeded(1), dtype=F64)
    score = Cosine(temperature)
    torch.testing.assert_close(score(a * q, b * k), score(q, k))
    assert (score(q, k).abs() <= 1 / temperature + 1e-9).all()
    torch.testing.assert_close(score(q, q).diagonal(), torch.full((4,), 1 / temperature, dtype=F64))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [0.0, 6e-5, 1.0, 6e4])
def test_cosine_is_one_for_any_length_that_the_dtype_holds(dtype: torch.dtype, length: float) -> None:
    """The norm of four numbers of 6e4 is above what float16 holds, and its smallest divisor 1e-12 is 0 there."""
    x = torch.full((1, 4), length, dtype=dtype)
    want = 1.0 if length else 0.0
    assert Cosine()(x, x).item() == pytest.approx(want, abs=2e-2)
    assert Cosine()(x, -x).item() == pytest.approx(-want, abs=2e-2)


def test_scaled_dot_keeps_the_spread_of_scores_whatever_the_width() -> None:
    """Why it divides by sqrt(Dk): the scores of random vectors have variance 1 at every width."""
    for width in (4, 64, 1024):
        q, k = torch.randn(200, width, generator=seeded(0)), torch.randn(200, width, generator=seeded(1))
        assert ScaledDot()(q, k).var().item() == pytest.approx(1, abs=0.1)


def test_bilinear_with_the_identity_is_dot() -> None:
    score = Bilinear(3).double()
    nn.init.eye_(score.weight)
    q, k = torch.randn(4, 3, dtype=F64), torch.randn(5, 3, dtype=F64)
    torch.testing.assert_close(score(q, k), Dot()(q, k))


def test_match_is_equality_of_whole_vectors() -> None:
    q = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    k = torch.tensor([[1.0, 2.0], [1.0, 4.0], [3.0, 4.0], [1.0, 2.0]])
    inf = math.inf
    assert Match()(q, k).tolist() == [[0, -inf, -inf, 0], [-inf, -inf, 0, -inf]]


def test_what_passes_for_a_score() -> None:
    assert isinstance(as_score(None), ScaledDot)
    given_one = Additive(2, 3)
    assert as_score(given_one) is given_one
    assert isinstance(as_score(near), CustomScore)
    assert isinstance(as_score(nn.CosineSimilarity(-1)), CustomScore)


def test_learned_scores_have_gradients_and_the_others_no_parameters() -> None:
    learned = {Bilinear(2): ["weight"], Additive(2, 3): ["vector", "query.weight", "key.weight"]}
    for score in (Dot(), ScaledDot(), Cosine(), Match(), *learned):
        assert [name for name, _ in score.named_parameters()] == learned.get(score, [])


def test_the_module_names_every_score_of_the_contract() -> None:
    assert {"Dot", "ScaledDot", "Bilinear", "Additive", "Cosine", "Match"} <= set(vars(scores))
