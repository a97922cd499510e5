"""The page by keyboard and by screen reader."""

from collections.abc import Callable

import pytest

from browser.conftest import Opened

pytestmark = pytest.mark.browser

SHOWN = "() => regard.state.shown"


def press(page: Opened, *keys: str) -> dict:
    for key in keys:
        page.page.keyboard.press(key)
    page.settle()
    return page.do(SHOWN)


def test_shortcuts_reach_every_view_place_head_and_token(opened: Callable[..., Opened]) -> None:
    page = opened("translator")
    assert page.do("() => regard.state.shown.place") == 5  # a translation begins with its last look across
    page.show(place=0)
    page.page.keyboard.press("Tab")
    for number, view in enumerate(("sentence", "heads", "matrix", "pair", "layers", "generation"), start=1):
        assert press(page, str(number))["view"] == view
    press(page, "1")
    assert [press(page, "ArrowDown")["place"] for _ in range(6)] == [1, 2, 3, 4, 5, 5]
    assert [press(page, "ArrowRight")["head"] for _ in range(4)] == [1, 2, 3, 3]
    assert [press(page, "ArrowLeft")["head"] for _ in range(5)] == [2, 1, 0, -1, -1]
    assert [press(page, "j")["query"] for _ in range(6)] == [0, 1, 2, 3, 4, 4]
    assert press(page, "k")["query"] == 3
    assert [press(page, "]")["key"] for _ in range(5)] == [1, 2, 3, 4, 4]
    assert press(page, "[")["key"] == 3
    assert press(page, "t")["table"] is True and press(page, "w")["words"] is True
    assert press(page, "Escape")["query"] == -1


def test_tab_goes_through_the_tokens_even_of_a_long_text(opened: Callable[..., Opened]) -> None:
    page = opened("long")
    page.page.focus('.tokens.left [data-at="0"]')
    for _ in range(40):
        page.page.keyboard.press("Tab")
    page.settle()
    focused = "() => [document.activeElement.dataset.at, document.activeElement.closest('.tokens').classList[1]]"
    assert page.do(focused) == ["40", "left"]
    box = page.do(
        "() => { const r = document.activeElement.getBoundingClientRect(); return [r.top, r.bottom, innerHeight]; }"
    )
    assert 0 < box[0] < box[1] < box[2], "what has the focus is in view"
    assert page.do("() => document.querySelectorAll('.token').length") < 120, "only tokens in view are elements"
    page.page.keyboard.press("Enter")
    assert page.do(SHOWN)["query"] == 40


def test_distant_tokens_are_reached_by_a_link(opened: Callable[..., Opened]) -> None:
    page = opened("long", "#query=2345")
    page.wait("() => document.querySelector('.tokens.left [aria-pressed=true]') !== null")
    assert page.page.inner_text('.tokens.left [aria-pressed="true"] .word') == "word2345"


def test_heads_are_reached_in_their_grid(opened: Callable[..., Opened]) -> None:
    page = opened("bert", "#view=heads")
    page.page.focus('.head-map[data-place="0"][data-head="0"]')
    shown = press(page, "ArrowRight", "ArrowRight", "ArrowDown")
    assert (shown["place"], shown["head"]) == (1, 2)
    assert page.do("() => document.activeElement.getAttribute('aria-label')") == "encoder.1.self, head 2, first token"
    shown = press(page, "Enter")
    assert (shown["view"], shown["place"], shown["head"]) == ("matrix", 1, 2)


def test_the_matrix_by_keyboard(opened: Callable[..., Opened]) -> None:
    page = opened("long", "#view=matrix")
    page.page.focus(".matrix canvas")
    scale = page.do("() => regard.views.matrix.viewport.scale")
    press(page, "+", "+", "+", "+")
    assert page.do("() => regard.views.matrix.viewport.scale") == pytest.approx(scale * 1.5**4)
    left = page.do("() => regard.views.matrix.viewport.left")
    assert press(page, "ArrowRight")["head"] == 0
    assert page.do("() => regard.views.matrix.viewport.left") > left
    assert press(page, "Shift+ArrowRight")["head"] == 1
    assert press(page, "0")["box"] is None
    press(page, "j", "j", "]")
    page.wait("() => document.querySelector('.status').textContent.includes('word1')")
    weight = page.record.places[0].tile(1, slice(1, 2))[0, 1]
    said = page.status.rsplit(": ", 1)[1].rstrip(".")
    assert float(said) == pytest.approx(float(weight), abs=1e-3)
    assert press(page, "Enter")["view"] == "pair"


def test_a_pair_by_keyboard(opened: Callable[..., Opened]) -> None:
    page = opened("bert", "#view=pair&query=3&key=5&head=1")
    page.page.focus(".pair canvas")
    shown = press(page, "ArrowDown", "ArrowRight", "ArrowRight")
    assert (shown["query"], shown["key"]) == (4, 7)
    weight = float(page.record.places[0].tile(1)[4, 7])
    page.wait(
        f"() => Math.abs(parseFloat(document.querySelector('.result dd').lastChild.textContent) - {weight}) < 1e-3"
    )


def test_the_table_shows_the_largest_weights(opened: Callable[..., Opened]) -> None:
    page = opened("bert", "#query=4&head=2&table=1")
    page.wait("() => document.querySelectorAll('tbody tr').length === 8")
    weights = page.record.places[0].tile(2)[4]
    best = weights.sort(descending=True, stable=True)
    lines = [line.split("\t") for line in page.page.inner_text("tbody").splitlines()]
    assert [int(line[1]) for line in lines] == best.indices[:8].tolist()
    assert [float(line[3]) for line in lines] == pytest.approx(best.values[:8].tolist(), abs=1e-3)
    assert page.page.locator("th[scope=col]").count() == 4
    page.shot("bert-table")


def test_every_control_has_an_accessible_name(opened: Callable[..., Opened]) -> None:
    page = opened("translator", "#table=1")
    unnamed = """() => [...document.querySelectorAll("button, select, input, canvas[tabindex], [role=group]")]
      .filter((e) => e.offsetParent && !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
      .map((e) => e.outerHTML)"""
    for view in ("sentence", "heads", "matrix", "pair", "layers", "generation"):
        page.show(view=view)
        assert page.do(unnamed) == []
        assert page.do("() => document.querySelectorAll('[role=tab][aria-selected=true]').length") == 1
