"""A real browser that opens offline pages of sample records, and collects their errors."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from browser import picture_records
from page import sample
from regard.inspection.record.record import Record
from regard.page.render import save_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SHOTS = Path(__file__).parent / "shots"


@dataclass
class Opened:
    """A page of a record in the browser, with its requests and console messages."""

    page: Any
    record: Record
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def do(self, script: str, argument: object = None) -> Any:
        return self.page.evaluate(script, argument)

    def show(self, **changes: object) -> None:
        """Set the state, and wait for the page to draw."""
        self.do("(changes) => regard.state.set(changes)", changes)
        self.settle()

    def settle(self) -> None:
        self.do("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, condition: str) -> None:
        self.page.wait_for_function(condition, timeout=300_000)

    @property
    def status(self) -> str:
        return self.page.inner_text(".status")

    def shot(self, name: str) -> None:
        SHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for each file of tests: while it is open an event loop runs in this thread, where no other can."""
    if not os.environ.get("REGARD_REQUIRE_BROWSER"):
        pytest.importorskip("playwright.sync_api")
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)))
    with sync_playwright() as running:
        found = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Record, Path]]:
    """A sample record and its page, made once."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def make(name: str) -> tuple[Record, Path]:
        record = (sample.ALL | picture_records.ALL)[name]()
        save_page(record, folder / f"{name}.html")
        return record, folder / f"{name}.html"

    return make


@pytest.fixture
def opened(browser: Any, made: Callable[[str], tuple[Record, Path]]) -> Iterator[Callable[..., Opened]]:
    """Opens the page of a sample record; afterwards there must be no requests, messages or errors."""
    contexts, all_opened = [], []

    def open_page(name: str, address: str = "", **how: object) -> Opened:
        record, path = made(name)
        context = browser.new_context(viewport={"width": 1280, "height": 800}, **how)
        contexts.append(context)
        found = Opened(context.new_page(), record)
        all_opened.append(found)
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: found.complaints.append(f"{message.type}: {message.text}"))
        found.page.on("pageerror", lambda error: found.complaints.append(f"error: {error}"))
        found.page.on("dialog", lambda dialog: (found.complaints.append("dialog"), dialog.dismiss()))
        found.page.goto(f"{path.as_uri()}{address}")
        found.do("regard.ready")
        found.settle()
        return found

    yield open_page
    for context in contexts:
        context.close()
    for found in all_opened:
        assert found.complaints == []
        assert [url for url in found.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        assert len([url for url in found.requests if url.startswith("file:")]) == 1
