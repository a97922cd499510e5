"""Peak, distance, spans and counted queries: by their definitions, in every backend on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.attention import Observe, Queries, Sink, Spans, attend, masks, received_by_key_heads, scores
from regard.attention.biases import DenseBias
from regard.errors import DtypeError, SettingError, ShapeError

B, H, T, S, D = 2, 4, 11, 13, 8
F64 = torch.float64
SPANS = {
    "runs": Spans([(0, 4), slice(4, None), (2, 9)], [(None, 5), (5, 9), (-4, None)]),
    "numbers": Spans(torch.arange(T) % 3 - 1, torch.arange(S) % 4),
    "each query": Spans(None, [(0, 6), (6, None)]),
}
RECEIVED: dict[str, Any] = {
    "last": Queries(last=3),
    "marked": torch.arange(T) % 2 == 0,
    "more than all": Queries(last=99),
}
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"mask": masks.Causal()},
    "first sees nothing": {"mask": masks.Past(0)},
    "padding": {"mask": masks.Padding([5, 13], [4, 11])},
    "dense": {"mask": masks.Dense(torch.rand(B, 1, T, S, generator=torch.Generator().manual_seed(1)) > 0.4)},
    "bias": {"bias": DenseBias(torch.randn(1, H, T, S, generator=torch.Generator().manual_seed(2)))},
    "sink": {"normalise": Sink(torch.linspace(-1, 2, H))},
    "additive": {"score": scores.Additive(D, D)},
    "capped": {"score": scores.ScaledDot(cap=0.5)},
}


def drawn(dtype: torch.dtype = F64, key_heads: int = 2) -> list[Tensor]:
    source = torch.Generator().manual_seed(0)
    shapes = ((B, H, T, D), (B, key_heads, S, D), (B, key_heads, S, D))
    return [torch.randn(shape, generator=source, dtype=F64).to(dtype) for shape in shapes]


def by_hand(weights: Tensor, spans: Spans) -> Tensor:
    """The sums, weight by weight."""

    def groups(given: Any, size: int) -> list[list[int]]:
        if given is None:
            return [[i] for i in range(size)]
        if given.runs is None:
            return [[i for i in range(size) if int(given.ids[i]) == g] for g in range(given.count)]
        return [list(range(size))[slice(*run)] for run in given.runs]

    rows, cols = groups(spans.queries, T), groups(spans.keys, S)
    return torch.stack([torch.stack([weights[..., r, :][..., c].sum((-1, -2)) for c in cols], -1) for r in rows], -2)


@pytest.mark.parametrize("backend", ["plain", "sdpa", "stream"])
@pytest.mark.parametrize("which", SPANS)
@pytest.mark.parametrize("name", REQUESTS)
def test_statistics_of_rows_are_those_of_the_map(name: str, which: str, backend: str) -> None:
    torch.manual_seed(0)
    how = REQUESTS[name]
    how = {key: one.double() if isinstance(one, torch.nn.Module) else one for key, one in how.items()}
    if backend == "sdpa" and name in ("additive", "capped"):
        pytest.skip("no dot product")
    q, k, v = drawn(key_heads=4 if name == "additive" else 2)
    observe = Observe(weights=True, peak=True, distance=True, spans=SPANS[which], prepared=True)
    got = attend(q, k, v, observe=observe, backend=backend, **how)
    weights = attend(q, k, v, observe=Observe(weights=True), backend="plain", **how).weights
    assert weights is not None and got.prepared is not None
    close = torch.testing.assert_close
    close(got.spans, by_hand(weights, SPANS[which]))
    close(got.peak, got.prepared.scores().amax(-1))
    far = (torch.arange(T)[:, None] + S - T - torch.arange(S)).abs().double()
    total = weights.sum(-1).masked_fill(weights.sum(-1) == 0, 1.0)
    mean = (weights * far).sum(-1) / total
    assert got.distance is not None
    close(got.distance[..., 0], mean)
    close(got.distance[..., 1], (weights * (far - mean.unsqueeze(-1)) ** 2).sum(-1) / total)


@pytest.mark.parametrize("backend", ["plain", "sdpa", "stream"])
@pytest.mark.parametrize("which", RECEIVED)
def test_received_from_chosen_queries(which: str, backend: str) -> None:
    q, k, v = drawn()
    observe = Observe(received=RECEIVED[which], thumbnail=(3, 4), weights=True)
    got = attend(q, k, v, mask=masks.Causal(), observe=observe, backend=backend)
    counted = {"last": torch.arange(T) >= T - 3, "marked": RECEIVED["marked"], "more than all": torch.ones(T).bool()}
    assert got.weights is not None
    torch.testing.assert_close(got.received, got.weights[:, :, counted[which]].sum(-2))
    everything = attend(q, k, v, mask=masks.Causal(), observe=Observe(thumbnail=(3, 4)), backend=backend)
    torch.testing.assert_close(got.thumbnail, everything.thumbnail)  # which counts all


def test_observing_changes_no_bit() -> None:
    q, k, v = drawn(torch.float32)
    observe = Observe(peak=True, distance=True, spans=SPANS["runs"], received=Queries(last=2))
    for backend in ("auto", "plain", "sdpa", "stream"):
        alone = attend(q, k, v, mask=masks.Causal(), backend=backend)
        seen = attend(q, k, v, mask=masks.Causal(), backend=backend, observe=observe)
        assert torch.equal(alone.output, seen.output) and torch.equal(alone.lse, seen.lse)


def test_far_positions_lose_no_digits() -> None:
    """The variance of two neighbours a hundred thousand keys away is a quarter."""
    n = 100_000
    q, k = torch.zeros(1, 1), torch.full((n, 1), -1e4)
    k[:2] = 0
    q[0] = 1
    for backend in ("plain", "sdpa", "stream"):
        got = attend(q, k, torch.zeros(n, 1), observe=Observe(distance=True), backend=backend)
        torch.testing.assert_close(got.distance, torch.tensor([[n - 1.5, 0.25]]))


def test_compiled_code_reports_them() -> None:
    q, k, v = drawn(torch.float32)
    observe = Observe(peak=True, distance=True, spans=SPANS["runs"], received=Queries(last=2), top=2)
    for backend in ("plain", "sdpa", "stream"):
        run = torch.compile(
            lambda q, k, v, b=backend: attend(q, k, v, mask=masks.Causal(), observe=observe, backend=b),
            fullgraph=True,
            backend="aot_eager",
        )
        got, want = run(q, k, v), attend(q, k, v, mask=masks.Causal(), observe=observe, backend=backend)
        for name in ("peak", "distance", "spans", "received"):
            torch.testing.assert_close(getattr(got, name), getattr(want, name), msg=name)


def test_key_heads_add_up_their_query_heads() -> None:
    received = torch.arange(8.0).reshape(1, 4, 2)
    assert received_by_key_heads(received, 2).tolist() == [[[2, 4], [10, 12]]]
    assert received_by_key_heads(received, 2, "mean").tolist() == [[[1, 2], [5, 6]]]
    with pytest.raises(SettingError, match="'sum' or 'mean'"):
        received_by_key_heads(received, 2, "max")
    with pytest.raises(SettingError, match="divisor of 4"):
        received_by_key_heads(received, 3)


def test_listeners_agree_on_groups() -> None:
    one, same, other = (Observe(spans=Spans(None, [(0, end)])) for end in (3, 3, 4))
    assert (one | same) == one and (one | Observe(peak=True)).spans == one.spans
    with pytest.raises(SettingError, match="spans of two kinds"):
        one | other
    with pytest.raises(SettingError, match="received of queries"):
        Observe(received=True) | Observe(received=Queries(last=3))
    assert hash(one) == hash(same)


def test_complaints() -> None:
    with pytest.raises(DtypeError, match="start, stop"):
        Spans(None, [(1, 2, 3)])
    with pytest.raises(DtypeError, match="slices, pairs"):
        Spans(None, [])
    with pytest.raises(ShapeError, match="-1 for no group"):
        Spans(torch.rand(3), [(0, 1)])
    with pytest.raises(SettingError, match="last=N or marked"):
        Queries()
    with pytest.raises(SettingError, match="at least 1"):
        Queries(last=0)
    with pytest.raises(SettingError, match="boolean tensor"):
        Observe(received=3)  # type: ignore[arg-type]
    q, k, v = drawn(torch.float32)
    for bad in (Observe(spans=Spans(torch.zeros(3).long(), [(0, 1)])), Observe(received=torch.ones(3).bool())):
        for backend in ("plain", "sdpa", "stream"):
            with pytest.raises(ShapeError, match=f"{T}, one for each"):
                attend(q, k, v, observe=bad, backend=backend)
