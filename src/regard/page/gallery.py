"""Several looks beside each other: a contents page in plain HTML, and a page of its own for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from regard.files import write_whole
from regard.html import BASE_STYLE
from regard.html import page as html_page
from regard.inspection.record.record import Record
from regard.page.render import save_page

STYLE = f"""{BASE_STYLE}
h2 {{ margin-top: 2.5rem; font-size: 1.1rem }}
ol {{ list-style: none; padding: 0 }}
li {{ border-top: 1px solid var(--line); padding: 1rem 0; overflow-wrap: anywhere }}
p {{ margin: .2rem 0; unicode-bidi: isolate }}
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
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    write_whole(path, html_page(title, body, style=STYLE).encode())
    return path
