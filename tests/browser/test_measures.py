"""Stored attribution maps are drawn like attention weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from browser.conftest import Opened

pytestmark = pytest.mark.browser

MEASURE = "label:has-text('measure') select"


def values(page: Opened, name: str) -> Any:
    map_ = next(one for one in page.record.measures if one.name == name)
    return map_.values


def picked(page: Opened) -> list[str]:
    return page.page.locator(f"{MEASURE} option").all_inner_texts()


def drawn(page: Opened) -> Any:
    page.wait("() => document.querySelector('.status').textContent.includes('exact')")
    (tile,) = page.do("() => regard.views.matrix.numbers()")["tiles"]
    return np.array(tile["means"]).reshape(tile["rows"], tile["cols"])


def test_the_measures_of_a_place_are_listed(opened: Callable[..., Opened]) -> None:
    page = opened("measured", "#view=matrix&place=1")
    assert picked(page) == ["weights", "value zeroing", "<i>whole model</i>"]
    page.show(place=0)
    assert picked(page) == ["weights", "<i>whole model</i>"]
    page.show(view="sentence", place=1)
    assert picked(page) == ["weights", "value zeroing"], "the other one has rows that this place does not have"
    assert not opened("translator", "#view=matrix").page.locator(MEASURE).is_visible()


def test_the_map_of_a_place(opened: Callable[..., Opened]) -> None:
    page = opened("measured", "#view=matrix&place=1")
    page.page.select_option(MEASURE, label="value zeroing")
    page.settle()
    expected = values(page, "value-zeroing")
    np.testing.assert_allclose(drawn(page), expected, atol=1e-6)
    page.show(query=3, key=2)
    page.wait("() => document.querySelector('.status').textContent.includes('→')")
    assert page.status.startswith("value zeroing: 5") and "each cell is one value" in page.status
    assert float(page.status.rpartition(": ")[2].rstrip(".")) == pytest.approx(expected[3, 2], abs=1e-3)
    page.shot("measured-matrix")
    page.wait("() => location.hash.includes('map')")
    again = opened("measured", page.do("() => location.hash"))
    np.testing.assert_allclose(drawn(again), expected, atol=1e-6)
    row = page.do("async () => [...await regard.source.row(1, 0, 3, 'map:value-zeroing')]")
    np.testing.assert_allclose(row, expected[3], atol=1e-6)
    page.show(view="sentence")
    assert page.page.input_value(MEASURE) == "map:value-zeroing"
    page.show(place=0)
    assert page.page.input_value(MEASURE) == "weights"


def test_the_map_of_the_whole_model_has_its_own_rows_and_name(opened: Callable[..., Opened]) -> None:
    """Also where its name is that of a measure which the page computes, and its rows are another axis."""
    page = opened("measured", "#view=matrix&place=1&measure=map:norms&query=4&key=4")
    assert page.do("() => [regard.state.shown.query, regard.state.shown.key]") == [2, 4]
    np.testing.assert_allclose(drawn(page), values(page, "norms"), atol=1e-6)
    named = page.do("() => regard.views.matrix.tokenPair(2, 4)")
    assert named == [page.record.axes[1].tokens[2], page.record.axes[0].tokens[4]]
    page.page.locator(".matrix canvas").focus()
    page.page.keyboard.press("m")
    assert page.page.input_value(MEASURE) == "weights"
    page.show(measure="map:nothing")
    assert page.page.input_value(MEASURE) == "weights"
