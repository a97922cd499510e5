"""Attention maps in the terminal: a row for each target word, a column for each source word."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def shade(weight: float, console: Console, text: str = "") -> Text:
    """A weight as a shaded cell: a background colour, and a block character unless the terminal is ASCII only."""
    from rich.text import Text

    block = "" if console.options.ascii_only else " ░▒▓█"[ceil(round(weight, 2) * 4)]
    light = int(255 - 155 * weight)
    paint = f"{'white' if weight > 0.5 else 'black'} on rgb({light - 60 if weight > 0.5 else light},{light},255)"
    return Text(f"{block}{text}", style=paint)


def matrix_table(
    matrix: Sequence[Sequence[float]], source: Sequence[str], target: Sequence[str], console: Console
) -> Table:
    """A table of percentages of at least 1; source words are written vertically."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 0), pad_edge=False, show_header=True)
    table.add_column("", no_wrap=True)
    for word in source:
        table.add_column(Text("\n".join(word)), justify="center", vertical="bottom", width=3, no_wrap=True)
    for word, row in zip(target, matrix, strict=True):
        cells = [shade(weight, console, f"{weight * 100:2.0f}" if round(weight, 2) >= 0.01 else "  ") for weight in row]
        table.add_row(Text(word + " "), *cells)
    return table
