"""The source of a recipe: the text of a file and the --set options, with the place where each setting was written."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from regard.errors import SettingError
from regard.runs.toml import NONE, Keys, find_line, find_unsupported, format_value, has_key, truncate
from regard.training.config.schema import KIND, fill_kinds


@dataclass(frozen=True)
class SetOption:
    """One `--set a.b=c`."""

    text: str
    keys: tuple[str, ...]
    value: Any

    @property
    def where(self) -> str:
        return f"--set {self.text}"

    @classmethod
    def read(cls, text: str) -> SetOption:
        """The value is parsed as TOML; what is no TOML is plain text, so most text needs no quotes."""
        name, sign, value = text.partition("=")
        keys = tuple(key.strip() for key in name.split("."))
        if not sign or not all(keys):
            raise SettingError(
                "There is no '='" if not sign else f"{name!r} is not the name of a setting",
                where=f"--set {text}",
                advice="Write section.setting=value, such as --set train.steps=500.",
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise SettingError("The text is not UTF-8", where=f"--set {text!a}")
        made = cls(text, keys, _parse_value(value.strip()))
        for _, (came, expected) in find_unsupported(made.value):
            raise SettingError(came, expected, where=made.where)
        return made


def _parse_value(text: str) -> Any:
    try:
        found = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return text
    return text if list(found) != ["x"] or isinstance(found["x"], date | time) else found["x"]


@dataclass(frozen=True)
class RecipeSource:
    """A recipe file: its name, its folder (where its relative paths start), its text and data, and every --set."""

    name: str
    folder: Path
    text: str
    data: dict[str, Any]
    sets: Sequence[SetOption]

    def top(self, key: str) -> Any:
        """A setting outside all sections."""
        return next((one.value for one in reversed(self.sets) if one.keys == (key,)), self.data.get(key))

    def merged(self, recipe: type[BaseModel]) -> dict[str, Any]:
        """The settings of the file with every --set applied; every section names its kind.

        The order of --set options does not matter, except that the last one of a setting wins. A --set of another
        kind clears the section: the file's settings there are those of the other kind.
        """
        data = deepcopy(fill_kinds(recipe, self.data))
        for one in sorted(self.sets, key=lambda one: (len(one.keys), one.keys[-1] != KIND)):
            _insert(data, one)
        return fill_kinds(recipe, data)

    def by_set(self, keys: Keys) -> SetOption | None:
        """The --set that a setting comes from, if any."""
        return next((one for one in reversed(self.sets) if one.keys == keys[: len(one.keys)]), None)

    def where(self, keys: Keys) -> str:
        """Where the setting `keys` was written: a --set, or a line of the file."""
        if one := self.by_set(keys):
            return one.where
        if not has_key(self.data, keys):
            for one in reversed(self.sets):
                around = (*keys[:-1], KIND)  # what added the setting to the section, or cleared it
                if one.keys[: len(keys)] == keys or one.keys == around:
                    return one.where
        known = next(keys[:count] for count in range(len(keys), -1, -1) if has_key(self.data, keys[:count]))
        return f"{self.name}:{find_line(self.text, known)}" if known else self.name


def _insert(data: dict[str, Any], one: SetOption) -> None:
    section = data
    for key in one.keys[:-1]:
        if section.get(key, NONE) == NONE:
            section[key] = {}
        if not isinstance(section[key], dict):
            raise SettingError(f"{key} = {truncate(format_value(section[key]))}", f"a section [{key}]", where=one.where)
        section = section[key]
    if one.keys[-1] == KIND and section.get(KIND, one.value) != one.value:
        section.clear()
    section[one.keys[-1]] = deepcopy(one.value)
