"""What the figures of an audit are drawn with: colours that follow the page, rows with means and intervals, SVG.

Colours are CSS variables with a value of their own behind each, so a figure follows the page that it stands in, light
or dark, and is still readable alone. Text stays text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any

from regard.trust.intervals import Estimate
from regard.trust.pages.terms import TESTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "regard",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "axes.titlesize": 9,
}
# what is drawn with, the variable that it becomes, and what that is where nobody sets it
INK, FAINT, LINE, BAND = "#010101", "#020202", "#030303", "#040404"
BLUE, ORANGE, PURPLE = "#050505", "#060606", "#070707"
VARIABLES = {
    INK: "var(--ink, #1d2330)",
    FAINT: "var(--faint, #6b7484)",
    LINE: "var(--line, #c9ced8)",
    BAND: "var(--band, #9aa3b2)",
    BLUE: "var(--blue, #2b5fc2)",
    ORANGE: "var(--orange, #c4610a)",
    PURPLE: "var(--purple, #8444a8)",
}
WIDTH = 6.6  # inches


def drawing() -> Any:
    import matplotlib

    colours = dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor", "text.color"), INK)
    lines = dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), LINE)
    return matplotlib.rc_context(SETTINGS | colours | lines)


def blank(across: int, down: int, height: float, **how: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.04))
    grid = figure.subplots(down, across, squeeze=False, **how)
    return figure, list(grid.flat)


def mark(axes: Axes, row: float, estimate: Estimate, colour: str, marker: str, label: str = "") -> None:
    """A mean, and the line on which it lies in truth."""
    hollow = marker == "D"
    axes.plot(reach(estimate), [row, row], color=colour, linewidth=2, alpha=0.55, solid_capstyle="butt")
    axes.plot(
        [estimate.value],
        [row],
        marker,
        color=colour,
        markersize=4.5,
        markerfacecolor="none" if hollow else colour,
        label=label,
        clip_on=False,
    )


def reach(one: Estimate) -> tuple[float, float]:
    return (one.value, one.value) if one.low is None or one.high is None else (one.low, one.high)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def measure(axes: Axes, test: str) -> None:
    """An axis of numbers below, faint lines above it, no frame."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="x", color=LINE, linewidth=0.6, alpha=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(ticks(5))
    if TESTS[test].form != "number":
        axes.xaxis.set_major_formatter(percent())


def ticks(most: int, integer: bool = False) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(most, integer=integer)


def percent() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1, 0)


def to_svg(figure: Figure, name: str, says: str) -> str:
    """The figure as an element for a page, or a file: `says` is what it is called for those who cannot see it."""
    kept = StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(kept, format="svg", transparent=True, metadata=nothing)
    text = kept.getvalue()
    text = text[text.index("<svg") :].replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(says)}"', 1).strip()
