"""The weight map of a model: which Hugging Face tensor is which parameter of regard, in both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from regard.attention.layers import FusedQKV
from regard.errors import CheckpointError
from regard.runs import copy_weights, weights_of


@dataclass(frozen=True)
class TensorMap:
    """A tensor of regard, and the Hugging Face tensors that it is made of.

    split_sizes   the rows of each Hugging Face tensor, where several are concatenated
    transpose     the Hugging Face tensor is (in, out), ours (out, in)
    skip_rows     rows at the top of the Hugging Face tensor that we drop; they are exported as zeros
    reverse_rows  the Hugging Face tensor has its rows in reverse order
    squeeze       the Hugging Face tensor is (1, n), ours (n,)
    optional      the Hugging Face tensor may be missing; ours is then `default` of it, by default zeros, as it always
                  is where `hf` is empty
    """

    hf: str | tuple[str, ...]
    regard: str
    split_sizes: tuple[int, ...] = ()
    transpose: bool = False
    skip_rows: int = 0
    reverse_rows: bool = False
    squeeze: bool = False
    optional: bool = False
    default: Callable[[Tensor], Tensor] = torch.zeros_like

    @property
    def hf_names(self) -> tuple[str, ...]:
        return (self.hf,) if isinstance(self.hf, str) else self.hf

    def to_regard(self, parts: Sequence[Tensor]) -> Tensor:
        parts = [part.t() if self.transpose else part for part in parts]
        tensor = (torch.cat(list(parts)) if len(parts) > 1 else parts[0])[self.skip_rows :]
        tensor = tensor.squeeze(0) if self.squeeze else tensor
        return tensor.flip(0) if self.reverse_rows else tensor

    def to_hf(self, tensor: Tensor) -> list[Tensor]:
        if not self.hf_names:
            return []
        tensor = tensor.flip(0) if self.reverse_rows else tensor
        tensor = tensor.unsqueeze(0) if self.squeeze else tensor
        parts = tensor.split(self.split_sizes) if self.split_sizes else [tensor]
        if self.skip_rows:
            parts = [torch.cat((part.new_zeros(self.skip_rows, *part.shape[1:]), part)) for part in parts]
        return [(part.t() if self.transpose else part).contiguous() for part in parts]

    def for_layer(self, number: int) -> TensorMap:
        """The map of one layer, whose number replaces {}."""
        return replace(self, hf=tuple(name.format(number) for name in self.hf_names), regard=self.regard.format(number))


def for_layers(maps: Iterable[TensorMap], layers: int) -> list[TensorMap]:
    """Maps with {} in their names, once for each layer."""
    return [one.for_layer(number) for number in range(layers) for one in maps]


def linear(hf: str, regard: str, bias: bool = True, transpose: bool = False, optional: bool = False) -> list[TensorMap]:
    """The weight and the bias of a linear layer or a norm."""
    weight = TensorMap(f"{hf}.weight", f"{regard}.weight", transpose=transpose, optional=optional)
    return [weight, TensorMap(f"{hf}.bias", f"{regard}.bias", optional=optional)] if bias else [weight]


def missing(regard: str) -> list[TensorMap]:
    """The weight and the bias of a linear layer that the Hugging Face model does not have."""
    return [TensorMap((), f"{regard}.weight"), TensorMap((), f"{regard}.bias")]


def qkv(hf: Sequence[str], regard: str, project: nn.Module) -> list[TensorMap]:
    """Separate query, key and value matrices, which are fused into one here."""
    assert isinstance(project, FusedQKV)
    sizes = tuple(count * project.width for count in (project.heads, project.key_heads, project.key_heads))
    kinds = ("weight", "bias") if project.bias else ("weight",)
    return [TensorMap(tuple(f"{name}.{kind}" for name in hf), f"{regard}.{kind}", sizes) for kind in kinds]


class TensorMismatch(CheckpointError):
    """Tensors that are missing, unknown, of another shape, or not those of the architecture that config.json names."""


def check_tensors(model: nn.Module, maps: Sequence[TensorMap], tensors: Mapping[str, Tensor], where: str) -> None:
    """Refuse tensors that do not fill a model, which may be on the meta device."""
    weights = weights_of(model)
    known = {name for one in maps for name in one.hf_names}
    absent = [name for one in maps for name in one.hf_names if name not in tensors and not one.optional]
    extra = sorted(tensors.keys() - known)
    if absent or extra:
        problem = f"Tensors are missing: {list_names(absent)}" if absent else f"Unknown tensors: {list_names(extra)}"
        advice = "Is the checkpoint complete, and of the architecture that its config.json names?"
        raise TensorMismatch(problem, where=where, advice=advice)
    for one in maps:
        if any(name not in tensors for name in one.hf_names):
            continue
        shapes = (tuple(part.shape) for part in one.to_hf(weights[one.regard].to("meta")))
        for name, shape in zip(one.hf_names, shapes, strict=True):
            if tuple(tensors[name].shape) != shape:
                given = f"{name} of shape {tuple(tensors[name].shape)}"
                raise TensorMismatch(given, f"{shape}, as config.json says", where=where)


def to_regard(model: nn.Module, maps: Sequence[TensorMap], tensors: Mapping[str, Tensor], where: str) -> None:
    """Fill a model with Hugging Face tensors: all of them, each of the right shape."""
    check_tensors(model, maps, tensors, where)
    weights, found = weights_of(model), {}
    for one in maps:
        given = bool(one.hf_names) and all(name in tensors for name in one.hf_names)
        parts = [tensors[name] for name in one.hf_names] if given else []
        found[one.regard] = one.to_regard(parts) if given else one.default(weights[one.regard])
    copy_weights(model, found, where)


def to_hf(model: nn.Module, maps: Sequence[TensorMap]) -> dict[str, Tensor]:
    """The Hugging Face tensors of a model."""
    weights = weights_of(model)
    parts = (zip(one.hf_names, one.to_hf(weights[one.regard]), strict=True) for one in maps)
    return {name: part for named in parts for name, part in named}


def list_names(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
