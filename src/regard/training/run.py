"""A run: the folder of one training, and how a recipe becomes one, whole or after a crash.

RUN/recipe.toml  tokenizer.json  model.safetensors  state/  log.jsonl     and data/, where text lies tokenised
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from regard import __version__
from regard.errors import RegardError, RunError, SettingError, StoreError
from regard.files import alone, sync
from regard.runs import RECIPE, TARGET_TOKENIZER, TOKENIZER, Run, load_weights
from regard.text import Tokenizer
from regard.training.config.recipes import recipe_of, write_recipe
from regard.training.distributed import World, join
from regard.training.estimate import Estimate, estimate, steps_of
from regard.training.events.event import Ended, Listener
from regard.training.events.log import LogFile
from regard.training.loop import Loop
from regard.training.recipe import Recipe
from regard.training.run_writer import Keeping
from regard.training.tasks import TASKS

LOG, DATA = "log.jsonl", "data"
# what makes a run what it is
OWN = ("task", "data", "tokenizer", "target_tokenizer", "model", "batches", "pruned", "train.seed")
Tell = Callable[[str], None]


def train(
    recipe: Recipe, folder: Path, *, resume: bool = False, listeners: Sequence[Listener] = (), tell: Tell = print
) -> Ended:
    """Train by a recipe in a folder: a new one, or with `resume` one that was begun.

    Several processes started by torchrun train together; only the first one speaks to the listeners. A process that
    torchrun has restarted resumes by itself.
    """
    with join(recipe.train.device) as world:
        with world.in_turn():
            resume = _ready(folder, resume) if world.first else resume
        resume = world.share(resume)
        with _locked(folder, world):
            with nullcontext() if resume else _undone(folder, world):
                loop = _loop(recipe, folder, world, resume, tell if world.first else _silent)
            with _logged(folder, loop.recipe, world) as logs:
                loop.listeners = (*listeners, *logs) if world.first else ()
                facts = facts_of(loop.state.model, world) | {"keeps_every": loop.recipe.keep.every}
                (loop.resume if resume else loop.start)(facts)
                if world.first:
                    write_recipe(loop.recipe, folder / RECIPE)  # only now: what a resumed run refuses leaves no trace
                return loop.run()


def _loop(recipe: Recipe, folder: Path, world: World, resume: bool, tell: Tell) -> Loop:
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    with world.in_turn():
        if world.first and not resume:
            write_recipe(recipe, folder / RECIPE)
        with _same_text() if resume else nullcontext():
            prepared = recipe.prepare(folder, world.rank, world.ranks)
    keeping = Keeping(folder, world, prepared.recipe, tell)
    if recipe.start.weights is not None and not keeping.checkpoints.steps():
        _same_words(recipe.start.weights, folder)
        load_weights(prepared.model, recipe.start.weights)
    if recipe.train.compile is True:  # with "graphs" only what the loss calls is compiled (Spread)
        prepared.model.compile()
    for note in prepared.notes:
        tell(note)
    return Loop(prepared, steps_of(recipe, prepared.train), world, keeping)


@contextmanager
def _same_text() -> Iterator[None]:
    """What a run is resumed with must be what it was begun with."""
    try:
        yield
    except StoreError as error:
        advice = "Put the text back as it was, or begin a new run; start.weights takes this run's weights along."
        raise RunError(error.came, error.expected, where=error.where, advice=advice) from error


def _same_words(weights: Path, folder: Path) -> None:
    """Refuse weights of a run whose tokenizers give the same numbers to other words."""
    for section, name in (("tokenizer", TOKENIZER), ("target_tokenizer", TARGET_TOKENIZER)):
        theirs, ours = weights / name, folder / name
        both = theirs.exists() and ours.exists()
        if both and Tokenizer.load(theirs).fingerprint != Tokenizer.load(ours).fingerprint:
            raise SettingError(
                f"weights of a run with another tokenizer ({theirs})",
                "one whose words have the same numbers",
                where="start.weights",
                advice=f"Take it along: --set {section}.kind=file --set {section}.path={shlex.quote(str(theirs))}.",
            )


@contextmanager
def _undone(folder: Path, world: World) -> Iterator[None]:
    """A new run that cannot even begin leaves nothing in the way of the next try: its folder is as empty as before."""
    try:
        yield
    except RegardError:
        if world.first:
            rmtree(folder / DATA, ignore_errors=True)
            for name in (RECIPE, TOKENIZER, TARGET_TOKENIZER, "lock"):
                (folder / name).unlink(missing_ok=True)
        raise


def _ready(folder: Path, resume: bool) -> bool:
    """Make the folder of a new run, or find that of an old one; whether to resume."""
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    there = (folder / RECIPE).exists()
    if (resume or restarted) and there:
        return True
    if resume:
        raise RunError(f"{folder}, which is no run", "a folder that `regard train` has made")
    if folder.exists() and (not folder.is_dir() or not all(map(_leftover, folder.iterdir()))):
        again = f"Go on with `regard train --resume --out {shlex.quote(str(folder))}`, or name another folder."
        raise RunError(
            f"{folder}, which exists", "a new folder", where="--out", advice=again if there else "Name another folder."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)
    except OSError as error:
        raise RunError(f"{folder} ({error.strerror})", "a folder that can be made", where="--out") from error
    return False


def _leftover(path: Path) -> bool:
    """Whether a process that was killed in the middle of a file has left this behind."""
    return path.name == "lock" or path.suffix == ".part"


@contextmanager
def _locked(folder: Path, world: World) -> Iterator[None]:
    if not world.first:
        yield
        return
    busy = RunError(f"{folder}, where another process is training", "one process group a run", where="--out")
    with alone(folder, lambda: busy):
        for part in folder.glob("*.part"):
            part.unlink()
        yield


@contextmanager
def _logged(folder: Path, recipe: Recipe, world: World) -> Iterator[list[Listener]]:
    if not world.first:
        yield []
        return
    with closing(LogFile(folder / LOG)) as log:
        if not recipe.log.tensorboard:
            yield [log]
            return
        from regard.training.events.tensorboard import TensorBoardLog

        with closing(TensorBoardLog(folder / "tensorboard")) as board:
            yield [log, board]


def facts_of(model: nn.Module, world: World) -> dict[str, Any]:
    """What the result depends on beside the recipe, and what a person wants to see first."""
    return {
        "parameters": sum(one.numel() for one in model.parameters()),
        "device": str(world.device),
        "ranks": world.ranks,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "regard": __version__,
    }


def recorded(folder: str | os.PathLike[str], sets: Sequence[str] = ()) -> Recipe:
    """The recipe of a run, with changes; not of what the run is made of, since its state would no longer fit."""
    run = Run.open(folder)
    after = recipe_of(run, sets, tasks=TASKS)
    before = recipe_of(run, tasks=TASKS) if sets else after
    for name in (name for name in OWN if name.partition(".")[0] in type(before).model_fields):
        if attrgetter(name)(before) != attrgetter(name)(after):
            raise SettingError(
                f"another {name if '.' in name else f'[{name}]'}",
                "the one that the run was begun with",
                where="--resume with --set",
                advice="Begin a new run; start.weights takes this run's weights along where they fit.",
            )
    return after


def agrees(given: Recipe, kept: Recipe) -> None:
    """Refuse a recipe that differs from the one of the run to be resumed; what it leaves open is filled in there."""
    difference = _difference(given.model_dump(mode="json"), kept.model_dump(mode="json"))
    if difference is not None:
        name, came, expected = difference
        raise SettingError(
            f"{name} = {came!r} in the recipe",
            f"{expected!r}, as in the run",
            where="--resume",
            advice=f"A run goes on with its own recipe; to change it, pass --set {name}={came}.",
        )


def _difference(given: Any, kept: Any, name: str = "") -> tuple[str, Any, Any] | None:
    if isinstance(given, dict) and isinstance(kept, dict):
        found = (_difference(given.get(key), kept.get(key), f"{name}.{key}") for key in {**given, **kept})
        return next((one for one in found if one is not None), None)
    return None if given is None or given == kept else (name.removeprefix("."), given, kept)


def dry_run(recipe: Recipe) -> Estimate:
    """What a training would take, without a trace."""
    with TemporaryDirectory() as folder:
        return estimate(recipe.prepare(Path(folder)))


def _silent(text: str) -> None:
    """Nobody is told."""
