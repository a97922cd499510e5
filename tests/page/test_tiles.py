"""Tiles are means of the weights of a place, rows are its rows, and the terms of a pair make its weight."""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Event

import pytest
import torch
from hypothesis import given, settings, strategies as st

from page.serve.fakes import HEADS, place_of
from regard.errors import RecordError, SettingError
from regard.inspection.record.place import PlaceRecord
from regard.page.serve.queue import Cancelled, raise_if_cancelled
from regard.page.tiles import MAX_BLOCK, TileBounds, compute_row, compute_tile, explain_pair

LENGTH = 37
KINDS = {
    "dot": place_of(LENGTH),
    "causal": place_of(LENGTH, causal=True),
    "biased": place_of(LENGTH, biased=True),
    "additive": place_of(LENGTH, score="additive"),
    "local": place_of(LENGTH, local=True),
}
ALL = 4096 * 4096


def means(weights: torch.Tensor, area: TileBounds) -> torch.Tensor:
    """The same by the definition, cell by cell."""
    found = torch.zeros(area.rows, area.cols)
    for r in range(area.rows):
        for c in range(area.cols):
            rows = [i for i in range(area.height) if i * area.rows // area.height == r]
            cols = [j for j in range(area.width) if j * area.cols // area.width == c]
            found[r, c] = weights[area.top :, area.left :][rows][:, cols].mean()
    return found


@st.composite
def areas(draw: st.DrawFn) -> TileBounds:
    top, left = draw(st.integers(0, LENGTH - 1)), draw(st.integers(0, LENGTH - 1))
    bottom, right = draw(st.integers(top + 1, LENGTH)), draw(st.integers(left + 1, LENGTH))
    rows, cols = draw(st.integers(1, min(6, bottom - top))), draw(st.integers(1, min(6, right - left)))
    return TileBounds(top, bottom, left, right, rows, cols)


@settings(max_examples=25)
@given(area=areas(), kind=st.sampled_from(sorted(KINDS)), head=st.integers(0, HEADS - 1))
def test_a_tile_holds_the_mean_of_each_cell(area: TileBounds, kind: str, head: int) -> None:
    got, exact = compute_tile(KINDS[kind], head, area, ALL)
    assert exact
    torch.testing.assert_close(got, means(KINDS[kind].tile(head), area), rtol=0, atol=1e-5)


def test_one_cell_a_weight_is_the_map_itself() -> None:
    place = KINDS["causal"]
    got, _ = compute_tile(place, 1, TileBounds(0, LENGTH, 0, LENGTH, LENGTH, LENGTH), ALL)
    torch.testing.assert_close(got, place.tile(1), rtol=0, atol=1e-6)


def test_blocks_of_rows_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    area = TileBounds(1, LENGTH, 2, LENGTH, 5, 7)
    whole, _ = compute_tile(KINDS["dot"], 0, area, ALL)
    monkeypatch.setattr("regard.page.tiles.MAX_BLOCK", 3 * area.width)
    pieces, _ = compute_tile(KINDS["dot"], 0, area, ALL)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-7)


def test_no_block_is_larger_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(300, score="additive")
    sizes = []
    original = type(place).tile

    def watched(self: object, head: int, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
        sizes.append(len(rows) * len(cols) * 8)
        return original(self, head, rows, cols)

    monkeypatch.setattr("regard.page.tiles.MAX_BLOCK", MAX_BLOCK // 64)
    monkeypatch.setattr(type(place), "tile", watched)
    compute_tile(place, 0, TileBounds(0, 300, 0, 300, 4, 4), ALL)
    assert len(sizes) > 1
    assert max(sizes) <= MAX_BLOCK // 64


def without_thumbnail(place: PlaceRecord) -> PlaceRecord:
    return replace(place, statistics=replace(place.statistics, thumbnail=None))


def test_cells_as_coarse_as_the_thumbnail_come_from_it() -> None:
    """As for long texts: a thumbnail of 9 x 9 cells, and tiles of whole cells or parts of them."""
    place = KINDS["dot"]
    small = means(place.tile(0), TileBounds(0, LENGTH, 0, LENGTH, 9, 9)).unsqueeze(0)
    coarse = replace(place, statistics=replace(place.statistics, thumbnail=small))
    for rows, cols in ((9, 9), (1, 1), (4, 2)):
        area = TileBounds(0, LENGTH, 0, LENGTH, rows, cols)
        got, exact = compute_tile(coarse, 0, area, max_exact=1)
        assert not exact
        torch.testing.assert_close(got, means(place.tile(0), area), rtol=0, atol=1e-6 if rows != 4 else 0.02)
    finer, exact = compute_tile(coarse, 0, TileBounds(0, LENGTH, 0, LENGTH, 20, 20), max_exact=ALL)
    assert exact and finer.shape == (20, 20)


def test_beyond_the_bound_it_is_an_estimate_from_rows_spread_evenly() -> None:
    place, area = without_thumbnail(KINDS["dot"]), TileBounds(0, 36, 0, LENGTH, 3, 4)
    got, exact = compute_tile(place, 0, area, max_exact=3 * 2 * LENGTH)
    assert not exact
    sampled = place.tile(0, torch.tensor([3, 9, 15, 21, 27, 33]))  # two of each twelve
    expected = means(sampled, TileBounds(0, 6, 0, LENGTH, 3, 4))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_an_estimate_from_all_rows_is_the_mean() -> None:
    area = TileBounds(0, LENGTH, 0, LENGTH, LENGTH, 3)
    got, exact = compute_tile(without_thumbnail(KINDS["dot"]), 0, area, max_exact=1)
    assert not exact
    torch.testing.assert_close(got, means(KINDS["dot"].tile(0), area), rtol=0, atol=1e-6)


def test_a_cancelled_tile_stops() -> None:
    stop = Event()
    stop.set()
    with pytest.raises(Cancelled):
        compute_tile(KINDS["dot"], 0, TileBounds(0, 4, 0, 4, 1, 1), ALL, lambda: raise_if_cancelled(stop))


@pytest.mark.parametrize(
    ("area", "where"),
    [
        (TileBounds(3, 3, 0, 4, 1, 1), "top and bottom"),
        (TileBounds(0, LENGTH + 1, 0, 4, 1, 1), "top and bottom"),
        (TileBounds(0, 4, 5, 4, 1, 1), "left and right"),
        (TileBounds(0, 4, 0, 4, 5, 1), "rows"),
        (TileBounds(0, 4, 0, 4, 1, 0), "cols"),
    ],
)
def test_bounds_outside_the_map_are_refused(area: TileBounds, where: str) -> None:
    with pytest.raises(SettingError) as caught:
        compute_tile(KINDS["dot"], 0, area, ALL)
    assert caught.value.where == where


def test_a_row_is_the_row() -> None:
    for place in KINDS.values():
        torch.testing.assert_close(compute_row(place, 1, 20), place.tile(1)[20], rtol=0, atol=1e-6)
    with pytest.raises(SettingError, match="0 to 36"):
        compute_row(KINDS["dot"], 0, LENGTH)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_terms_of_a_pair_make_its_weight(kind: str) -> None:
    weights = KINDS[kind].tile(1)
    key = int(weights[20].topk(2).indices[1])
    got = explain_pair(KINDS[kind], 1, 20, key)
    assert got.weight == pytest.approx(float(weights[20, key]), abs=1e-6)
    assert math.fsum(got.terms) == pytest.approx(got.score, abs=1e-4)
    made = math.exp(got.score + got.bias - got.lse) * got.window_weight
    assert got.visible and made == pytest.approx(got.weight, abs=1e-4)
    if kind != "additive":
        assert [q * k for q, k in zip(got.q, got.k, strict=True)] == pytest.approx(got.terms, abs=1e-5)


def test_a_masked_pair_has_weight_zero() -> None:
    got = explain_pair(KINDS["causal"], 0, 3, 4)
    assert (got.visible, got.weight) == (False, 0)


def test_a_place_with_statistics_only_has_no_tiles_and_says_why() -> None:
    with pytest.raises(RecordError, match="nobody asked for them"):
        compute_row(place_of(5, keep=False), 0, 0)
