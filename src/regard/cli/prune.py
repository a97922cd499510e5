"""`regard prune`: cut the heads that a model needs least, and save the smaller one as a run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from regard.errors import unknown

if TYPE_CHECKING:
    from regard.inspection.heads import Pruned


WAYS = {"importance": "importance of each head, by gradients", "ablation": "the rise of the loss without each head"}


def prune(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a trained model with several heads.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT", help="The folder of the smaller run.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Examples to judge by, a table or plain text as the task reads it; else the run's validation ones.",
        ),
    ] = None,
    keep: Annotated[float, typer.Option(help="The share of all heads that stays; at each place one does.")] = 0.5,
    by: Annotated[
        str, typer.Option(help="importance: by gradients (Michel et al. 2019); ablation: switch off each head.")
    ] = "importance",
    batches: Annotated[int | None, typer.Option(min=1, help="Judge by so many batches at most.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one object.")] = False,
) -> None:
    """Cut out the heads that matter least and write a smaller run, which is used and trained like any other. Prints a
    score for each head, which were cut, and how well the model did before and does now."""
    if by not in WAYS:
        raise unknown(by, WAYS, kind="--by", where="regard prune")
    from regard.cli.process_tuning import prepare_machine
    from regard.cli.progress_ui import progress_bar
    from regard.inspection.heads import By, prune as pruned

    prepare_machine()
    with progress_bar("heads", hidden=as_json) as tell:
        found = pruned(run, out, keep, cast(By, by), file, batches, tell=tell)
    if as_json:
        typer.echo(json.dumps({"run": str(run), "out": str(out), "by": by, **asdict(found)}))
        return
    head = f"{WAYS[by]}; those in brackets are cut"
    typer.echo("\n".join([head, *_scores(found), "", *_measures(found), "", _end(found, out)]))


def _scores(found: Pruned) -> list[str]:
    """A line for each place, a column for each head."""
    wide = max(map(len, found.scores))
    most = max(map(len, found.scores.values()))
    lines = [f"{'':{wide}}" + "".join(f"{head:>9}" for head in range(most))]
    for place, scores in found.scores.items():
        cut = found.cut.get(place, [])
        cells = (f"[{one:.3f}]" if head in cut else f"{one:.3f} " for head, one in enumerate(scores))
        lines.append(f"{place:{wide}}" + "".join(f"{cell:>9}" for cell in cells).rstrip())
    return lines


def _measures(found: Pruned) -> list[str]:
    wide = max(len("parameters"), *map(len, found.before))
    before, after = found.parameters
    lines = [f"{'':{wide}}  {'before':>12}  {'after':>12}", f"{'parameters':{wide}}  {before:>12,}  {after:>12,}"]
    for name, value in found.before.items():
        lines.append(f"{name.replace('_', ' '):{wide}}  {value:>12.4f}  {found.after[name]:>12.4f}")
    return lines


def _end(found: Pruned, out: Path) -> str:
    cut = sum(map(len, found.cut.values()))
    return f"{cut} of {found.heads} heads cut: {out}. `regard train {out}/recipe.toml --out NEW` trains it further."
