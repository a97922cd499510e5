"""`regard curves`: draw how one or more trainings went, or print the numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regard.training.events import Run

FIGURE = Path("curves.png")


def curves(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or their logs.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help=f"The figure, .png, .svg or .pdf; by default {FIGURE}.")
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option("--metric", "-m", help="What to draw, once for each; by default every metric and the rate."),
    ] = None,
    against: Annotated[str, typer.Option(help="What goes from left to right: step, tokens or seconds.")] = "step",
    smooth: Annotated[
        float, typer.Option(help="How much of the moving mean of training stays at each point: 0 (none) to 1.")
    ] = 0.6,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the numbers as JSON; draw only where --out says so.")
    ] = False,
) -> None:
    """Draw the learning curves of one or more runs, a panel for each quantity, the runs laid over each other.

    Steps that were done again after an interruption count once.
    """
    from regard.training.events import draw, numbers, panels, plain, read_runs

    runs = read_runs(paths)
    names = panels(runs, metrics or ())
    figure = None if as_json and out is None else draw(runs, out or FIGURE, names, against, smooth)
    if as_json:
        told = [{"name": run.name, "path": str(run.path)} | numbers(run, names, against) for run in runs]
        report = {"against": against, "runs": told, "figure": figure}
        typer.echo(json.dumps(plain(report), allow_nan=False))
        return
    for run in runs:
        typer.echo(_told(run))
    typer.echo(f"The figure: {figure}")


def _told(run: Run) -> str:
    """A run in a line: how far it came, and its best evaluation."""
    reached = f"{run.name}: {run.steps:,} steps"
    if run.best is None:
        return reached
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in run.best["metrics"].items())
    return f"{reached}, best at step {run.best['step']:,}: {metrics}"
