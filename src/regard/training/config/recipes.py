"""Recipes from TOML files and back: a file or a shipped name, with --set on top, becomes a Recipe that is checked.

recipe = read_recipe("classifier", ["train.steps=200", "schedule.kind=cosine"], tasks=TASKS)
write_recipe(recipe, Path("run/recipe.toml"))        # every setting; read back, it is equal
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import NoneType
from typing import Any

from pydantic import ValidationError

from regard.errors import SettingError, unknown
from regard.files import write_whole
from regard.runs import RECIPE, Run, expect_version, parse_settings, toml
from regard.runs.toml import NONE, Keys
from regard.training.config.schema import Types, changed
from regard.training.config.source import Set, Written
from regard.training.config.validation_errors import refusal
from regard.training.recipe import Recipe

SHIPPED: Traversable = resources.files("regard") / "recipes"


def read_recipe(source: str | Path, sets: Sequence[str] = (), *, tasks: Mapping[str, type[Recipe]]) -> Recipe:
    """The recipe in a file, or the shipped one of that name, with `a.b=c` settings on top; its paths are absolute.

    A relative path in the file starts from the file's folder, one in `sets` from the working directory. "none" is
    None wherever a setting may be None.
    """
    return _checked(_written(source, [Set.read(text) for text in sets]), tasks)


def recipe_of(run: Run, sets: Sequence[str] = (), *, tasks: Mapping[str, type[Recipe]]) -> Recipe:
    """The recipe of a run, with settings on top; its recipe.toml is not parsed again."""
    file, folder = str(run.path / RECIPE), run.path.absolute()
    written = Written(file, folder, run.text, dict(run.settings), [Set.read(text) for text in sets])
    return _checked(written, tasks)


def _checked(written: Written, tasks: Mapping[str, type[Recipe]]) -> Recipe:
    expect_version(written.top("version"), written.where)
    recipe = _task(written, tasks)
    merged = written.merged(recipe)
    meant = changed(recipe, merged, lambda types, value, keys: _meant(types, value, keys, written))
    try:
        return recipe.model_validate_json(json.dumps(meant), context=written.folder)
    except ValidationError as error:
        raise refusal(error, recipe, written, merged) from error


def shipped() -> dict[str, Traversable]:
    """The recipes that come with regard, by name."""
    files = {file.name.removesuffix(".toml"): file for file in SHIPPED.iterdir() if file.name.endswith(".toml")}
    return dict(sorted(files.items()))


def text_of(recipe: Recipe) -> str:
    """A recipe as TOML, with every setting, also those left at their default."""
    data = changed(type(recipe), recipe.model_dump(mode="json"), _as_written)
    for keys, (came, expected) in toml.oddities(data):
        raise SettingError(came, expected, where=_dotted(keys))
    text = toml.written(data)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SettingError(f"{error.object[error.start]!a} in a setting", "UTF-8", where="text_of") from error
    return text


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe as `text_of` gives it; the file is there whole or not at all."""
    content = text_of(recipe).encode()
    try:
        write_whole(path, content)
    except OSError as error:
        raise SettingError(f"{path} ({error.strerror})", "a file to write", where="write_recipe") from error


def _written(source: str | Path, sets: Sequence[Set]) -> Written:
    name = str(source)
    is_path = os.sep in name or name.endswith(".toml")
    file = Path(name) if is_path else shipped().get(name, Path(name))
    try:
        content = file.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a zero in the name
        raise _no_file(name, is_path, error) from error
    text, data = parse_settings(content, str(file))
    return Written(str(file), Path(str(file)).absolute().parent, text, data, sets)


def _no_file(name: str, is_path: bool, error: Exception) -> SettingError:
    known = list(shipped())
    expected = f"a recipe: a .toml file or one of {', '.join(known)}"
    if not is_path and isinstance(error, FileNotFoundError):
        near = [f"{name}.toml"] if os.path.exists(f"{name}.toml") else get_close_matches(name, known, n=1)
        return SettingError(repr(name), expected, advice=f"Did you mean {near[0]!r}?" if near else "")
    reason = error.strerror if isinstance(error, OSError) else error
    inside = Path(name, "recipe.toml")
    is_run = isinstance(error, IsADirectoryError) and inside.exists()
    return SettingError(f"{name} ({reason})", expected, advice=f"There is one in it: {inside}." if is_run else "")


def _task(written: Written, tasks: Mapping[str, type[Recipe]]) -> type[Recipe]:
    task = written.top("task")
    if task is None:
        raise SettingError("no task", f"a task: one of {', '.join(sorted(tasks))}", where=written.name)
    if not isinstance(task, str) or task not in tasks:
        raise unknown(task, tasks, kind="task", where=written.where(("task",)))
    return tasks[task]


def _meant(types: Types, value: Any, keys: Keys, written: Written) -> Any:
    """What a value written in TOML stands for: "none" for None, and a path in a --set for one from here."""
    if value == NONE and NoneType in types:
        return None
    if isinstance(value, str) and Path in types and written.by_set(keys) and not value.startswith("~"):
        return str(Path.cwd() / value)
    return value


def _as_written(types: Types, value: Any, keys: Keys) -> Any:
    """The other way round: "none" for None; a relative path, which is one from here, becomes absolute."""
    if value == NONE and NoneType in types:
        raise SettingError(f"the text {NONE!r}", "another: in a recipe it says that there is none", where=_dotted(keys))
    if isinstance(value, str) and Path in types:
        return str(Path.cwd() / value)
    return NONE if value is None else value


def _dotted(keys: Keys) -> str:
    return ".".join(map(str, keys))
