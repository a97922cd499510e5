"""masks.Runs: tables of booleans that are one run of keys for each query."""

from __future__ import annotations

import pytest
import torch

from regard.attention import Grid, Observe, attend, masks
from regard.attention.mask_analysis import live_queries_and_keys
from regard.errors import DtypeError, ShapeError

B, H, T, S = 2, 3, 7, 9
ALL = Observe(top=3, entropy=True, received=True, thumbnail=(4, 4), weights=True)


def tables() -> dict[str, masks.Mask]:
    lengths = torch.tensor([4, 9])
    return {
        "padded": masks.Padding(lengths),
        "left": masks.Padding(lengths, side="left"),
        "causal": masks.Causal() & masks.Padding(lengths),
        "window": masks.Window(2, 1) & masks.Padding(lengths),
        "past": masks.Past(0),
        "packed": masks.Documents(torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])) & masks.Causal(),
    }


@pytest.mark.parametrize("name", tables())
def test_a_table_becomes_the_same_mask_as_runs(name: str) -> None:
    table = tables()[name].dense(T, S, (B, 1))
    runs = masks.Runs.of(table)
    assert runs is not None
    assert torch.equal(runs.dense(T, S, (B, 1)), table)
    torch.manual_seed(0)
    q, k, v = torch.randn(B, H, T, 8), torch.randn(B, H, S, 8), torch.randn(B, H, S, 8)
    hidden = ~table.any(-2).expand(B, H, S)
    k, v = (x.masked_fill(hidden.unsqueeze(-1), torch.nan) for x in (k, v))
    for backend in ("plain", "sdpa", "stream"):
        got = attend(q, k, v, mask=runs, observe=ALL, backend=backend)
        want = attend(q, k, v, mask=masks.Dense(table), observe=ALL, backend=backend)
        for field in ("output", "lse", "entropy", "received", "thumbnail", "weights"):
            torch.testing.assert_close(getattr(got, field), getattr(want, field), msg=field)
        assert got.top is not None and want.top is not None
        assert torch.equal(got.top.indices, want.top.indices)


def test_a_table_with_gaps_is_none() -> None:
    table = masks.Causal().dense(T, T)
    table[4, 2] = False
    assert masks.Runs.of(table) is None
    assert masks.Runs.of(~masks.Window(1, 1).dense(T, T)) is None


def test_runs_beside_other_masks_and_in_parts() -> None:
    ends = torch.randint(0, S + 1, (2, B, 1, T)).sort(0).values
    runs = masks.Runs(ends[0], ends[1])
    both = (runs & masks.Causal()).dense(T, S)
    assert torch.equal(both, runs.dense(T, S) & masks.Causal().dense(T, S))
    part = runs.part((slice(1, 2), slice(0, 1)))
    assert torch.equal(part.dense(T, S), runs.dense(T, S)[1:2])


def test_what_was_kept_follows_a_change_in_place() -> None:
    runs = masks.Runs(torch.zeros(T, dtype=torch.long), torch.full((T,), 3))
    grid = Grid((), T, S, torch.device("cpu"))
    assert int(live_queries_and_keys(runs, grid)[1].sum()) == 3
    assert int(live_queries_and_keys(runs, grid)[1].sum()) == 3
    runs.stop.add_(2)
    assert int(live_queries_and_keys(runs, grid)[1].sum()) == 5


def test_complaints() -> None:
    with pytest.raises(DtypeError, match="whole numbers"):
        masks.Runs(torch.zeros(3), torch.ones(3))
    q = torch.zeros(T, 4)
    with pytest.raises(ShapeError, match="Runs stop"):
        attend(q, torch.zeros(S, 4), mask=masks.Runs(torch.zeros(1, dtype=torch.long), torch.ones(5, dtype=torch.long)))
