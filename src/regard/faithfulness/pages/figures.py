"""The figures of the report page as SVG: means with confidence intervals, and single decisions. Deterministic bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from math import ceil, log
from typing import TYPE_CHECKING, Any

from regard.faithfulness.findings import MIN_DIVERGENCE, MIN_OUTPUT_CHANGE, Findings
from regard.faithfulness.pages.glossary import TESTS, display_names
from regard.inspection import ConfidenceInterval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


FIGURE_SETTINGS: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "regard",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 9,
    "text.parse_math": False,
    "axes.titlesize": 9,
}
# placeholder colours, replaced by CSS variables with default values
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


def figure_style() -> Any:
    import matplotlib

    colours = dict.fromkeys(("axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor", "text.color"), INK)
    lines = dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), LINE)
    return matplotlib.rc_context(FIGURE_SETTINGS | colours | lines)


def new_figure(columns: int, rows: int, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(WIDTH, height), layout=ConstrainedLayoutEngine(wspace=0.06, hspace=0.04))
    grid = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, list(grid.flat)


def plot_estimate(
    axes: Axes, row: float, estimate: ConfidenceInterval, colour: str, marker: str, label: str = ""
) -> None:
    """A mean as a marker, its confidence interval as a line."""
    hollow = marker == "D"
    axes.plot(interval_bounds(estimate), [row, row], color=colour, linewidth=2, alpha=0.55, solid_capstyle="butt")
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


def interval_bounds(one: ConfidenceInterval) -> tuple[float, float]:
    return (one.value, one.value) if one.low is None or one.high is None else (one.low, one.high)


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def style_value_axis(axes: Axes, test: str) -> None:
    """A value axis at the bottom with faint grid lines, no frame."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="x", color=LINE, linewidth=0.6, alpha=0.7)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_locator(tick_locator(5))
    if TESTS[test].form != "number":
        axes.xaxis.set_major_formatter(percent_formatter())


def tick_locator(count: int, integer: bool = False) -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(count, integer=integer)


def percent_formatter() -> Any:
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(1, 0)


