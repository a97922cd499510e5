"""TOML as recipes need it: read with the line of each mistake, and written, which the standard library does not do.

TOML knows no empty value, so None is written as the text "none".
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
DEEPEST = 50  # lists and sections inside each other
_LINE = re.compile(r"(.*) \(at line (\d+), column (\d+)\)")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def parsed(text: str, name: str) -> dict[str, Any]:
    """The data of a TOML text; `name` is what mistakes in it are told of, with their line."""
    try:
        data = tomllib.loads(text)
    except RecursionError as error:
        raise SettingError("lists within lists without end", f"at most {DEEPEST}", where=name) from error
    except ValueError as error:
        raise _no_toml(str(error), text, name) from error
    for keys, (came, expected) in oddities(data):
        raise SettingError(came, expected, where=f"{name}:{line_of(text, keys)}")
    return data


def oddities(value: object, keys: Keys = ()) -> Iterator[tuple[Keys, tuple[str, str]]]:
    """Where TOML holds what no recipe can mean: what came there, and what was expected."""
    if len(keys) > DEEPEST:
        yield keys[:DEEPEST], (f"more than {DEEPEST} lists or sections inside each other", "fewer")
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield keys, ("a whole number of more than 64 bits", "a smaller one")
    elif isinstance(value, date | time):
        yield keys, (f"the date or time {value}", "text in quotes, or a number")
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from oddities(part, (*keys, key))


def _no_toml(message: str, text: str, name: str) -> SettingError:
    found = _LINE.match(message)
    if not found:
        return SettingError(f"no TOML ({message})", "TOML", where=name)
    line = text.split("\n")[int(found[2]) - 1].strip()
    unquoted = re.fullmatch(r"[^=\"'\[{]+=[^\"'\[{#]+", line)
    return SettingError(
        f"{short(line)!r} ({found[1][:1].lower()}{found[1][1:]}, column {found[3]})",
        "TOML",
        where=f"{name}:{found[2]}",
        advice='Text goes in quotes: key = "value".' if unquoted else "",
    )


def line_of(text: str, keys: Keys) -> int:
    """The line on which the setting `keys`, which is in the text, begins.

    The first lines of a text are TOML too, unless the cut goes through a value, and what they set stays set: so
    the line is the one after the longest such beginning that lacks the setting.
    """
    lines = text.split("\n")
    lacks, holds = 0, len(lines)
    while cut := _cut_between(lines, lacks, holds):
        if has(cut[1], keys):
            holds = cut[0]
        else:
            lacks = cut[0]
    return lacks + 1


def _cut_between(lines: list[str], low: int, high: int) -> tuple[int, dict[str, Any]] | None:
    """A number of first lines, strictly between two others and near their middle, that are TOML; and their data."""
    for count in sorted(range(low + 1, high), key=lambda count: abs(2 * count - low - high)):
        try:
            return count, tomllib.loads("\n".join(lines[:count]) + "\n")
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value of several lines
    return None


def has(data: object, keys: Keys) -> bool:
    """Whether data go as deep as `keys`, each the key of a section or the place in a list."""
    for key in keys:
        inside = isinstance(data, dict) and key in data
        if not inside and not (isinstance(data, list) and isinstance(key, int) and key < len(data)):
            return False
        data = data[key]  # type: ignore[index]  # a dict or a list, as was just seen
    return True


def written(data: Mapping[str, Any]) -> str:
    """Data as TOML: plain values first, sections after, in the order of the data."""
    return "\n".join(_paragraphs(data, ()))


def _paragraphs(data: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    plain = [f"{_key(key)} = {inline(value)}\n" for key, value in data.items() if not isinstance(value, Mapping)]
    sections = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    header = f"[{'.'.join(map(_key, names))}]\n" if names else ""
    if plain or (names and not sections):
        yield header + "".join(plain)
    for key, value in sections.items():
        yield from _paragraphs(value, (*names, key))


def inline(value: object) -> str:
    """A value as TOML, in one line."""
    match value:
        case None:
            return inline(NONE)
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return _quoted(value)
        case list() | tuple():
            return f"[{', '.join(map(inline, value))}]"
        case Mapping():
            inside = ", ".join(f"{_key(key)} = {inline(part)}" for key, part in value.items())
            return f"{{ {inside} }}" if inside else "{}"
    raise TypeError(f"{type(value).__name__} is no kind of TOML value")


def short(text: str) -> str:
    """Enough of a text to know it by."""
    return text if len(text) <= 80 else text[:77] + "..."


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    """JSON's escapes are TOML's too; but TOML also wants one for the character 7f."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
