"""The atlas as a chart, layers by heads: the colour is the pattern, how dark it is says how strong; one atlas, the same
bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.inspection.drawing import SETTINGS
from regard.inspection.patterns.naming import FAMILIES
from regard.inspection.patterns.sheet import UNKNOWN, Head, Sheet

COLOURS = {
    "position": ("#1f77b4", "#17becf", "#3b5bdb", "#74c0fc", "#0b7285"),
    "landmark": ("#7f7f7f", "#a0785a", "#c49c6b"),
    "content": ("#2ca02c", "#8ab61e"),
    "pairs": ("#d62728", "#ff7f0e", "#e377c2", "#9467bd", "#b5179e", "#f0a202"),
    "probe": ("#111111", "#555533"),
    "spread": ("#e0c341",),
}
FAINTEST = 0.25


def draw_atlas(atlas: Sheet, path: Path) -> Path:
    """A row for each place, a column for each head; the strongest name counts."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle

    places = list(dict.fromkeys(head.place for head in atlas.heads))
    columns = 1 + max(head.head for head in atlas.heads)
    colours = colours_of(atlas)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(3.2 + 0.95 * columns, 1.6 + 0.62 * len(places)), layout="constrained")
        axes = figure.subplots()
        for head in atlas.heads:
            x, y = head.head, places.index(head.place)
            colour, alpha = ("#ffffff", 1.0) if not head.names else (colours[head.names[0]], shade(head))
            axes.add_patch(
                Rectangle((x + 0.03, y + 0.03), 0.94, 0.94, facecolor=colour, alpha=alpha, edgecolor="#bbbbbb")
            )
            ink = "white" if head.names and alpha * darkness(colour) > 0.45 else "black"
            axes.text(x + 0.5, y + 0.5, _written(head), ha="center", va="center", fontsize=6, color=ink)
        axes.set_xlim(0, columns)
        axes.set_ylim(len(places), 0)
        axes.set_xticks([x + 0.5 for x in range(columns)], [str(x) for x in range(columns)])
        axes.set_yticks([y + 0.5 for y in range(len(places))], places)
        axes.set_xlabel("head")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        axes.set_title(f"What the heads of {atlas.model} look at ({atlas.texts:,} texts)", loc="left")
        patches: list[Any] = [Patch(facecolor=colour, label=name) for name, colour in colours.items()]
        patches.append(Patch(facecolor="#ffffff", edgecolor="#bbbbbb", label=UNKNOWN))
        figure.legend(handles=patches, loc="outside right upper", frameon=False, fontsize=8)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=150)
    return path


def colours_of(atlas: Sheet) -> dict[str, str]:
    """A colour for each name that is some head's strongest: near each other where the patterns are."""
    found: dict[str, str] = {}
    for name in FAMILIES:
        if any(head.names[:1] == (name,) for head in atlas.heads):
            family = COLOURS[FAMILIES[name]]
            taken = sum(FAMILIES[other] == FAMILIES[name] for other in found)
            found[name] = family[taken % len(family)]
    return found


def shade(head: Head) -> float:
    """How opaque a head is drawn: by the strength of its first name."""
    return FAINTEST + (1 - FAINTEST) * min(1.0, max(0.0, head.measures[head.names[0]].strength))


def darkness(colour: str) -> float:
    """Of a colour "#rrggbb": 0 is white, 1 is black."""
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 1 - (0.3 * red + 0.59 * green + 0.11 * blue)


def _written(head: Head) -> str:
    """The names in a cell, one below the other."""
    return "\n".join(_short(name) for name in head.names[:3])


def _short(name: str) -> str:
    return name.replace(", other text", "*").replace(" word", "").replace("nouns and names", "nouns")
