"""The whole page of a record as one HTML file that needs no network: styles, script and numbers are inside."""

from __future__ import annotations

import os
from pathlib import Path

from regard import html
from regard.errors import RecordError
from regard.files import write_whole
from regard.inspection.record.record import Record
from regard.page.bundle import bundle, static
from regard.page.payload import payload

MOST = 256_000_000  # bytes of a payload; a browser that unfolds more than this may run out of memory

HEAD = '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
ROOT = """<div id="regard-root" class="regard"><p class="note">Opening the record …</p></div>
<noscript>This page computes what it shows in the browser, so it needs JavaScript.</noscript>
"""


def page(record: Record, title: str | None = None, most: int = MOST) -> str:
    """The HTML file as text."""
    content = payload(record)
    if len(content) > most:
        raise RecordError(
            f"a record of {len(content):,} bytes",
            f"at most {most:,} for one file",
            where="page",
            advice="Choose fewer heads or places, or use `regard serve`, which sends the page only what it shows.",
        )
    return html.page(
        title if title is not None else named(record),
        ROOT + html.data_block("regard-payload", content),
        style=static("page.css"),
        script=bundle(),
        script_type="module",
        images="data: blob:",
        head=HEAD,
        body_class="regard-page",
    )


def served_page() -> str:
    """The same page for the server, which gives out its style, its modules and its records one by one."""
    head = f'{HEAD}<link rel="stylesheet" href="static/page.css">'
    script = '<script type="module" src="static/main.js"></script>'
    return html.shell("regard", ROOT + script, head=head, body_class="regard-page")


def save_page(record: Record, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write the page, whole or not at all."""
    write_whole(Path(path), page(record, title).encode("utf-8"))


def named(record: Record) -> str:
    """A title: the model, and how the text begins."""
    text = record.sides[0].text if record.sides else ""
    begins = " ".join(text.split())[:60]
    parts = (str(record.facts.get("model", "regard")), "".join(sign for sign in begins if sign.isprintable()))
    return ": ".join(part for part in parts if part)
