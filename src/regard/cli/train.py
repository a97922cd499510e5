"""`regard train`: train by a recipe, look at what it would take, or go on after an interruption."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.process_tuning import prepare_machine
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.training import Estimate, Recipe
    from regard.training.events import Ended


def train(
    recipe: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="A recipe that comes with regard, or a .toml file.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", metavar="A.B=C", help="Change a setting of the recipe; again for more.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="RUN", help="The folder; runs/NAME unless told.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run where it was interrupted.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what it would take, and train nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train a model by a recipe, on the built-in corpus or on your own text.

    Without RECIPE: the recipes there are. With several devices: torchrun --nproc-per-node N -m regard train ...
    """
    prepare_machine()
    if recipe is None and not resume:
        _list_recipes(as_json)
        return
    chosen, folder = _chosen(recipe, sets or [], out, resume)
    if dry_run:
        _show_plan(chosen, as_json)
        return
    from regard.cli.progress_ui import Screen
    from regard.training import train as train_run

    with Screen(hidden=as_json or _rank() > 0) as screen:
        ended = train_run(chosen, folder, resume=resume, listeners=[screen], tell=screen.say)
    if _rank() == 0:
        _report(ended, folder, as_json)


def _rank() -> int:
    """Which of the processes that torchrun has started this one is."""
    return int(os.environ.get("RANK", "0"))


def _chosen(recipe: str | None, sets: list[str], out: Path | None, resume: bool) -> tuple[Recipe, Path]:
    from regard.training import agrees, read_recipe, recorded
    from regard.training.tasks import TASKS

    given = None if recipe is None else read_recipe(recipe, sets, tasks=TASKS)
    if out is None and given is None:
        raise SettingError("--resume alone", "which run: --out RUN", where="regard train")
    folder = out if out is not None else Path("runs") / given.name  # type: ignore[union-attr]
    if not resume:
        assert given is not None
        return given, folder
    kept = recorded(folder, sets)
    if given is not None:
        agrees(given, kept)
    return kept, folder


def _list_recipes(as_json: bool) -> None:
    from regard.training import read_recipe, shipped
    from regard.training.tasks import TASKS

    found = {name: read_recipe(name, tasks=TASKS).description for name in shipped()}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for name, description in found.items():
        typer.echo(f"{name:<{width}}  {description}")
    typer.echo("\nregard train NAME --dry-run shows a recipe and what it takes; regard train NAME trains.")


def _show_plan(recipe: Recipe, as_json: bool) -> None:
    from dataclasses import asdict

    from regard.training import dry_run, text_of

    plan = dry_run(recipe)
    if as_json:
        told = {**asdict(plan), "memory": plan.memory, "recipe": recipe.model_dump(mode="json")}
        typer.echo(json.dumps(told, indent=2))
        return
    typer.echo(text_of(recipe))
    for name, value in _rows(plan):
        typer.echo(f"# {name:<18} {value}")


def _rows(plan: Estimate) -> list[tuple[str, str]]:
    from regard.cli.progress_ui import size

    parts = {"weights": plan.weights, "gradients": plan.gradients, "optimiser": plan.optimiser, "average": plan.average}
    detail = ", ".join(f"{name} {size(value)}" for name, value in parts.items() if value)
    return [
        ("parameters", f"{plan.parameters:,}"),
        ("batches per epoch", f"{plan.batches_per_epoch:,}"),
        ("steps", f"{plan.steps:,} ({plan.epochs:.1f} epochs)"),
        ("largest batch", plan.largest),
        ("memory, about", f"{size(plan.memory)}: {detail}, activations {size(plan.activations)}"),
    ]


def _resuming(folder: Path) -> str:
    """The command that goes on with a run, as a shell takes it."""
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    regard = f"torchrun --nproc-per-node {workers} -m regard" if workers > 1 else "regard"
    return f"{regard} train --resume --out {shlex.quote(str(folder))}"


def _report(ended: Ended, folder: Path, as_json: bool) -> None:
    from regard.cli.progress_ui import told

    again = _resuming(folder)
    if as_json:
        outcome = {"run": str(folder), "reason": ended.reason, "step": ended.step, "seconds": round(ended.seconds, 3)}
        outcome |= {"metrics": dict(ended.metrics), "skipped": ended.skipped}
        typer.echo(json.dumps(outcome | ({"resume": again} if ended.reason == "interrupted" else {}), indent=2))
    elif ended.reason == "interrupted":
        typer.echo(f"interrupted after step {ended.step:,}; everything is saved. Go on with:\n  {again}")
    else:
        skipped = f", {ended.skipped:,} of them skipped" if ended.skipped else ""
        typer.echo(f"{ended.reason} after {ended.step:,} steps{skipped}")
        metrics = f": {told(ended.metrics)}" if ended.metrics else ""
        typer.echo(f"the model is {folder / 'model.safetensors'}{metrics}")
