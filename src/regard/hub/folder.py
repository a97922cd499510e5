"""A folder as Hugging Face lays it out: config.json, weights in safetensors, whole or in parts, and tokenizer.json.

Nothing in it is ever run: pickled weights are not opened, and code beside them is not looked at.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from regard.errors import CheckpointError, SettingError
from regard.files import write_whole
from regard.runs import save_weights

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
HOW = (
    "Convert it where it comes from: transformers' AutoModel.from_pretrained(FOLDER).save_pretrained(OTHER, "
    "safe_serialization=True)."
)


@dataclass(frozen=True)
class Config:
    """The values of a config.json, and where it lies."""

    values: Mapping[str, Any]
    where: str = CONFIG

    def need(self, name: str) -> Any:
        """A value that must be there."""
        if self.values.get(name) is None:
            raise SettingError(f"no {name}", "one", where=self.where)
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or what stands for it where it is left out or null."""
        found = self.values.get(name)
        return default if found is None else found

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse a setting whose model we do not have; the first of the allowed values is the default."""
        found = self.get(name, allowed[0])
        if found not in allowed:
            raise SettingError(f"{name} = {found!r}", " or ".join(map(repr, allowed)), where=self.where)

    @property
    def architecture(self) -> str:
        """The class that wrote it: "BertForMaskedLM"; empty where none is named."""
        return str((self.get("architectures") or [""])[0])


def read_config(folder: Path) -> Config:
    """The config.json of a folder."""
    values = _json(folder / CONFIG, "a folder with a config.json, as transformers' save_pretrained writes it")
    if not isinstance(values, dict):
        raise CheckpointError(f"a {type(values).__name__}", "an object", where=f"{folder / CONFIG}")
    return Config(values, f"{folder / CONFIG}")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder by name, as float32."""
    files = [folder / name for name in _parts(folder)]
    found: dict[str, Tensor] = {}
    for file in files:
        try:
            found |= load_file(file)
        except (OSError, SafetensorError) as error:
            raise CheckpointError(
                f"weights that cannot be read ({error})", "a safetensors file", where=f"{file}"
            ) from error
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in found.items()}


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """A folder that transformers loads; a new one, or an empty one."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder}, which exists", "a new folder", advice="Name another one.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_weights(tensors, folder / WEIGHTS)
        write_whole(folder / CONFIG, json.dumps(dict(config), indent=2).encode())
    except OSError as error:
        raise CheckpointError(f"{folder} ({error.strerror})", "a folder that can be written") from error


def special_tokens(folder: Path) -> dict[str, str]:
    """How a folder spells its special tokens, by role, where it says so."""
    names = {"end": "eos", "start": "bos", "pad": "pad", "unknown": "unk", "cls": "cls", "sep": "sep", "mask": "mask"}
    found: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / file).exists():
            values = _json(folder / file, "an object")
            for role, name in names.items():
                token = values.get(f"{name}_token")
                token = token.get("content") if isinstance(token, dict) else token
                if isinstance(token, str):
                    found.setdefault(role, token)
    return found


def _parts(folder: Path) -> list[str]:
    if (folder / WEIGHTS).exists():
        return [WEIGHTS]
    if (folder / INDEX).exists():
        wanted = _json(folder / INDEX, "an index")
        parts = sorted(set(wanted["weight_map"].values())) if isinstance(wanted.get("weight_map"), dict) else []
        if not parts or any(Path(part).name != part for part in parts):
            raise CheckpointError("an index without a weight_map of file names", "one", where=f"{folder / INDEX}")
        return parts
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern))
    if pickled:
        raise CheckpointError(
            f"pickled weights ({pickled[0]}), which could run code", WEIGHTS, where=f"{folder}", advice=HOW
        )
    raise CheckpointError("no weights", f"{WEIGHTS} or {INDEX}", where=f"{folder}")


def _json(path: Path, expected: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} ({error.strerror})", expected) from error
    except ValueError as error:
        raise CheckpointError(f"a file that is no JSON ({error})", expected, where=f"{path}") from error
