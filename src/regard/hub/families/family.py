"""What every family of models says of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from regard.hub.folder import Config
from regard.hub.weight_map import Row


@dataclass(frozen=True)
class Family:
    """Models of one kind, there and here.

    kind       their model_type
    make       config.json to a model of ours, with any weights
    rows       the table of such a model
    fits       whether a model of ours can be written as one of these
    config     what their config.json says of a model of ours that is so many tokens long at most
    settings   config.json to the recipe of a run with such a model, as plain data: task, [model] and the like
    promises   beginnings of names that this config.json promises, of those that are optional in the table
    prefix     what names begin with in their larger models and not in their bare ones
    worded     ends of names of tensors that have a row for each word
    ignored    ends of names that say nothing: buffers, and copies of tied weights
    """

    kind: str
    make: Callable[[Config], nn.Module]
    rows: Callable[[nn.Module], list[Row]]
    fits: Callable[[nn.Module], bool]
    config: Callable[[nn.Module, int], Mapping[str, Any]]
    settings: Callable[[Config], dict[str, Any]] | None
    prefix: str
    worded: tuple[str, ...]
    ignored: tuple[str, ...] = ()
    promises: Callable[[Config], tuple[str, ...]] = lambda config: ()


def built(blocks: nn.ModuleList) -> Any:
    """The first of some blocks, which are all alike: what they were built with is read from its parts."""
    return blocks[0]


def model_section(kind: str, config: Any, *without: str) -> dict[str, Any]:
    """A configuration as the section [model] of a recipe, without what the tokenizer and other sections say."""
    return {"kind": kind, **{name: value for name, value in asdict(config).items() if name not in without}}
