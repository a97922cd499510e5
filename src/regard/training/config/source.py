"""A recipe as its user wrote it: the text of a file and what --set adds to it; knows where each setting came from."""

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
from regard.runs.toml import NONE, Keys, has, inline, line_of, oddities, short
from regard.training.config.schema import KIND, with_kinds


@dataclass(frozen=True)
class Set:
    """One `--set a.b=c`."""

    text: str
    keys: tuple[str, ...]
    value: Any

    @property
    def where(self) -> str:
        return f"--set {self.text}"

    @classmethod
    def read(cls, text: str) -> Set:
        """The value is one of TOML, or else plain text, so that most text needs no quotes."""
        name, sign, value = text.partition("=")
        keys = tuple(key.strip() for key in name.split("."))
        if not sign or not all(keys):
            raise SettingError(
                "no '='" if not sign else f"the name {name!r}",
                "section.setting=value",
                where=f"--set {text}",
                advice="For example: --set train.steps=500.",
            )
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise SettingError("bytes that are not UTF-8", "UTF-8", where=f"--set {text!a}")
        made = cls(text, keys, _value(value.strip()))
        for _, (came, expected) in oddities(made.value):
            raise SettingError(came, expected, where=made.where)
        return made


def _value(text: str) -> Any:
    try:
        found = tomllib.loads(f"x = {text}")
    except (ValueError, RecursionError):
        return text
    return text if list(found) != ["x"] or isinstance(found["x"], date | time) else found["x"]


@dataclass(frozen=True)
class Written:
    """The file by name, as text and as data; its folder, from which paths in it start; and every --set."""

    name: str
    folder: Path
    text: str
    data: dict[str, Any]
    sets: Sequence[Set]

    def top(self, key: str) -> Any:
        """A setting that stands in no section."""
        return next((one.value for one in reversed(self.sets) if one.keys == (key,)), self.data.get(key))

    def merged(self, recipe: type[BaseModel]) -> dict[str, Any]:
        """All that was written, the file's and the --sets'; every section names its kind.

        The order of the --sets does not matter, but that the last of two for one setting wins. A section that is
        set to another kind than the file's starts anew: what the file says there is about another kind.
        """
        data = deepcopy(with_kinds(recipe, self.data))
        for one in sorted(self.sets, key=lambda one: (len(one.keys), one.keys[-1] != KIND)):
            _put(data, one)
        return with_kinds(recipe, data)

    def by_set(self, keys: Keys) -> Set | None:
        """The --set that a setting comes from."""
        return next((one for one in reversed(self.sets) if one.keys == keys[: len(one.keys)]), None)

    def where(self, keys: Keys) -> str:
        """What to point at when the setting `keys` is wrong: a --set, or a line of the file."""
        if one := self.by_set(keys):
            return one.where
        if not has(self.data, keys):
            for one in reversed(self.sets):
                around = (*keys[:-1], KIND)  # what made the section lack or have this setting
                if one.keys[: len(keys)] == keys or one.keys == around:
                    return one.where
        known = next(keys[:count] for count in range(len(keys), -1, -1) if has(self.data, keys[:count]))
        return f"{self.name}:{line_of(self.text, known)}" if known else self.name


def _put(data: dict[str, Any], one: Set) -> None:
    section = data
    for key in one.keys[:-1]:
        if section.get(key, NONE) == NONE:
            section[key] = {}
        if not isinstance(section[key], dict):
            raise SettingError(f"{key} = {short(inline(section[key]))}", f"a section [{key}]", where=one.where)
        section = section[key]
    if one.keys[-1] == KIND and section.get(KIND, one.value) != one.value:
        section.clear()
    section[one.keys[-1]] = deepcopy(one.value)
