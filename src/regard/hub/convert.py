"""Models between a folder of Hugging Face's and one of ours.

model = load("gpt2")                      # a folder on this machine, theirs or a run's; nothing is downloaded
save(model, Path("theirs"))               # a folder that transformers loads
import_checkpoint(Path("gpt2"), Path("runs/gpt2"))    # a run, for `regard generate` and all that takes one
export_checkpoint(Path("runs/gpt"), Path("theirs"))   # a run with its tokenizer, for transformers
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import CheckpointError, RunError, SettingError, unknown
from regard.files import write_whole
from regard.hub.families import FAMILIES
from regard.hub.families.family import Family
from regard.hub.folder import Config, read_config, read_tensors, special_tokens, write_folder
from regard.hub.provenance import remember
from regard.hub.transformers_fallback import knows, load_theirs
from regard.hub.weight_map import bring_in, carry_out
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

    An architecture that has no counterpart here (T5, ViT, ...) comes as its transformers model, heard all the same.
    """
    if (run := open_run(folder)) is not None:
        return remember(run.model(), run)
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(
            f"{folder}, which is no folder",
            "a run, or a folder with config.json and model.safetensors",
            advice="Nothing is downloaded: name a folder on this machine.",
        )
    kind = read_config(folder).get("model_type")
    if kind not in FAMILIES and knows(kind):
        return remember(load_theirs(folder), folder)
    return remember(_made(folder, *_family(folder)), folder)


def save(model: nn.Module, folder: Path, longest: int = 2048, more: Mapping[str, Any] | None = None) -> None:
    """Write a model as transformers loads it. `longest`: of its texts, where positions do not say; `more`: settings."""
    family = next((one for one in FAMILIES.values() if one.fits(model)), None)
    if family is None:
        raise CheckpointError(
            f"a {type(model).__name__} that none of theirs is like",
            f"a model built like one of {', '.join(sorted(FAMILIES))}",
            where="regard export",
        )
    settings = {**family.config(model, longest), "dtype": "float32", **(more or {})}
    write_folder(folder, settings, carry_out(model, family.rows(model)))


def import_checkpoint(folder: Path, run: Path, tokenizer: Path | None = None) -> nn.Module:
    """Make a run of a Hugging Face folder: its recipe says what the model is, as if it had been trained here.

    Rows of the embedding that the tokenizer has no word for, which round its size up, are left behind: nobody could
    read them.
    """
    family, config = _family(folder)
    if family.settings is None:
        raise SettingError(f"a {family.kind}", "a model that a recipe can describe", where="regard import")
    source = tokenizer or folder / TOKENIZER
    if not source.exists():
        raise CheckpointError(
            f"no {TOKENIZER}",
            "one, so that text can go in and out",
            where=f"{folder}",
            advice="transformers' AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OTHER) writes it, then name it "
            "with --tokenizer; the model alone comes with regard.load(FOLDER).",
        )
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise RunError(f"{run}, which exists", "a new folder", advice="Name another one.")
    known = Tokenizer.load(source)
    roles = {role: token for role, token in special_tokens(source.parent).items() if _has(known, token)}
    pieces = Tokenizer.load(source, roles)
    settings = {
        "version": VERSION,
        "name": _name(folder),
        "description": f"Brought from {folder}.",
        "tokenizer": {"kind": "file", "path": str(source.absolute()), "roles": roles},
        **family.settings(config),
    }
    if len(pieces) > config.need("vocab_size"):
        came = f"a tokenizer of {len(pieces)} pieces"
        raise CheckpointError(came, f"at most vocab_size = {config.need('vocab_size')}", where=f"{source}")
    tensors = {
        name: tensor[: len(pieces)] if name.endswith(family.worded) else tensor
        for name, tensor in read_tensors(folder).items()
    }
    run.mkdir(parents=True, exist_ok=True)
    pieces.save(run / TOKENIZER)
    with torch.random.fork_rng(devices=[]):  # fresh weights are drawn, and then replaced
        model = _filled(build_model(settings, (pieces,)), family, config, tensors, f"{folder}")
    save_weights(weights_of(model), run / WEIGHTS)
    write_whole(run / RECIPE, toml.written(settings).encode())  # last: where it is, the others are
    return model


def export_checkpoint(run: str | os.PathLike[str], folder: Path) -> None:
    """Write a run as a Hugging Face folder, its tokenizer too."""
    source = Run.open(run)
    source.expect_whole("regard export --to hf")
    model, pieces = source.model(), source.tokenizer
    theirs = {"end": "eos", "start": "bos", "pad": "pad", "unknown": "unk", "cls": "cls", "sep": "sep", "mask": "mask"}
    ids = {theirs[role]: number for role, number in pieces.special.roles.items()}
    numbers = {f"{name}_token_id": ids.get(name) for name in ("bos", "eos", "pad")}
    save(model, folder, source.section("batches").get("size", 2048), numbers)
    pieces.save(folder / TOKENIZER)
    spelled = {f"{name}_token": pieces.token(number) for name, number in ids.items()}
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **spelled}
    write_whole(folder / "tokenizer_config.json", json.dumps(about, indent=2, ensure_ascii=False).encode())


def _family(folder: Path) -> tuple[Family, Config]:
    config = read_config(folder)
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise unknown(kind, FAMILIES, kind="an architecture we do not know,", where=config.where)
    return FAMILIES[kind], config


def _made(folder: Path, family: Family, config: Config) -> nn.Module:
    tensors = read_tensors(folder)
    with torch.device("meta"):
        model = family.make(config)
    return _filled(_material(model), family, config, tensors, f"{folder}")


def _material(model: nn.Module) -> nn.Module:
    """Memory for a model that has none yet; what it shares, it shares still."""
    made: dict[nn.Parameter, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                own = made.setdefault(weight, nn.Parameter(torch.empty_like(weight, device="cpu")))
                module._parameters[name] = own
    return model


def _filled(model: nn.Module, family: Family, config: Config, tensors: Mapping[str, Tensor], where: str) -> nn.Module:
    promised = family.promises(config)
    rows = [
        replace(row, optional=row.optional and not any(name.startswith(promised) for name in row.names))
        for row in family.rows(model)
    ]
    known = {name for row in rows for name in row.names}
    with torch.no_grad():
        bring_in(model, rows, _named(tensors, family, known), where)
    return model.eval()


def _named(tensors: Mapping[str, Tensor], family: Family, known: set[str]) -> dict[str, Tensor]:
    """Tensors by the names of the family's larger models, without what says nothing: buffers, and a second copy of the
    output's matrix where it is the embedding's."""
    bare = not any(name.startswith(family.prefix) for name in tensors)
    named = {family.prefix + name if bare else name: tensor for name, tensor in tensors.items()}
    silent = (*family.ignored, "lm_head.weight", "position_ids")
    return {name: tensor for name, tensor in named.items() if name in known or not name.endswith(silent)}


def _has(tokenizer: Tokenizer, token: str) -> bool:
    try:
        tokenizer.id(token)
    except SettingError:
        return False
    return True


def _name(folder: Path) -> str:
    """A recipe's name: letters, digits and a few signs."""
    said = "".join(
        sign if sign.isascii() and (sign.isalnum() or sign in "._-") else "-" for sign in folder.resolve().name
    )
    return said.lstrip("._-") or "brought"
