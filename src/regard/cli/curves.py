"""`regard curves`: plot the learning curves of runs, or print their values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson

if TYPE_CHECKING:
    from regard.training.events import RunCurves

FIGURE = Path("curves.png")


def curves(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN", help="Run folders, or their log files.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Figure: .png, .svg or .pdf.", show_default=str(FIGURE)),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="Metric to plot (repeatable).",
            show_default="all, and the learning rate",
        ),
    ] = None,
    x_axis: Annotated[str, typer.Option("--x-axis", metavar="NAME", help="step, tokens or seconds.")] = "step",
    smoothing: Annotated[
        float,
        typer.Option("--smoothing", metavar="NUMBER", help="Smoothing of the training loss, from 0 (none) to 1."),
    ] = 0.6,
    as_json: AsJson = False,
) -> None:
    """Plot the learning curves of one or more runs.

    One panel per quantity, the runs overlaid. Steps that were repeated after an interruption count once.
    With --json, prints the values, and plots only with --out.
    """
    from regard.training.events import curve_values, draw_curves, panel_names, plain, read_runs

    runs = read_runs(paths)
    names = panel_names(runs, metrics or ())
    figure = None if as_json and out is None else draw_curves(runs, out or FIGURE, names, x_axis, smoothing)
    if as_json:
        entries = [{"name": run.name, "path": str(run.path)} | curve_values(run, names, x_axis) for run in runs]
        report = {"x_axis": x_axis, "runs": entries, "figure": figure}
        typer.echo(json.dumps(plain(report), allow_nan=False))
        return
    for run in runs:
        typer.echo(_summary(run))
    typer.echo(f"Figure: {figure}")


def _summary(run: RunCurves) -> str:
    """A run in a line: its steps and its best evaluation."""
    reached = f"{run.name}: {run.steps:,} steps"
    if run.best is None:
        return reached
    metrics = ", ".join(f"{name} {value:.4g}" for name, value in run.best["metrics"].items())
    return f"{reached}, best at step {run.best['step']:,}: {metrics}"
