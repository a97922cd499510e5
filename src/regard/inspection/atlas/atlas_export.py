"""Export of an atlas: JSON, an HTML page, or a chart (SVG, PNG) with a square for every head."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.errors import SettingError, unknown
from regard.files import write_atomic
from regard.html import BASE_STYLE, render_page
from regard.inspection.atlas.label_criteria import FAMILIES, UNKNOWN, AtlasData, Head
from regard.inspection.bootstrap import CONFIDENCE_LEVEL
from regard.inspection.map_figure import MATPLOTLIB_SETTINGS

COLOURS = {
    "position": ("#1f77b4", "#17becf", "#3b5bdb", "#74c0fc", "#0b7285"),
    "landmark": ("#7f7f7f", "#a0785a", "#c49c6b"),
    "content": ("#2ca02c", "#8ab61e"),
    "pairs": ("#d62728", "#ff7f0e", "#e377c2", "#9467bd", "#b5179e", "#f0a202"),
    "probe": ("#111111", "#555533"),
    "spread": ("#e0c341",),
}
FAINTEST = 0.25


def draw_atlas(atlas: AtlasData, path: Path) -> Path:
    """A chart with a row for each place and a column for each head, coloured by its strongest label."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    places = list(dict.fromkeys(head.place for head in atlas.heads))
    columns = 1 + max(head.head for head in atlas.heads)
    colours = colours_of(atlas)
    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        figure = Figure(figsize=(3.2 + 0.95 * columns, 1.6 + 0.62 * len(places)), layout="constrained")
        axes = figure.subplots()
        for head in atlas.heads:
            x, y = head.head, places.index(head.place)
            colour, alpha = ("#ffffff", 1.0) if not head.names else (colours[head.names[0]], opacity(head))
            axes.add_patch(
                Rectangle((x + 0.03, y + 0.03), 0.94, 0.94, facecolor=colour, alpha=alpha, edgecolor="#bbbbbb")
            )
            ink = "white" if head.names and alpha * darkness(colour) > 0.45 else "black"
            axes.text(x + 0.5, y + 0.5, _cell_text(head), ha="center", va="center", fontsize=6, color=ink)
        axes.set_xlim(0, columns)
        axes.set_ylim(len(places), 0)
        axes.set_xticks([x + 0.5 for x in range(columns)], [str(x) for x in range(columns)])
        axes.set_yticks([y + 0.5 for y in range(len(places))], places)
        axes.set_xlabel("head")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_title(f"{_title(atlas)} ({atlas.texts:,} texts)", loc="left")
        patches: list[Any] = [Patch(facecolor=colour, label=name) for name, colour in colours.items()]
        patches.append(Patch(facecolor="#ffffff", edgecolor="#bbbbbb", label=UNKNOWN))
        figure.legend(handles=patches, loc="outside right upper", frameon=False, fontsize=8)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    return path


def colours_of(atlas: AtlasData) -> dict[str, str]:
    """A colour for each label that is some head's strongest; similar colours within a family."""
    found: dict[str, str] = {}
    for name in FAMILIES:
        if any(head.names[:1] == (name,) for head in atlas.heads):
            family = COLOURS[FAMILIES[name]]
            taken = sum(FAMILIES[other] == FAMILIES[name] for other in found)
            found[name] = family[taken % len(family)]
    return found


def opacity(head: Head) -> float:
    """The opacity of a head's square, by the strength of its first label."""
    return FAINTEST + (1 - FAINTEST) * min(1.0, max(0.0, head.measures[head.names[0]].strength))


def darkness(colour: str) -> float:
    """Of a colour "#rrggbb": 0 is white, 1 is black."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 1 - (0.3 * red + 0.59 * green + 0.11 * blue)


def _title(atlas: AtlasData) -> str:
    return f"What the heads of {atlas.model} attend to"


def _cell_text(head: Head) -> str:
    """The labels in a square, one below the other."""
    return "\n".join(_short(name) for name in head.names[:3])


def _short(name: str) -> str:
    return name.replace(", other text", "*").replace(" word", "").replace("nouns and names", "nouns")


ENDINGS = (".json", ".html", ".svg", ".png")
LEGEND = (
    "weight: mean weight on keys of the pattern; largest: how often one of them has the largest weight; baseline: "
    "uniform attention, or the head's weight on other words of the same kind at the same distance."
)

STYLE = f"""{BASE_STYLE}
body {{ max-width: 72rem }}
table {{ border-collapse: collapse }}
td, th {{ padding: .25rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums }}
svg {{ max-width: 100%; height: auto }}
"""


def save_atlas(atlas: AtlasData, path: Path) -> Path:
    """Write the format of the file's suffix, atomically."""
    _expect_suffix(path)
    content = {".json": _json, ".html": _page, ".svg": _picture, ".png": _picture}[path.suffix](atlas, path.suffix)
    write_atomic(path, content)
    return path


def expect_writable(path: Path) -> None:
    """Refuse a path that cannot be written, before the work."""
    _expect_suffix(path)
    folder = path.parent
    if not folder.is_dir():
        raise SettingError(f"The folder {folder} does not exist", where="atlas")
    if not os.access(folder, os.W_OK):
        raise SettingError(f"The folder {folder} is not writable", where="atlas")


def _expect_suffix(path: Path) -> None:
    if path.suffix not in ENDINGS:
        raise unknown(path.suffix or path.name, ENDINGS, kind="file type", where="atlas")


def _json(atlas: AtlasData, suffix: str) -> bytes:
    return (json.dumps(atlas.to_dict(), ensure_ascii=False, indent=1) + "\n").encode("utf-8")


def _picture(atlas: AtlasData, suffix: str) -> bytes:
    with TemporaryDirectory() as folder:
        return draw_atlas(atlas, Path(folder) / f"atlas{suffix}").read_bytes()


def _page(atlas: AtlasData, suffix: str) -> bytes:
    chart = _picture(atlas, ".svg").decode("utf-8")
    chart = chart[chart.index("<svg") :]
    title = _title(atlas)
    counts = ", ".join(f"{escape(name)}: {count}" for name, count in atlas.counts.items())
    interval = f"{CONFIDENCE_LEVEL:.0%} interval"
    head = f"<tr><th>place<th>head<th>attends to<th>weight<th>{interval}<th>baseline<th>largest<th>examples</tr>"
    rows = "\n".join(row for one in atlas.heads for row in _rows(one))
    body = (
        f"<h1>{escape(title)}</h1><p>{atlas.texts:,} texts. {counts}.</p>{chart}<p>{LEGEND}</p>"
        f"<table>{head}{rows}</table>"
    )
    return render_page(title, body, style=STYLE, inline_styles=True).encode()


def _rows(head: Head) -> Iterator[str]:
    place = f"<td>{escape(head.place)}<td class=n>{head.head}"
    if not head.names:
        yield f"<tr>{place}<td><small>{UNKNOWN}</small><td><td><td><td><td></tr>"
    for name in head.names:
        one = head.measures[name]
        examples = "<br>".join(
            f"{escape(pair.query)} → {escape(pair.key)} <small>{pair.weight:.0%} · {escape(pair.text)}</small>"
            for pair in head.examples.get(name, ())
        )
        numbers = (
            f"{one.weight.value:.0%}",
            f"{one.weight.low:.0%}-{one.weight.high:.0%}",
            f"{one.baseline:.0%}",
            f"{one.largest.value:.0%}",
        )
        yield f"<tr>{place}<td>{escape(name)}{''.join(f'<td class=n>{n}' for n in numbers)}<td>{examples}</tr>"
