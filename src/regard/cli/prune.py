"""`regard prune`: attention head pruning by importance or ablation."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from regard.cli.command import AsJson
from regard.errors import unknown

if TYPE_CHECKING:
    from regard.inspection.heads import Pruned


CRITERIA = {"importance": "importance of each head, by gradients", "ablation": "increase of the loss without each head"}


def prune(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of a model with several heads.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder of the pruned run.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Examples to evaluate on, in the format of the task.",
            show_default="the run's validation data",
        ),
    ] = None,
    keep: Annotated[
        float,
        typer.Option("--keep", metavar="NUMBER", help="Share of the heads to keep; each module keeps at least one."),
    ] = 0.5,
    criterion: Annotated[
        str,
        typer.Option(
            "--criterion",
            metavar="NAME",
            help="importance: gradient-based (Michel et al. 2019); ablation: the loss without each head.",
        ),
    ] = "importance",
    max_batches: Annotated[
        int | None, typer.Option("--max-batches", metavar="N", min=1, help="Maximum batches to evaluate on.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Prune the least important attention heads of a model.

    Writes a smaller run, which can be used and trained like any other. Prints the score of each head, which heads were
    pruned, and the metrics before and after.
    """
    if criterion not in CRITERIA:
        raise unknown(criterion, CRITERIA, kind="criterion", where="prune --criterion")
    from regard.cli.process_tuning import prepare_machine
    from regard.cli.progress_ui import progress_bar
    from regard.inspection.heads import Criterion, prune as pruned

    prepare_machine()
    with progress_bar("heads", hidden=as_json) as advance:
        found = pruned(run, out, keep, cast(Criterion, criterion), file, max_batches, on_progress=advance)
    if as_json:
        typer.echo(json.dumps({"run": str(run), "out": str(out), "by": criterion, **asdict(found)}))
        return
    head = f"{CRITERIA[criterion]}; heads in brackets are pruned"
    typer.echo("\n".join([head, *_scores(found), "", *_measures(found), "", _end(found, out)]))


def _scores(found: Pruned) -> list[str]:
    """A line for each attention module, a column for each head."""
    width = max(map(len, found.scores))
    heads = max(map(len, found.scores.values()))
    lines = [f"{'':{width}}" + "".join(f"{head:>9}" for head in range(heads))]
    for place, scores in found.scores.items():
        cut = found.cut.get(place, [])
        cells = (f"[{one:.3f}]" if head in cut else f"{one:.3f} " for head, one in enumerate(scores))
        lines.append(f"{place:{width}}" + "".join(f"{cell:>9}" for cell in cells).rstrip())
    return lines


def _measures(found: Pruned) -> list[str]:
    width = max(len("parameters"), *map(len, found.before))
    before, after = found.parameters
    lines = [f"{'':{width}}  {'before':>12}  {'after':>12}", f"{'parameters':{width}}  {before:>12,}  {after:>12,}"]
    for name, value in found.before.items():
        lines.append(f"{name.replace('_', ' '):{width}}  {value:>12.4f}  {found.after[name]:>12.4f}")
    return lines


def _end(found: Pruned, out: Path) -> str:
    cut = sum(map(len, found.cut.values()))
    return f"{cut} of {found.heads} heads pruned: {out}. `regard train {out}/recipe.toml --out NEW` trains it further."
