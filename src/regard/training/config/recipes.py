"""Read and write recipes: a TOML file or the name of a shipped recipe, with --set on top, becomes a valid Recipe.

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

from regard.bounded_files import read_bytes
from regard.errors import SettingError, unknown
from regard.files import write_atomic
from regard.runs import RECIPE, Run, expect_version, parse_settings, toml
from regard.runs.toml import NONE, Keys
from regard.training.config.schema import Types, map_values
from regard.training.config.source import RecipeSource, SetOption
from regard.training.config.validation_errors import explain
from regard.training.recipe import Recipe

SHIPPED: Traversable = resources.files("regard") / "recipes"


def read_recipe(source: str | Path, sets: Sequence[str] = (), *, tasks: Mapping[str, type[Recipe]]) -> Recipe:
    """The recipe in a file, or the shipped recipe of that name, with `a.b=c` settings on top; its paths are absolute.

    A relative path in the file starts from the file's folder, one in `sets` from the working directory. "none" stands
    for None wherever a setting may be None.
    """
    return _validate(_load_source(source, [SetOption.read(text) for text in sets]), tasks)


def recipe_of_run(run: Run, sets: Sequence[str] = (), *, tasks: Mapping[str, type[Recipe]]) -> Recipe:
    """The recipe of an open run, with settings on top; its recipe.toml is not parsed again."""
    file, folder = str(run.path / RECIPE), run.path.absolute()
    opened = RecipeSource(file, folder, run.text, dict(run.settings), [SetOption.read(text) for text in sets])
    return _validate(opened, tasks)


def _validate(source: RecipeSource, tasks: Mapping[str, type[Recipe]]) -> Recipe:
    expect_version(source.top("version"), source.where)
    recipe = _recipe_class(source, tasks)
    merged = source.merged(recipe)
    data = map_values(recipe, merged, lambda types, value, keys: _value_from_toml(types, value, keys, source))
    try:
        return recipe.model_validate_json(json.dumps(data), context=source.folder)
    except ValidationError as error:
        raise explain(error, recipe, source, merged) from error


def shipped_recipes() -> dict[str, Traversable]:
    """The files of the shipped recipes, by name."""
    files = {file.name.removesuffix(".toml"): file for file in SHIPPED.iterdir() if file.name.endswith(".toml")}
    return dict(sorted(files.items()))


def recipe_to_toml(recipe: Recipe) -> str:
    """A recipe as TOML, with every setting, defaults included."""
    data = map_values(type(recipe), recipe.model_dump(mode="json"), _value_to_toml)
    for keys, (came, expected) in toml.find_unsupported(data):
        raise SettingError(came, expected, where=_dotted(keys))
    text = toml.dump(data)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise SettingError(
            f"A setting has {error.object[error.start]!a}, which UTF-8 cannot hold", where="recipe_to_toml"
        ) from error
    return text


def write_recipe(recipe: Recipe, path: Path) -> None:
    """Write a recipe as TOML; the file is complete or absent."""
    content = recipe_to_toml(recipe).encode()
    try:
        write_atomic(path, content)
    except OSError as error:
        raise SettingError(f"Could not write {path}: {error.strerror}", where="write_recipe") from error


def _load_source(path: str | Path, sets: Sequence[SetOption]) -> RecipeSource:
    name = str(path)
    is_path = os.sep in name or name.endswith(".toml")
    file = Path(name) if is_path else shipped_recipes().get(name, Path(name))
    try:
        content = read_bytes(file, SettingError, toml.MAX_SIZE) if isinstance(file, Path) else file.read_bytes()
    except SettingError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a zero in the name
        raise _file_error(name, is_path, error) from error
    text, data = parse_settings(content, str(file))
    return RecipeSource(str(file), Path(str(file)).absolute().parent, text, data, sets)


def _file_error(name: str, is_path: bool, error: Exception) -> SettingError:
    known = list(shipped_recipes())
    advice = f"Pass a .toml file, or one of {', '.join(known)}."
    if not is_path and isinstance(error, FileNotFoundError):
        near = [f"{name}.toml"] if os.path.exists(f"{name}.toml") else get_close_matches(name, known, n=1)
        suggestion = f"Did you mean {near[0]!r}? " if near else ""
        return SettingError(f"There is no recipe {name!r}", advice=suggestion + advice)
    reason = error.strerror if isinstance(error, OSError) else error
    inside = Path(name, "recipe.toml")
    is_run = isinstance(error, IsADirectoryError) and inside.exists()
    return SettingError(
        f"Could not read the recipe {name}: {reason}", advice=f"This folder has one: {inside}." if is_run else advice
    )


def _recipe_class(source: RecipeSource, tasks: Mapping[str, type[Recipe]]) -> type[Recipe]:
    task = source.top("task")
    if task is None:
        advice = f'Add a line such as task = "language". Known: {", ".join(sorted(tasks))}.'
        raise SettingError("The recipe names no task", where=source.name, advice=advice)
    if not isinstance(task, str) or task not in tasks:
        raise unknown(task, tasks, kind="task", where=source.where(("task",)))
    return tasks[task]


def _value_from_toml(types: Types, value: Any, keys: Keys, source: RecipeSource) -> Any:
    """What a value source in TOML stands for: "none" for None, and a path in a --set for one from here."""
    if value == NONE and NoneType in types:
        return None
    if isinstance(value, str) and Path in types and source.by_set(keys) and not value.startswith("~"):
        return str(Path.cwd() / value)
    return value


def _value_to_toml(types: Types, value: Any, keys: Keys) -> Any:
    """A value of the recipe as TOML has it: None becomes "none", a path absolute."""
    if value == NONE and NoneType in types:
        raise SettingError(
            f"The text {NONE!r} cannot be written: in a recipe it stands for no value", where=_dotted(keys)
        )
    if isinstance(value, str) and Path in types:
        return str(Path.cwd() / value)
    return NONE if value is None else value


def _dotted(keys: Keys) -> str:
    return ".".join(map(str, keys))
