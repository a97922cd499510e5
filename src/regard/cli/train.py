"""`regard train`: train a model from a recipe, estimate its cost (--dry-run), or resume."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.command import AsJson
from regard.cli.process_tuning import prepare_machine
from regard.errors import SettingError

if TYPE_CHECKING:
    from regard.training import Recipe, ResourceEstimate
    from regard.training.events import Ended


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(metavar="RECIPE", help="Shipped recipe, or a .toml file. Without it: list the recipes."),
    ] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Override a setting of the recipe (repeatable)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="RUN", help="Output folder.", show_default="runs/NAME")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the recipe, its steps and its memory, without training.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Train a model from a recipe, or list the recipes.

    Trains on the built-in corpus, or on your own text (--set data...).
    With several devices: torchrun --nproc-per-node N -m regard train ...
    """
    prepare_machine()
    if recipe is None and not resume:
        _list_recipes(as_json)
        return
    chosen, folder = _chosen(recipe, sets or [], out, resume)
    if dry_run:
        _show_plan(chosen, as_json)
        return
    from regard.cli.progress_ui import TrainingProgress
    from regard.training import train as train_run

    with TrainingProgress(hidden=as_json or _rank() > 0) as screen:
        ended = train_run(chosen, folder, resume=resume, listeners=[screen], notify=screen.print_line)
    if _rank() == 0:
        _report(ended, folder, as_json)


def _rank() -> int:
    """The rank of this process among those started by torchrun."""
    return int(os.environ.get("RANK", "0"))


def _chosen(recipe: str | None, sets: list[str], out: Path | None, resume: bool) -> tuple[Recipe, Path]:
    from regard.training import check_same_recipe, load_recipe, read_recipe
    from regard.training.tasks import TASKS

    given = None if recipe is None else read_recipe(recipe, sets, tasks=TASKS)
    if out is None and given is None:
        raise SettingError("--resume needs a recipe or --out RUN", where="train")
    folder = out if out is not None else Path("runs") / given.name  # type: ignore[union-attr]
    if not resume:
        assert given is not None
        return given, folder
    recorded = load_recipe(folder, sets)
    if given is not None:
        check_same_recipe(given, recorded)
    return recorded, folder


def _list_recipes(as_json: bool) -> None:
    from regard.training import read_recipe, shipped_recipes
    from regard.training.tasks import TASKS

    found = {name: read_recipe(name, tasks=TASKS).description for name in shipped_recipes()}
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    width = max(map(len, found))
    for name, description in found.items():
        typer.echo(f"{name:<{width}}  {description}")
    typer.echo("\n`regard train NAME` trains; `regard train NAME --dry-run` shows the recipe and its cost.")


def _show_plan(recipe: Recipe, as_json: bool) -> None:
    from dataclasses import asdict

    from regard.training import dry_run, recipe_to_toml

    plan = dry_run(recipe)
    if as_json:
        entry = {**asdict(plan), "memory": plan.memory, "recipe": recipe.model_dump(mode="json")}
        typer.echo(json.dumps(entry, indent=2))
        return
    typer.echo(recipe_to_toml(recipe))
    for name, value in _rows(plan):
        typer.echo(f"# {name:<18} {value}")


def _rows(plan: ResourceEstimate) -> list[tuple[str, str]]:
    from regard.cli.progress_ui import format_bytes

    parts = {
        "weights": plan.weights,
        "gradients": plan.gradients,
        "optimiser": plan.optimiser,
        "average": plan.weight_average,
    }
    detail = ", ".join(f"{name} {format_bytes(value)}" for name, value in parts.items() if value)
    return [
        ("parameters", f"{plan.parameters:,}"),
        ("batches per epoch", f"{plan.batches_per_epoch:,}"),
        ("steps", f"{plan.steps:,} ({plan.epochs:.1f} epochs)"),
        ("largest batch", plan.largest_batch),
        ("memory, about", f"{format_bytes(plan.memory)}: {detail}, activations {format_bytes(plan.activations)}"),
    ]


def _resume_command(folder: Path) -> str:
    """The shell command that resumes a run."""
    workers = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    regard = f"torchrun --nproc-per-node {workers} -m regard" if workers > 1 else "regard"
    return f"{regard} train --resume --out {shlex.quote(str(folder))}"


def _report(ended: Ended, folder: Path, as_json: bool) -> None:
    from regard.cli.progress_ui import format_metrics

    resume = _resume_command(folder)
    if as_json:
        outcome = {"run": str(folder), "reason": ended.reason, "step": ended.step, "seconds": round(ended.seconds, 3)}
        outcome |= {"metrics": dict(ended.metrics), "skipped": ended.skipped}
        typer.echo(json.dumps(outcome | ({"resume": resume} if ended.reason == "interrupted" else {}), indent=2))
    elif ended.reason == "interrupted":
        typer.echo(f"interrupted after step {ended.step:,}; the state is saved. Resume with:\n  {resume}")
    else:
        skipped = f", {ended.skipped:,} of them skipped" if ended.skipped else ""
        typer.echo(f"{ended.reason} after {ended.step:,} steps{skipped}")
        metrics = f": {format_metrics(ended.metrics)}" if ended.metrics else ""
        typer.echo(f"model saved to {folder / 'model.safetensors'}{metrics}")
