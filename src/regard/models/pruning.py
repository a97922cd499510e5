"""Heads cut out for good: smaller matrices, which say what the whole ones say while those heads are silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.attention.layers import Fused, MultiHead, Separate
from regard.errors import PlaceError, SettingError

M = TypeVar("M", bound=nn.Module)


def without(model: M, heads: Mapping[str, Sequence[int]]) -> M:
    """The model itself, changed: it has lost these heads at these places, such as {"encoder.blocks.0.self": [1, 3]}."""
    found = multi_heads(model)
    for place in heads:
        if place not in found:
            known = ", ".join(found) or "none of which this model has"
            raise PlaceError(f"place {place!r}", f"a place with several heads: {known}", where="pruned")
    for place, some in heads.items():
        _cut(found[place], some, place)
    return model


def multi_heads(model: nn.Module) -> dict[str, MultiHead]:
    """The places of a model that have heads which can be cut."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MultiHead)}


def group_of(attention: MultiHead) -> int:
    """How many query heads share each key head."""
    project = _known(attention)
    return project.heads // project.key_heads


@torch.no_grad()
def _cut(attention: MultiHead, heads: Sequence[int], place: str) -> None:
    project, group = _known(attention), group_of(attention)
    kept = [head for head in range(project.heads) if head not in set(heads)]
    if len(kept) + len(heads) != project.heads:
        raise SettingError(f"heads {list(heads)} at {place}", f"different ones of {project.heads}", where="pruned")
    readers = Counter(head // group for head in kept)  # query heads that each key head still has
    if not kept or len(set(readers.values())) > 1:
        came = f"heads {list(heads)} of {project.heads} at {place}"
        wanted = "one that stays" if not kept else f"as many of each {group} that share a key, or all {group}"
        raise SettingError(came, wanted, where="pruned")
    queries, keys = (_numbers(some, project.width) for some in (kept, sorted(readers)))
    if isinstance(project, Fused):
        first, second = project.heads * project.width, (project.heads + project.key_heads) * project.width
        project.joint = _rows(project.joint, torch.cat((queries, first + keys, second + keys)))
    else:
        project.query = _rows(project.query, queries)
        project.key, project.value = _rows(project.key, keys), _rows(project.value, keys)
    project.heads, project.key_heads = len(kept), len(readers)
    attention.out = _columns(attention.out, queries)


def _known(attention: MultiHead) -> Separate | Fused:
    project = attention.project
    if not isinstance(project, Separate | Fused):
        raise SettingError(f"projections of type {type(project).__name__}", "Separate or Fused", where="pruned")
    return project


def _numbers(heads: Sequence[int], width: int) -> Tensor:
    """Where the numbers of these heads stand in a vector of all of them."""
    return (torch.tensor(heads).unsqueeze(-1) * width + torch.arange(width)).flatten()


def _rows(matrix: nn.Linear, rows: Tensor) -> nn.Linear:
    return _linear(matrix.weight[rows], None if matrix.bias is None else matrix.bias[rows], matrix)


def _columns(matrix: nn.Linear, columns: Tensor) -> nn.Linear:
    return _linear(matrix.weight[:, columns], matrix.bias, matrix)


def _linear(weight: Tensor, bias: Tensor | None, like: nn.Linear) -> nn.Linear:
    """A layer of these numbers, which learns where the one before did."""
    made = nn.utils.skip_init(nn.Linear, weight.size(1), weight.size(0), bias=bias is not None, device=weight.device)
    made.weight = nn.Parameter(weight.clone(), requires_grad=like.weight.requires_grad)
    if bias is not None:
        made.bias = nn.Parameter(bias.clone(), requires_grad=like.bias.requires_grad)
    return made.train(like.training)
