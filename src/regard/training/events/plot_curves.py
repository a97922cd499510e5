"""The figure of learning curves: a panel for each quantity, the runs laid over each other. The same logs give the same
bytes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from regard.errors import SettingError, unknown
from regard.training.events.curves import Curve, Run, panels, smoothed
from regard.training.events.log import series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = dict[str, Any]  # what matplotlib is told about a line

FORMATS = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # no dates inside
TITLES = {"rate": "learning rate", "norm": "gradient norm", "tokens_per_second": "tokens per second"}
LOGARITHMIC = ("loss", "perplexity")  # where the values span more than SPAN times the smallest
SPAN = 20
SMOOTH = 0.6
POINTS = 4000  # of a curve that are drawn: more than a screen shows
COLUMNS, WIDTH, HEIGHT = 3, 4.8, 3.2  # at most so many panels beside each other, and inches of each
LINE = 0.25  # inches of a line of the legend
TOLD = 5  # runs whose best values are told in the panels; more would cover the curves
TIMES = ((86_400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds"))
TRAINING: Look = {"linewidth": 1, "alpha": 0.75}
EVALUATION: Look = {"linewidth": 1.8, "marker": "o", "markersize": 5}
STAR: Look = {"marker": "*", "markersize": 13, "markeredgecolor": "white", "linestyle": "none"}
GREY: Look = {"color": "#555555"}
THICK: Look = {"linewidth": 3}
# Okabe and Ito (2008), told apart by colour-blind people too, without the yellow that white paper swallows
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":")  # after seven runs the colours come again
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


class Axis(NamedTuple):
    """What the panels have from left to right: one of AGAINST, the unit it is drawn in, and the label."""

    against: str
    unit: float
    label: str


class Shown(NamedTuple):
    """What a panel shows of a run: what training told, its moving mean, the evaluations, and the best of them."""

    told: Curve
    mean: Curve
    evaluated: Curve
    best: Curve  # of one point, or of none


def draw(
    runs: Sequence[Run], path: Path, wanted: Sequence[str] = (), against: str = "step", smooth: float = SMOOTH
) -> Path:
    """Write the curves of runs as PNG, SVG or PDF, by the path's suffix; its folder is made where there is none.

    `wanted`: which quantities, by default every metric and the learning rate. What training told is drawn faintly, and
    over it its moving mean (`smooth`, see `smoothed`); evaluations are dots, and a star is on the best of them.
    """
    import matplotlib
    from matplotlib.figure import Figure

    if path.suffix.lower() not in FORMATS:
        raise unknown(path.suffix, FORMATS, kind="suffix", where=f"{path}")
    names = panels(runs, wanted)
    axis = _axis(runs, against)
    shown = {name: [_shown(run, name, axis, smooth) for run in runs] for name in names}
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


def _axis(runs: Sequence[Run], against: str) -> Axis:
    if against != "seconds":
        return Axis(against, 1, against)
    longest = max((max(series(run.entries, "trained", "seconds")[1], default=0) for run in runs), default=0)
    unit, label = next((unit, label) for unit, label in TIMES if longest >= 2 * unit or unit == 1)
    return Axis(against, unit, label)


def _shown(run: Run, name: str, axis: Axis, smooth: float) -> Shown:
    told = run.trained(name, axis.against)
    mean = Curve(told.x, told.y if name == "rate" else smoothed(told.y, smooth))
    best = [run.best] if run.best is not None and name in run.best["metrics"] else []
    marked = Curve(
        run.at([one["step"] for one in best], axis.against), np.array([one["metrics"][name] for one in best], float)
    )
    curves = (told, mean, run.evaluated(name, axis.against), marked)
    return Shown(*(thinned(Curve(curve.x / axis.unit, curve.y)) for curve in curves))


def thinned(curve: Curve) -> Curve:
    """No more than POINTS of a curve: the lowest and the highest of each stretch of it, so that spikes stay; values
    that are not finite are gaps."""
    y = np.where(np.isfinite(curve.y), curve.y, np.nan)
    if len(y) <= POINTS:
        return Curve(curve.x, y)
    stretches = np.array_split(np.arange(len(y)), POINTS // 2)
    kept = np.unique([part[one] for part in stretches for one in (y[part].argmin(), y[part].argmax())])
    return Curve(curve.x[kept], y[kept])


def _panel(axes: Axes, name: str, shown: Sequence[Shown], axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    stars = []
    for number, one in enumerate(shown):
        look = _look(number)
        axes.plot(one.told.x, one.told.y, color=look["color"], linewidth=0.8, alpha=0.3)
        alone = {"marker": "."} if one.mean.x.size == 1 else {}  # a line needs two points to be seen
        axes.plot(one.mean.x, one.mean.y, **TRAINING | look | alone)
        axes.plot(one.evaluated.x, one.evaluated.y, zorder=3, **EVALUATION | look)
        for x, y in zip(one.best.x, one.best.y, strict=True):
            stars += axes.plot(x, y, label=f"{y:.4g}", zorder=4, color=look["color"], **STAR)
    axes.set_title(TITLES.get(name, name), fontsize=12)
    axes.set_xlabel(axis.label)
    axes.set_xlim(left=0)
    span = _span([curve.y for one in shown for curve in one])
    if name in LOGARITHMIC and span > SPAN:
        axes.set_yscale("log", subs=())  # of ticks without a label, none
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if span < 1000 else (1,)))
    for direction in (axes.xaxis, axes.yaxis):
        direction.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    if 0 < len(stars) <= TOLD:
        axes.legend(handles=stars, fontsize=10, handletextpad=0.2, loc="best")


def _span(values: Sequence[np.ndarray]) -> float:
    """How many times the smallest the largest is; 1 where not all are above 0, because then no logarithm is."""
    there = np.concatenate(values)
    there = there[np.isfinite(there)]
    return float(there.max() / there.min()) if there.size and there.min() > 0 else 1.0


def _legend(figure: Figure, names: Sequence[str], shown: Sequence[Shown]) -> None:
    """Above the panels: the runs by colour, and what lines, dots and stars are, where there are any."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], **THICK | _look(number)) for number in range(len(names))]
    labels = list(names)
    kinds = {"training": TRAINING, "evaluation": EVALUATION, "best evaluation": STAR}
    for (label, look), curves in zip(kinds.items(), list(zip(*shown, strict=True))[1:], strict=True):
        if any(curve.x.size for curve in curves):
            handles.append(Line2D([], [], **GREY | look))
            labels.append(label)
    width = sum(len(label) for label in labels) / len(labels) * 0.095 + 0.7  # inches of an entry, about
    columns = max(1, min(len(labels), int(figure.get_figwidth() / width)))
    figure.set_figheight(figure.get_figheight() + LINE * ceil(len(labels) / columns))
    figure.legend(handles, labels, loc="outside upper center", ncols=columns)


def _look(number: int) -> Look:
    """Of a run: a colour, and when all colours are taken, another kind of line."""
    again, which = divmod(number, len(COLOURS))
    return {"color": COLOURS[which], "linestyle": STYLES[again % len(STYLES)]}


def short(value: float) -> str:
    """A number for an axis, in few characters.

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
        raise SettingError(f"{path} ({error.strerror})", "a file to write to", where="curves") from error
