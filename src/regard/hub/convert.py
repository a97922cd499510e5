"""Import and export of models: between Hugging Face checkpoint folders and runs.

model = load("gpt2")                                  # a folder on this machine, of Hugging Face or a run
save(model, Path("hf"))                               # a folder that transformers loads
import_checkpoint(Path("gpt2"), Path("runs/gpt2"))    # a run, for `regard generate` and all other commands
export_checkpoint(Path("runs/gpt"), Path("hf"))       # a run with its tokenizer, for transformers
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError, CheckpointWarning, RegardError, RunError, SettingError, unknown
from regard.files import write_atomic
from regard.hub.families import FAMILIES
from regard.hub.families.family import Family
from regard.hub.folder import HFConfig, read_config, read_tensors, special_tokens, write_folder
from regard.hub.provenance import remember_origin
from regard.hub.supported_settings import unsupported_setting
from regard.hub.transformers_fallback import (
    is_known_to_transformers,
    is_transformers_default,
    load_with_transformers,
    reason_of,
)
from regard.hub.transformers_version import INSTALL, has_transformers, installed_version
from regard.hub.weight_map import TensorMap, TensorMismatch, check_tensors, to_hf, to_regard
from regard.runs import (
    FILE as WEIGHTS,
    RECIPE,
    TOKENIZER,
    VERSION,
    Run,
    build_model,
    open_run,
    save_weights,
    toml,
    weights_of,
)
from regard.text import Tokenizer


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
    config = _expect_checkpoint(folder)
    if not is_known_to_transformers(config.get("model_type")):
        raise _unknown_type(config)
    return remember_origin(_load_own(folder, config, _unsupported(config)), folder)


def _load_checkpoint(folder: Path) -> nn.Module:
    """A model of ours, where it is equal to the one that config.json describes; else transformers' own."""
    config = _expect_checkpoint(folder)
    kind = config.get("model_type")
    if kind not in FAMILIES:
        if is_known_to_transformers(kind):
            return _load_own(folder, config, None)
        raise _unknown_type(config)
    try:
        return _build(folder, FAMILIES[kind], _expect_supported(config))
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


def save(model: nn.Module, folder: Path, max_length: int = 2048, more: Mapping[str, Any] | None = None) -> None:
    """Write a model for transformers. `max_length`: if positions are unlimited; `more`: settings of config.json."""
    family = next((one for one in FAMILIES.values() if one.matches(model)), None)
    if family is None:
        raise CheckpointError(
            f"a {type(model).__name__} that no architecture of Hugging Face matches",
            f"a model with the layers of one of {', '.join(sorted(FAMILIES))}",
            where="regard export",
        )
    settings = {**family.config(model, max_length), "dtype": "float32", **(more or {})}
    write_folder(folder, settings, to_hf(model, family.tensor_maps(model)))


def import_checkpoint(folder: Path, run: Path, tokenizer: Path | None = None) -> nn.Module:
    """Make a run of a Hugging Face folder, with a recipe for its model, as if it had been trained here.

    Rows of the embedding beyond the tokenizer's vocabulary, which are padding, are dropped.
    """
    config = _expect_checkpoint(folder)
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise unknown(kind, FAMILIES, kind="model_type", where=config.where)
    family = FAMILIES[kind]
    if family.settings is None:
        raise SettingError(f"No recipe can describe a model of type {family.kind!r}", where="regard import")
    _expect_supported(config)
    source = tokenizer or folder / TOKENIZER
    if not source.exists():
        raise CheckpointError(
            f"There is no {TOKENIZER}",
            where=f"{folder}",
            advice="Write one with transformers' AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OTHER) and pass "
            "it as --tokenizer; regard.load(FOLDER) loads the model alone.",
        )
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise RunError(f"{run} exists already", advice="Name a new folder.")
    known = Tokenizer.load(source)
    roles = {role: token for role, token in special_tokens(source.parent).items() if _has_token(known, token)}
    loaded = Tokenizer.load(source, roles)
    settings = {
        "version": VERSION,
        "name": _recipe_name(folder),
        "description": f"Imported from {folder}.",
        "tokenizer": {"kind": "file", "path": str(source.absolute()), "roles": roles},
        **family.settings(config),
    }
    if len(loaded) > config.need("vocab_size"):
        given = f"a tokenizer of {len(loaded)} tokens"
        raise CheckpointError(given, f"at most vocab_size = {config.need('vocab_size')}", where=f"{source}")
    tensors = {
        name: tensor[: len(loaded)] if name.endswith(family.vocab_tensors) else tensor
        for name, tensor in read_tensors(folder).items()
    }
    run.mkdir(parents=True, exist_ok=True)
    loaded.save(run / TOKENIZER)
    with torch.random.fork_rng(devices=[]):  # random weights are drawn, and then replaced
        model = build_model(settings, (loaded,))
    model = _fill_model(model, *_match_tensors(model, family, config, tensors, f"{folder}"), f"{folder}")
    save_weights(weights_of(model), run / WEIGHTS)
    write_atomic(run / RECIPE, toml.dump(settings).encode())  # last: if it exists, the run is complete
    return model


