"""What a run is good for: its trained model together with the tokenizers that it was trained with."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

from regard.decoding.translate import Translator
from regard.errors import RunError
from regard.training.recipe import Recipe
from regard.training.run import load, recorded
from regard.training.tasks import TASKS
from regard.training.tasks.translation import Translation

R = TypeVar("R", bound=Recipe)


def translator(folder: str | os.PathLike[str]) -> Translator:
    """The translator of a run."""
    folder = Path(folder)
    recipe = for_task(folder, Translation)
    return Translator(load(folder), *recipe.tokenizers(folder))


def for_task(folder: Path, *kinds: type[R]) -> R:
    """The recipe of a run, which must be for one of these tasks."""
    recipe = recorded(folder)
    if not isinstance(recipe, kinds):
        names = [name for name, kind in TASKS.items() if issubclass(kind, kinds)]
        raise RunError(f"{folder}, a run of task {recipe.task!r}", f"one of task {' or '.join(map(repr, names))}")
    return recipe
