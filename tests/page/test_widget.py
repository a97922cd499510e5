"""The notebook's widget carries the page's script and the record's numbers."""

import sys

import pytest

from page import sample
from regard.errors import RegardError
from regard.page import widget
from regard.page.bundle import bundle
from regard.page.payload import payload


def test_the_widget_carries_the_record() -> None:
    anywidget = pytest.importorskip("anywidget")
    record = sample.bert()
    found = widget.AttentionWidget(record)
    assert isinstance(found, anywidget.AnyWidget)
    assert found.payload == payload(record) and found.hash == ""
    assert found._esm == bundle("widget.js") and ".regard" in found._css


def test_without_anywidget_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    widget._widget_class.cache_clear()
    with pytest.raises(RegardError, match=r"pip install 'regard\[notebook\]'"):
        widget.AttentionWidget(sample.bert())
