"""Validation errors of recipes, reworded from pydantic's: what is wrong, what was expected, and on which line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from regard.errors import RegardError, SettingError
from regard.runs import renamed_setting
from regard.runs.toml import Keys, format_value, truncate
from regard.training.config.schema import (
    KIND,
    SettingPlace,
    alternatives,
    kinds,
    literal_choices,
    locate_setting,
    section_of,
)
from regard.training.config.source import RecipeSource

EXPECTATIONS = {
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


def explain(
    error: ValidationError, recipe: type[BaseModel], source: RecipeSource, data: Mapping[str, Any]
) -> RegardError:
    """The first mistake in full, and how many more there are; misspelt settings come before all others."""
    problems: dict[Keys, list[ErrorDetails]] = {}
    for one in error.errors(include_url=False):
        problems.setdefault(locate_setting(recipe, one["loc"]).keys, []).append(one)
    first = min(problems.values(), key=lambda found: found[0]["type"] != "extra_forbidden")
    worded = _error_of(first, locate_setting(recipe, first[0]["loc"]), source, data)
    more = len(problems) - 1
    if more:
        rest = f"{more} more setting{'s are' if more > 1 else ' is'} wrong."
        return worded.replace(advice=f"{worded.advice} {rest}".strip())
    return worded


def _error_of(
    errors: Sequence[ErrorDetails], place: SettingPlace, source: RecipeSource, data: Mapping[str, Any]
) -> RegardError:
    where = source.where(place.keys)
    raised = errors[0].get("ctx", {}).get("error")
    if isinstance(raised, RegardError):
        return raised.replace(where=where)
    match errors[0]["type"]:
        case "extra_forbidden":
            return _unknown_setting(place, where, errors[0]["input"], data)
        case "missing":
            return _missing(place, where, data)
        case "union_tag_invalid" | "union_tag_not_found":
            return _unknown_kind(place, source, errors[0]["input"])
    known = literal_choices(place.field.annotation) if place.field else ()
    return SettingError(
        _given_setting(place.keys, _value_at(data, place.keys)),
        " or ".join(dict.fromkeys(_expectations(errors, place))),
        where=where,
        advice=_did_you_mean(errors[0]["input"], known),
    )


def _expectations(errors: Sequence[ErrorDetails], place: SettingPlace) -> Iterator[str]:
    """What the setting allows; once a value has one of the right types, the other types are left out."""
    close = [one for one in errors if not _of_another_type(one)]
    for one in close or errors:
        context = {name: _plain_number(value) for name, value in one.get("ctx", {}).items()}
        if one["type"] in ("string_type", "string_pattern_mismatch") and (described := _field_description(place.field)):
            yield described
        elif one["type"] == "string_type" and place.field and Path in alternatives(place.field.annotation):
            yield EXPECTATIONS["path_type"]
        elif one["type"] in EXPECTATIONS:
            yield EXPECTATIONS[one["type"]].format(**context)
        else:
            yield str(context["error"]) if "error" in context else one["msg"]
    if place.may_be_none:
        yield "none"


def _of_another_type(error: ErrorDetails) -> bool:
    no_word = error["type"] == "literal_error" and not isinstance(error["input"], str)
    return no_word or error["type"].endswith("_type")


def _field_description(field: FieldInfo | None) -> str | None:
    """The description of a field whose text has a pattern: what the pattern means, in words."""
    if field is None:
        return None
    parts = [part for one in get_args(field.annotation) for part in get_args(one)]
    infos = [one for one in (field, *parts) if isinstance(one, FieldInfo)]
    patterned = [one for one in infos if any(hasattr(rule, "pattern") for rule in one.metadata)]
    return next((one.description for one in patterned if one.description), None)


def _unknown_setting(place: SettingPlace, where: str, value: object, data: Mapping[str, Any]) -> SettingError:
    """The error for an unknown setting or section; one that was renamed comes with its new name."""
    *around, name = place.keys
    fields = place.section.model_fields
    if renamed := renamed_setting(_dotted(tuple(around)), str(name), fields):
        if isinstance(value, dict):
            return SettingError(f"Section [{name}] was renamed to [{renamed}]", where=where)
        return SettingError(f"Setting {name!r}{_in_section(place.keys)} was renamed to {renamed!r}", where=where)
    if isinstance(value, dict):
        problem = f"Unknown section [{_dotted(place.keys)}]"
        known = [key for key, field in fields.items() if _is_section_field(field)] or list(fields)
    else:
        problem = f"Unknown setting {name!r}{_in_section(place.keys)}"
        known = list(fields)
    kind = _value_at(data, (*around, KIND))
    suffix = f" for kind {kind!r}" if isinstance(kind, str) and around else ""
    elsewhere = [f"{key}.{name}" for key, field in fields.items() if name in _setting_names(field)]
    suggestion = f"Did you mean {elsewhere[0]!r}?" if elsewhere else _did_you_mean(name, list(fields))
    choices = f"Known: {', '.join(known)}{suffix}." if known else "It has no settings."
    return SettingError(problem, where=where, advice=suggestion if elsewhere else f"{suggestion} {choices}".strip())


def _unknown_kind(place: SettingPlace, source: RecipeSource, value: object) -> SettingError:
    known = kinds(place.field.annotation) if place.field else ()
    kind = value.get(KIND) if isinstance(value, dict) else None
    where = source.where((*place.keys, KIND))
    choices = f"Known: {', '.join(known)}."
    if kind is None:
        problem = f"No {KIND}{_in_section((*place.keys, KIND))}"
        return SettingError(problem, where=where, advice=choices)
    problem = f"Unknown {KIND} {truncate(repr(kind))}{_in_section((*place.keys, KIND))}"
    return SettingError(problem, where=where, advice=f"{_did_you_mean(kind, known)} {choices}".strip())


def _missing(place: SettingPlace, where: str, data: Mapping[str, Any]) -> SettingError:
    *around, name = place.keys
    if isinstance(name, int):
        given = _given_setting(tuple(around), _value_at(data, tuple(around)))
        return SettingError(given, f"a list of {name + 1} or more", where=where)
    is_section = place.field is not None and _is_section_field(place.field)
    problem = f"No section [{_dotted(place.keys)}]" if is_section else f"No {name!r}{_in_section(place.keys)}"
    return SettingError(f"{problem}, and it has no default", where=where)


def _setting_names(field: FieldInfo) -> set[str]:
    """The names of all settings of a section, over all its kinds; none where the field is no section."""
    sections = [section_of(one, None) for one in alternatives(field.annotation)]
    return {name for section in sections if section for name in section.model_fields}


def _is_section_field(field: FieldInfo) -> bool:
    return any(section_of(one, None) for one in alternatives(field.annotation))


def _given_setting(keys: Keys, value: object) -> str:
    if isinstance(value, dict) or not keys:
        return f"the settings of [{_dotted(keys)}]" if keys else "these settings"
    names = tuple(key for key in keys if isinstance(key, str))
    places = "".join(f"[{key}]" for key in keys if isinstance(key, int))
    return f"{names[-1]}{places} = {truncate(format_value(value))}{_in_section(names)}"


def _in_section(keys: Keys) -> str:
    return f" in [{_dotted(keys[:-1])}]" if keys[:-1] else ""


def _dotted(keys: Keys) -> str:
    return ".".join(map(str, keys))


def _did_you_mean(name: object, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, n=1) if isinstance(name, str) else []
    return f"Did you mean {near[0]!r}?" if near else ""


def _plain_number(value: Any) -> Any:
    """Limits of decimal settings as a person writes them: 0, not 0.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _value_at(data: Any, keys: Keys) -> Any:
    """The value at these keys of the data; None where there is none."""
    for key in keys:
        inner = data.get(key) if isinstance(data, Mapping) else None
        data = data[key] if isinstance(data, list) and isinstance(key, int) and key < len(data) else inner
    return data
