"""What pydantic finds wrong with a recipe, in our words: what came, what was expected, and on which line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from regard.errors import RegardError, SettingError
from regard.runs.toml import Keys, inline, short
from regard.training.config.schema import KIND, Place, alternatives, kinds, place_of, section_of, words
from regard.training.config.source import Written

WORDS = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text in quotes",
    "path_type": "a path in quotes",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a section",
    "model_type": "a section",
    "model_attributes_type": "a section",
    "none_required": "none",
    "literal_error": "{expected}",
    "string_pattern_mismatch": "text of the form {pattern}",
    "string_too_short": "text of at least {min_length} characters",
    "string_too_long": "text of at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}


def refusal(error: ValidationError, recipe: type[BaseModel], written: Written, data: Mapping[str, Any]) -> RegardError:
    """The first thing that is wrong, whole, and how many more there are; misspelt settings come before all others."""
    problems: dict[Keys, list[ErrorDetails]] = {}
    for one in error.errors(include_url=False):
        problems.setdefault(place_of(recipe, one["loc"]).keys, []).append(one)
    first = min(problems.values(), key=lambda found: found[0]["type"] != "extra_forbidden")
    told = _told(first, place_of(recipe, first[0]["loc"]), written, data)
    more = len(problems) - 1
    if more:
        rest = f"{more} more setting{'s are' if more > 1 else ' is'} wrong."
        return type(told)(told.came, told.expected, where=told.where, advice=f"{told.advice} {rest}".strip())
    return told


def _told(errors: Sequence[ErrorDetails], place: Place, written: Written, data: Mapping[str, Any]) -> RegardError:
    where = written.where(place.keys)
    raised = errors[0].get("ctx", {}).get("error")
    if isinstance(raised, RegardError):
        return type(raised)(raised.came, raised.expected, where=where, advice=raised.advice)
    match errors[0]["type"]:
        case "extra_forbidden":
            return _unknown(place, where, errors[0]["input"], data)
        case "missing":
            return _missing(place, where, data)
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_kind(place, written, errors[0]["input"])
    known = words(place.field.annotation) if place.field else ()
    return SettingError(
        _came(place.keys, _at(data, place.keys)),
        " or ".join(dict.fromkeys(_expectations(errors, place))),
        where=where,
        advice=_nearest(errors[0]["input"], known),
    )


def _expectations(errors: Sequence[ErrorDetails], place: Place) -> Iterator[str]:
    """What could have stood there; once a value is of a right type, what other types there are helps nobody."""
    close = [one for one in errors if not _of_another_type(one)]
    for one in close or errors:
        context = {name: _number(value) for name, value in one.get("ctx", {}).items()}
        if one["type"] in ("string_type", "string_pattern_mismatch") and (described := _described(place.field)):
            yield described
        elif one["type"] == "string_type" and place.field and Path in alternatives(place.field.annotation):
            yield WORDS["path_type"]
        elif one["type"] in WORDS:
            yield WORDS[one["type"]].format(**context)
        else:
            yield str(context["error"]) if "error" in context else one["msg"]
    if place.may_be_none:
        yield "none"


def _of_another_type(error: ErrorDetails) -> bool:
    no_word = error["type"] == "literal_error" and not isinstance(error["input"], str)
    return no_word or error["type"].endswith("_type")


def _described(field: FieldInfo | None) -> str | None:
    """The description of a field whose text has a pattern: it says in words what the pattern says in signs."""
    if field is None:
        return None
    parts = [part for one in get_args(field.annotation) for part in get_args(one)]
    infos = [one for one in (field, *parts) if isinstance(one, FieldInfo)]
    patterned = [one for one in infos if any(hasattr(rule, "pattern") for rule in one.metadata)]
    return next((one.description for one in patterned if one.description), None)


def _unknown(place: Place, where: str, value: object, data: Mapping[str, Any]) -> SettingError:
    """A setting that nobody knows, or a whole section."""
    *around, name = place.keys
    fields = place.section.model_fields
    if isinstance(value, dict):
        came = f"unknown section [{_dotted(place.keys)}]"
        known = [key for key, field in fields.items() if _holds_settings(field)] or list(fields)
    else:
        came = f"unknown setting {name!r}{_in(place.keys)}"
        known = list(fields)
    kind = _at(data, (*around, KIND))
    suffix = f" for kind {kind!r}" if isinstance(kind, str) and around else ""
    elsewhere = [f"{key}.{name}" for key, field in fields.items() if name in _settings(field)]
    advice = f"Did you mean {elsewhere[0]!r}?" if elsewhere else _nearest(name, list(fields))
    return SettingError(came, f"one of {', '.join(known)}{suffix}" if known else "none", where=where, advice=advice)


def _unknown_kind(place: Place, written: Written, value: object) -> SettingError:
    known = kinds(place.field.annotation) if place.field else ()
    kind = value.get(KIND) if isinstance(value, dict) else None
    came = f"no {KIND}{_in((*place.keys, KIND))}" if kind is None else _came((*place.keys, KIND), kind)
    where = written.where((*place.keys, KIND))
    return SettingError(came, f"one of {', '.join(known)}", where=where, advice=_nearest(kind, known))


def _missing(place: Place, where: str, data: Mapping[str, Any]) -> SettingError:
    *around, name = place.keys
    if isinstance(name, int):
        return SettingError(
            _came(tuple(around), _at(data, tuple(around))), f"a list of {name + 1} or more", where=where
        )
    is_section = place.field is not None and _holds_settings(place.field)
    came = f"no section [{_dotted(place.keys)}]" if is_section else f"no {name!r}{_in(place.keys)}"
    return SettingError(came, "it, since it has no default", where=where)


def _settings(field: FieldInfo) -> set[str]:
    """The names of all settings in a section, of whatever kind; none where the field is no section."""
    sections = [section_of(one, None) for one in alternatives(field.annotation)]
    return {name for section in sections if section for name in section.model_fields}


def _holds_settings(field: FieldInfo) -> bool:
    return any(section_of(one, None) for one in alternatives(field.annotation))


def _came(keys: Keys, value: object) -> str:
    if isinstance(value, dict) or not keys:
        return f"the settings of [{_dotted(keys)}]" if keys else "these settings"
    names = tuple(key for key in keys if isinstance(key, str))
    places = "".join(f"[{key}]" for key in keys if isinstance(key, int))
    return f"{names[-1]}{places} = {short(inline(value))}{_in(names)}"


def _in(keys: Keys) -> str:
    return f" in [{_dotted(keys[:-1])}]" if keys[:-1] else ""


def _dotted(keys: Keys) -> str:
    return ".".join(map(str, keys))


def _nearest(name: object, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1) if isinstance(name, str) else []
    return f"Did you mean {near[0]!r}?" if near else ""


def _number(value: Any) -> Any:
    """Limits of decimal settings read as a person writes them: 0, not 0.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _at(data: Any, keys: Keys) -> Any:
    """What stands in a place of the data; None where nothing does."""
    for key in keys:
        inner = data.get(key) if isinstance(data, Mapping) else None
        data = data[key] if isinstance(data, list) and isinstance(key, int) and key < len(data) else inner
    return data
