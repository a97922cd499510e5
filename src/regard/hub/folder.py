"""Hugging Face checkpoint folders: config.json, safetensors in one file or shards, and tokenizer.json.

No code in them is ever run: pickled weights are not opened, and Python files are ignored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from regard.bounded_files import expect_regular, read_json
from regard.errors import CheckpointError, RegardError, SettingError
from regard.files import write_atomic
from regard.runs import count_layers, read_shapes, save_weights

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MAX_NUMBER = 1 << 40
_LAYERS = re.compile(r"^(?:num|n)_(?:\w+_)?(?:layers?|experts|stages|blocks)$|^(?:encoder|decoder)_layers$|^depths?$")
CONVERT_ADVICE = (
    "Convert it on a machine that trusts it: transformers' AutoModel.from_pretrained(FOLDER).save_pretrained(OTHER, "
    "safe_serialization=True)."
)


@dataclass(frozen=True)
class HFConfig:
    """The values of a config.json, and its path."""

    values: Mapping[str, Any]
    where: str = CONFIG

    def need(self, name: str) -> Any:
        """A value that must be there."""
        if self.values.get(name) is None:
            raise SettingError(f"The setting {name!r} is missing", where=self.where)
        return self.values[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A value, or the default where it is missing or null."""
        found = self.values.get(name)
        return default if found is None else found

    def expect(self, name: str, *allowed: Any) -> None:
        """Refuse a setting that regard does not implement; the first of the allowed values is the default."""
        found = self.get(name, allowed[0])
        if found not in allowed:
            raise SettingError(f"{name} = {found!r}", " or ".join(map(repr, allowed)), where=self.where)

    @property
    def architecture(self) -> str:
        """The class that saved it: "BertForMaskedLM"; empty where none is named."""
        named = self.get("architectures", [])
        if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
            raise SettingError(f"architectures = {named!r}", "a list of class names", where=self.where)
        return named[0] if named else ""


def read_config(folder: Path) -> HFConfig:
    """The config.json of a folder."""
    return HFConfig(_read_object(folder / CONFIG), f"{folder / CONFIG}")


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All weights of a folder by name, as float32."""
    found: dict[str, Tensor] = {}
    for file in check_weight_files(folder):
        with _readable(file):
            found |= load_file(file)
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in found.items()}


def check_weight_files(folder: Path) -> list[Path]:
    """The files with the weights of a folder, whose headers are valid and whose lengths are as these say."""
    files = [folder / name for name in _weight_files(folder)]
    for file in files:
        with _readable(file):
            expect_regular(file, CheckpointError)
            with safe_open(file, "pt") as opened:
                opened.keys()
    return files


def read_header(folder: Path) -> dict[str, tuple[int, ...]]:
    """The names and shapes of all tensors of a folder, without their values."""
    found: dict[str, tuple[int, ...]] = {}
    for name in _weight_files(folder):
        found |= read_shapes(folder / name)
    return found


def check_layers(config: HFConfig, shapes: Mapping[str, tuple[int, ...]], spare: int = 0) -> None:
    """Refuse a config.json with more layers than the weights have, and than `spare`, or with numbers out of bounds.

    Building a model takes time for each of its layers, so this comes first.
    """
    stored = count_layers(shapes)
    for name, value in _numbers(config.values):
        if abs(value) > MAX_NUMBER:
            raise CheckpointError(f"{name} = {value}", f"a number of at most {MAX_NUMBER:,}", where=config.where)
        if _LAYERS.search(name) and value > max(stored, spare, 1):
            problem = f"config.json says {name} = {value}, the weights have {stored} layers"
            raise CheckpointError(problem, where=config.where)


def _numbers(values: Any, name: str = "") -> Iterator[tuple[str, int]]:
    """Every whole number of config.json, those of its sections and lists too, with the name of its setting."""
    if type(values) is int:
        yield name, values
    elif isinstance(values, dict):
        for key, value in values.items():
            yield from _numbers(value, key)
    elif isinstance(values, list):
        for value in values:
            yield from _numbers(value, name)


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    try:
        yield
    except RegardError:
        raise
    except Exception as error:  # safetensors raises errors of several kinds about a damaged file
        raise CheckpointError(f"Could not read the weights: {error}", where=f"{file}") from error


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """A folder that transformers loads; a new one, or an empty one."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder} exists already", advice="Name a new folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_weights(tensors, folder / WEIGHTS)
        write_atomic(folder / CONFIG, json.dumps(dict(config), indent=2).encode())
    except OSError as error:
        raise CheckpointError(f"Could not write {folder}: {error.strerror}") from error


def special_tokens(folder: Path) -> dict[str, str]:
    """The special tokens of a folder, by role."""
    names = {"end": "eos", "start": "bos", "pad": "pad", "unknown": "unk", "cls": "cls", "sep": "sep", "mask": "mask"}
    found: dict[str, str] = {}
    for file in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / file).exists():
            values = _read_object(folder / file)
            for role, name in names.items():
                token = values.get(f"{name}_token")
                token = token.get("content") if isinstance(token, dict) else token
                if isinstance(token, str):
                    found.setdefault(role, token)
    return found


def _weight_files(folder: Path) -> list[str]:
    if (folder / WEIGHTS).exists():
        return [WEIGHTS]
    if (folder / INDEX).exists():
        weight_map = _read_object(folder / INDEX).get("weight_map")
        shards = list(weight_map.values()) if isinstance(weight_map, dict) else []
        if not shards or not all(map(_is_file_name, shards)):
            raise CheckpointError("The index has no weight_map of file names", where=f"{folder / INDEX}")
        return sorted(set(shards))
    pickled = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.ckpt") for path in folder.glob(pattern))
    if pickled:
        problem = f"Pickled weights ({pickled[0]}) are never opened: they can run code"
        raise CheckpointError(problem, where=f"{folder}", advice=CONVERT_ADVICE)
    raise CheckpointError(f"There are no weights: neither {WEIGHTS} nor {INDEX}", where=f"{folder}")


def _is_file_name(name: object) -> bool:
    return isinstance(name, str) and Path(name).name == name and "\0" not in name


def _read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    try:
        values = read_json(path, CheckpointError)
    except FileNotFoundError as error:
        raise CheckpointError(
            f"File not found: {path}", advice="A checkpoint folder is what transformers' save_pretrained writes."
        ) from error
    except OSError as error:
        raise CheckpointError(f"Could not read {path}: {error.strerror}") from error
    if not isinstance(values, dict):
        raise CheckpointError(f"a JSON {type(values).__name__}", "an object", where=f"{path}")
    return values
