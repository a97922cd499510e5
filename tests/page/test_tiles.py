"""Tiles are means of what place.tile gives, rows are its rows, and the parts of a pair make its weight."""

from __future__ import annotations

import math
from dataclasses import replace
from threading import Event

import pytest
import torch
from hypothesis import given, settings, strategies as st

from page.serve.fakes import HEADS, place_of
from regard.errors import RecordError, SettingError
from regard.inspection.record.place import Place
from regard.page.serve.queue import Cancelled, check
from regard.page.tiles import BLOCK, Area, pair, row, tile

LENGTH = 37
KINDS = {
    "dot": place_of(LENGTH),
    "causal": place_of(LENGTH, causal=True),
    "biased": place_of(LENGTH, biased=True),
    "additive": place_of(LENGTH, score="additive"),
    "local": place_of(LENGTH, local=True),
}
ALL = 4096 * 4096


def means(weights: torch.Tensor, area: Area) -> torch.Tensor:
    """The same by the definition, cell by cell."""
    found = torch.zeros(area.rows, area.cols)
    for r in range(area.rows):
        for c in range(area.cols):
            rows = [i for i in range(area.height) if i * area.rows // area.height == r]
            cols = [j for j in range(area.width) if j * area.cols // area.width == c]
            found[r, c] = weights[area.top :, area.left :][rows][:, cols].mean()
    return found


@st.composite
def areas(draw: st.DrawFn) -> Area:
    top, left = draw(st.integers(0, LENGTH - 1)), draw(st.integers(0, LENGTH - 1))
    bottom, right = draw(st.integers(top + 1, LENGTH)), draw(st.integers(left + 1, LENGTH))
    rows, cols = draw(st.integers(1, min(6, bottom - top))), draw(st.integers(1, min(6, right - left)))
    return Area(top, bottom, left, right, rows, cols)


@settings(max_examples=25)
@given(area=areas(), kind=st.sampled_from(sorted(KINDS)), head=st.integers(0, HEADS - 1))
def test_a_tile_holds_the_mean_of_each_cell(area: Area, kind: str, head: int) -> None:
    got, exact = tile(KINDS[kind], head, area, ALL)
    assert exact
    torch.testing.assert_close(got, means(KINDS[kind].tile(head), area), rtol=0, atol=1e-5)


def test_one_cell_a_weight_is_the_map_itself() -> None:
    place = KINDS["causal"]
    got, _ = tile(place, 1, Area(0, LENGTH, 0, LENGTH, LENGTH, LENGTH), ALL)
    torch.testing.assert_close(got, place.tile(1), rtol=0, atol=1e-6)


def test_blocks_of_rows_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    area = Area(1, LENGTH, 2, LENGTH, 5, 7)
    whole, _ = tile(KINDS["dot"], 0, area, ALL)
    monkeypatch.setattr("regard.page.tiles.BLOCK", 3 * area.width)
    pieces, _ = tile(KINDS["dot"], 0, area, ALL)
    torch.testing.assert_close(pieces, whole, rtol=0, atol=1e-7)


def test_no_block_is_larger_than_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(300, score="additive")
    sizes = []
    original = type(place).tile

    def watched(self: object, head: int, rows: torch.Tensor, cols: torch.Tensor) -> torch.Tensor:
        sizes.append(len(rows) * len(cols) * 8)
        return original(self, head, rows, cols)

    monkeypatch.setattr("regard.page.tiles.BLOCK", BLOCK // 64)
    monkeypatch.setattr(type(place), "tile", watched)
    tile(place, 0, Area(0, 300, 0, 300, 4, 4), ALL)
    assert len(sizes) > 1
    assert max(sizes) <= BLOCK // 64


def without_thumbnail(place: Place) -> Place:
    return replace(place, statistics=replace(place.statistics, thumbnail=None))


def test_cells_as_coarse_as_the_thumbnail_come_from_it() -> None:
    """Of longer texts than these: 9 cells of thumbnail, and ours of whole ones or of parts of them."""
    place = KINDS["dot"]
    small = means(place.tile(0), Area(0, LENGTH, 0, LENGTH, 9, 9)).unsqueeze(0)
    coarse = replace(place, statistics=replace(place.statistics, thumbnail=small))
    for rows, cols in ((9, 9), (1, 1), (4, 2)):
        area = Area(0, LENGTH, 0, LENGTH, rows, cols)
        got, exact = tile(coarse, 0, area, exact=1)
        assert not exact
        torch.testing.assert_close(got, means(place.tile(0), area), rtol=0, atol=1e-6 if rows != 4 else 0.02)
    finer, exact = tile(coarse, 0, Area(0, LENGTH, 0, LENGTH, 20, 20), exact=ALL)
    assert exact and finer.shape == (20, 20)


def test_beyond_the_bound_it_is_an_estimate_from_rows_spread_evenly() -> None:
    place, area = without_thumbnail(KINDS["dot"]), Area(0, 36, 0, LENGTH, 3, 4)
    got, exact = tile(place, 0, area, exact=3 * 2 * LENGTH)
    assert not exact
    sampled = place.tile(0, torch.tensor([3, 9, 15, 21, 27, 33]))  # two of each twelve
    expected = means(sampled, Area(0, 6, 0, LENGTH, 3, 4))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


def test_an_estimate_from_all_rows_is_the_mean() -> None:
    area = Area(0, LENGTH, 0, LENGTH, LENGTH, 3)
    got, exact = tile(without_thumbnail(KINDS["dot"]), 0, area, exact=1)
    assert not exact
    torch.testing.assert_close(got, means(KINDS["dot"].tile(0), area), rtol=0, atol=1e-6)


def test_a_tile_that_nobody_waits_for_stops() -> None:
    stop = Event()
    stop.set()
    with pytest.raises(Cancelled):
        tile(KINDS["dot"], 0, Area(0, 4, 0, 4, 1, 1), ALL, lambda: check(stop))


@pytest.mark.parametrize(
    ("area", "where"),
    [
        (Area(3, 3, 0, 4, 1, 1), "top and bottom"),
        (Area(0, LENGTH + 1, 0, 4, 1, 1), "top and bottom"),
        (Area(0, 4, 5, 4, 1, 1), "left and right"),
        (Area(0, 4, 0, 4, 5, 1), "rows"),
        (Area(0, 4, 0, 4, 1, 0), "cols"),
    ],
)
def test_what_is_no_part_of_the_map_is_refused(area: Area, where: str) -> None:
    with pytest.raises(SettingError) as caught:
        tile(KINDS["dot"], 0, area, ALL)
    assert caught.value.where == where


def test_a_row_is_the_row() -> None:
    for place in KINDS.values():
        torch.testing.assert_close(row(place, 1, 20), place.tile(1)[20], rtol=0, atol=1e-6)
    with pytest.raises(SettingError, match="from 0 to 36"):
        row(KINDS["dot"], 0, LENGTH)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_parts_of_a_pair_make_its_weight(kind: str) -> None:
    weights = KINDS[kind].tile(1)
    key = int(weights[20].topk(2).indices[1])
    got = pair(KINDS[kind], 1, 20, key)
    assert got.weight == pytest.approx(float(weights[20, key]), abs=1e-6)
    assert math.fsum(got.terms) == pytest.approx(got.score, abs=1e-4)
    made = math.exp(got.score + got.added - got.lse) * got.gain
    assert got.seen and made == pytest.approx(got.weight, abs=1e-4)
    if kind != "additive":
        assert [q * k for q, k in zip(got.q, got.k, strict=True)] == pytest.approx(got.terms, abs=1e-5)


def test_a_pair_that_may_not_look_weighs_nothing() -> None:
    got = pair(KINDS["causal"], 0, 3, 4)
    assert (got.seen, got.weight) == (False, 0)


def test_statistics_alone_give_no_tile_and_say_why() -> None:
    with pytest.raises(RecordError, match="nobody asked for them"):
        row(place_of(5, keep=False), 0, 0)
