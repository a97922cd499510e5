"""The page of a record as one offline HTML file, with style, script and payload inside; and a gallery of such pages."""

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
from regard.files import write_atomic
from regard.inspection import Record
from regard.page.payload import pack_payload

MAX_PAYLOAD = 256_000_000  # bytes; a larger payload may exceed the memory of a browser

HEAD = '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
ROOT = """<div id="regard-root" class="regard"><p class="note">Loading the record …</p></div>
<noscript>This page computes attention maps in the browser and needs JavaScript.</noscript>
"""
GALLERY_STYLE = f"""{html.BASE_STYLE}
h2 {{ margin-top: 2.5rem; font-size: 1.1rem }}
ol {{ list-style: none; padding: 0 }}
li {{ border-top: 1px solid var(--line); padding: 1rem 0; overflow-wrap: anywhere }}
p {{ margin: .2rem 0; unicode-bidi: isolate }}
"""

PICTURE_MODULES = ("picture_view.js",)  # without which the page of a text does, and without all that they import

# bundling of the page's ES modules into one script
IMPORT = re.compile(r'^import\s+\{[^}]*\}\s+from\s+"\./([a-z0-9_]+\.js)";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=(?:async function|function|class|const|let)\b)", re.MULTILINE)
# comments that have lines of their own, and types within a line
COMMENT = re.compile(r"^[ \t]*(?://[^\n]*|/\*\*(?:(?!\*/).)*\*/)[ \t]*\n", re.MULTILINE | re.DOTALL)
TYPE = re.compile(r"/\*\* @type \{(?:(?!\*/)[^\n])*\*/ ?")
DECLARED = re.compile(
    r"^(?:export )?(?:async function\*?|function\*?|class|const|let)\s+([A-Za-z_$][\w$]*)", re.MULTILINE
)


def render_record(record: Record, title: str | None = None, max_bytes: int = MAX_PAYLOAD) -> str:
    """The HTML file as text."""
    content = pack_payload(record)
    if len(content) > max_bytes:
        raise RecordError(
            f"a record of {len(content):,} bytes",
            f"at most {max_bytes:,} for one file",
            where="page",
            advice="Store fewer heads or places, or use `regard serve`, which sends the page only what it shows.",
        )
    return html.render_page(
        title if title is not None else page_title(record),
        ROOT + html.embed_bytes("regard-payload", content),
        style=read_static("page.css"),
        script=bundle_modules(without=() if record.pictures else PICTURE_MODULES),
        script_type="module",
        images="data: blob:",
        head=HEAD,
        body_class="regard-page",
    )


def render_served_page() -> str:
    """The page for the server, which serves style, modules and records one by one."""
    head = f'{HEAD}<link rel="stylesheet" href="static/page.css">'
    script = '<script type="module" src="static/main.js"></script>'
    return html.render_shell("regard", ROOT + script, head=head, body_class="regard-page")


def save_page(record: Record, path: str | os.PathLike[str], title: str | None = None) -> None:
    """Write the page atomically."""
    write_atomic(Path(path), render_record(record, title).encode("utf-8"))


def page_title(record: Record) -> str:
    """The model and the beginning of the text."""
    start = " ".join(record.title.split())[:60]
    parts = (
        str(record.facts.get("model", "regard"))[:60],
        "".join(character for character in start if character.isprintable()),
    )
    return ": ".join(part for part in parts if part)


@cache
def read_static(name: str) -> str:
    """The text of a file of the page."""
    return files("regard.page").joinpath("static", name).read_text(encoding="utf-8")


def bundle_modules(entry: str = "main.js", without: Sequence[str] = ()) -> str:
    """One script from the module `entry` and all its imports, without its comments and types; an
    `export default` of the entry stays. Names of modules that are left out are null.
    """
    sources = {name: read_static(name) for name in reachable_modules(entry, without)}
    for name in without:
        sources[name] = "".join(f"const {one} = null;\n" for one in declared_names(read_static(name)))
    bare = (EXPORT.sub("", IMPORT.sub("", sources[name])) for name in import_order(sources, entry))
    return "\n".join(TYPE.sub("", COMMENT.sub("", source)) for source in bare)


def reachable_modules(entry: str, without: Sequence[str] = ()) -> list[str]:
    """The module and all that it imports, directly or not, except through those that are left out."""
    found, waiting = {entry}, [entry]
    while waiting:
        name = waiting.pop()
        new = set() if name in without else set(IMPORT.findall(read_static(name))) - found
        found |= new
        waiting += sorted(new)
    return sorted(found)


def import_order(sources: Mapping[str, str], entry: str) -> list[str]:
    """Module names in topological order: each after those that it imports."""
    done: list[str] = []

    def visit(name: str, above: tuple[str, ...]) -> Iterator[str]:
        assert name not in above, f"circular imports: {' -> '.join((*above, name))}"
        for needed in IMPORT.findall(sources[name]):
            if needed not in done:
                yield from visit(needed, (*above, name))
        done.append(name)
        yield name

    return list(visit(entry, ()))


def declared_names(source: str) -> list[str]:
    """The names that a module declares at top level."""
    return DECLARED.findall(source)


@dataclass(frozen=True)
class GalleryItem:
    """A record of a gallery, and its lines of text: the first is the link."""

    record: Record
    lines: Sequence[str]


def save_gallery(groups: Sequence[tuple[str, Sequence[GalleryItem]]], folder: Path, title: str) -> Path:
    """Write the pages and an index of them, each group under its name; returns the path of the index."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, number = [], 0
    for name, group in groups:
        items = []
        for item in group:
            number += 1
            save_page(item.record, folder / f"{number}.html")
            first, *more = item.lines
            shown = "".join(f'<p dir="auto" class="faint">{escape(line)}</p>' for line in more)
            items.append(f'<li><p dir="auto"><a href="{number}.html">{escape(first)}</a></p>{shown}</li>')
        parts.append(f"<h2>{escape(name)}</h2><ol>{''.join(items)}</ol>")
    path = folder / "index.html"
    body = f"<h1>{escape(title)}</h1>{''.join(parts)}"
    write_atomic(path, html.render_page(title, body, style=GALLERY_STYLE).encode())
    return path
