"""Patches of pictures: grids, and pictures in records."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.adapters import TokenRow
from regard.errors import CorpusError, RecordError, ShapeError
from regard.inspection import Record
from regard.inspection.record.token_axis import to_token_axis
from regard.pictures import PatchGrid, Picture, SceneCorpus, captioned

BLOCKS = np.array([[0, 1, 4, 5], [2, 3, 6, 7]])  # two by two, as Qwen2-VL orders patches


def test_values_of_patches_in_any_order() -> None:
    assert PatchGrid.raster(2, 3, first=1).values(np.arange(8)).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert PatchGrid(0, BLOCKS).values(np.arange(8) * 10).tolist() == (BLOCKS * 10).tolist()
    assert PatchGrid(0, np.array([[0, -1]])).values(np.array([7.0, 8.0])).tolist() == [[7.0, 0.0]]


@pytest.mark.parametrize(("rows", "cols"), [(4, 4), (3, 5), (7, 2)])
def test_the_mass_of_a_region_is_its_area(rows: int, cols: int) -> None:
    region = np.random.default_rng(0).random((16, 24)) < 0.3
    mass = PatchGrid.raster(rows, cols).mass(region)
    assert mass.shape == (rows, cols)
    np.testing.assert_allclose(mass.mean(), region.mean())
    np.testing.assert_allclose(PatchGrid.raster(rows, cols).mass(np.ones((16, 24), bool)), np.ones((rows, cols)))


def test_the_mass_of_whole_pixels_and_of_a_box() -> None:
    region = np.zeros((8, 8), bool)
    region[2:4, 4:8] = True
    np.testing.assert_allclose(PatchGrid.raster(4, 2).mass(region), [[0, 0], [0, 1], [0, 0], [0, 0]])
    right = PatchGrid.raster(1, 1, box=(0.5, 0.25, 1.0, 0.5))
    np.testing.assert_allclose(right.mass(region), [[1.0]])


def test_grids_and_pictures_survive_a_file(tmp_path: Path, record: Record) -> None:
    again = tmp_path / "a.regard"
    record.save(again)
    loaded = Record.load(again)
    assert [one.to_dict() for one in loaded.pictures] == [one.to_dict() for one in record.pictures]
    for mine, theirs in zip(record.axes[0].grids, loaded.axes[0].grids, strict=True):
        assert np.array_equal(mine.tokens, theirs.tokens)
        assert mine.box == theirs.box
    assert np.array_equal(loaded.pictures[0].pixels(), record.pictures[0].pixels())


@pytest.fixture
def record() -> Record:
    row = TokenRow("patches").add_special("[CLS]").add_patches(PatchGrid.raster(2, 2, first=1))
    row.add_patches(PatchGrid(0, BLOCKS + 5, (0.0, 0.0, 0.5, 1.0)))
    assert row.tokens[1:5] == ["patch 0,0", "patch 0,1", "patch 1,0", "patch 1,1"]
    assert row.tokens[5:9] == ["patch 0,0", "patch 0,1", "patch 1,0", "patch 1,1"]
    scene = SceneCorpus(captioned, 1)[0].scene
    return Record((to_token_axis(row),), (), pictures=(Picture.of(scene.draw(), "a scene"),))


def test_a_damaged_picture_or_grid_is_refused(record: Record) -> None:
    good = record.to_dict()
    Record.from_dict(good, {}, "x")

    def refused(words: str) -> None:
        with pytest.raises(RecordError, match=words):
            Record.from_dict(bad, {}, "x")

    bad = good | {"pictures": []}
    refused("is number 0, of 0 pictures")
    for field, value, words in (
        ("width", 65, "64 x 64"),
        ("content", base64.b64encode(b"GIF89a").decode(), "GIF"),
        ("content", "%", "base64"),
        ("type", "image/svg+xml", "type"),
    ):
        bad = good | {"pictures": [good["pictures"][0] | {field: value}]}
        refused(words)
    axis = good["axes"][0]
    for grid, words in (
        ({"first": 12}, "token 15, of 13 tokens"),
        ({"first": None}, "first token or all"),
        ({"box": [0.5, 0, 0.5, 1]}, "empty"),
        ({"rows": 0}, "rows"),
    ):
        bad = good | {"axes": [axis | {"grids": [axis["grids"][0] | grid]}]}
        refused(words)


def test_large_pictures_are_shrunk() -> None:
    found = Picture.of(np.random.default_rng(0).integers(0, 255, (400, 2000, 3), np.uint8))
    assert (found.width, found.height) == (768, 154)
    assert found.pixels().shape == (154, 768, 3)
    assert len(found.content) < 768 * 154 * 3


def test_complaints() -> None:
    with pytest.raises(ShapeError, match="rows, cols"):
        PatchGrid(0, np.zeros(4, int))
    with pytest.raises(ShapeError, match="box"):
        PatchGrid.raster(1, 1, box=(0.0, 0.0, 1.5, 1.0))
    good = Picture.of(np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(CorpusError):
        Picture.from_dict(replace(good, width=9).to_dict())
