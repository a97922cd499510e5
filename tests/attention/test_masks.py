"""Every mask is the predicate its name says, whatever part of it is asked for."""

from itertools import product
from random import Random

import pytest
import torch
from hypothesis import assume, given, strategies as st
from torch import Tensor

from attention.cases import Lead, any_masks, simple_masks, size_or_none
from regard.attention import mask_analysis, masks
from regard.attention.masks import Causal, Dense, Documents, Everything, Grid, Mask, Padding, Past, Window
from regard.errors import DtypeError

CPU = torch.device("cpu")


def may_look(mask: Mask, at: tuple[int, ...], i: int, j: int, T: int, S: int) -> bool:
    """What each mask means, said in Python: may query i look at key j, at this index of the leading dimensions?"""
    match mask:
        case Everything():
            return True
        case Window():
            offset = S - T if mask.offset is None else mask.offset
            here = i + int(offset[at[0]] if isinstance(offset, Tensor) and offset.dim() else offset)
            if isinstance(mask, Causal):
                return j <= here
            if isinstance(mask, Past):
                return j < here
            return (mask.left is None or j >= here - mask.left) and (mask.right is None or j <= here + mask.right)
        case Padding():
            real = int(mask.lengths[at[0]])
            asking = T if mask.queries is None else int(mask.queries[at[0]])
            if mask.side == "right":
                return j < real and i < asking
            return j >= S - real and i >= T - asking
        case Documents():
            ids = mask.ids[at[0]] if mask.ids.dim() == 2 else mask.ids
            if mask.queries is None:
                return int(ids[j]) == int(ids[S - T + i])
            return int(ids[j]) == int((mask.queries[at[0]] if mask.queries.dim() == 2 else mask.queries)[i])
        case Dense():
            index = (*at, i, j)[len(at) + 2 - mask.table.dim() :]
            sizes = mask.table.shape
            return bool(mask.table[tuple(0 if size == 1 else x for x, size in zip(index, sizes, strict=True))])
        case masks.Keys():  # Blocks too
            index = (*at, i)[len(at) + 2 - mask.indices.dim() :]
            sizes = mask.indices.shape[:-1]
            chosen = mask.indices[tuple(0 if size == 1 else x for x, size in zip(index, sizes, strict=True))]
            return j // mask.size in chosen.tolist()
        case masks.All():
            return all(may_look(inner, at, i, j, T, S) for inner in mask.masks)
        case masks.Any():
            return any(may_look(inner, at, i, j, T, S) for inner in mask.masks)
        case masks.Not():
            return not may_look(mask.mask, at, i, j, T, S)
    raise AssertionError(f"a mask without a meaning: {mask!r}")


@st.composite
def placed(draw: st.DrawFn, one: bool = False) -> tuple[Mask, Grid]:
    """A mask and a map that it fits; `one`: not joined."""
    lead: Lead = draw(st.sampled_from([(2,), (), (2, 3), (1,), (2, 1, 2)]))
    T, S = draw(size_or_none()), draw(size_or_none())
    return draw((simple_masks if one else any_masks)(lead, T, S)), Grid(lead, T, S, CPU)


def whole(mask: Mask, grid: Grid) -> Tensor:
    return mask.dense(grid.T, grid.S, grid.lead)


@given(placed())
def test_dense_is_the_meaning(case: tuple[Mask, Grid]) -> None:
    mask, grid = case
    dense = whole(mask, grid)
    assert dense.dtype == torch.bool and dense.shape == (*grid.lead, grid.T, grid.S)
    for at in product(*map(range, grid.lead)):
        said = [[may_look(mask, at, i, j, grid.T, grid.S) for j in range(grid.S)] for i in range(grid.T)]
        assert dense[at].tolist() == said


@given(placed(), st.randoms(use_true_random=False))
def test_any_tile_is_that_part_of_the_full_map(case: tuple[Mask, Grid], dice: Random) -> None:
    mask, grid = case
    rows, cols = (torch.tensor(dice.choices(range(n), k=3) if n else [], dtype=torch.long) for n in (grid.T, grid.S))
    tile = mask.allowed(rows, cols, grid).expand(*grid.lead, len(rows), len(cols))
    assert torch.equal(tile, whole(mask, grid)[..., rows, :][..., cols])


