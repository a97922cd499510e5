"""A bias is what it adds to the scores, whatever tile of it is asked for."""

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from attention.cases import Lead, Slope, any_biases, assert_same, size
from regard.attention import DenseBias, Observe, attend
from regard.attention.biases import Bias, CustomBias, as_bias, resolve_offset
from regard.attention.masks import Grid
from regard.errors import ShapeError

CPU = torch.device("cpu")


@st.composite
def placed(draw: st.DrawFn) -> tuple[Bias, Grid]:
    lead: Lead = draw(st.sampled_from([(2,), (), (2, 3), (2, 1, 2)]))
    T, S = draw(size()), draw(size())
    bias = as_bias(draw(any_biases(lead, T, S).filter(lambda bias: bias is not None)))
    assert bias is not None
    grid = Grid(lead, T, S, CPU)
    return bias.bind(grid), grid


def whole(bias: Bias, grid: Grid) -> Tensor:
    tile = bias.tile(torch.arange(grid.T), torch.arange(grid.S))
    return tile.detach().expand(*grid.lead, grid.T, grid.S)


@given(placed())
def test_a_dense_bias_equals_its_table_and_a_custom_bias_its_formula(case: tuple[Bias, Grid]) -> None:
    bias, grid = case
    if isinstance(bias, DenseBias):
        assert torch.equal(whole(bias, grid), bias.table.expand(*grid.lead, grid.T, grid.S))
        return
    assert isinstance(bias, CustomBias) and isinstance(bias.source, Slope)
    slopes = bias.source.slope.flatten().tolist()
    for h, slope in enumerate(slopes):
        told = whole(bias, grid)[..., h, :, :] if grid.lead else whole(bias, grid)
        said = torch.tensor([[-slope * abs(i - j) for j in range(grid.S)] for i in range(grid.T)])
        torch.testing.assert_close(told, said.expand(told.shape))


@given(placed(), st.data())
def test_any_tile_is_that_part_of_the_full_map(case: tuple[Bias, Grid], data: st.DataObject) -> None:
    bias, grid = case
    rows, cols = (
        torch.tensor(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=4))) for n in (grid.T, grid.S)
    )
    tile = bias.tile(rows, cols).expand(*grid.lead, len(rows), len(cols))
    assert torch.equal(tile, whole(bias, grid)[..., rows, :][..., cols])


@given(placed(), st.data())
def test_a_part_is_that_part_of_the_full_map(case: tuple[Bias, Grid], data: st.DataObject) -> None:
    bias, grid = case
    lead = tuple(slice(i, i + 1) for i in (data.draw(st.integers(0, n - 1)) for n in grid.lead))
    part = whole(bias.part(lead), Grid((1,) * len(lead), grid.T, grid.S, CPU))
    assert torch.equal(part, whole(bias, grid)[lead])


@given(placed(), st.sampled_from(["plain", "stream"]))
def test_a_bias_is_added_to_the_scores_before_the_softmax(case: tuple[Bias, Grid], backend: str) -> None:
    bias, grid = case
    source = torch.Generator().manual_seed(0)
    q, k = (torch.randn(*grid.lead, n, 4, generator=source) for n in (grid.T, grid.S))
    seen = Observe(weights=True)
    got = attend(q, k, bias=bias, observe=seen, backend=backend)
    want = attend(q, k, score=lambda q, k: q @ k.mT / 2 + whole(bias, grid), observe=seen, backend="plain")
    assert_same(got.output, want.output, torch.float32)
    assert_same(got.lse, want.lse, torch.float32)
    assert_same(got.weights, want.weights, torch.float32)


def test_minus_infinity_hides_a_key_as_a_mask_does() -> None:
    allowed = torch.tensor([[True, False, True], [False, False, False]])
    table = torch.zeros(2, 3).masked_fill(~allowed, -torch.inf)
    got = attend(torch.ones(2, 4), torch.randn(3, 4), bias=DenseBias(table), observe=Observe(top=3, weights=True))
    assert got.top.indices[1].tolist() == [-1, -1, -1] and sorted(got.top.indices[0].tolist()) == [-1, 0, 2]
    assert got.lse[1] == -torch.inf and not got.output[1].any() and not got.weights[~allowed].any()


def test_a_dense_bias_has_gradients_only_where_a_query_sees_the_key() -> None:
    """Its gradient is the softmax's: for each query it sums to zero, and hidden keys get none."""
    table = torch.randn(3, 4).masked_fill(torch.eye(3, 4).bool(), -torch.inf).requires_grad_()
    attend(torch.randn(3, 2), torch.randn(4, 2), bias=DenseBias(table)).output.square().sum().backward()
    assert table.grad.isfinite().all() and table.grad.abs().max() > 1e-3
    torch.testing.assert_close(table.grad.sum(-1), torch.zeros(3), atol=1e-6, rtol=0)
    assert not table.grad.diagonal().any()


def test_a_custom_bias_with_tiles_of_the_wrong_shape_is_refused() -> None:
    class Wrong:
        def tile(self, rows: Tensor, cols: Tensor) -> Tensor:
            return torch.zeros(len(rows) + 1, len(cols))

    with pytest.raises(ShapeError, match=r"Wrong\.tile: got shape \(4, 5\), expected one that broadcasts to \(3, 5\)"):
        attend(torch.randn(3, 2), torch.randn(5, 2), bias=Wrong(), backend="plain")


def test_positions_of_the_first_query() -> None:
    grid = Grid((2, 4), 3, 5, CPU)
    assert resolve_offset(None, grid, "here") == 2
    assert resolve_offset(7, grid, "here") == 7
    assert resolve_offset(torch.tensor(7), grid, "here") == 7
    by_row = resolve_offset(torch.tensor([1, 2]), grid, "here")
    assert by_row.expand(2, 4, 3, 5)[:, 0, 0, 0].tolist() == [1, 2]
    with pytest.raises(ShapeError, match="here: got 3 offsets"):
        resolve_offset(torch.tensor([1, 2, 3]), grid, "here")
