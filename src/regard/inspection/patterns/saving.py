"""An atlas as a file: numbers, a chart, or a page that says of every head what it looks at and shows examples."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.errors import SettingError, unknown
from regard.files import write_whole
from regard.html import BASE_STYLE, page
from regard.inspection.patterns.sheet import UNKNOWN, Head, Sheet

ENDINGS = (".json", ".html", ".svg", ".png")
LEGEND = (
    "weight: mean weight on such keys; largest: how often one of them is what a token looks at most; to beat: an even "
    "look, or what the head gives to other words of the same kind, as far away."
)

STYLE = f"""{BASE_STYLE}
body {{ max-width: 72rem }}
table {{ border-collapse: collapse }}
td, th {{ padding: .25rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums }}
svg {{ max-width: 100%; height: auto }}
"""


def save(atlas: Sheet, path: Path) -> Path:
    """Write it as its ending says, whole or not at all."""
    if path.suffix not in ENDINGS:
        raise unknown(path.suffix or path.name, ENDINGS, kind="an ending", where="atlas")
    content = {".json": _json, ".html": _page, ".svg": _picture, ".png": _picture}[path.suffix](atlas, path.suffix)
    write_whole(path, content)
    return path


def expect_writable(path: Path) -> None:
    """Refuse, before the work, what could not be written after it."""
    if path.suffix not in ENDINGS:
        raise unknown(path.suffix or path.name, ENDINGS, kind="an ending", where="atlas")
    folder = path.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise SettingError(str(folder), "a folder that can be written to", where="atlas")


def _json(atlas: Sheet, ending: str) -> bytes:
    return (json.dumps(atlas.told(), ensure_ascii=False, indent=1) + "\n").encode("utf-8")


def _picture(atlas: Sheet, ending: str) -> bytes:
    from regard.inspection.patterns.drawing import draw_atlas

    with TemporaryDirectory() as folder:
        return draw_atlas(atlas, Path(folder) / f"atlas{ending}").read_bytes()


def _page(atlas: Sheet, ending: str) -> bytes:
    chart = _picture(atlas, ".svg").decode("utf-8")
    chart = chart[chart.index("<svg") :]
    title = f"What the heads of {atlas.model} look at"
    counts = ", ".join(f"{escape(name)}: {count}" for name, count in atlas.counts.items())
    head = "<tr><th>place<th>head<th>looks at<th>weight<th>in 95%<th>to beat<th>largest<th>for example</tr>"
    body = "\n".join(row for one in atlas.heads for row in _rows(one))
    told = (
        f"<h1>{escape(title)}</h1><p>{atlas.texts:,} texts. {counts}.</p>{chart}<p>{LEGEND}</p>"
        f"<table>{head}{body}</table>"
    )
    return page(title, told, style=STYLE, inline_styles=True).encode()


def _rows(head: Head) -> Iterator[str]:
    place = f"<td>{escape(head.place)}<td class=n>{head.head}"
    if not head.names:
        yield f"<tr>{place}<td><small>{UNKNOWN}</small><td><td><td><td><td></tr>"
    for name in head.names:
        one = head.measures[name]
        shown = "<br>".join(
            f"{escape(shown.query)} → {escape(shown.key)} <small>{shown.weight:.0%} · {escape(shown.text)}</small>"
            for shown in head.examples.get(name, ())
        )
        numbers = (
            f"{one.weight.value:.0%}",
            f"{one.weight.low:.0%}-{one.weight.high:.0%}",
            f"{one.baseline:.0%}",
            f"{one.largest.value:.0%}",
        )
        yield f"<tr>{place}<td>{escape(name)}{''.join(f'<td class=n>{n}' for n in numbers)}<td>{shown}</tr>"
