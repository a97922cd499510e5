"""Fallback to transformers: checkpoints that regard does not convert load as transformers' own models, which attend
through regard. Every tensor of the architecture that config.json names must be there, with the right shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.errors import CheckpointError, RegardError, is_rust_panic
from regard.hub.attention_interface import NAME, enable
from regard.hub.folder import HFConfig, check_layers, check_weight_files, read_header
from regard.hub.transformers_version import has_transformers
from regard.hub.weight_map import list_names

MAX_SHARED_LAYERS = 1024  # that may share the tensors of one, as ALBERT's do
MAX_PACKED = 16  # quantised weights that may be packed into one number
SPARE_PARAMETERS = 1 << 24  # that need not be in the weights, such as tables of positions


def is_known_to_transformers(kind: object) -> bool:
    """Whether transformers is installed and has models of this type."""
    if not isinstance(kind, str) or not has_transformers():
        return False
    from transformers import CONFIG_MAPPING

    return kind in CONFIG_MAPPING


def is_transformers_default(kind: str, name: str, value: Any) -> bool:
    """Whether the configuration class of a model type has this value by default."""
    if not has_transformers():
        return False
    default = _defaults(kind)
    return name in default and type(default[name]) is type(value) and bool(default[name] == value)


@cache
def _defaults(kind: str) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    found: dict[str, Any] = CONFIG_MAPPING[kind]().to_dict()
    return found


def load_with_transformers(folder: Path, config: HFConfig) -> nn.Module:
    """The model that config.json names, attending through regard; nothing is downloaded or unpickled, and no code of
    the folder is run."""
    import transformers

    enable()
    check_weight_files(folder)
    shapes = read_header(folder)
    check_layers(config, shapes, MAX_SHARED_LAYERS)
    with quiet_transformers(), refusals(folder, f"load this {config.get('model_type')} model"):
        read = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        made = _model_class(read, config)
        _expect_size(made, read, config, shapes)
        model, info = made.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation=NAME,
            ignore_mismatched_sizes=True,  # they are refused below, by name
            output_loading_info=True,
        )
    _expect_whole(model, info, folder)
    found: nn.Module = model.eval()
    return found


@contextmanager
def refusals(folder: Path, what: str) -> Iterator[None]:
    """Turn whatever transformers raises about a folder into one sentence."""
    try:
        yield
    except RegardError:
        raise
    except BaseException as error:  # a damaged folder can raise anything, panics of a library in Rust too
        if not isinstance(error, Exception) and not is_rust_panic(error):
            raise
        raise CheckpointError(f"transformers cannot {what} ({reason_of(error)})", where=f"{folder}") from error


def reason_of(error: BaseException) -> str:
    """The kind of an error and the beginning of its message, on one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = " ".join(lines[:2]) if lines and lines[0].endswith(":") else (lines or [""])[0]
    return f"{type(error).__name__}: {reason[:300]}" if reason else type(error).__name__


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Neither progress bars nor reports of transformers: what matters of them is raised."""
    from transformers.utils import logging

    verbosity, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shown:
            logging.enable_progress_bar()


def _model_class(read: Any, config: HFConfig) -> Any:
    """The class that config.json names, or the model without a head where it names none."""
    import transformers

    name = config.architecture
    if not name:
        return transformers.AutoModel
    found = getattr(transformers, name, None)
    if not isinstance(found, type) or not issubclass(found, transformers.PreTrainedModel):
        problem = f"transformers {transformers.__version__} has no model class {name!r}, which config.json names"
        raise CheckpointError(problem, where=config.where)
    kind, wanted = config.get("model_type"), getattr(found, "config_class", None)
    if wanted is not None and not isinstance(read, wanted) and name not in _names_of(kind):
        expected = f"a {wanted.model_type or wanted.__name__} model"
        raise CheckpointError(f"a model_type {kind!r} with the architecture {name}", expected, where=config.where)
    return found


def _expect_size(made: Any, read: Any, config: HFConfig, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse a config.json that describes a much larger model than the weights are of, before it takes memory."""
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModel.from_config(read) if made is transformers.AutoModel else made(read)
    described = sum(one.numel() for one in model.parameters())
    stored = sum(map(prod, shapes.values()))
    packed = MAX_PACKED if config.get("quantization_config") else 2  # a matrix that is tied may be counted twice
    if described > packed * stored + SPARE_PARAMETERS:
        problem = f"config.json describes a model of {described:,} parameters, the weights have {stored:,}"
        raise CheckpointError(problem, where=config.where)


def _names_of(kind: str) -> set[str]:
    """The classes that transformers' auto classes take for a model type, some of which have another configuration."""
    from transformers.models.auto import modeling_auto

    tables = [table for name, table in vars(modeling_auto).items() if name.endswith("_MAPPING_NAMES")]
    found = [table.get(kind, ()) for table in tables]
    return {name for names in found for name in ([names] if isinstance(names, str) else names)}


def _expect_whole(model: Any, info: Any, folder: Path) -> None:
    """Refuse a checkpoint that lacks tensors, or has others, or of other shapes, than the architecture says.

    Tensors of other heads of the same family may lie beside those of the architecture, which leaves them out.
    """
    where, name = f"{folder}", type(model).__name__
    advice = f"Is the checkpoint complete, and a {name}, as its config.json says?"
    missing, unexpected = sorted(info["missing_keys"]), set(info["unexpected_keys"])
    if missing:
        raise CheckpointError(f"Tensors are missing: {list_names(missing)}", where=where, advice=advice)
    for tensor, given, expected in sorted(info["mismatched_keys"]):
        raise CheckpointError(
            f"{tensor} of shape {tuple(given)}", f"{tuple(expected)}, as config.json says", where=where
        )
    if info["error_msgs"]:
        raise CheckpointError(f"transformers cannot load this model ({info['error_msgs'][0]})", where=where)
    if unexpected and (unknown := sorted(unexpected - _tensors_of_relatives(model))):
        raise CheckpointError(f"Unknown tensors: {list_names(unknown)}", where=where, advice=advice)


def _tensors_of_relatives(model: Any) -> set[str]:
    """The tensor names of the model without a head, and of the one for pre-training, of the same family."""
    from transformers import AutoModel, AutoModelForPreTraining

    names: set[str] = set()
    for auto in (AutoModel, AutoModelForPreTraining):
        kind: Any = auto._model_mapping.get(type(model.config), None)
        for one in kind if isinstance(kind, tuple | list) else [kind] if kind is not None else []:
            with torch.device("meta"), refusals(Path("."), f"build a {one.__name__}"):
                names |= _with_and_without_prefix(one(model.config).state_dict(), model.base_model_prefix)
    return names


def _with_and_without_prefix(names: Iterable[str], prefix: str) -> set[str]:
    """Tensors of a model without a head are named without the prefix of those with one."""
    given = set(names)
    return given | {f"{prefix}.{name}" for name in given} | {name.removeprefix(f"{prefix}.") for name in given}
