"""Builds the model of a recipe: from plain TOML data to a configuration (models/config) to a torch module.

Training builds its models with this as well, so that the same model is trained and loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from torch import nn

from regard.errors import CheckpointError, RegardError, SettingError, unknown
from regard.models import prune_heads
from regard.models.config import KINDS, ModelConfig, config_class
from regard.runs.renamed_settings import renamed_setting
from regard.runs.toml import NONE, Keys, format_value, truncate
from regard.runs.weights import Shape, check_shapes, count_layers, meta_device
from regard.text import Tokenizer

TOKENIZER = "tokenizer.json"
MAX_SIZE = 1 << 24  # of a whole number in [model]
TARGET_TOKENIZER = "target-tokenizer.json"  # of a translator with two vocabularies
IMAGE_TASKS = ("captioning", "image-classification", "pointing")
IMAGE_SIZE = 64  # pixels of a side, where [data] names no other
Settings = Mapping[str, Any]
Where = Callable[[Keys], str]


def dotted(keys: Keys) -> str:
    """The name of a setting: "model.layers"."""
    return ".".join(map(str, keys))


def build_model(settings: Settings, tokenizers: Sequence[Tokenizer], where: Where = dotted) -> nn.Module:
    """The model of a recipe, with fresh weights and without pruned heads.

    `tokenizers`: the one of the run, or those of source and target. `where`: the file and line of a setting.
    """
    config, pruned = model_config(settings, tokenizers, where), section(settings, "pruned", where)
    return _build(config, pruned, where)


def expect_weights_fit(
    settings: Settings, tokenizers: Sequence[Tokenizer], shapes: Mapping[str, Shape], file: str, where: Where = dotted
) -> None:
    """Refuse a recipe whose model has other weights than those of a file, by their names and shapes, before any layer
    takes memory."""
    given, stored = section(settings, "model", where).get("layers"), count_layers(shapes)
    if type(given) is int and given > max(stored, 1):
        raise CheckpointError(
            f"The recipe says layers = {given}, the weights have {stored}", where=where(("model", "layers"))
        )
    config, pruned = model_config(settings, tokenizers, where), section(settings, "pruned", where)
    with meta_device():
        model = _build(config, pruned, where)
    check_shapes(model, shapes, file)


def _build(config: ModelConfig, pruned: Settings, where: Where) -> nn.Module:
    try:
        return prune_heads(config.build(), pruned)
    except RegardError:
        raise
    except Exception as error:  # torch raises errors of many kinds about sizes, and where memory runs out
        reason = f"{error}".strip().partition("\n")[0][:200] or type(error).__name__
        raise SettingError(f"No model can be built with these settings ({reason})", where=where(("model",))) from error


def model_config(settings: Settings, tokenizers: Sequence[Tokenizer], where: Where = dotted) -> ModelConfig:
    """The configuration of the model of a recipe."""
    task = settings.get("task")
    if task is None:
        known = ", ".join(sorted(KINDS))
        raise SettingError("The recipe names no task", where=where(()), advice=f"Set task to one of {known}.")
    if not isinstance(task, str) or task not in KINDS:
        raise unknown(task, KINDS, kind="task", where=where(("task",)))
    table = section(settings, "model", where)
    kind = table.get("kind", next(iter(KINDS[task])))
    if not isinstance(kind, str) or kind not in KINDS[task]:
        raise unknown(kind, KINDS[task], kind="kind of model", where=where(("model", "kind")))
    made = config_class(task, kind)
    given = _from_outside_model(task, settings, tokenizers, where)
    named = {one.name for one in fields(made)}
    made_of: ModelConfig = made(
        **_config_fields(made, table, named - given.keys(), where),
        **{name: value for name, value in given.items() if name in named},
    )
    return made_of


def load_tokenizers(settings: Settings, folder: Path) -> tuple[Tokenizer, ...]:
    """The tokenizer of a run folder, or those of source and target; none of a run without text."""
    if settings.get("task") == "image-classification":
        return ()
    source = _tokenizer(settings, "tokenizer", folder / TOKENIZER)
    if not section(settings, "target_tokenizer"):
        return (source,)
    return source, _tokenizer(settings, "target_tokenizer", folder / TARGET_TOKENIZER)


def _tokenizer(settings: Settings, name: str, path: Path) -> Tokenizer:
    return Tokenizer.load(path, section(settings, name).get("roles"))


def section(settings: Settings, name: str, where: Where = dotted) -> Settings:
    """The settings of a section; empty where it is missing."""
    found = settings.get(name)
    if found is None or found == NONE:
        return {}
    if not isinstance(found, Mapping):
        raise SettingError(f"{name} = {truncate(format_value(found))}", f"a section [{name}]", where=where((name,)))
    return found


def _from_outside_model(task: str, settings: Settings, tokenizers: Sequence[Tokenizer], where: Where) -> dict[str, Any]:
    """The fields of a configuration that [model] does not set: vocabulary, number of classes, sequence length."""
    if task in IMAGE_TASKS:
        return _from_outside_image_model(task, settings, tokenizers, where)
    source, target = tokenizers[0], tokenizers[-1]
    if task == "translation":
        from regard.models.config import VocabularySizes

        shared = not section(settings, "target_tokenizer", where)
        return {
            "vocabulary": VocabularySizes(len(source), len(target), source.special.unknown, target.special.end, shared)
        }
    given: dict[str, Any] = {"vocabulary": len(source), "unknown": source.special.unknown}
    model = section(settings, "model", where)
    if task in ("contextual", "tagging") and model.get("kind") != "bert":
        given["vocabulary"] = _word_vocabulary(source, model.get("input") == "characters")
    if task in ("classification", "tagging"):
        name = "labels" if task == "classification" else "tags"
        known = _listed(settings, name, where)
        given["classes"] = len(known) if isinstance(known, list) else 1  # regression has one output
    if task == "language" and "sequence_length" in (batches := section(settings, "batches", where)):
        given["max_positions"] = batches["sequence_length"]
    return given


def _from_outside_image_model(
    task: str, settings: Settings, tokenizers: Sequence[Tokenizer], where: Where
) -> dict[str, Any]:
    """The same of models that look at pictures: the side of a picture, and vocabulary or number of classes."""
    size = section(settings, "data", where).get("size", IMAGE_SIZE)
    given = {"size": _value(size, int, ("data", "size"), where)}
    if task == "image-classification":
        return given | {"classes": len(_listed(settings, "labels", where))}
    return given | {"vocabulary": len(tokenizers[0])}


def _listed(settings: Settings, name: str, where: Where) -> Any:
    """The labels or tags, which the recipe of a run lists."""
    known = section(settings, "data", where).get(name)
    if known is None or known == NONE:
        problem = f"The recipe does not list its {name}, as the recipe.toml of a run does"
        raise SettingError(problem, where=where(("data", name)))
    return known


def _word_vocabulary(tokenizer: Tokenizer, characters: bool) -> Any:
    """The vocabulary of a model with token or character inputs."""
    from regard.models.config import WordVocabulary
    from regard.text import spell_vocabulary

    spellings = spell_vocabulary(tokenizer) if characters else None
    return WordVocabulary(len(tokenizer), tokenizer.special.unknown or 0, spellings)


def _config_fields(made: type, table: Settings, known: set[str], where: Where) -> dict[str, Any]:
    """The settings of [model] as the fields of a configuration; unknown names and wrong values are refused."""
    types = get_type_hints(made)
    found: dict[str, Any] = {}
    for name, value in table.items():
        if name == "kind" or name in getattr(made, "UNUSED", ()):
            continue
        if name not in known:
            if renamed := renamed_setting("model", name, known):
                problem = f"Setting {name!r} in [model] was renamed to {renamed!r}"
                raise SettingError(problem, where=where(("model", name)))
            raise unknown(name, known, kind="setting", where=where(("model", name)))
        found[name] = _value(value, types[name], ("model", name), where)
    return found


def _value(value: Any, annotation: Any, keys: Keys, where: Where) -> Any:
    """A TOML value as a field takes it: "none" is None where the field allows it, and an int can be a float."""
    options = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    if value == NONE and NoneType in options:
        value = None
    for option in options:
        if get_origin(option) is Literal and value in get_args(option):
            return value
        if option is float and type(value) in (int, float):
            return float(value)
        if isinstance(option, type) and type(value) is option:
            if type(value) is int and abs(value) > MAX_SIZE:
                raise SettingError(f"{keys[-1]} = {value}", f"at most {MAX_SIZE:,}", where=where(keys))
            return value
    expected = " or ".join(map(_type_name, options))
    raise SettingError(f"{keys[-1]} = {truncate(format_value(value))} in [model]", expected, where=where(keys))


def _type_name(option: Any) -> str:
    if get_origin(option) is Literal:
        return " or ".join(map(repr, get_args(option)))
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: NONE}
    return words.get(option, str(option))
