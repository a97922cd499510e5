"""The whole page of a record as one HTML file that needs no network: styles, script and numbers are inside."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from pathlib import Path

from regard.errors import RecordError
from regard.files import write_whole
from regard.inspection.record.record import Record
from regard.page.bundle import bundle, static
from regard.page.payload import payload

MOST = 256_000_000  # bytes of a payload; a browser that unfolds more than this may run out of memory

STYLE = '<link rel="stylesheet" href="static/page.css">'
SCRIPT = '<script type="module" src="static/main.js"></script>'
TITLE = "<title>regard</title>"
META = '<meta charset="utf-8">'


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
    style, script = static("page.css"), bundle()
    policy = (
        f"default-src 'none'; script-src '{_fingerprint(script)}'; style-src '{_fingerprint(style)}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    numbers = base64.b64encode(content).decode("ascii")
    shown = html.escape(title if title is not None else named(record))
    changes = {
        META: f'{META}\n<meta http-equiv="Content-Security-Policy" content="{policy}">',
        TITLE: f"<title>{shown}</title>",
        STYLE: f"<style>{style}</style>",
        SCRIPT: f'<script type="application/octet-stream" id="regard-payload">{numbers}</script>\n'
        f'<script type="module">{script}</script>',
    }
    text = static("index.html")
    for old, new in changes.items():
        before, found, after = text.partition(old)
        assert found, f"index.html lost {old}"
        text = before + new + after
    return text


def save_page(record: Record, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write the page, whole or not at all."""
    write_whole(Path(path), page(record, title).encode("utf-8"))


def named(record: Record) -> str:
    """A title: the model, and how the text begins."""
    text = record.sides[0].text if record.sides else ""
    begins = " ".join(text.split())[:60]
    parts = (str(record.facts.get("model", "regard")), "".join(sign for sign in begins if sign.isprintable()))
    return ": ".join(part for part in parts if part)


def _fingerprint(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
