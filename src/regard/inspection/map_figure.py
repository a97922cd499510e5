"""A heat map of attention between words as a figure (matplotlib): SVG, PNG, ...; equal maps give equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from torch import Tensor

from regard.text import Links

MATPLOTLIB_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "regard", "font.family": "sans-serif"}


LETTERS_PER_INCH = 15  # of the small type below a figure
# characters that are drawn: matplotlib lays out a million of them for hours
MAX_LABEL, MAX_TITLE, MAX_DESCRIPTION = 24, 120, 1200
MAX_LINES = 5  # of a description
USUAL_LABEL, LABEL_INCHES = 12, 0.09  # letters that the figure has room for, and the room of each further one


def draw_map(
    matrix: Tensor,
    source: Sequence[str],
    target: Sequence[str],
    path: Path,
    gold: Links | None = None,
    title: str = "",
    description: str = "",
) -> Path:
    """matrix (target words, source words): darker for larger weights; circles at gold links; `description`: written
    into the file beside the picture."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(MATPLOTLIB_SETTINGS):
        columns, rows = ([figure_label(word) for word in words] for words in (source, target))
        room = LABEL_INCHES * max(0, max(map(len, (*columns, *rows)), default=0) - USUAL_LABEL)
        size = 1.6 + 0.36 * len(source) + room, 1.2 + 0.3 * len(target) + room
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots()
        axes.pcolormesh(matrix.tolist(), cmap="Blues", vmin=0, vmax=1, edgecolors="#eeeeee", linewidth=0.5)
        if gold:
            places = [i + 0.5 for i, _ in gold], [j + 0.5 for _, j in gold]
            axes.scatter(*places, s=46, facecolors="none", edgecolors="#d95f02", linewidths=1.2, label="gold link")
            figure.legend(loc="outside lower right", frameon=False)
        axes.set_xticks([i + 0.5 for i in range(len(columns))], columns, rotation=60, ha="left", va="bottom")
        axes.set_yticks([j + 0.5 for j in range(len(rows))], rows)
        axes.xaxis.tick_top()
        axes.invert_yaxis()
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        if title:
            axes.set_title(figure_label(title, MAX_TITLE), loc="left")
        save_drawing(figure, path, description)
    return path


def figure_label(text: str, most: int = MAX_LABEL) -> str:
    """A text as matplotlib draws it: at most so many characters, printable ones, and $ as itself."""
    shown = f"{text[: most - 1]}…" if len(text) > most else text
    return _printable(shown).replace("$", r"\$")


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in text)


def save_drawing(figure: Any, path: Path, description: str = "", **how: Any) -> None:
    """Save a figure, without its date; a description is in its metadata, and its beginning small below it."""
    about: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {}
    if description:
        shown = figure_label(description, MAX_DESCRIPTION)
        width = int(LETTERS_PER_INCH * figure.get_figwidth())
        figure.supxlabel(fill(shown, width, max_lines=MAX_LINES, placeholder=" …"), fontsize=7, x=0.01, ha="left")
        about |= {"Description": _printable(description)} if path.suffix in (".svg", ".png") else {}
    figure.savefig(path, metadata=about or None, **how)
