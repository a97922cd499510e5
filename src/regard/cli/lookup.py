"""`regard lookup`: how a dictionary look-up becomes attention, as a table and as a figure."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson
from regard.cli.lookup_demo import Lookup, LookupResult, look_up
from regard.cli.matrix import shade
from regard.errors import SettingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WORDS = ("butter", "buter")  # one that is a label, and one that is not

OPENING = """[bold]From a dictionary to attention[/bold]
The word on the shopping list is the query, the shelf labels are the keys, the
prices are the values. A dict compares with ==. Attention scores the similarity
of query and key, turns the scores into weights that sum to one, and averages
the values: softmax(q.k / temperature). A word is a vector of its letter pairs.
"""


def lookup(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for the figure.")] = Path(
        "regard-lookup"
    ),
    as_json: AsJson = False,
) -> None:
    """Show how a dictionary look-up becomes attention.

    Prints a table at several temperatures and writes it as a figure.
    """
    lookups = [look_up(word) for word in WORDS]
    figure = draw(lookups, _folder(out) / "lookup.svg")
    if as_json:
        typer.echo(json.dumps({"lookups": [asdict(lookup) for lookup in lookups], "figure": str(figure)}, indent=2))
    else:
        print_tables(lookups, figure)


def print_tables(lookups: list[Lookup], figure: Path) -> None:
    """Print a table for each word, and what it shows."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(OPENING)
    for lookup in lookups:
        console.print(_table(lookup, console))
        console.print(_conclusion(lookup) + "\n")
    console.print(f"The figure:   {figure}", soft_wrap=True)
    console.print(
        "Read next:    README.md, then src/regard/attention/attend.py: the definition in one screen", soft_wrap=True
    )


def draw(lookups: list[Lookup], path: Path) -> Path:
    """Write the weights of each look-up as an SVG heat map; the same numbers give the same bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "regard", "font.family": "sans-serif"}):
        figure = Figure(figsize=(5.6 * len(lookups), 3.6), layout="constrained")
        for axes, lookup in zip(figure.subplots(1, len(lookups), squeeze=False)[0], lookups, strict=True):
            _heat_map(axes, lookup)
        figure.savefig(path, format="svg", metadata={"Date": None, "Title": "A dictionary look-up becomes attention"})
    return path


def _folder(out: Path) -> Path:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(
            f"Could not create the folder {out}: {error.strerror}", where="--out", advice="Give another folder."
        ) from error
    return out


def _table(lookup: Lookup, console: Console) -> Table:
    from rich.table import Table

    table = Table(title=f'query "{lookup.word}"', title_justify="left", title_style="bold", padding=(0, 0))
    table.add_column("temperature", no_wrap=True)
    for label, price in zip(lookup.labels, lookup.prices, strict=True):
        table.add_column(f"{label}\n{price:.2f}", justify="right", no_wrap=True)
    table.add_column("entropy", justify="right", no_wrap=True)
    table.add_column("price", justify="right", style="bold", no_wrap=True)
    for answer in lookup.answers:
        cells = [_cell(weight, console) for weight in answer.weights]
        averaged = "none" if answer.price is None else f"{answer.price:.2f}"
        table.add_row(_name(answer), *cells, f"{answer.entropy:.2f}", averaged)
    return table


def _cell(weight: float, console: Console) -> Text:
    return shade(weight, console, f"{weight:5.0%} ")


def _name(answer: LookupResult) -> str:
    return "dict (q = k)" if answer.temperature is None else f"{answer.temperature:g}"


def _conclusion(lookup: Lookup) -> str:
    """What the table shows, with its numbers."""
    hard, cold, hot = lookup.answers[0], lookup.answers[1], lookup.answers[-1]
    best = lookup.labels[cold.weights.index(max(cold.weights))]
    mean = sum(lookup.prices) / len(lookup.prices)
    if hard.price is None:
        return (
            f'The dict finds nothing: no label is exactly "{lookup.word}". Attention still answers: '
            f'cold, it takes "{best}" for {cold.price:.2f}; hot, it approaches the mean.'
        )
    return (
        f"Cold attention is the dict: all weight on one label, {cold.price:.2f} as with ==. "
        f"Hot, the weights are almost equal: {hot.price:.2f}, near the mean of all prices, {mean:.2f}."
    )


def _heat_map(axes: Axes, lookup: Lookup) -> None:
    rows = [answer.weights for answer in lookup.answers]
    axes.pcolormesh(rows, cmap="Blues", vmin=0, vmax=1, edgecolors="white", linewidth=1)
    for i, row in enumerate(rows):
        for j, weight in enumerate(row):
            ink = "white" if weight > 0.5 else "black"
            axes.text(j + 0.5, i + 0.5, f"{weight:.0%}", ha="center", va="center", color=ink, fontsize=9)
    prices = ["nothing found" if answer.price is None else f"= {answer.price:.2f}" for answer in lookup.answers]
    for i, price in enumerate(prices):
        axes.text(len(lookup.labels) + 0.1, i + 0.5, price, va="center", fontsize=9)
    axes.set_xticks([j + 0.5 for j in range(len(lookup.labels))], lookup.labels, rotation=30, ha="right")
    axes.set_yticks([i + 0.5 for i in range(len(rows))], [_name(answer) for answer in lookup.answers])
    axes.set_ylabel("temperature")
    axes.set_title(f'query "{lookup.word}"')
    axes.invert_yaxis()
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
