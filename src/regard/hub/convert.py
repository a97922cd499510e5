"""Import and export of models: between Hugging Face checkpoint folders and runs.

save(model, Path("hf"))                               # a folder that transformers loads
import_checkpoint(Path("gpt2"), Path("runs/gpt2"))    # a run, for `regard generate` and all other commands
export_checkpoint(Path("runs/gpt"), Path("hf"))       # a run with its tokenizer, for transformers
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.errors import CheckpointError, RunError, SettingError
from regard.files import write_atomic
from regard.hub.checkpoint_loader import expect_checkpoint, expect_supported, fill_model, match_tensors, unknown_type
from regard.hub.families import FAMILIES
from regard.hub.folder import check_layers, read_header, read_tensors, special_tokens, write_folder
from regard.hub.weight_map import to_hf
from regard.runs import (
    FILE as WEIGHTS,
    RECIPE,
    TOKENIZER,
    VERSION,
    Run,
    build_model,
    save_weights,
    toml,
    weights_of,
)
from regard.text import Tokenizer


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
    config = expect_checkpoint(folder)
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise unknown_type(config)
    family = FAMILIES[kind]
    if family.settings is None:
        raise SettingError(f"No recipe can describe a model of type {family.kind!r}", where="regard import")
    expect_supported(config)
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
    check_layers(config, read_header(folder))
    tensors = {
        name: tensor[: len(loaded)] if name.endswith(family.vocab_tensors) else tensor
        for name, tensor in read_tensors(folder).items()
    }
    run.mkdir(parents=True, exist_ok=True)
    loaded.save(run / TOKENIZER)
    with torch.random.fork_rng(devices=[]):  # random weights are drawn, and then replaced
        model = build_model(settings, (loaded,))
    model = fill_model(model, *match_tensors(model, family, config, tensors, f"{folder}"), f"{folder}")
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
