"""The weights of a model as one file, model.safetensors: each tensor once, checked against the model that takes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from regard.errors import CheckpointError
from regard.files import write_whole

FILE = "model.safetensors"


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The tensors that make a model what it is, by name: parameters (tied ones once) and what else its state keeps."""
    kept = model.state_dict()
    buffers = {name: buffer for name, buffer in model.named_buffers() if name in kept}
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *buffers.items())}


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write weights to a file that is there as a whole or not at all."""
    write_whole(path, save({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, {"format": "pt"}))


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill a model from a run folder or a file of weights."""
    file = path / FILE if path.is_dir() else path
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"no weights that can be read ({error})",
            "a safetensors file, or a run folder with one",
            where=f"{file}",
            advice="Pickled weights (.pt, .bin) are never opened: they can run code." if _pickled(file) else "",
        ) from error
    fill(model, tensors, f"{file}")


def fill(model: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Copy weights into a model, whose names and shapes must be theirs."""
    wanted = weights_of(model)
    missing, strange = sorted(wanted.keys() - tensors), sorted(tensors.keys() - wanted)
    if missing or strange:
        came = f"weights without {_some(missing)}" if missing else f"weights with {_some(strange)}"
        raise CheckpointError(came, "those of this model", where=where, advice="Is it another kind or size of model?")
    for name, target in wanted.items():
        same_shape(name, tuple(tensors[name].shape), tuple(target.shape), where)
    for name, target in wanted.items():
        target.copy_(tensors[name])


def same_shape(name: str, came: tuple[int, ...], wanted: tuple[int, ...], where: str) -> None:
    """Refuse a tensor of another size than the model's."""
    if came == wanted:
        return
    why = "They belong to a model of another size."
    if len(came) == len(wanted) == 2 and came[0] != wanted[0] and came[1] == wanted[1]:
        why = f"They belong to a vocabulary of {came[0]}, the tokenizer of this model has {wanted[0]}."
    raise CheckpointError(f"weights with {name} of shape {came}", f"{wanted}", where=where, advice=why)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _pickled(file: Path) -> bool:
    return file.suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl")