def export_checkpoint(run: str | os.PathLike[str], folder: Path) -> None:
    """Write a run as a Hugging Face folder, its tokenizer too."""
    source = Run.open(run)
    source.expect_unpruned("regard export --to hf")
    model, tokenizer = source.model(), source.tokenizer
    names = {"end": "eos", "start": "bos", "pad": "pad", "unknown": "unk", "cls": "cls", "sep": "sep", "mask": "mask"}
    ids = {names[role]: number for role, number in tokenizer.special.roles.items()}
    numbers = {f"{name}_token_id": ids.get(name) for name in ("bos", "eos", "pad")}
    save(model, folder, source.section("batches").get("sequence_length", 2048), numbers)
    tokenizer.save(folder / TOKENIZER)
    spelled = {f"{name}_token": tokenizer.token(number) for name, number in ids.items()}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **spelled}
    write_atomic(folder / "tokenizer_config.json", json.dumps(about, indent=2, ensure_ascii=False).encode())


class UnsupportedSetting(SettingError):
    """A setting of config.json that no model of ours implements."""


def _expect_checkpoint(folder: Path) -> HFConfig:
    """The config.json of a Hugging Face folder, which is a whole model."""
    if not folder.is_dir():
        raise CheckpointError(
            f"Folder not found: {folder}",
            advice="Name a run, or a local folder with config.json and model.safetensors; nothing is downloaded.",
        )
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


def _unknown_type(config: HFConfig) -> RegardError:
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


def _expect_supported(config: HFConfig) -> HFConfig:
    """Refuse a setting that our model of this family does not implement."""
    reason = _unsupported(config)
    if reason is not None:
        advice = "regard.load and `regard look` take it as transformers' own model."
        advice += "" if has_transformers() else f" {INSTALL}"
        raise UnsupportedSetting(reason, where=f"{Path(config.where).parent}", advice=advice)
    return config


def _build(folder: Path, family: Family, config: HFConfig) -> nn.Module:
    tensors = read_tensors(folder)
    try:
        with torch.device("meta"):
            model = family.build(config)
    except RegardError:
        raise
    except Exception as error:  # torch raises errors of several kinds about sizes
        problem = f"No model can be built with these settings ({reason_of(error)})"
        raise CheckpointError(problem, where=config.where) from error
    maps, given = _match_tensors(model, family, config, tensors, f"{folder}")
    return _fill_model(_materialise(model), maps, given, f"{folder}")


def _materialise(model: nn.Module) -> nn.Module:
    """Allocate the parameters of a model on the meta device; shared parameters stay shared."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                allocated = made.setdefault(weight, nn.Parameter(torch.empty_like(weight, device="cpu")))
                module._parameters[name] = allocated
    return model


def _match_tensors(
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


def _fill_model(model: nn.Module, maps: Sequence[TensorMap], tensors: Mapping[str, Tensor], where: str) -> nn.Module:
    with torch.no_grad():
        to_regard(model, maps, tensors, where)
    return model.eval()


def _has_token(tokenizer: Tokenizer, token: str) -> bool:
    try:
        tokenizer.id(token)
    except SettingError:
        return False
    return True


def _recipe_name(folder: Path) -> str:
    """A valid recipe name: ASCII letters, digits and ._-."""
    name = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "-" for sign in folder.resolve().name
    )
    return name.lstrip("._-") or "imported"
