"""Train a run: a recipe becomes a run folder, from the start or resumed from its checkpoints.

RUN/recipe.toml  tokenizer.json  model.safetensors  state/  log.jsonl     and data/, the tokenized text files
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
from regard.files import exclusive_lock, sync
from regard.runs import RECIPE, TARGET_TOKENIZER, TOKENIZER, Run, load_weights
from regard.text import Tokenizer
from regard.training.config.recipes import recipe_of_run, write_recipe
from regard.training.distributed import World, init_distributed
from regard.training.events.event import Ended, EventListener
from regard.training.events.log import LogFile
from regard.training.loop import Loop
from regard.training.recipe import Recipe
from regard.training.resource_estimate import ResourceEstimate, estimate_resources, total_steps
from regard.training.run_writer import RunWriter
from regard.training.tasks import TASKS

LOG, DATA = "log.jsonl", "data"
# settings that a resumed run cannot change
FROZEN_ON_RESUME = ("task", "data", "tokenizer", "target_tokenizer", "model", "batches", "pruned", "train.seed")
Notify = Callable[[str], None]


def train(
    recipe: Recipe,
    folder: Path,
    *,
    resume: bool = False,
    listeners: Sequence[EventListener] = (),
    notify: Notify = print,
) -> Ended:
    """Train by a recipe in a run folder: a new one, or with `resume` one that exists. `notify` gets lines for people.

    Processes that torchrun has started train together; only the main one calls the listeners. After a restart by
    torchrun, training resumes by itself.
    """
    with init_distributed(recipe.train.device) as world:
        with world.main_first():
            resume = _prepare_folder(folder, resume) if world.is_main else resume
        resume = world.broadcast(resume)
        with _locked(folder, world):
            with nullcontext() if resume else _removed_on_error(folder, world):
                loop = _make_loop(recipe, folder, world, resume, notify if world.is_main else _discard)
            with _log_listeners(folder, loop.recipe, world) as logs:
                loop.listeners = (*listeners, *logs) if world.is_main else ()
                facts = run_facts(loop.state.model, world) | {"checkpoint_every": loop.recipe.checkpoint.every}
                (loop.resume if resume else loop.start)(facts)
                if world.is_main:
                    write_recipe(loop.recipe, folder / RECIPE)  # only now: a refused resume changes nothing
                return loop.run()


def _make_loop(recipe: Recipe, folder: Path, world: World, resume: bool, notify: Notify) -> Loop:
    if recipe.train.threads is not None:
        torch.set_num_threads(recipe.train.threads)
    with world.main_first():
        if world.is_main and not resume:
            write_recipe(recipe, folder / RECIPE)
        with _same_text_on_resume() if resume else nullcontext():
            prepared = recipe.prepare(folder, world.rank, world.ranks)
    writer = RunWriter(folder, world, prepared.recipe, notify)
    if recipe.start.weights is not None and not writer.checkpoints.steps():
        _check_same_tokenizers(recipe.start.weights, folder)
        load_weights(prepared.model, recipe.start.weights)
    if recipe.train.compile is True:  # with "graphs" DistributedModel compiles what the loss calls
        prepared.model.compile()
    for note in prepared.notes:
        notify(note)
    return Loop(prepared, total_steps(recipe, prepared.train), world, writer)


@contextmanager
def _same_text_on_resume() -> Iterator[None]:
    """Refuse to resume a run whose text files have changed."""
    try:
        yield
    except StoreError as error:
        advice = "Restore the text, or start a new run; start.weights can take this run's weights."
        raise RunError(error.problem, error.expected, where=error.where, advice=advice) from error


def _check_same_tokenizers(weights: Path, folder: Path) -> None:
    """Refuse weights of a run whose tokenizers number the words differently."""
    for section, name in (("tokenizer", TOKENIZER), ("target_tokenizer", TARGET_TOKENIZER)):
        theirs, ours = weights / name, folder / name
        both = theirs.exists() and ours.exists()
        if both and Tokenizer.load(theirs).fingerprint != Tokenizer.load(ours).fingerprint:
            raise SettingError(
                f"The weights are of a run with another tokenizer ({theirs})",
                where="start.weights",
                advice=f"Use that one: --set {section}.kind=file --set {section}.path={shlex.quote(str(theirs))}.",
            )


@contextmanager
def _removed_on_error(folder: Path, world: World) -> Iterator[None]:
    """Empty the folder of a new run that failed before its first step, so that nothing is in the way of a retry."""
    try:
        yield
    except RegardError:
        if world.is_main:
            rmtree(folder / DATA, ignore_errors=True)
            for name in (RECIPE, TOKENIZER, TARGET_TOKENIZER, "lock"):
                (folder / name).unlink(missing_ok=True)
        raise


def _prepare_folder(folder: Path, resume: bool) -> bool:
    """Make the folder of a new run, or find an existing one; whether to resume."""
    restarted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    is_run = (folder / RECIPE).exists()
    if (resume or restarted) and is_run:
        return True
    if resume:
        raise RunError(
            f"{folder} is not a run folder",
            where="--resume",
            advice="Pass a folder that `regard train` made: --out RUN.",
        )
    if folder.exists() and (not folder.is_dir() or not all(map(_is_leftover, folder.iterdir()))):
        again = f"Continue it with `regard train --resume --out {shlex.quote(str(folder))}`, or choose another folder."
        advice = again if is_run else "Choose another folder."
        raise RunError(f"{folder} exists already", where="--out", advice=advice)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sync(folder.parent)
    except OSError as error:
        raise RunError(f"Could not create the folder {folder}: {error.strerror}", where="--out") from error
    return False


def _is_leftover(path: Path) -> bool:
    """Whether a process that was killed while it wrote a file left this behind."""
    return path.name == "lock" or path.suffix == ".part"


@contextmanager
def _locked(folder: Path, world: World) -> Iterator[None]:
    if not world.is_main:
        yield
        return
    busy = RunError(f"Another process is training in {folder}", where="--out", advice="Choose another folder.")
    with exclusive_lock(folder, lambda: busy):
        for part in folder.glob("*.part"):
            part.unlink()
        yield


@contextmanager
def _log_listeners(folder: Path, recipe: Recipe, world: World) -> Iterator[list[EventListener]]:
    if not world.is_main:
        yield []
        return
    with closing(LogFile(folder / LOG)) as log:
        if not recipe.log.tensorboard:
            yield [log]
            return
        from regard.training.events.tensorboard import TensorBoardLog

        with closing(TensorBoardLog(folder / "tensorboard")) as board:
            yield [log, board]


def run_facts(model: nn.Module, world: World) -> dict[str, Any]:
    """What the result depends on besides the recipe, and the size of the model, for the log."""
    return {
        "parameters": sum(one.numel() for one in model.parameters()),
        "device": str(world.device),
        "ranks": world.ranks,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "regard": __version__,
    }


def load_recipe(folder: str | os.PathLike[str], sets: Sequence[str] = ()) -> Recipe:
    """The recipe of a run, with --set changes; those of FROZEN_ON_RESUME are refused: its state would not fit."""
    run = Run.open(folder)
    after = recipe_of_run(run, sets, tasks=TASKS)
    before = recipe_of_run(run, tasks=TASKS) if sets else after
    for name in (name for name in FROZEN_ON_RESUME if name.partition(".")[0] in type(before).model_fields):
        if attrgetter(name)(before) != attrgetter(name)(after):
            raise SettingError(
                f"A resumed run cannot change {name if '.' in name else f'[{name}]'}",
                where="--resume with --set",
                advice="Start a new run; start.weights can take this run's weights where they fit.",
            )
    return after


def check_same_recipe(given: Recipe, recorded: Recipe) -> None:
    """Refuse a recipe that differs from that of the run to resume; settings that it leaves open may differ."""
    difference = _difference(given.model_dump(mode="json"), recorded.model_dump(mode="json"))
    if difference is not None:
        name, value, expected = difference
        raise SettingError(
            f"The recipe has {name} = {value!r}, the run {expected!r}",
            where="--resume",
            advice=f"A run continues with its own recipe; to change it, pass --set {name}={value}.",
        )


def _difference(given: Any, recorded: Any, name: str = "") -> tuple[str, Any, Any] | None:
    if isinstance(given, dict) and isinstance(recorded, dict):
        found = (_difference(given.get(key), recorded.get(key), f"{name}.{key}") for key in {**given, **recorded})
        return next((one for one in found if one is not None), None)
    return None if given is None or given == recorded else (name.removeprefix("."), given, recorded)


def dry_run(recipe: Recipe) -> ResourceEstimate:
    """What a training would take; leaves no files."""
    with TemporaryDirectory() as folder:
        return estimate_resources(recipe.prepare(Path(folder)))


def _discard(text: str) -> None:
    """Print nothing: for all ranks but the main one."""
