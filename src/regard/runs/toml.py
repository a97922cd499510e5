"""TOML for recipes: parsing with the line of each error, and writing, which the standard library lacks.

TOML has no null, so None is written as the text "none".
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, time
from typing import Any

from regard.errors import SettingError

Keys = tuple[str | int, ...]
NONE = "none"
MAX_DEPTH = 50  # lists and sections inside each other
MAX_SIZE = 1 << 20  # bytes of a recipe file
_LINE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")
_PART = r"(?:[A-Za-z0-9_-]++|\"[^\"\n]*+\"|'[^'\n]*+')[ \t]*+\.[ \t]*+"  # of a dotted key
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-]){_PART}(?:{_PART}){{{MAX_DEPTH}}}")
_SEARCHED = 4 << 20  # characters that `find_line` parses at most
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def parse(text: str, name: str) -> dict[str, Any]:
    """The data of a TOML text; errors are reported as `name`:line."""
    if found := _LONG_KEY.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise SettingError(f"a key of more than {MAX_DEPTH} parts", "fewer", where=f"{name}:{line}")
    try:
        data = tomllib.loads(text)
    except RecursionError as error:
        raise SettingError(f"Lists are nested more than {MAX_DEPTH} deep", where=name) from error
    except ValueError as error:
        raise _no_toml(str(error), text, name) from error
    for keys, (given, expected) in find_unsupported(data):
        raise SettingError(given, expected, where=f"{name}:{find_line(text, keys)}")
    return data


def find_unsupported(value: object, keys: Keys = ()) -> Iterator[tuple[Keys, tuple[str, str]]]:
    """Values that recipes do not support: their keys, what was given, and what was expected."""
    if len(keys) > MAX_DEPTH:
        yield keys[:MAX_DEPTH], (f"more than {MAX_DEPTH} nested lists or sections", "fewer")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield keys, ("an integer of more than 64 bits", "a smaller one")
    elif isinstance(value, date | time):
        yield keys, (f"the date or time {value}", "text in quotes, or a number")
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from find_unsupported(part, (*keys, key))


def _no_toml(message: str, text: str, name: str) -> SettingError:
    found = _LINE.match(message)
    if not found:
        return SettingError(f"The file is not valid TOML: {message}", where=name)
    line = text.split("\n")[int(found[2]) - 1].strip()
    unquoted = re.fullmatch(r"[^=\"'\[{]+=[^\"'\[{#]+", line)
    return SettingError(
        f"Invalid TOML: {truncate(line)!r} ({found[1][:1].lower()}{found[1][1:]}, column {found[3]})",
        where=f"{name}:{found[2]}",
        advice='Text goes in quotes: key = "value".' if unquoted else "",
    )


def find_line(text: str, keys: Keys) -> int:
    """The line on which the setting `keys`, which is in the text, starts.

    The first lines of a text are TOML too, unless the cut goes through a value, and what they set stays set: so the
    line is the one after the longest valid prefix that lacks the setting. In a file whose values are so long that this
    takes too much work, it is a line before.
    """
    lines = text.split("\n")
    without, with_it, left = 0, len(lines), [_SEARCHED]
    while cut := _cut_between(lines, without, with_it, left):
        if has_key(cut[1], keys):
            with_it = cut[0]
        else:
            without = cut[0]
    return without + 1


def _cut_between(lines: list[str], low: int, high: int, left: list[int]) -> tuple[int, dict[str, Any]] | None:
    """A number of first lines, strictly between two others and near their middle, that are valid TOML; their data.

    `left`: how many characters may still be parsed; with none left there is no such cut.
    """
    for count in sorted(range(low + 1, high), key=lambda count: abs(2 * count - low - high)):
        head = "\n".join(lines[:count]) + "\n"
        left[0] -= len(head)
        if left[0] < 0:
            return None
        try:
            return count, tomllib.loads(head)
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value of several lines
    return None


def has_key(data: object, keys: Keys) -> bool:
    """Whether the data have a value at `keys`, each the key of a section or the index of a list."""
    for key in keys:
        inside = isinstance(data, dict) and key in data
        if not inside and not (isinstance(data, list) and isinstance(key, int) and key < len(data)):
            return False
        data = data[key]  # type: ignore[index]  # a dict or a list, as just checked
    return True


def dump(data: Mapping[str, Any]) -> str:
    """Data as TOML: plain values first, sections after, in the order of the data."""
    return "\n".join(_paragraphs(data, ()))


def _paragraphs(data: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    plain = [f"{_key(key)} = {format_value(value)}\n" for key, value in data.items() if not isinstance(value, Mapping)]
    sections = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    header = f"[{'.'.join(map(_key, names))}]\n" if names else ""
    if plain or (names and not sections):
        yield header + "".join(plain)
    for key, value in sections.items():
        yield from _paragraphs(value, (*names, key))


def format_value(value: object) -> str:
    """A value as TOML, in one line."""
    match value:
        case None:
            return format_value(NONE)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _quoted(value)
        case list() | tuple():
            return f"[{', '.join(map(format_value, value))}]"
        case Mapping():
            inside = ", ".join(f"{_key(key)} = {format_value(part)}" for key, part in value.items())
            return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"TOML has no values of type {type(value).__name__}")


def truncate(text: str) -> str:
    """The first 80 characters of a text."""
    return text if len(text) <= 80 else text[:77] + "..."


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    """JSON's escapes are valid in TOML, which also needs one for the character 7f."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
