"""The page of a record as one HTML file that needs no network, with style, script and numbers inside; and a gallery of
such pages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path

from regard import html
from regard.errors import RecordError
from regard.files import write_whole
from regard.inspection import Record
from regard.page.payload import payload

MOST = 256_000_000  # bytes of a payload; a browser that unfolds more than this may run out of memory

HEAD = '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
ROOT = """<div id="regard-root" class="regard"><p class="note">Opening the record …</p></div>
<noscript>This page computes what it shows in the browser, so it needs JavaScript.</noscript>
"""
GALLERY_STYLE = f"""{html.BASE_STYLE}
h2 {{ margin-top: 2.5rem; font-size: 1.1rem }}
ol {{ list-style: none; padding: 0 }}
li {{ border-top: 1px solid var(--line); padding: 1rem 0; overflow-wrap: anywhere }}
p {{ margin: .2rem 0; unicode-bidi: isolate }}
"""

# the page's modules, of which a bundle makes one script
IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\./([a-z0-9_]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let)\b)", re.MULTILINE)
DECLARED = re.compile(
    r"^(?:export )?(?:async function\*?|function\*?|class|const|let)\s+([A-Za-z_$][\w$]*)", re.MULTILINE
)


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


@cache
def static(name: str) -> str:
    """A file of the page."""
    return files("regard.page").joinpath("static", name).read_text(encoding="utf-8")


def bundle(entry: str = "main.js") -> str:
    """One script that does what the module `entry` does; `export default` of the entry stays."""
    sources = {name: static(name) for name in reached(entry)}
    return "\n".join(EXPORT.sub("", IMPORT.sub("", sources[name])) for name in order(sources, entry))


def reached(entry: str) -> list[str]:
    """The module and all that it needs."""
    found, waiting = {entry}, [entry]
    while waiting:
        new = set(IMPORT.findall(static(waiting.pop()))) - found
        found |= new
        waiting += sorted(new)
    return sorted(found)


def order(sources: Mapping[str, str], entry: str) -> list[str]:
    """Names of modules, each after those that it imports; a circle is an error of whoever wrote it."""
    done: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> Iterator[str]:
        assert name not in above, f"a circle of imports: {' -> '.join((*above, name))}"
        for needed in IMPORT.findall(sources[name]):
            if needed not in done:
                yield from visit(needed, (*above, name))
        done.append(name)
        yield name

    return list(visit(entry, ()))


def declared(source: str) -> list[str]:
    """The names that a module declares at its top level."""
    return DECLARED.findall(source)


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
    write_whole(path, html.page(title, body, style=GALLERY_STYLE).encode())
    return path
