"""Plots learning curves with matplotlib: a panel for each quantity, the runs overlaid. Equal logs give equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.errors import SettingError, unknown
from regard.training.events.curves import Curve, RunCurves, panel_names, smoothed
from regard.training.events.log import series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LineStyle = dict[str, Any]  # keyword arguments of matplotlib for a line

FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # no dates inside
TITLES = {"learning_rate": "learning rate", "gradient_norm": "gradient norm", "tokens_per_second": "tokens per second"}
LOGARITHMIC = ("loss", "perplexity")  # when the largest value is over SPAN times the smallest
SPAN = 20
SMOOTHING = 0.6
POINTS = 4000  # drawn of a curve: more than a screen shows
COLUMNS, WIDTH, HEIGHT = 3, 4.8, 3.2  # panels in a row, and inches of each
LINE = 0.25  # inches of a legend line
MAX_LABELLED_RUNS = 5  # with more, the best values are not labelled: they would cover the curves
TIMES = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
TRAINING: LineStyle = {"linewidth": 1, "alpha": 0.75}
EVALUATION: LineStyle = {"linewidth": 1.8, "marker": "o", "markersize": 5}
STAR: LineStyle = {"marker": "*", "markersize": 13, "markeredgecolor": "white", "linestyle": "none"}
GREY: LineStyle = {"color": "#555555"}
THICK: LineStyle = {"linewidth": 3}
# Okabe and Ito (2008), distinguishable by colour-blind people, without the yellow, too pale on white
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":")  # after seven runs the colours repeat
SETTINGS: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "regard",
    "pdf.fonttype": 42,
    "font.family": "sans-serif",
    "font.size": 11,
    "text.parse_math": False,  # a dollar sign in a run's name is a dollar sign
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.8,
    "axes.edgecolor": "#999999",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": "#999999",
    "ytick.color": "#999999",
    "xtick.labelcolor": "#333333",
    "ytick.labelcolor": "#333333",
    "legend.frameon": False,
    "figure.constrained_layout.w_pad": 0.1,
    "figure.constrained_layout.h_pad": 0.1,
}


class CurveAxis(NamedTuple):
    """The x axis of the panels: one of X_AXES, the unit it is drawn in, and its label."""

    name: str
    unit: float
    label: str


class PanelCurves(NamedTuple):
    """The curves of a run in a panel: training, its moving average, the evaluations, and the best of them."""

    trained: Curve
    mean: Curve
    evaluated: Curve
    best: Curve  # one point, or none


def draw_curves(
    runs: Sequence[RunCurves],
    path: Path,
    wanted: Sequence[str] = (),
    x_axis: str = "step",
    smoothing: float = SMOOTHING,
) -> Path:
    """Write the curves of runs as PNG, SVG or PDF, by the path's suffix; its folder is made where there is none.

    `wanted`: which quantities, by default every metric and the learning rate. Training is drawn faintly, its moving
    average (`smoothing`, see `smoothed`) over it; evaluations are dots, the best of them a star.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if path.suffix.lower() not in FORMATS:
        raise unknown(path.suffix, FORMATS, kind="format", where=f"{path}")
    names = panel_names(runs, wanted)
    axis = _axis(runs, x_axis)
    shown = {name: [_panel_curves(run, name, axis, smoothing) for run in runs] for name in names}
    rows = ceil(len(names) / COLUMNS)
    columns = ceil(len(names) / rows)
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH * columns, HEIGHT * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False).flatten()
        for axes, name in zip(grid, names, strict=False):
            _panel(axes, name, shown[name], axis)
        for axes in grid[len(names) :]:
            axes.remove()
        _legend(figure, [run.name for run in runs], list(chain.from_iterable(shown.values())))
        _save(figure, path)
    return path


def _axis(runs: Sequence[RunCurves], x_axis: str) -> CurveAxis:
    if x_axis != "seconds":
        return CurveAxis(x_axis, 1, x_axis)
    duration = max((max(series(run.entries, "trained", "seconds")[1], default=0) for run in runs), default=0)
    unit, label = next((unit, label) for unit, label in TIMES if duration >= 2 * unit or unit == 1)
    return CurveAxis(x_axis, unit, label)


