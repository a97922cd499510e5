"""Loading of Hugging Face checkpoint folders: as models of ours where every setting and tensor fits them, else as
transformers' own.

model = load("gpt2")              # a folder on this machine, of Hugging Face or a run
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.bounded_files import expect_readable_folder
from regard.errors import CheckpointError, CheckpointWarning, RegardError, SettingError, unknown
from regard.hub.families import FAMILIES
from regard.hub.families.family import Family
from regard.hub.folder import HFConfig, check_layers, read_config, read_header, read_tensors
from regard.hub.provenance import remember_origin
from regard.hub.supported_settings import unsupported_setting
from regard.hub.transformers_fallback import (
    is_known_to_transformers,
    is_transformers_default,
    load_with_transformers,
    reason_of,
)
from regard.hub.transformers_version import INSTALL, has_transformers, installed_version
from regard.hub.weight_map import TensorMap, TensorMismatch, check_tensors, to_regard
from regard.runs import meta_device, open_run


def load(folder: str | os.PathLike[str]) -> nn.Module:
    """The model of a run, or of a Hugging Face folder, ready for use.

    A checkpoint becomes a model of ours where every one of its settings has a counterpart there. Any other (T5, ViT,
    scaled rotary embeddings, classifiers ...) loads as transformers' own model, which attends through regard too.
    """
    if (run := open_run(folder)) is not None:
        return remember_origin(run.model(), run)
    folder = Path(folder)
    return remember_origin(_load_checkpoint(folder), folder)


def load_own(folder: Path) -> nn.Module:
    """The model of a Hugging Face folder as transformers' own, even where regard would convert it."""
    config = expect_checkpoint(folder)
    if not is_known_to_transformers(config.get("model_type")):
        raise unknown_type(config)
    return remember_origin(_load_own(folder, config, _unsupported(config)), folder)


def _load_checkpoint(folder: Path) -> nn.Module:
    """A model of ours, where it is equal to the one that config.json describes; else transformers' own."""
    config = expect_checkpoint(folder)
    kind = config.get("model_type")
    if kind not in FAMILIES:
        if is_known_to_transformers(kind):
            return _load_own(folder, config, None)
        raise unknown_type(config)
    try:
        return _build(folder, FAMILIES[kind], expect_supported(config))
    except (UnsupportedSetting, TensorMismatch) as error:
        if not has_transformers():
            raise
        reason = error.problem
    return _load_own(folder, config, reason)


def _load_own(folder: Path, config: HFConfig, reason: str | None) -> nn.Module:
    """transformers' own model. `reason`: why it is none of ours, where there is a family of ours; said in one line."""
    if reason is None:
        return load_with_transformers(folder, config)
    unfit = f"regard's own {config.get('model_type')} does not fit it: {reason}"
    try:
        model = load_with_transformers(folder, config)
    except CheckpointError as error:
        raise error.replace(advice=f"{error.advice} Also, {unfit}.".strip()) from error.__cause__
    own = f"{folder} loads as transformers' own {type(model).__name__}, attending through regard"
    warnings.warn(f"{own}; {unfit}", CheckpointWarning, stacklevel=4)
    return model


class UnsupportedSetting(SettingError):
    """A setting of config.json that no model of ours implements."""


def expect_checkpoint(folder: Path) -> HFConfig:
    """The config.json of a Hugging Face folder, which is a whole model."""
    if not folder.is_dir():
        raise CheckpointError(
            f"Folder not found: {folder}",
            advice="Name a run, or a local folder with config.json and model.safetensors; nothing is downloaded.",
        )
    expect_readable_folder(folder, CheckpointError)
    config = read_config(folder)
    if (folder / "adapter_config.json").exists():
        raise CheckpointError(
            "The folder has an adapter (adapter_config.json), whose weights would be left out",
            where=f"{folder}",
            advice="Merge it into the model, with merge_and_unload() of peft, and save that.",
        )
    kind = config.get("model_type", "")
    if not isinstance(kind, str):
        raise SettingError(f"model_type = {kind!r}", "a name", where=config.where)
    return config