@given(placed())
def test_span_covers_every_allowed_key_and_is_exact_when_contiguous(case: tuple[Mask, Grid]) -> None:
    mask, grid = case
    lo, hi = (end.expand(*grid.lead, grid.T).unsqueeze(-1) for end in mask.span(grid))
    assert (lo >= 0).all() and (hi <= grid.S).all()
    keys = torch.arange(grid.S)
    inside = (keys >= lo) & (keys < hi)
    dense = whole(mask, grid)
    assert not (dense & ~inside).any()
    if mask.contiguous:
        assert torch.equal(inside, dense)


def test_which_masks_are_contiguous() -> None:
    """Where the fast kernels may skip asking; a mask with holes must not be among them."""
    contiguous = [Everything(), Causal(), Past(), Window(1, 2), Padding([1]), Causal() & Padding([1])]
    holed = [Dense(torch.ones(1, 1).bool()), Documents(torch.zeros(1).long()), ~Causal(), Causal() | Past()]
    assert all(mask.contiguous for mask in contiguous)
    assert not any(mask.contiguous for mask in [*holed, *(mask & Causal() for mask in holed)])


@given(placed())
def test_a_part_is_that_part_of_the_full_map(case: tuple[Mask, Grid]) -> None:
    mask, grid = case
    for at in product(*map(range, grid.lead)):
        lead = tuple(slice(i, i + 1) for i in at)
        part = whole(mask.part(lead), Grid((1,) * len(at), grid.T, grid.S, CPU))
        assert torch.equal(part, whole(mask, grid)[lead])


@given(placed())
def test_is_trivial_and_every_row_and_column_live_never_claim_too_much(case: tuple[Mask, Grid]) -> None:
    mask, grid = case
    dense = whole(mask, grid)
    if mask_analysis.is_trivial(mask, grid):
        assert dense.all()
    if mask_analysis.every_row_and_column_live(mask, grid):
        assert dense.any(-1).all() and dense.any(-2).all()


@given(st.none() | st.integers(-1, 9), st.none() | st.integers(-1, 9), st.none() | st.integers(-9, 9), size_or_none())
def test_of_a_window_shapes_are_enough(left: int | None, right: int | None, offset: int | None, S: int) -> None:
    assume(left is None or right is None or left + right >= 0)
    for T in (1, 2, 5):
        mask, grid = Window(left, right, offset), Grid((), T, max(S, 1), CPU)
        dense = whole(mask, grid)
        assert mask_analysis.is_trivial(mask, grid) == bool(dense.all())
        assert mask_analysis.is_trivial(mask & Causal(20), grid) == bool(dense.all())
        assert mask_analysis.every_row_and_column_live(mask, grid) == bool(dense.any(-1).all() and dense.any(-2).all())
        looks, seen = mask_analysis.live_queries_and_keys(mask, grid)
        assert torch.equal(looks, dense.any(-1)) and torch.equal(seen, dense.any(-2))


@given(placed())
def test_live_queries_and_keys_are_the_rows_and_columns_with_anything_in_them(case: tuple[Mask, Grid]) -> None:
    mask, grid = case
    looks, seen = mask_analysis.live_queries_and_keys(mask, grid)
    dense = whole(mask, grid)
    assert torch.equal(looks.expand(*grid.lead, grid.T), dense.any(-1))
    assert torch.equal(seen.expand(*grid.lead, grid.S), dense.any(-2))


@given(placed())
def test_live_queries_and_keys_include_what_else_hides(case: tuple[Mask, Grid]) -> None:
    mask, grid = case

    def odd(rows: Tensor, cols: Tensor) -> Tensor:
        return (rows[:, None] + cols) % 2 == 1

    looks, seen = mask_analysis.live_queries_and_keys(mask, grid, more=odd)
    dense = whole(mask, grid) & odd(torch.arange(grid.T), torch.arange(grid.S))
    assert torch.equal(looks.expand(*grid.lead, grid.T), dense.any(-1))
    assert torch.equal(seen.expand(*grid.lead, grid.S), dense.any(-2))


