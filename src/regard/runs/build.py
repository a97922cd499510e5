"""From the settings of a recipe to a model: plain TOML data, a configuration of models/config, a module.

Training builds its models with this as well, so that what was trained is what is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import nn

from regard.errors import SettingError, unknown
from regard.models import without
from regard.models.config import KINDS, ModelConfig, config_class
from regard.runs.toml import NONE, Keys, inline, short
from regard.text import Tokenizer

TOKENIZER = "tokenizer.json"
TARGET_TOKENIZER = "target-tokenizer.json"  # where a translator writes with another vocabulary than it reads
Settings = Mapping[str, Any]
Where = Callable[[Keys], str]


def dotted(keys: Keys) -> str:
    """Where a setting is, if nothing else is known: "model.layers"."""
    return ".".join(map(str, keys))


def build_model(settings: Settings, tokenizers: Sequence[Tokenizer], where: Where = dotted) -> nn.Module:
    """The model of a recipe, with fresh weights and without the heads that were pruned.

    `tokenizers`: the one of the run, or those of source and target. `where` says where a setting was written.
    """
    return without(model_config(settings, tokenizers, where).build(), section(settings, "pruned", where))


def model_config(settings: Settings, tokenizers: Sequence[Tokenizer], where: Where = dotted) -> ModelConfig:
    """The configuration of the model that a recipe describes."""
    task = settings.get("task")
    if task is None:
        raise SettingError("no task", f"a task: one of {', '.join(sorted(KINDS))}", where=where(()))
    if task not in KINDS:
        raise unknown(task, KINDS, kind="task", where=where(("task",)))
    table = section(settings, "model", where)
    kind = table.get("kind", next(iter(KINDS[task])))
    if kind not in KINDS[task]:
        raise unknown(kind, KINDS[task], kind="a model of kind", where=where(("model", "kind")))
    made = config_class(task, kind)
    given = _given(task, settings, tokenizers, where)
    named = {one.name for one in fields(made)}
    made_of: ModelConfig = made(
        **_read(made, table, named - given.keys(), where),
        **{name: value for name, value in given.items() if name in named},
    )
    return made_of


def load_tokenizers(settings: Settings, folder: Path) -> tuple[Tokenizer, ...]:
    """The tokenizer that a run keeps in its folder, or that of the source and that of the target."""
    source = _tokenizer(settings, "tokenizer", folder / TOKENIZER)
    if not section(settings, "target_tokenizer"):
        return (source,)
    return source, _tokenizer(settings, "target_tokenizer", folder / TARGET_TOKENIZER)


def _tokenizer(settings: Settings, name: str, path: Path) -> Tokenizer:
    return Tokenizer.load(path, section(settings, name).get("roles"))


def section(settings: Settings, name: str, where: Where = dotted) -> Settings:
    """The settings of a section; none where it is left out."""
    found = settings.get(name)
    if found is None or found == NONE:
        return {}
    if not isinstance(found, Mapping):
        raise SettingError(f"{name} = {short(inline(found))}", f"a section [{name}]", where=where((name,)))
    return found


def _given(task: str, settings: Settings, tokenizers: Sequence[Tokenizer], where: Where) -> dict[str, Any]:
    """What a configuration needs beside [model]: the vocabulary, the number of classes, the length of a block."""
    source, target = tokenizers[0], tokenizers[-1]
    if task == "translation":
        from regard.models.config import Vocabularies

        shared = not section(settings, "target_tokenizer", where)
        return {"words": Vocabularies(len(source), len(target), source.special.unknown, target.special.end, shared)}
    given: dict[str, Any] = {"vocabulary": len(source), "unknown": source.special.unknown}
    if task in ("contextual", "tagging"):
        given["words"] = _words(source, section(settings, "model", where).get("input") == "characters")
    if task in ("classification", "tagging"):
        name = "labels" if task == "classification" else "tags"
        known = section(settings, "data", where).get(name)
        if known is None or known == NONE:
            came, expected = f"a recipe without {name}", "one with those of its run filled in"
            raise SettingError(came, expected, where=where(("data", name)))
        given["classes"] = len(known) if isinstance(known, list) else 1  # a number is one output
    if "size" in (batches := section(settings, "batches", where)):
        given["longest"] = batches["size"]
    return given


def _words(tokenizer: Tokenizer, letters: bool) -> Any:
    """The vocabulary of a model that may read characters."""
    from regard.models.config import WordVocabulary
    from regard.text import spelled_vocabulary

    spellings = spelled_vocabulary(tokenizer) if letters else None
    return WordVocabulary(len(tokenizer), tokenizer.special.unknown or 0, spellings)


def _read(made: type, table: Settings, known: set[str], where: Where) -> dict[str, Any]:
    """The settings of [model] as the fields of a configuration; a strange name or value is refused."""
    types = get_type_hints(made)
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name == "kind" or name in getattr(made, "UNUSED", ()):
            continue
        if name not in known:
            raise unknown(name, known, kind="unknown setting", where=where(("model", name)))
        found[name] = _value(value, types[name], ("model", name), where)
    return found


def _value(value: Any, annotation: Any, keys: Keys, where: Where) -> Any:
    """A value of TOML as a field takes it: "none" is None where that may be, and a whole number can be a decimal."""
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if value == NONE and NoneType in options:
        value = None
    for option in options:
        if get_origin(option) is Literal and value in get_args(option):
            return value
        if option is float and type(value) in (int, float):
            return float(value)
        if isinstance(option, type) and type(value) is option:
            return value
    expected = " or ".join(map(_named, options))
    raise SettingError(f"{keys[-1]} = {short(inline(value))} in [model]", expected, where=where(keys))


def _named(option: Any) -> str:
    if get_origin(option) is Literal:
        return " or ".join(map(repr, get_args(option)))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: NONE}
    return words.get(option, str(option))