def unknown_type(config: HFConfig) -> RegardError:
    """The error for a model type that neither regard nor the installed transformers has."""
    error = unknown(config.get("model_type"), FAMILIES, kind="model_type", where=config.where)
    found = installed_version()
    more = (
        f"transformers knows others: {INSTALL}" if found is None else f"transformers {found} has no such type either."
    )
    return error.replace(advice=f"{error.advice} {more}")


def _unsupported(config: HFConfig) -> str | None:
    """Why no model of ours implements a config.json; None: one does, or there is no such family."""
    kind = config.get("model_type")
    return unsupported_setting(config, partial(is_transformers_default, kind)) if kind in FAMILIES else None


def expect_supported(config: HFConfig) -> HFConfig:
    """Refuse a setting that our model of this family does not implement."""
    reason = _unsupported(config)
    if reason is not None:
        advice = "regard.load and `regard look` take it as transformers' own model."
        advice += "" if has_transformers() else f" {INSTALL}"
        raise UnsupportedSetting(reason, where=f"{Path(config.where).parent}", advice=advice)
    return config


def _build(folder: Path, family: Family, config: HFConfig) -> nn.Module:
    check_layers(config, read_header(folder))
    try:
        with meta_device():
            model = family.build(config)
    except RegardError:
        raise
    except Exception as error:  # torch raises errors of several kinds about sizes
        problem = f"No model can be built with these settings ({reason_of(error)})"
        raise CheckpointError(problem, where=config.where) from error
    maps, given = match_tensors(model, family, config, read_tensors(folder), f"{folder}")
    return fill_model(_materialise(model), maps, given, f"{folder}")


def _materialise(model: nn.Module) -> nn.Module:
    """Allocate the parameters of a model on the meta device; shared parameters stay shared."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                allocated = made.setdefault(weight, nn.Parameter(torch.empty_like(weight, device="cpu")))
                module._parameters[name] = allocated
    return model


def match_tensors(
    model: nn.Module, family: Family, config: HFConfig, tensors: Mapping[str, Tensor], where: str
) -> tuple[list[TensorMap], dict[str, Tensor]]:
    """The tensor maps of a model, which may be on the meta device, and its tensors by their names in models with a
    head, without redundant ones. Tensors that do not fill it are refused."""
    required = family.required_prefixes(config)
    maps = [
        replace(one, optional=one.optional and not any(name.startswith(required) for name in one.hf_names))
        for one in family.tensor_maps(model)
    ]
    known = {name for one in maps for name in one.hf_names}
    bare = not any(name.startswith(family.prefix) for name in tensors)
    named = {family.prefix + name if bare else name: tensor for name, tensor in tensors.items()}
    _check_copies(named, family, known, where)
    redundant = (*family.ignored, *family.copies, "position_ids")
    given = {name: tensor for name, tensor in named.items() if name in known or not name.endswith(redundant)}
    check_tensors(model, maps, given, where)
    return maps, given


def _check_copies(tensors: Mapping[str, Tensor], family: Family, known: set[str], where: str) -> None:
    """Refuse matrices that are tied in our models, but differ in the checkpoint."""
    for suffix, source in family.copies.items():
        for name in (one for one in tensors if one.endswith(suffix) and one not in known):
            if callable(source):
                same = torch.allclose(tensors[name], source(tensors[name]), rtol=0.0, atol=1e-6)
            else:
                same = source not in tensors or torch.equal(tensors[name], tensors[source])  # it may be missing
            if not same:
                other = "the positions of this architecture" if callable(source) else source
                raise TensorMismatch(f"The tensor {name} differs from {other}", where=where)


def fill_model(model: nn.Module, maps: Sequence[TensorMap], tensors: Mapping[str, Tensor], where: str) -> nn.Module:
    with torch.no_grad():
        to_regard(model, maps, tensors, where)
    return model.eval()
