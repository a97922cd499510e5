"""Every view draws every kind of record with the right numbers, also for hostile text."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browser.conftest import Opened
from page import sample
from regard.inspection.record.token_axis import TokenAxis
from regard.page.render import render_record as rendered, save_page

pytestmark = pytest.mark.browser

VIEWS = ("sentence", "heads", "matrix", "pair", "layers")
DRAWN = """(selector) => {
  const canvas = document.querySelector(selector);
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(`${data[at]},${data[at + 1]},${data[at + 2]},${data[at + 3]}`);
  return seen.size;
}"""
FAINT_WORDS = """() => {
  const linear = (c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map((one) => linear(Number(one)));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const behind = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" ? behind(element.parentElement) : colour;
  };
  const speaks = (element) => [...element.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
  return [...document.querySelectorAll(".regard *")]
    .filter((element) => element.offsetParent && !element.disabled && speaks(element))
    .filter((element) => ratio(light(getComputedStyle(element).color), light(behind(element))) < 4.5)
    .map((element) => element.outerHTML);
}"""
FRAMED = """(text) => {
  const frame = document.createElement("iframe");
  Object.assign(frame, { sandbox: "allow-scripts", srcdoc: text, width: 900, height: 600 });
  document.body.prepend(frame);
}"""
CANVAS = {
    "sentence": ".lines canvas",
    "heads": ".head-map canvas",
    "matrix": ".matrix canvas",
    "pair": ".pair canvas",
    "layers": ".layers canvas",
}


@pytest.mark.parametrize("name", sorted(sample.ALL))
def test_every_view_draws_every_kind_of_record(opened: Callable[..., Opened], name: str) -> None:
    page = opened(name)
    for view in VIEWS:
        page.show(view=view)
        if name == "statistics" and view in ("pair", "layers"):
            page.wait("() => document.querySelector('.status').textContent.includes('cannot be computed again')")
            continue
        if name == "windows" and view == "layers":
            page.wait("() => document.querySelector('.status').textContent.includes('attends in windows')")
            continue
        if view == "layers":
            page.wait("() => regard.views.layers.stages.length > 0")
        if view == "matrix":
            page.wait("() => !document.querySelector('.status').textContent.includes('computing')")
        page.page.wait_for_timeout(60)
        assert page.do(DRAWN, CANVAS[view]) > 3, f"{view} of {name} is empty"
        page.shot(f"{name}-{view}")
    assert page.do("() => document.documentElement.scrollHeight <= innerHeight"), "the page is as high as the window"


def test_unheard_attention_rows_and_joined_maps_are_told(opened: Callable[..., Opened]) -> None:
    """Above every view what holds for the record; above a map what it consists of."""
    page = opened("windows", "#view=matrix&place=0")
    unheard, row = page.page.locator(".notes .warning").all_inner_texts()
    assert unheard.startswith("3 of 5 attention modules heard; unheard: stage.2.layers.0.attention (<b>MaskUnit")
    assert row == "Row 1 of a batch of 2 (rows are counted from 0)."
    joined = "3 sequences of one call, each seeing its own keys alone."
    assert page.page.locator(".notes .faint").all_inner_texts() == [joined]
    assert page.page.inner_text(".title p") == "pixel_values 2 x 3 x 32 x 32"
    page.show(view="heads")
    assert page.page.locator(".notes p").count() == 2 and page.do("() => document.querySelector('b') === null")
    page.show(view="layers", first=2)  # from here on positions are the same in all layers
    page.wait("() => regard.views.layers.stages.length > 0")
    page.shot("windows-notes")
    assert opened("bert").page.locator(".notes").is_hidden()


def test_calls_of_a_shared_layer_are_told_apart_by_short_names(opened: Callable[..., Opened]) -> None:
    page = opened("shared", "#view=heads&place=1")
    expected = [f"…call {n} of 3" for n in (1, 2, 3)]
    assert page.page.locator("[role=rowheader]").all_inner_texts() == expected
    assert page.page.locator("select[name=place] option").all_inner_texts() == expected
    assert page.page.get_attribute("select[name=place]", "title") == page.record.places[1].name
    assert page.do(
        "() => [...document.querySelectorAll('[role=rowheader]')].every((e) => e.scrollWidth <= e.clientWidth)"
    )
    page.show(view="layers")
    page.wait("() => regard.views.layers.stages.length === 3")
    page.shot("shared-layers")


def test_positions_without_tokens_do_not_hide_generated_tokens(browser: Any, tmp_path: Path) -> None:
    record = sample.translator()
    numbered = TokenAxis.from_tokens("2 positions", ["0", "1"], numbered=True)
    save_page(replace(record, axes=(*record.axes, numbered)), tmp_path / "a.html")
    page = browser.new_page()
    page.goto(f"{(tmp_path / 'a.html').as_uri()}#view=generation&place=3&step=1")
    page.evaluate("regard.ready")
    page.wait_for_function("() => regard.views.generation.numbers().weights !== null")
    found = page.evaluate("() => regard.views.generation.numbers()")
    np.testing.assert_allclose(found["weights"], record.places[3].tile(0)[1].numpy(), atol=2e-5)
    page.close()


def test_an_exported_view_tells_what_is_missing(opened: Callable[..., Opened], tmp_path: Path) -> None:
    page = opened("windows", "#view=matrix&place=0", accept_downloads=True)
    for kind in ("SVG", "JSON"):
        page.page.click(".menu summary")
        with page.page.expect_download() as found:
            page.page.click(f".menu .list button:text-is('{kind}')")
        found.value.save_as(tmp_path / kind)
        text = (tmp_path / kind).read_text()
        assert ("3 of 5 attention modules heard" in text and "<b>" not in text.replace("(<b>", "")) or kind == "JSON"
    assert "<desc>3 of 5" in (tmp_path / "SVG").read_text()


def test_statistics_say_why(opened: Callable[..., Opened]) -> None:
    page = opened("statistics")
    for view in VIEWS[:1] + VIEWS[2:]:
        page.show(view=view)
        page.wait("() => document.querySelector('.status').textContent.includes('cannot be computed again')")


@pytest.mark.parametrize("name", ["bert", "translator", "grouped", "additive", "gaps"])
def test_hovering_over_a_token_shows_its_weights(opened: Callable[..., Opened], name: str) -> None:
    page = opened(name)
    number, head, query = len(page.record.places) - 1, 0, 4
    page.show(place=number, head=head)
    page.page.hover(f'.tokens.left [data-at="{query}"]')
    page.wait("() => document.querySelector('.tokens.right .number').textContent !== ''")
    weights = page.record.places[number].tile(head)[query]
    for key in range(min(10, len(weights))):
        said = page.page.inner_text(f'.tokens.right [data-at="{key}"] .number')
        assert float(said) == pytest.approx(float(weights[key]), abs=1e-3)


@pytest.mark.parametrize("name", ["bert", "grouped", "long"])
def test_hovering_over_the_matrix_shows_the_weight(opened: Callable[..., Opened], name: str) -> None:
    page = opened(name, "#view=matrix&head=1")
    weights = page.record.places[0].tile(1)
    bounds = page.page.locator(".matrix canvas").bounding_box()
    for query, key in [(3, 2), (12, 11), (9, 14)]:
        at = page.do("([i, j]) => regard.views.matrix.viewport.pixel(i + 0.5, j + 0.5)", [query, key])
        page.page.mouse.move(bounds["x"] + at["x"], bounds["y"] + at["y"])
        page.wait("() => !document.querySelector('.tip').hidden && document.querySelector('.tip .where') !== null")
        page.settle()
        i, j = map(int, page.page.inner_text(".tip .where").split(", "))
        assert name == "long" or (i, j) == (query, key)
        assert float(page.page.inner_text(".tip .value")) == pytest.approx(float(weights[i, j]), abs=1e-3)


@pytest.mark.parametrize("name", ["bert", "long"])
def test_zooming_keeps_the_token_under_the_pointer(opened: Callable[..., Opened], name: str) -> None:
    page = opened(name, "#view=matrix")
    bounds = page.page.locator(".matrix canvas").bounding_box()
    aim = page.do("() => { const f = regard.views.matrix.viewport; return f.pixel(f.T * 0.61, f.S * 0.43); }")
    page.page.mouse.move(bounds["x"] + round(aim["x"]), bounds["y"] + round(aim["y"]))
    under = "([x, y]) => regard.views.matrix.viewport.under(x, y)"
    point = [round(aim["x"]), round(aim["y"])]
    before, scale = page.do(under, point), page.do("() => regard.views.matrix.viewport.scale")
    for turn in (-150, -250, 120, -60):
        page.page.mouse.wheel(0, turn)
        page.wait(f"() => regard.views.matrix.viewport.scale !== {scale}")
        scale = page.do("() => regard.views.matrix.viewport.scale")
        after = page.do(under, point)
        assert after["query"] == pytest.approx(before["query"], abs=1e-6)
        assert after["key"] == pytest.approx(before["key"], abs=1e-6)
    page.wait("() => !document.querySelector('.status').textContent.includes('computing')")


def test_a_long_map_is_refined_down_to_single_weights(opened: Callable[..., Opened]) -> None:
    page = opened("long", "#view=matrix")
    page.wait("() => document.querySelector('.status').textContent.includes(', exact')")
    assert "each cell is the mean of" in page.status
    page.shot("long-matrix-whole")
    page.show(box=[1000, 1020, 990, 1022])
    page.wait("() => document.querySelector('.status').textContent.includes('each cell is one weight, exact')")
    page.shot("long-matrix-near")


def test_attention_between_two_segments(opened: Callable[..., Opened]) -> None:
    page = opened("bert", "#part=ab")
    numbers = page.do("() => regard.views.sentence.numbers()")
    assert numbers["queries"] == list(page.record.axes[0].tokens[:8])
    assert numbers["keys"] == list(page.record.axes[0].tokens[8:])


def test_patterns_and_badges_are_shown(opened: Callable[..., Opened]) -> None:
    page = opened("bert", "#view=heads&place=1&head=0")
    assert page.page.locator(".head-map .pattern").all_inner_texts() == ["diagonal", "first token"]
    assert page.page.locator(".badges .badge").all_inner_texts() == ["diagonal", "faithful"]


def test_the_steps_of_a_translation(opened: Callable[..., Opened]) -> None:
    page = opened("translator", "#view=generation&place=5&head=2&step=1")
    assert page.page.locator(".written .chip").all_inner_texts() == list(page.record.axes[2].tokens)
    assert page.page.locator(".candidates .number").all_inner_texts() == ["74.1 %", "20.2 %", "5.5 %", "3.0 %", "0.0 %"]
    weights = page.record.places[5].tile(2)[1]
    found = page.do("() => regard.views.generation.numbers()")
    assert found["query"] == 1 and found["weights"] == pytest.approx(weights.tolist(), abs=1e-4)
    assert page.page.locator(".candidates .action").count() == 0, "no model is behind an offline page"
    page.shot("translator-generation")
    page = opened("grouped", "#view=generation&step=2")
    assert page.do("() => regard.views.generation.queryOfStep()") == 21, "the token before wrote it"


def test_hostile_text_stays_text(opened: Callable[..., Opened]) -> None:
    page = opened("hostile", "#table=1&query=0")
    shown = page.page.locator(".tokens.left .word").all_inner_texts()
    assert shown[0] == "<script>alert(1)</script>"
    assert shown[2] == "[RLO]right to left[PDF]"
    assert len(shown[3]) == 201 and shown[3].endswith("…")
    assert shown[4:8] == ["👩🏽‍🚀", "␀", "tab→and⏎line", "שלום"]
    assert shown[9:12] == ["\ufffd", "(empty)", "␣"]
    assert page.do("() => [...document.querySelectorAll('script, img, iframe, i, b')].length") == 1, "our own script"
    assert page.page.locator(".tokens.left .word").first.get_attribute("dir") == "auto"
    for view in (*VIEWS, "generation"):
        page.show(view=view)
    page.shot("hostile-generation")
    page.show(view="sentence")
    page.shot("hostile-table")


def test_a_link_restores_a_view(opened: Callable[..., Opened]) -> None:
    page = opened("bert")
    page.show(view="matrix", place=2, head=3)
    page.show(query=4, key=6, box=[2, 8, 3, 11])
    page.wait("() => location.hash.includes('box')")
    address = page.do("() => location.hash")
    shown = page.do("() => regard.state.shown")
    again = opened("bert", address)
    assert again.do("() => regard.state.shown") == shown
    assert again.do("() => regard.views.matrix.viewport.box") == pytest.approx(
        page.do("() => regard.views.matrix.viewport.box"), abs=0.05
    )
    page.do("() => history.back()")
    page.wait("() => regard.state.shown.view === 'sentence'")
    odd = opened("bert", "#view=nonsense&place=99&head=-7&query=1e9&box=1,2&step=x")
    assert odd.do("() => [regard.state.shown.view, regard.state.shown.place, regard.state.shown.head]") == [
        "sentence",
        2,
        -1,
    ]


@pytest.mark.parametrize("view", [*VIEWS, "generation"])
def test_a_view_can_be_exported(opened: Callable[..., Opened], tmp_path: Path, view: str) -> None:
    page = opened("translator", f"#view={view}&place=3&query=2")
    if view == "layers":
        page.wait("() => regard.views.layers.stages.length > 0")
    page.page.wait_for_timeout(100)
    begins = {"PNG": b"\x89PNG", "SVG": b"<svg xmlns", "JSON": b'{"view":'}
    for kind, start in begins.items():
        page.page.click(".menu summary")
        with page.page.expect_download() as coming:
            page.page.click(f".menu button:text-is('{kind}')")
        path = tmp_path / coming.value.suggested_filename
        coming.value.save_as(path)
        assert path.suffix == f".{kind.lower()}"
        assert path.read_bytes().startswith(start) and path.stat().st_size > 200
        if kind == "SVG":
            assert page.do(
                "(t) => new DOMParser().parseFromString(t, 'image/svg+xml').querySelector('parsererror') === null",
                path.read_text("utf-8"),
            )


def test_light_and_dark(opened: Callable[..., Opened]) -> None:
    page = opened("bert", "#query=3", color_scheme="dark")
    ground = "() => getComputedStyle(document.getElementById('regard-root')).backgroundColor"
    dark = page.do(ground)
    page.page.wait_for_timeout(60)
    page.shot("bert-dark-sentence")
    page.show(view="matrix")
    page.page.wait_for_timeout(100)
    page.shot("bert-dark-matrix")
    page.page.click("button:text-is('Dark')")
    assert page.do(ground) != dark
    assert opened("bert").do(ground) != dark


def test_text_has_enough_contrast(opened: Callable[..., Opened]) -> None:
    """A contrast of at least 4.5 between text and background, light and dark."""
    for theme in ("light", "dark"):
        page = opened("bert", "#query=3&table=1&place=1", color_scheme=theme)
        page.wait("() => document.querySelector('.tokens.right .number').textContent !== ''")
        for view in VIEWS:
            page.show(view=view)
            assert page.do(FAINT_WORDS) == []


def test_the_page_in_a_sandboxed_frame(opened: Callable[..., Opened]) -> None:
    """As in a notebook: sandboxed, without a URL of its own."""
    page = opened("bert")
    page.do(FRAMED, rendered(sample.bert()))
    frame = page.page.frame_locator("iframe")
    frame.locator(".tabs button:text-is('Matrix')").click()
    frame.locator(".matrix canvas").wait_for()
    frame.locator(".status:has-text('exact')").wait_for()