@pytest.mark.parametrize("T", [70, 64, 130])
def test_live_queries_and_keys_of_more_rows_than_one_block(T: int) -> None:
    table = torch.rand(2, T, 9, generator=torch.Generator().manual_seed(T)) < 0.02
    looks, seen = mask_analysis.live_queries_and_keys(Dense(table), Grid((2,), T, 9, CPU))
    assert torch.equal(looks, table.any(-1)) and torch.equal(seen, table.any(-2))


@given(st.integers(1, 6), st.integers(0, 6))
def test_cached_keys_lie_left_of_the_new_ones(T: int, cached: int) -> None:
    """By default the last T rows of the square mask: what a decoder with S - T cached keys needs."""
    S = T + cached
    for mask in (Causal(), Past(), Window(1, 0), Window(2, 1), Documents(torch.arange(S) // 2)):
        assert torch.equal(mask.dense(T, S), mask.dense(S, S)[cached:])


def test_masks_by_eye() -> None:
    assert Causal().dense(2, 3).int().tolist() == [[1, 1, 0], [1, 1, 1]]
    assert Past().dense(3, 3).int().tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert Window(1, 0, offset=0).dense(3, 3).int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert Padding([1, 2]).dense(1, 3).int().tolist() == [[[1, 0, 0]], [[1, 1, 0]]]
    assert Padding([1], [1], side="left").dense(2, 2).int().tolist() == [[[0, 0], [0, 1]]]
    assert Causal(torch.tensor([0, 1])).dense(1, 2).int().tolist() == [[[1, 0]], [[1, 1]]]


@given(placed(one=True), st.data())
def test_mask_operators_obey_boolean_algebra(case: tuple[Mask, Grid], data: st.DataObject) -> None:
    a, grid = case
    b, c = (data.draw(simple_masks(grid.lead, grid.T, grid.S)) for _ in range(2))
    x, y, z = (whole(mask, grid) for mask in (a, b, c))
    assert torch.equal(whole(a & b & c, grid), x & y & z)
    assert torch.equal(whole(a & (b & c), grid), x & y & z)
    assert torch.equal(whole(a | b | c, grid), x | y | z)
    assert torch.equal(whole(a & (b | c), grid), x & (y | z))
    assert torch.equal(whole(~(a & b), grid), whole(~a | ~b, grid))
    assert torch.equal(whole(~~a, grid), x)
    assert torch.equal(whole(Everything() & a, grid), x)


@pytest.mark.parametrize(
    ("mask", "lead"),
    [
        (Everything(), ()),
        (Padding([1, 2]), (2,)),
        (Causal(torch.tensor([0, 1, 2])), (3,)),
        (Causal(torch.tensor(1)), ()),
        (Documents(torch.zeros(3).long()), ()),
        (Documents(torch.zeros(2, 3).long()), (2,)),
        (Documents(torch.zeros(3).long(), torch.zeros(2, 3).long()), (2,)),
        (Dense(torch.ones(2, 1, 3, 3).bool()), (2, 1)),
        (Padding([1, 2]) & Dense(torch.ones(1, 4, 3, 3).bool()), (2, 4)),
        (~Padding([1, 2]) | Causal(), (2,)),
    ],
    ids=repr,
)
def test_dense_by_default_has_the_leading_dimensions_the_mask_implies(mask: Mask, lead: Lead) -> None:
    assert mask.dense(3, 3).shape == (*lead, 3, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("side", ["left", "right"])
def test_lengths_may_be_of_any_integer_kind(dtype: torch.dtype, side: str) -> None:
    """300 keys do not fit a byte, but a row's own 3 do."""
    counts = torch.tensor([3, 0])
    want = Padding(counts, side=side)
    got = Padding(counts.to(dtype), counts.to(dtype), side=side)
    assert torch.equal(got.dense(4, 300)[0, -1 if side == "left" else 0], want.dense(4, 300)[0, 0])
    grid = Grid((2,), 4, 300, CPU)
    assert torch.equal(mask_analysis.live_queries_and_keys(got, grid)[1], want.dense(4, 300).any(-2))


def test_documents_are_named_by_tensors() -> None:
    with pytest.raises(DtypeError, match="got list as ids, expected tensors of whole numbers"):
        Documents([0, 1])  # type: ignore[arg-type]
    with pytest.raises(DtypeError, match="got list as ids"):
        Documents(torch.tensor([0, 1]), [0])  # type: ignore[arg-type]