def _panel_curves(run: RunCurves, name: str, axis: CurveAxis, smoothing: float) -> PanelCurves:
    trained = run.trained(name, axis.name)
    mean = Curve(trained.x, trained.y if name == "learning_rate" else smoothed(trained.y, smoothing))
    best = [run.best] if run.best is not None and name in run.best["metrics"] else []
    marked = Curve(
        run.at([one["step"] for one in best], axis.name), np.array([one["metrics"][name] for one in best], float)
    )
    curves = (trained, mean, run.evaluated(name, axis.name), marked)
    return PanelCurves(*(downsample(Curve(curve.x / axis.unit, curve.y)) for curve in curves))


def downsample(curve: Curve) -> Curve:
    """At most POINTS of a curve: the minimum and maximum of each interval, so that spikes stay; values that are not
    finite are gaps."""
    y = np.where(np.isfinite(curve.y), curve.y, np.nan)
    if len(y) <= POINTS:
        return Curve(curve.x, y)
    intervals = np.array_split(np.arange(len(y)), POINTS // 2)
    chosen = np.unique([part[one] for part in intervals for one in (y[part].argmin(), y[part].argmax())])
    return Curve(curve.x[chosen], y[chosen])


def _panel(axes: Axes, name: str, shown: Sequence[PanelCurves], axis: CurveAxis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    stars = []
    for number, one in enumerate(shown):
        style = _run_style(number)
        axes.plot(one.trained.x, one.trained.y, color=style["color"], linewidth=0.8, alpha=0.3)
        marker = {"marker": "."} if one.mean.x.size == 1 else {}  # a line of one point is invisible
        axes.plot(one.mean.x, one.mean.y, **TRAINING | style | marker)
        axes.plot(one.evaluated.x, one.evaluated.y, zorder=3, **EVALUATION | style)
        for x, y in zip(one.best.x, one.best.y, strict=True):
            stars += axes.plot(x, y, label=f"{y:.4g}", zorder=4, color=style["color"], **STAR)
    axes.set_title(TITLES.get(name, name), fontsize=12)
    axes.set_xlabel(axis.label)
    axes.set_xlim(left=0)
    span = _span([curve.y for one in shown for curve in one])
    if name in LOGARITHMIC and span > SPAN:
        axes.set_yscale("log", subs=())  # no minor ticks
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 1000 else (1,)))
    for direction in (axes.xaxis, axes.yaxis):
        direction.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    if 0 < len(stars) <= MAX_LABELLED_RUNS:
        axes.legend(handles=stars, fontsize=10, handletextpad=0.2, loc="best")


def _span(values: Sequence[np.ndarray]) -> float:
    """The largest value divided by the smallest; 1 unless all are positive, because there is no logarithm then."""
    finite = np.concatenate(values)
    finite = finite[np.isfinite(finite)]
    return float(finite.max() / finite.min()) if finite.size and finite.min() > 0 else 1.0


def _legend(figure: Figure, names: Sequence[str], shown: Sequence[PanelCurves]) -> None:
    """The legend above the panels: the runs by colour, and the styles of lines, dots and stars that occur."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **THICK | _run_style(number)) for number in range(len(names))]
    labels = list(names)
    kinds = {"training": TRAINING, "evaluation": EVALUATION, "best evaluation": STAR}
    for (label, style), curves in zip(kinds.items(), list(zip(*shown, strict=True))[1:], strict=True):
        if any(curve.x.size for curve in curves):
            handles.append(Line2D([], [], **GREY | style))
            labels.append(label)
    width = sum(len(label) for label in labels) / len(labels) * 0.095 + 0.7  # inches of an entry, roughly
    columns = max(1, min(len(labels), int(figure.get_figwidth() / width)))
    figure.set_figheight(figure.get_figheight() + LINE * ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)


def _run_style(number: int) -> LineStyle:
    """The style of a run: a colour, and when all colours are used, another line style."""
    again, which = divmod(number, len(COLOURS))
    return {"color": COLOURS[which], "linestyle": STYLES[again % len(STYLES)]}


def short(value: float) -> str:
    """A number as a short axis label.

    >>> short(1_200_000), short(0.25)
    ('1.2M', '0.25')
    """
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{sign}"
    return f"{value:g}"


def _save(figure: Figure, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150, metadata=FORMATS[path.suffix.lower()])
    except OSError as error:
        raise SettingError(f"Could not write the figure {path}: {error.strerror}", where="curves") from error
