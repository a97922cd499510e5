"""The figures of an audit as SVG: means with their intervals, and single decisions; one report, the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from math import ceil, log
from typing import TYPE_CHECKING, Any

from regard.faithfulness.findings import DIFFERENT, MOVED, Findings
from regard.faithfulness.pages.glossary import TESTS, called
from regard.inspection import Estimate

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


KINDS = {"layer": (BLUE, "o"), "method": (ORANGE, "s"), "control": (FAINT, "D")}
ORDERS = {  # of erasure
    "erased attention share": (BLUE, "o"),
    "erased gradient share": (ORANGE, "s"),
    "erased gradient x attention share": (PURPLE, "^"),
    "erased random share": (FAINT, "D"),
}
ACROSS = 3  # panels of single decisions beside each other
PANELS = 12  # at most, of single decisions
POINTS = 2400  # at most, of single decisions


@dataclass(frozen=True)
class Panel:
    """One test in a figure of means; `whole`: its axis goes from 0 to 1, wherever the means lie."""

    test: str
    whole: bool = False


def means_figure(report: Findings, maps: Sequence[str], panels: Sequence[Panel], name: str) -> str:
    """A row for each map, a panel for each test: means with their intervals, and a band where random maps lie.

    `name` goes into the ids of the figure, so that several can stand in one page.
    """
    kinds = {one.map: one.kind for one in report.findings}
    names = _called(report)
    with drawing():
        figure, grid = blank(len(panels), 1, 0.75 + 0.25 * len(maps), sharey=True)
        for panel, axes in zip(panels, grid, strict=True):
            chance = report.of("random").get(panel.test)
            if chance is not None:
                axes.axvspan(*reach(chance), color=BAND, alpha=0.35, linewidth=0)
            for row, name_of_map in enumerate(maps):
                estimate = report.of(name_of_map).get(panel.test)
                if estimate is not None:
                    mark(axes, row, estimate, *KINDS[kinds[name_of_map]])
            axes.set_title(TESTS[panel.test].label, loc="left", color=INK)
            measure(axes, panel.test)
            if panel.whole:
                axes.set(xlim=(-0.03, 1.03), xticks=(0, 0.5, 1))  # a mark at either end is whole
        name_rows(grid[0], [names[one] for one in maps])
        return to_svg(figure, name, f"{', '.join(TESTS[one.test].label for one in panels)} of {len(maps)} maps")


def erasure_figure(report: Findings, layers: Sequence[str], name: str = "erasure") -> str:
    """For each layer, the share of weights that must go before the decision flips, by order."""
    names = _called(report)
    with drawing():
        figure, (axes,) = blank(1, 1, 1.1 + 0.6 * len(layers))
        for number, (test, look) in enumerate(ORDERS.items()):
            for row, layer in enumerate(layers):
                estimate = report.of(layer).get(test)
                if estimate is not None:
                    mark(
                        axes,
                        row + (number - 1.5) * 0.2,
                        estimate,
                        *look,
                        label="" if row else TESTS[test].label.removeprefix("erased "),
                    )
        axes.set_xlim(0, 1.02)
        measure(axes, "erased attention share")
        name_rows(axes, [names[one] for one in layers])
        figure.legend(loc="outside upper left", ncols=len(ORDERS), frameon=False, labelcolor=INK)
        return to_svg(
            figure, name, f"share of the weights that must go before the decision flips, {len(layers)} layers"
        )


def permuting_figure(report: Findings, layers: Sequence[str], name: str = "permuting") -> str:
    """For each layer, every decision: how far the output moves against the largest weight."""
    shown = drawn(layers)
    some = _some(report.examined, 2 * len(shown))
    with drawing():
        figure, panels = _decisions(len(shown), report, shown)
        for axes, layer in zip(panels, shown, strict=True):
            axes.axhline(MOVED, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
            for test, colour, filled in (("permuted", BLUE, True), ("uniform", ORANGE, False)):
                pairs = _pairs(some, layer, "largest weight", test)
                axes.scatter(
                    [x for x, _ in pairs],
                    [y for _, y in pairs],
                    s=14,
                    facecolors=colour if filled else "none",
                    edgecolors="none" if filled else colour,
                    alpha=0.65,
                    label=TESTS[test].label if axes is panels[0] else "",
                    clip_on=False,
                )
            axes.set(xlim=(0, 1), ylim=(0, 1), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(percent())
        every = len(report.examined)
        fewer = "" if len(some) == every else f" ({len(some)} of {every} decisions drawn)"
        figure.supxlabel(f"largest weight{fewer}", color=FAINT, fontsize=9)
        figure.supylabel("how far the output moves", color=FAINT, fontsize=9)
        figure.legend(loc="outside upper left", ncols=2, frameon=False, labelcolor=INK, handletextpad=0.2)
        return to_svg(figure, name, f"how far the output moves against the largest weight, {len(shown)} layers")


def adversary_figure(report: Findings, layers: Sequence[str], name: str = "adversary") -> str:
    """For each layer, how many decisions have another map so far away that keeps the output."""
    shown = drawn(layers)
    edges = [number * 0.05 for number in range(15)]
    with drawing():
        figure, panels = _decisions(len(shown), report, shown)
        for axes, layer in zip(panels, shown, strict=True):
            values = [pair[0] for pair in _pairs(report.examined, layer, "adversarial jsd", "adversarial jsd")]
            axes.hist([min(value, edges[-1] - 1e-9) for value in values], edges, color=BLUE, alpha=0.8, rwidth=0.9)
            axes.axvline(log(2), color=INK, linewidth=1.2)
            axes.axvline(DIFFERENT, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.set(xlim=(0, 0.72), xticks=[0, DIFFERENT, log(2)], xticklabels=["0", f"{DIFFERENT}", "ln 2"])
            axes.yaxis.set_major_locator(ticks(4, integer=True))
        figure.supxlabel("distance of the furthest map that keeps the output", color=FAINT, fontsize=9)
        figure.supylabel("decisions", color=FAINT, fontsize=9)
        return to_svg(figure, name, f"decisions by the distance of the furthest other map, {len(shown)} layers")


def drawn(layers: Sequence[str]) -> list[str]:
    """The layers that are shown decision by decision: all, or as many as a page bears, evenly from first to last."""
    if len(layers) <= PANELS:
        return list(layers)
    return [layers[round(number * (len(layers) - 1) / (PANELS - 1))] for number in range(PANELS)]


def _decisions(count: int, report: Findings, layers: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """A panel for each layer, ACROSS of them beside each other; a single one is not as wide as the page."""
    across = min(max(count, 2), ACROSS)
    down = ceil(count / across)
    figure, panels = blank(across, down, 0.7 + 1.7 * down, sharex=True, sharey=True)
    for spare in panels[count:]:
        spare.set_visible(False)
    names = _called(report)
    for axes, layer in zip(panels, layers, strict=False):
        axes.set_title(names[layer], loc="left", color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelbottom=True, length=2)
    return figure, panels[:count]


def _called(report: Findings) -> dict[str, str]:
    """Names of maps; of long ones the end."""
    return {one: name if len(name) <= 28 else f"…{name[-27:]}" for one, name in called(report).items()}


def _pairs(examined: Iterable[Mapping[str, Any]], layer: str, x: str, y: str) -> list[tuple[float, float]]:
    numbers = (one["maps"].get(layer, {}) for one in examined)
    return [(one[x], one[y]) for one in numbers if x in one and y in one]


def _some(examined: Sequence[Mapping[str, Any]], times: int) -> Sequence[Mapping[str, Any]]:
    """Every decision, or every second, third ... where so many points would weigh down the page."""
    return examined[:: max(1, ceil(len(examined) * times / POINTS))]
