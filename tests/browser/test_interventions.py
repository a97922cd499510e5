"""Interventions from the served page: a head zeroed, made uniform, or a row edited; output before and after."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from browser.conftest import SHOTS, Opened
from page.small import TEXT, classifying, translating
from regard.inspection.interventions import HeadIntervention, apply_interventions
from regard.inspection.record.collect import collect
from regard.page.serve.app import make_app
from regard.page.serve.limits import Limits
from regard.page.serve.server import Server, open_listener

pytestmark = pytest.mark.browser
CELLS = "(title) => [...document.querySelectorAll('.results table')].find((one) => one.caption.textContent === title)"
ROWS = f"(title) => [...({CELLS})(title).tBodies[0].rows].map((row) => [...row.cells].map((one) => one.textContent))"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    limits, ready = Limits(), threading.Event()
    app = make_app([classifying(), translating()], {"given": collect(classifying(), TEXT)}, limits)
    with open_listener("127.0.0.1", 0) as listener:
        server = Server(app, limits, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert ready.wait(300)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = context.new_page()
    found.on("console", lambda message: complaints.append(message.text))
    found.on("pageerror", lambda error: complaints.append(str(error)))
    yield found
    context.close()
    assert [one for one in complaints if "status of 4" not in one] == []


def looked(page: Any, address: str, run: str) -> None:
    page.goto(address)
    page.select_option("select[name=run]", run)
    page.fill("textarea[name=text]", TEXT)
    page.click("button:text-is('Look')")
    page.wait_for_selector(".tabs")


def shot(page: Any, name: str) -> None:
    if SHOTS.exists():
        page.screenshot(path=SHOTS / f"{name}.png")


def percent(text: str) -> float:
    return float(text.removesuffix("%").strip()) / 100


def test_a_head_of_a_classifier_is_zeroed_and_restored(page: Any, address: str) -> None:
    looked(page, address, "classifier")
    page.evaluate("regard.state.set({ place: 1, head: 2 })")
    page.click(".intervention > summary")
    assert page.inner_text(".intervention .about") == "features.bert.encoder.blocks.1.self, head 2"
    page.click("button:text-is('Zero the weights')")
    page.wait_for_selector(".results table")
    found = {row[0]: row for row in page.evaluate(ROWS, "Classes")}
    subject = classifying()
    before = dict(collect(subject, TEXT).facts["classes"])
    with apply_interventions(subject, [HeadIntervention("features.bert.encoder.blocks.1.self", 2, "zero")]):
        after = dict(collect(subject, TEXT).facts["classes"])
    for name in ("bad", "good"):
        assert percent(found[name][1]) == pytest.approx(before[name], abs=6e-4)
        assert percent(found[name][2]) == pytest.approx(after[name], abs=6e-4)
        moved = float(found[name][3].replace("\u2212", "-")) / 100
        assert moved == pytest.approx(after[name] - before[name], abs=6e-4)
    shot(page, "what-if-classes")
    page.click(".changes button")
    page.wait_for_function("() => document.querySelector('.results').childElementCount === 0")
    assert page.locator(".changes li").count() == 0


def test_a_row_is_edited_by_keyboard(page: Any, address: str) -> None:
    looked(page, address, "classifier")
    page.evaluate("regard.state.set({ place: 1, head: 1, query: 0 })")
    page.focus(".intervention > summary")
    page.keyboard.press("Enter")
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent").startswith("Edit the row of ")
    page.keyboard.press("Enter")
    page.wait_for_selector(".row-form input")
    assert page.evaluate("document.activeElement.tagName") == "INPUT"
    keys = page.evaluate("[...document.querySelectorAll('.row-form input')].map((one) => Number(one.dataset.key))")
    assert len(keys) == 11
    page.fill('.row-form input[data-key="3"]', "90")
    page.keyboard.press("Enter")
    page.wait_for_selector(".results table")
    subject = classifying()
    with apply_interventions(subject, [HeadIntervention("features.bert.encoder.blocks.1.self", 1, ((3, 0.9),), 0)]):
        after = dict(collect(subject, TEXT).facts["classes"])
    found = {row[0]: row for row in page.evaluate(ROWS, "Classes")}
    assert percent(found["good"][2]) == pytest.approx(after["good"], abs=6e-4)
    assert "edited row of" in page.inner_text(".changes li")


def test_weights_above_one_are_refused(page: Any, address: str) -> None:
    looked(page, address, "classifier")
    page.evaluate("regard.state.set({ query: 2 })")
    page.click(".intervention > summary")
    page.click("button:has-text('Edit the row of')")
    page.wait_for_selector(".row-form input")
    for key in ("0", "1"):
        page.fill(f'.row-form input[data-key="{key}"]', "90")
    page.click("button:text-is('Apply')")
    page.wait_for_function(
        "() => document.querySelector('.intervention .alert').textContent.includes('weights that sum to 1.8')"
    )
    assert page.locator(".changes li").count() == 0


def test_the_tokens_of_a_changed_translation_are_compared(page: Any, address: str) -> None:
    looked(page, address, "translator")
    page.evaluate("regard.state.set({ view: 'generation', step: 1, head: -1 })")
    page.click(".intervention > summary")
    page.click("button:text-is('Make uniform')")
    page.wait_for_selector(".results table")
    rows = page.evaluate(ROWS, "Generated tokens")
    steps = page.evaluate("regard.source.info.steps.length")
    assert len(rows) == steps and all(len(row) == 5 for row in rows)
    subject = translating()
    place = page.evaluate("regard.source.info.places[regard.state.shown.place].name")
    words = [step.token for step in collect(subject, TEXT).steps]
    with apply_interventions(subject, [HeadIntervention(place, None, "uniform")]):
        same, anew = collect(subject, TEXT, prefix=words), collect(subject, TEXT)
    assert [percent(row[2]) for row in rows] == pytest.approx([math.exp(s.log_prob) for s in same.steps], abs=6e-4)
    now = page.inner_text(".intervention .result-summary")
    assert ("generated text is unchanged" in now) == ([step.token for step in anew.steps] == words)
    shot(page, "what-if-words")
    page.keyboard.press("d")
    shot(page, "what-if-words-dark")
    unnamed = """() => [...document.querySelectorAll(".intervention button, .intervention input")]
      .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length)).length"""
    assert page.evaluate(unnamed) == 0


def test_without_a_model_there_are_no_controls(page: Any, address: str, opened: Callable[..., Opened]) -> None:
    page.goto(f"{address}#record=given")
    page.wait_for_selector(".tabs")
    assert page.locator(".intervention").count() == 0
    assert opened("bert").page.locator(".intervention").count() == 0


def test_text_of_a_model_is_never_markup(page: Any, address: str) -> None:
    page.goto(address)
    page.select_option("select[name=run]", "translator")
    page.fill("textarea[name=text]", "a dog <b>hit</b> me")
    page.click("button:text-is('Look')")
    page.wait_for_selector(".tabs")
    page.evaluate("regard.state.set({ query: 0, head: 0 })")
    page.click(".intervention > summary")
    page.click("button:has-text('Edit the row of')")
    page.wait_for_selector(".row-form input")
    assert page.locator(".intervention b").count() == 0
    page.click("button:text-is('Cancel')")
    assert page.evaluate("document.activeElement.textContent").startswith("Edit the row of ")
    page.click("button:text-is('Zero the weights')")
    page.wait_for_selector(".results table")
    assert page.locator(".intervention b").count() == 0
