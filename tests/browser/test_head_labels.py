"""Labels of heads, from an atlas and an audit, are shown beside their maps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from page import sample
from regard.inspection.record_labels import with_head_labels
from regard.page.render import save_page

pytestmark = pytest.mark.browser


def test_the_names_of_heads_are_shown(browser: Any, tmp_path: Path) -> None:
    notes = {
        "patterns": {"decoder.1.cross": {"2": "alignment"}, "encoder.0.self": {"0": "<b>previous</b>"}},
        "badges": {"decoder.1.cross": {"2": "not the reason"}},
    }
    save_page(with_head_labels(sample.translator(), notes), tmp_path / "page.html")
    page = browser.new_page()
    page.goto(f"{(tmp_path / 'page.html').as_uri()}#view=heads")
    page.evaluate("() => regard.ready")
    assert page.inner_text("[aria-label='decoder.1.cross, head 2, alignment, not the reason'] .pattern") == "alignment"
    assert page.locator(".pattern").count() == 2
    assert page.locator(".pattern").first.inner_text() == "<b>previous</b>"
    page.evaluate("() => regard.state.set({ view: 'matrix', place: 5, head: 2 })")
    assert page.locator(".badges .badge").all_inner_texts() == ["alignment", "not the reason"]
    page.close()
