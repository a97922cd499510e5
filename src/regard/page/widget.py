"""The page in a notebook: AttentionWidget(record) as the last line of a cell shows it."""

from __future__ import annotations

from functools import cache
from typing import Any

from regard.errors import RegardError
from regard.inspection.record.record import Record
from regard.page.bundle import bundle, static
from regard.page.payload import payload


class AttentionWidget:
    """AttentionWidget(record) makes an anywidget.AnyWidget with two traits: `payload`, what the page reads, and `hash`,
    what it shows (as in the address of the offline page), which can be read and set from Python."""

    def __new__(cls, record: Record) -> Any:
        return _widget_class()(payload=payload(record))


@cache
def _widget_class() -> Any:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise RegardError(
            "a notebook without anywidget",
            "the package anywidget",
            where="AttentionWidget",
            advice="pip install 'regard[notebook]'",
        ) from None

    class Widget(anywidget.AnyWidget):
        _esm = bundle("widget.js")
        _css = static("page.css")
        payload = traitlets.Bytes().tag(sync=True)
        hash = traitlets.Unicode("").tag(sync=True)

    return Widget
