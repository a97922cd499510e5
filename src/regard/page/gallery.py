"""Several looks beside each other: a contents page in plain HTML, and a page of its own for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from regard.files import write_whole
from regard.inspection.record.record import Record
from regard.page.render import save_page

_STYLE = """
:root { color-scheme: light dark; --ground: #fbfbfa; --ink: #1d2330; --faint: #596273; --line: #dfe2e8 }
:root { --accent: #2b5fc2 }
@media (prefers-color-scheme: dark) {
  :root { --ground: #14171d; --ink: #e7e9ee; --faint: #a3acbb; --line: #323845; --accent: #8db4ff }
}
body { background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
body { margin: 3rem auto; max-width: 46rem; padding: 0 1.5rem }
h2 { margin-top: 2.5rem; font-size: 1.1rem }
a { color: var(--accent) }
ol { list-style: none; padding: 0 }
li { border-top: 1px solid var(--line); padding: 1rem 0; overflow-wrap: anywhere }
p { margin: .2rem 0; unicode-bidi: isolate }
.faint { color: var(--faint) }
"""


@dataclass(frozen=True)
class Exhibit:
    """A record, and the lines that stand beside it: the first is what one clicks on."""

    record: Record
    lines: Sequence[str]


def save_gallery(groups: Sequence[tuple[str, Sequence[Exhibit]]], folder: Path, title: str) -> Path:
    """Write the pages and the contents that lead to them, each group under its name; returns the contents page."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, number = [], 0
    for name, exhibits in groups:
        items = []
        for exhibit in exhibits:
            number += 1
            save_page(exhibit.record, folder / f"{number}.html")
            first, *more = exhibit.lines
            shown = "".join(f'<p dir="auto" class="faint">{escape(line)}</p>' for line in more)
            items.append(f'<li><p dir="auto"><a href="{number}.html">{escape(first)}</a></p>{shown}</li>')
        parts.append(f"<h2>{escape(name)}</h2><ol>{''.join(items)}</ol>")
    path = folder / "index.html"
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    head = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    wide = '<meta name="viewport" content="width=device-width">'
    page = (
        f'<!doctype html><html lang="en"><head>{head}{wide}<title>{escape(title)}</title><style>{_STYLE}</style></head>'
    )
    write_whole(path, f"{page}<body>{body}</body></html>\n".encode())
    return path
