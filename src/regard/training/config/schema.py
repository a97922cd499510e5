"""Type information of recipe sections, from their pydantic classes: kinds, allowed values, where None is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from regard.runs.toml import Keys

KIND = "kind"
Types = tuple[Any, ...]
MapValue = Callable[[Types, Any, Keys], Any]
"""(allowed types, value, keys) -> new value, for each value of the data."""


def alternatives(annotation: Any) -> Types:
    """The types that an annotation allows.

    >>> alternatives(Annotated[int, "at least 1"] | None)
    (<class 'int'>, <class 'NoneType'>)
    """
    if get_origin(annotation) is Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return tuple(one for part in get_args(annotation) for one in alternatives(part))
    return (annotation,)


def section_of(annotation: Any, data: object) -> type[BaseModel] | None:
    """The class of a section; where it has several kinds, the class of the kind that its data name."""
    sections = [one for one in alternatives(annotation) if _is_section(one)]
    if len(sections) < 2:
        return sections[0] if sections else None
    kind = data.get(KIND) if isinstance(data, Mapping) else None
    return next((section for section in sections if kind in kinds(section)), None)


def _is_section(one: Any) -> bool:
    return get_origin(one) is None and isinstance(one, type) and issubclass(one, BaseModel)


def kinds(annotation: Any) -> tuple[str, ...]:
    """The kinds that a section has."""
    fields = [one.model_fields.get(KIND) for one in alternatives(annotation) if _is_section(one)]
    return tuple(kind for field in fields if field for kind in literal_choices(field.annotation))


def literal_choices(annotation: Any) -> tuple[str, ...]:
    """The literal strings that a setting allows."""
    origins: list[tuple[Any, Any]] = [(get_origin(one), one) for one in alternatives(annotation)]
    return tuple(
        word for origin, one in origins if origin is Literal for word in get_args(one) if isinstance(word, str)
    )


def fill_kinds(section: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with `kind` filled in where a section names none: the kind of the section's default."""
    filled = dict(data)
    for name, field in section.model_fields.items():
        if isinstance(inner := filled.get(name), dict):
            default = {KIND: field.default.kind} if hasattr(field.default, KIND) else {}
            filled[name] = inner = default | inner
            if chosen := section_of(field.annotation, inner):
                filled[name] = fill_kinds(chosen, inner)
    return filled


def map_values(annotation: Any, value: Any, change: MapValue, keys: Keys = ()) -> Any:
    """Data with every value replaced by `change`, parents before children; unknown settings have type Any."""
    value = change(alternatives(annotation), value, keys)
    if isinstance(value, dict):
        section = section_of(annotation, value) or annotation
        return {key: map_values(annotation_at(section, key), part, change, (*keys, key)) for key, part in value.items()}
    if isinstance(value, list):
        return [
            map_values(annotation_at(annotation, place), part, change, (*keys, place))
            for place, part in enumerate(value)
        ]
    return value


def annotation_at(annotation: Any, key: str | int) -> Any:
    """The annotation of a key of a section or mapping, or of an index of a list; Any where there is none."""
    for one in alternatives(annotation):
        origin: Any = get_origin(one)
        parts = get_args(one)
        if _is_section(one) and key in one.model_fields:
            return one.model_fields[key].annotation
        if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(key, str):
            return parts[1]
        if origin is tuple and isinstance(key, int) and parts[1:] != (...,):
            return parts[key] if key < len(parts) else Any
        if origin in (tuple, list) and isinstance(key, int):
            return parts[0]
    return Any


@dataclass(frozen=True)
class SettingPlace:
    """A setting in the data: its keys, the class of its section, and its field, None for an unknown setting."""

    keys: Keys
    section: type[BaseModel]
    field: FieldInfo | None

    @property
    def may_be_none(self) -> bool:
        """Whether the setting itself may be None, not only its section."""
        is_field = bool(self.keys) and self.section.model_fields.get(str(self.keys[-1])) is self.field
        return is_field and self.field is not None and NoneType in alternatives(self.field.annotation)


def locate_setting(recipe: type[BaseModel], loc: Keys) -> SettingPlace:
    """The setting that a pydantic `loc` points at; a `loc` also names the union members tried, which are not keys."""
    keys: list[str | int] = []
    section, field = recipe, None
    annotation: Any = recipe
    rest = list(loc)
    while rest:
        types = [one for one in alternatives(annotation) if one is not NoneType]
        key = rest.pop(0)
        if len(types) > 1:
            annotation = section_of(annotation, {KIND: key}) or Any
            continue
        keys.append(key)
        if _is_section(types[0]):
            section = types[0]
            field = section.model_fields.get(str(key))
        annotation = annotation_at(types[0], key)
    return SettingPlace(tuple(keys), section, field)