def to_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an SVG element for a page, or a file, with a description for screen readers."""
    buffer = StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace("'DejaVu Sans'", "system-ui, 'DejaVu Sans'")
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    return text.replace("<svg", f'<svg role="img" aria-label="{escape(description)}"', 1).strip()


MARKERS = {"layer": (BLUE, "o"), "method": (ORANGE, "s"), "control": (FAINT, "D")}
ERASURE_ORDERS = {  # of erasure
    "erased_attention_share": (BLUE, "o"),
    "erased_gradient_share": (ORANGE, "s"),
    "erased_gradient_x_attention_share": (PURPLE, "^"),
    "erased_random_share": (FAINT, "D"),
}
PANELS_PER_ROW = 3  # panels of single decisions in a row
MAX_PANELS = 12  # at most, of single decisions
MAX_POINTS = 2400  # at most, of single decisions


@dataclass(frozen=True)
class Panel:
    """One test in a figure of means; `unit_axis`: its axis goes from 0 to 1."""

    test: str
    unit_axis: bool = False


def draw_means(report: Findings, maps: Sequence[str], panels: Sequence[Panel], name: str) -> str:
    """A row for each map, a panel for each test: means with confidence intervals, and a band for random maps.

    `name` is the prefix of the ids in the figure, so that a page can hold several.
    """
    kinds = {one.map: one.kind for one in report.findings}
    names = _short_names(report)
    with figure_style():
        figure, grid = new_figure(len(panels), 1, 0.75 + 0.25 * len(maps), sharey=True)
        for panel, axes in zip(panels, grid, strict=True):
            control = report.estimates("random").get(panel.test)
            if control is not None:
                axes.axvspan(*interval_bounds(control), color=BAND, alpha=0.35, linewidth=0)
            for row, name_of_map in enumerate(maps):
                estimate = report.estimates(name_of_map).get(panel.test)
                if estimate is not None:
                    plot_estimate(axes, row, estimate, *MARKERS[kinds[name_of_map]])
            axes.set_title(TESTS[panel.test].label, loc="left", color=INK)
            style_value_axis(axes, panel.test)
            if panel.unit_axis:
                axes.set(xlim=(-0.03, 1.03), xticks=(0, 0.5, 1))  # room for a marker at either end
        label_rows(grid[0], [names[one] for one in maps])
        return to_svg(figure, name, f"{', '.join(TESTS[one.test].label for one in panels)} of {len(maps)} maps")


def draw_erasure(report: Findings, layers: Sequence[str], name: str = "erasure") -> str:
    """For each layer, the share of weights to erase until the predicted class changes, by order of erasure."""
    names = _short_names(report)
    with figure_style():
        figure, (axes,) = new_figure(1, 1, 1.1 + 0.6 * len(layers))
        for number, (test, style) in enumerate(ERASURE_ORDERS.items()):
            for row, layer in enumerate(layers):
                estimate = report.estimates(layer).get(test)
                if estimate is not None:
                    plot_estimate(
                        axes,
                        row + (number - 1.5) * 0.2,
                        estimate,
                        *style,
                        label="" if row else TESTS[test].label.removeprefix("erased "),
                    )
        axes.set_xlim(0, 1.02)
        style_value_axis(axes, "erased_attention_share")
        label_rows(axes, [names[one] for one in layers])
        figure.legend(loc="outside upper left", ncols=len(ERASURE_ORDERS), frameon=False, labelcolor=INK)
        return to_svg(
            figure, name, f"share of the weights to erase until the predicted class changes, {len(layers)} layers"
        )


def draw_permutation(report: Findings, layers: Sequence[str], name: str = "permutation") -> str:
    """For each layer, every decision: the change of the output against the largest weight."""
    shown = pick_layers(layers)
    some = _thin_out(report.examples, 2 * len(shown))
    with figure_style():
        figure, panels = _layer_panels(len(shown), report, shown)
        for axes, layer in zip(panels, shown, strict=True):
            axes.axhline(MIN_OUTPUT_CHANGE, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
            for test, colour, filled in (("permuted", BLUE, True), ("uniform", ORANGE, False)):
                pairs = _value_pairs(some, layer, "largest_weight", test)
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
                axis.set_major_formatter(percent_formatter())
        every = len(report.examples)
        fewer = "" if len(some) == every else f" ({len(some)} of {every} decisions drawn)"
        figure.supxlabel(f"largest weight{fewer}", color=FAINT, fontsize=9)
        figure.supylabel("change of the output", color=FAINT, fontsize=9)
        figure.legend(loc="outside upper left", ncols=2, frameon=False, labelcolor=INK, handletextpad=0.2)
        return to_svg(figure, name, f"change of the output against the largest weight, {len(shown)} layers")


def draw_adversary(report: Findings, layers: Sequence[str], name: str = "adversary") -> str:
    """For each layer, a histogram of decisions by the divergence of the adversarial attention."""
    shown = pick_layers(layers)
    edges = [number * 0.05 for number in range(15)]
    with figure_style():
        figure, panels = _layer_panels(len(shown), report, shown)
        for axes, layer in zip(panels, shown, strict=True):
            values = [pair[0] for pair in _value_pairs(report.examples, layer, "adversarial_jsd", "adversarial_jsd")]
            axes.hist([min(value, edges[-1] - 1e-9) for value in values], edges, color=BLUE, alpha=0.8, rwidth=0.9)
            axes.axvline(log(2), color=INK, linewidth=1.2)
            axes.axvline(MIN_DIVERGENCE, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
            axes.set(xlim=(0, 0.72), xticks=[0, MIN_DIVERGENCE, log(2)], xticklabels=["0", f"{MIN_DIVERGENCE}", "ln 2"])
            axes.yaxis.set_major_locator(tick_locator(4, integer=True))
        figure.supxlabel("divergence of the most different map that keeps the output", color=FAINT, fontsize=9)
        figure.supylabel("decisions", color=FAINT, fontsize=9)
        return to_svg(figure, name, f"decisions by the divergence of the adversarial attention, {len(shown)} layers")


def pick_layers(layers: Sequence[str]) -> list[str]:
    """The layers with a panel of their own: all, or MAX_PANELS of them, evenly spaced from first to last."""
    if len(layers) <= MAX_PANELS:
        return list(layers)
    return [layers[round(number * (len(layers) - 1) / (MAX_PANELS - 1))] for number in range(MAX_PANELS)]


def _layer_panels(count: int, report: Findings, layers: Sequence[str]) -> tuple[Figure, list[Axes]]:
    """A panel for each layer, PANELS_PER_ROW in a row; a single one is not as wide as the page."""
    columns = min(max(count, 2), PANELS_PER_ROW)
    rows = ceil(count / columns)
    figure, panels = new_figure(columns, rows, 0.7 + 1.7 * rows, sharex=True, sharey=True)
    for spare in panels[count:]:
        spare.set_visible(False)
    names = _short_names(report)
    for axes, layer in zip(panels, layers, strict=False):
        axes.set_title(names[layer], loc="left", color=INK)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelbottom=True, length=2)
    return figure, panels[:count]


def _short_names(report: Findings) -> dict[str, str]:
    """Display names of maps, long ones truncated at the start."""
    return {one: name if len(name) <= 28 else f"…{name[-27:]}" for one, name in display_names(report).items()}


def _value_pairs(examples: Iterable[Mapping[str, Any]], layer: str, x: str, y: str) -> list[tuple[float, float]]:
    numbers = (one["maps"].get(layer, {}) for one in examples)
    return [(one[x], one[y]) for one in numbers if x in one and y in one]


def _thin_out(examples: Sequence[Mapping[str, Any]], points_each: int) -> Sequence[Mapping[str, Any]]:
    """Every decision, or every second, third ..., so that a figure has at most MAX_POINTS points."""
    return examples[:: max(1, ceil(len(examples) * points_each / MAX_POINTS))]
