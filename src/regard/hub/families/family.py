"""The dataclass Family: configuration, tensor names and recipe of one Hugging Face model family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from regard.hub.folder import HFConfig
from regard.hub.weight_map import TensorMap


@dataclass(frozen=True)
class Family:
    """A family of models.

    kind               the model_type
    build              config.json to a model, with any weights
    tensor_maps        the tensor maps of such a model
    matches            whether a model can be exported as one of this family
    config             the config.json of a model, with this maximum length
    settings           config.json to the recipe of a run with such a model, as plain data: task, [model] and others
    prefix             the prefix of names in models with a head, which bare models lack
    vocab_tensors      suffixes of tensors that have a row for each token
    ignored            suffixes of redundant tensors: buffers
    required_prefixes  prefixes of optional tensors that this config.json requires
    copies             suffixes of tensors that must equal another tensor, by its name, or what a function makes of
                       their shape: tied matrices, and positions that are computed
    """

    kind: str
    build: Callable[[HFConfig], nn.Module]
    tensor_maps: Callable[[nn.Module], list[TensorMap]]
    matches: Callable[[nn.Module], bool]
    config: Callable[[nn.Module, int], Mapping[str, Any]]
    settings: Callable[[HFConfig], dict[str, Any]] | None
    prefix: str
    vocab_tensors: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    required_prefixes: Callable[[HFConfig], tuple[str, ...]] = lambda config: ()
    copies: Mapping[str, str | Callable[[Tensor], Tensor]] = field(default_factory=dict)


def first_block(blocks: nn.ModuleList) -> Any:
    """The first of some equal blocks, whose hyperparameters are read from its parts."""
    return blocks[0]


def model_section(kind: str, config: Any, *without: str) -> dict[str, Any]:
    """A configuration as the section [model] of a recipe, without fields that other sections set."""
    return {"kind": kind, **{name: value for name, value in asdict(config).items() if name not in without}}
