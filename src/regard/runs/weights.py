"""The weights of a model in one file, model.safetensors: tied tensors once, names and shapes checked on loading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.bounded_files import expect_regular
from regard.errors import CheckpointError
from regard.files import write_atomic

FILE = "model.safetensors"
Shape = tuple[int, ...]
_NUMBER = re.compile(r"\d+")


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors of a model by name: parameters (tied ones once) and persistent buffers."""
    state = model.state_dict()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in state}
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *buffers.items())}


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write weights to a file atomically."""
    write_atomic(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, {"format": "pt"}))


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill a model from a run folder or a file of weights."""
    file = path / FILE if path.is_dir() else path
    try:
        expect_regular(file, CheckpointError)
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"Could not read the weights: {error}",
            where=f"{file}",
            advice="Pickled weights (.pt, .bin) are never opened: they can run code." if _is_pickled(file) else "",
        ) from error
    copy_weights(model, tensors, f"{file}")


def read_shapes(file: Path) -> dict[str, Shape]:
    """The names and shapes of the tensors in a file, from its header alone."""
    try:
        expect_regular(file, CheckpointError)
        with safe_open(file, framework="pt") as opened:
            return {name: tuple(opened.get_slice(name).get_shape()) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"Could not read the weights: {error}", where=f"{file}") from error


def count_layers(names: Iterable[str]) -> int:
    """The most layers that any part of a model has, by the numbers in the names of its tensors.

    >>> count_layers(["encoder.0.weight", "encoder.1.weight", "decoder.7.weight"])
    2
    """
    found: dict[str, set[str]] = {}
    for name in names:
        for number in _NUMBER.finditer(name):
            found.setdefault(name[: number.start()], set()).add(number.group())
    return max(map(len, found.values()), default=0)


def copy_weights(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy weights into a model with the same names and shapes."""
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, where)
    for name, target in weights_of(model).items():
        target.copy_(tensors[name])


def check_shapes(model: nn.Module, shapes: Mapping[str, Shape], where: str) -> None:
    """Refuse weights of other names or shapes than those of a model, which may be on the meta device."""
    weights = weights_of(model)
    missing, extra = sorted(weights.keys() - shapes), sorted(shapes.keys() - weights)
    if missing or extra:
        problem = (
            f"Weights are missing: {_list_names(missing)}" if missing else f"Unknown weights: {_list_names(extra)}"
        )
        raise CheckpointError(problem, where=where, advice="Is it another kind or size of model?")
    for name, target in weights.items():
        expect_same_shape(name, shapes[name], tuple(target.shape), where)


def expect_same_shape(name: str, given: tuple[int, ...], expected: tuple[int, ...], where: str) -> None:
    """Refuse a tensor of another shape than the model's."""
    if given == expected:
        return
    why = "They belong to a model of another size."
    if len(given) == len(expected) == 2 and given[0] != expected[0] and given[1] == expected[1]:
        why = f"They belong to a vocabulary of {given[0]}, the tokenizer of this model has {expected[0]}."
    raise CheckpointError(f"weights with {name} of shape {given}", f"{expected}", where=where, advice=why)


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _is_pickled(file: Path) -> bool:
    return file.suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl")


DRAWS = frozenset({"normal_", "uniform_", "trunc_normal_", "xavier_uniform_", "xavier_normal_", "kaiming_uniform_"})


class _WithoutNumbers(TorchFunctionMode):
    """Draws no initial weights: the meta device has no numbers, and torch would import its compiler to say so."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        drawn = args[0] if args else kwargs.get("tensor")
        if getattr(func, "__name__", "") in DRAWS and isinstance(drawn, Tensor) and drawn.is_meta:
            return drawn
        return func(*args, **kwargs)


@contextmanager
def meta_device() -> Iterator[None]:
    """Models that are built inside have parameters of the right shapes on the meta device, which take no memory."""
    with torch.device("meta"), _WithoutNumbers():
        yield
