"""What the classes of a recipe say about its data: the sections, the kinds they come in, and where None may stand."""

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
Change = Callable[[Types, Any, Keys], Any]
"""Given the types that may stand in a place, what stands there, and its keys: what shall stand there."""


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
    """The class of a section; where it comes in kinds, the one of the kind that its data name."""
    sections = [one for one in alternatives(annotation) if _is_section(one)]
    if len(sections) < 2:
        return sections[0] if sections else None
    kind = data.get(KIND) if isinstance(data, Mapping) else None
    return next((section for section in sections if kind in kinds(section)), None)


def _is_section(one: Any) -> bool:
    return get_origin(one) is None and isinstance(one, type) and issubclass(one, BaseModel)


def kinds(annotation: Any) -> tuple[str, ...]:
    """The kinds that a section comes in."""
    fields = [one.model_fields.get(KIND) for one in alternatives(annotation) if _is_section(one)]
    return tuple(kind for field in fields if field for kind in words(field.annotation))


def words(annotation: Any) -> tuple[str, ...]:
    """The fixed words among what a setting may be."""
    origins: list[tuple[Any, Any]] = [(get_origin(one), one) for one in alternatives(annotation)]
    return tuple(
        word for origin, one in origins if origin is Literal for word in get_args(one) if isinstance(word, str)
    )


def with_kinds(section: type[BaseModel], data: Mapping[str, Any]) -> dict[str, Any]:
    """The data with a kind in every section that names none: the kind of its default, where it has one."""
    told = dict(data)
    for name, field in section.model_fields.items():
        if isinstance(inner := told.get(name), dict):
            usual = {KIND: field.default.kind} if hasattr(field.default, KIND) else {}
            told[name] = inner = usual | inner
            if chosen := section_of(field.annotation, inner):
                told[name] = with_kinds(chosen, inner)
    return told


def changed(annotation: Any, value: Any, change: Change, keys: Keys = ()) -> Any:
    """Data with each part put through `change`, from the whole to the parts; what no class knows may be Any."""
    value = change(alternatives(annotation), value, keys)
    if isinstance(value, dict):
        section = section_of(annotation, value) or annotation
        return {key: changed(inside(section, key), part, change, (*keys, key)) for key, part in value.items()}
    if isinstance(value, list):
        return [changed(inside(annotation, place), part, change, (*keys, place)) for place, part in enumerate(value)]
    return value


def inside(annotation: Any, key: str | int) -> Any:
    """What may stand at a key of a section or of a mapping, or at a place of a list; Any where nobody says."""
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
class Place:
    """A place in the data: its keys, the class of the section it is in, and the field, where the class knows it."""

    keys: Keys
    section: type[BaseModel]
    field: FieldInfo | None

    @property
    def may_be_none(self) -> bool:
        """Whether None may stand here itself, and not only around it."""
        own = bool(self.keys) and self.section.model_fields.get(str(self.keys[-1])) is self.field
        return own and self.field is not None and NoneType in alternatives(self.field.annotation)


def place_of(recipe: type[BaseModel], loc: Keys) -> Place:
    """The place that pydantic means by its `loc`, which also names the alternatives tried; they are nobody's keys."""
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
        annotation = inside(types[0], key)
    return Place(tuple(keys), section, field)
