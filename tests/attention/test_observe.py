"""Each report against its definition, loop by loop."""

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from attention.cases import ALL, Request, requests, size_or_none
from regard.attention import Attended, Observe, attend, masks
from regard.attention.observe import attention_statistics, cell_assignment, thumbnail_of, top_k
from regard.errors import SettingError

F64 = torch.float64


@st.composite
def maps(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A map of weights with many ties, and which of its keys are hidden."""
    T, S = draw(size_or_none()), draw(size_or_none())
    source = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    hidden = torch.rand(T, S, generator=source) < draw(st.sampled_from([0.3, 0.0, 0.8]))
    raw = torch.randint(4, (T, S), generator=source).double().masked_fill(hidden, 0.0)  # 0: an underflown weight
    return raw / raw.sum(-1, keepdim=True).clamp(min=1), hidden


@given(maps(), st.integers(1, 9))
def test_top_is_the_largest_first_ties_lowest_index_first_missing_ones_0_and_minus_1(
    case: tuple[Tensor, Tensor], k: int
) -> None:
    weights, hidden = case
    got = top_k(weights, hidden, k)
    for t, row in enumerate(weights.tolist()):
        seen = sorted((-w, j) for j, w in enumerate(row) if not hidden[t, j])[:k]
        missing = k - len(seen)
        assert got.values[t].tolist() == [-w for w, _ in seen] + [0.0] * missing
        assert got.indices[t].tolist() == [j for _, j in seen] + [-1] * missing


@given(maps())
def test_entropy_and_received_are_their_sums(case: tuple[Tensor, Tensor]) -> None:
    weights, hidden = case
    got = attention_statistics(weights, hidden, Observe(entropy=True, received=True))
    T, S = weights.shape
    entropy = [-math.fsum(w * math.log(w) for w in row if w > 0) for row in weights.tolist()]
    received = [math.fsum(weights[t, s].item() for t in range(T)) for s in range(S)]
    torch.testing.assert_close(got["entropy"], torch.tensor(entropy, dtype=F64))
    torch.testing.assert_close(got["received"], torch.tensor(received, dtype=F64))


@given(maps(), st.integers(1, 9), st.integers(1, 9))
def test_a_thumbnail_cell_is_the_mean_of_its_weights(case: tuple[Tensor, Tensor], rows: int, cols: int) -> None:
    """Query i is in row floor(i R / T), key j in column floor(j C / S), with R = min(rows, T), C = min(cols, S)."""
    weights, _ = case
    T, S = weights.shape
    R, C = min(rows, T), min(cols, S)
    got = thumbnail_of(weights, rows, cols)
    assert got.shape == (R, C)
    held: dict[tuple[int, int], list[float]] = {(r, c): [] for r in range(R) for c in range(C)}
    for i in range(T):
        for j in range(S):
            held[i * R // T, j * C // S].append(weights[i, j].item())
    for (r, c), inside in held.items():
        assert got[r, c].item() == pytest.approx(math.fsum(inside) / len(inside), abs=1e-12)


@given(st.integers(0, 40), st.integers(1, 50))
def test_cells_share_out_every_place_once_and_evenly(size: int, most: int) -> None:
    share = cell_assignment(size, most, torch.zeros(()))
    assert share.shape == (min(size, most), size) and (share.sum(0) == 1).all()
    held = share.sum(1)
    assert not size or held.max() - held.min() <= 1


@given(requests())
def test_statistics_of_attend_describe_its_weights(request: Request) -> None:
    """The definitions above, applied to `weights`, are what every leading index reports."""
    got = request("plain", ALL)
    hidden = request("plain", Observe(prepared=True)).prepared.precise().scores() == -torch.inf
    want = attention_statistics(got.weights, hidden.expand(got.weights.shape), ALL)
    assert torch.equal(got.top.values, want["top"].values) and torch.equal(got.top.indices, want["top"].indices)
    for name in ("entropy", "received", "thumbnail"):
        assert torch.equal(getattr(got, name), want[name])
    lead, T, S = request.lead, request.T, request.S
    shapes = {
        "output": (*lead, T, request.v.size(-1)),
        "lse": (*lead, T),
        "entropy": (*lead, T),
        "received": (*lead, S),
        "thumbnail": (*lead, min(3, T), min(2, S)),
        "weights": (*lead, T, S),
    }
    assert {name: tuple(getattr(got, name).shape) for name in shapes} == shapes
    assert got.top.values.shape == got.top.indices.shape == (*lead, T, 3)


ASKED = {
    "top": Observe(top=2),
    "entropy": Observe(entropy=True),
    "received": Observe(received=True),
    "thumbnail": Observe(thumbnail=(2, 2)),
    "weights": Observe(weights=True),
    "prepared": Observe(prepared=True),
}


@pytest.mark.parametrize("backend", ["plain", "stream", "sdpa"])
@pytest.mark.parametrize("asked", [*ASKED, None])
def test_fields_that_were_not_requested_are_none(asked: str | None, backend: str) -> None:
    q, k = torch.randn(3, 4), torch.randn(5, 4)
    got = attend(q, k, observe=None if asked is None else ASKED[asked], backend=backend)
    there = {name for name in ASKED if getattr(got, name) is not None}
    assert there == ({asked} if asked else set())
    assert got.output is not None and got.lse is not None


WISHES = st.builds(Observe, st.integers(0, 5), st.booleans(), st.booleans(), st.none(), st.booleans(), st.booleans())


@given(WISHES, WISHES)
def test_or_requests_all_that_either_requests(one: Observe, other: Observe) -> None:
    names = ("entropy", "received", "weights", "prepared")
    both = one | other
    assert both.top == max(one.top, other.top)
    assert all(getattr(both, name) == (getattr(one, name) or getattr(other, name)) for name in names)
    assert both == other | one and both | both == both and one | Observe() == one


def test_or_of_thumbnails() -> None:
    small = Observe(thumbnail=(2, 3))
    assert (small | Observe(top=1)).thumbnail == (2, 3) == (Observe() | small).thumbnail == (small | small).thumbnail
    with pytest.raises(SettingError, match=r"\(2, 3\) and \(4, 3\)"):
        small | Observe(thumbnail=(4, 3))


def test_statistics_says_whether_a_pass_over_the_map_is_needed() -> None:
    needs = {name: observe.statistics for name, observe in ASKED.items()}
    assert needs == {"top": 1, "entropy": 1, "received": 1, "thumbnail": 1, "weights": 0, "prepared": 0}


@given(requests(lengths=lambda: st.sampled_from([3, 6])), st.sampled_from(sorted(ASKED)))
def test_restrict_gives_each_listener_its_own_request(request: Request, asked: str) -> None:
    """`a | b`, then only(a), equals a."""
    alone, shared = request("plain", ASKED[asked]), request("plain", ASKED[asked] | Observe(top=4, entropy=True))
    mine = shared.restrict(ASKED[asked])
    assert torch.equal(mine.output, alone.output) and torch.equal(mine.lse, alone.lse)
    for field in fields(Attended):
        ours, theirs = getattr(mine, field.name), getattr(alone, field.name)
        assert (ours is None) == (theirs is None), field.name
        if isinstance(ours, Tensor):
            assert torch.equal(ours, theirs)
    if asked == "top":
        assert torch.equal(mine.top.values, alone.top.values) and torch.equal(mine.top.indices, alone.top.indices)


def test_padded_queries_count_in_no_sum_over_queries() -> None:
    """With Padding(queries=), received and thumbnail count real queries only."""
    q, k = torch.randn(1, 4, 2), torch.randn(1, 4, 2)
    mask = masks.Padding([3], [2])
    got = attend(q, k, mask=mask, observe=ALL)
    alone = attend(q[:, :2], k[:, :3], observe=ALL)
    torch.testing.assert_close(got.received[:, :3], alone.received)
    assert got.received[0, 3] == 0 and got.received.sum().item() == pytest.approx(2)
    assert (got.top.indices[0, 2:] == -1).all() and not got.entropy[0, 2:].any()
