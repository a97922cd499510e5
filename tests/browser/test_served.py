"""The served page: the same modules over HTTP, with a form, tiles from the server, and regeneration."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from torch import nn

from browser.conftest import SHOTS
from page import sample
from regard.errors import SettingError
from regard.inspection.record.record import Record
from regard.page.serve.app import make_app
from regard.page.serve.limits import Limits
from regard.page.serve.server import Server, open_listener

pytestmark = pytest.mark.browser


@dataclass
class Translator:
    """Returns the same record for every text, and stores the requests."""

    name: str = "tiny"
    kind: str = "translates"
    description: str = "<b>a sample</b>"
    asked: list[tuple[str, str | None, Sequence[int] | None]] = field(default_factory=list)
    model: nn.Module = field(default_factory=nn.Identity)

    def look(self, text: str, other: str | None = None, *, prefix: Sequence[int] | None = None) -> Record:
        if text == "refuse":
            raise SettingError("refuse", "<i>another word</i>", where="look")
        self.asked.append((text, other, prefix))
        return sample.translator()


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, Translator]]:
    """A server whose records are all too large for the page."""
    subject, limits, ready = Translator(), Limits(payload_bytes=1), threading.Event()
    app = make_app([subject], {"given": sample.bert(), "added": sample.additive()}, limits, collect=Translator.look)
    with open_listener("127.0.0.1", 0) as listener:
        server = Server(app, limits, ready.set)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        assert ready.wait(300)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", subject
        server.should_exit = True
        thread.join(30)


@pytest.fixture
def page(browser: Any, served: tuple[str, Translator]) -> Iterator[Any]:
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    found = context.new_page()
    found.on("console", lambda message: complaints.append(message.text))
    found.on("pageerror", lambda error: complaints.append(str(error)))
    yield found
    context.close()
    assert [one for one in complaints if "status of 4" not in one] == []


def test_a_text_is_looked_at_and_regenerated(page: Any, served: tuple[str, Translator]) -> None:
    address, subject = served
    page.goto(address)
    page.fill("textarea[name=text]", "the black cat")
    page.click("button:text-is('Look')")
    page.wait_for_selector(".tabs")
    assert subject.asked[-1] == ("the black cat", None, None)
    page.screenshot(path=SHOTS / "served.png") if SHOTS.exists() else None
    page.evaluate("regard.state.set({ view: 'generation', step: 2, place: 3 })")
    page.click(".candidates li:nth-child(2) .action")
    page.wait_for_function("() => regard.state.shown.step === 0")
    assert subject.asked[-1] == ("the black cat", None, [10, 11, 90])


def test_errors_of_the_server_are_shown(page: Any, served: tuple[str, Translator]) -> None:
    page.goto(served[0])
    page.fill("textarea[name=text]", "refuse")
    page.click("button:text-is('Look')")
    page.wait_for_function(
        "() => document.querySelector('form [role=alert]').textContent.includes('<i>another word</i>')"
    )


def test_weights_from_the_server_equal_the_record(page: Any, served: tuple[str, Translator]) -> None:
    for name, record in (("given", sample.bert()), ("added", sample.additive())):
        page.goto(f"{served[0]}#record={name}")
        page.reload()
        page.wait_for_selector(".tabs")
        assert page.evaluate("regard.source.constructor.name") == "RemoteSource"
        place = record.places[-1]
        last = len(record.places) - 1
        row = page.evaluate("async (n) => [...await regard.source.row(n, 0, 4)]", last)
        np.testing.assert_allclose(row, place.tile(0)[4].numpy(), atol=1e-5)
        box = {"top": 2, "bottom": 10, "left": 1, "right": 9}
        tile = page.evaluate("async ([n, box]) => [...(await regard.source.tile(n, 0, box, 8, 8)).values]", [last, box])
        np.testing.assert_allclose(np.reshape(tile, (8, 8)), place.tile(0)[2:10, 1:9].numpy(), atol=1e-5)
        pair = page.evaluate("(n) => regard.source.pair(n, 0, 4, 3)", last)
        assert sum(pair["terms"]) == pytest.approx(pair["score"], abs=1e-4)
        assert pair["weight"] == pytest.approx(float(place.tile(0)[4, 3]), abs=1e-5)
        page.evaluate("regard.state.set({ view: 'matrix' })")
        page.wait_for_function("() => document.querySelector('.status').textContent.includes('exact')")


def test_preloaded_records_can_be_chosen(page: Any, served: tuple[str, Translator]) -> None:
    page.goto(served[0])
    page.click(".record-list button:first-child")
    page.wait_for_selector(".tabs")
    assert page.evaluate("regard.state.shown.record") == "given"
    page.keyboard.press("3")
    page.wait_for_selector(".matrix canvas")
