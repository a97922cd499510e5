"""Head pruning: removes attention heads for good; the smaller matrices compute what masked heads would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.attention.layers import FusedQKV, MultiHead, SeparateQKV
from regard.errors import PlaceError, SettingError, unknown

M = TypeVar("M", bound=nn.Module)


def prune_heads(model: M, heads: Mapping[str, Sequence[int]]) -> M:
    """The model itself, without these heads at these places, such as {"encoder.blocks.0.self": [1, 3]}."""
    found = find_multi_heads(model)
    for place in heads:
        if place not in found:
            if not found:
                raise PlaceError("The model has no multi-head attention to prune", where="pruned")
            raise unknown(place, found, kind="multi-head attention", where="pruned", error=PlaceError)
    for place, some in heads.items():
        _remove_heads(found[place], some, place)
    return model


def find_multi_heads(model: nn.Module) -> dict[str, MultiHead]:
    """The multi-head attention modules of a model by place: those whose heads can be pruned."""
    return {name: module for name, module in model.named_modules() if isinstance(module, MultiHead)}


def query_group_size(attention: MultiHead) -> int:
    """How many query heads share a key head (grouped-query attention)."""
    project = _projections_of(attention)
    return project.heads // project.key_heads


@torch.no_grad()
def _remove_heads(attention: MultiHead, heads: Sequence[int], place: str) -> None:
    project, group = _projections_of(attention), query_group_size(attention)
    left = [head for head in range(project.heads) if head not in set(heads)]
    if len(left) + len(heads) != project.heads:
        raise SettingError(
            f"heads {list(heads)} at {place}", f"different heads from 0 to {project.heads - 1}", where="pruned"
        )
    if not left:
        raise SettingError(f"All {project.heads} heads at {place!r} are pruned; keep at least one", where="pruned")
    queries_left = Counter(head // group for head in left)  # query heads that each key head still has
    if len(set(queries_left.values())) > 1:
        given = f"heads {list(heads)} of {project.heads} at {place}"
        raise SettingError(given, f"as many of each {group} that share a key head, or all {group}", where="pruned")
    queries, keys = (_head_columns(some, project.width) for some in (left, sorted(queries_left)))
    if isinstance(project, FusedQKV):
        first, second = project.heads * project.width, (project.heads + project.key_heads) * project.width
        project.joint = _rows(project.joint, torch.cat((queries, first + keys, second + keys)))
    else:
        project.query = _rows(project.query, queries)
        project.key, project.value = _rows(project.key, keys), _rows(project.value, keys)
    project.heads, project.key_heads = len(left), len(queries_left)
    if attention.sink is not None:
        attention.sink = nn.Parameter(attention.sink[left])
    attention.out = _columns(attention.out, queries)


def _projections_of(attention: MultiHead) -> SeparateQKV | FusedQKV:
    project = attention.project
    if not isinstance(project, SeparateQKV | FusedQKV):
        raise SettingError(f"projections of type {type(project).__name__}", "SeparateQKV or FusedQKV", where="pruned")
    return project


def _head_columns(heads: Sequence[int], width: int) -> Tensor:
    """The positions of these heads' features in a vector of all heads."""
    return (torch.tensor(heads).unsqueeze(-1) * width + torch.arange(width)).flatten()


def _rows(matrix: nn.Linear, rows: Tensor) -> nn.Linear:
    return _linear(matrix.weight[rows], None if matrix.bias is None else matrix.bias[rows], matrix)


def _columns(matrix: nn.Linear, columns: Tensor) -> nn.Linear:
    return _linear(matrix.weight[:, columns], matrix.bias, matrix)


def _linear(weight: Tensor, bias: Tensor | None, like: nn.Linear) -> nn.Linear:
    """A linear layer with these weights, trainable where the given one is."""
    made = nn.utils.skip_init(nn.Linear, weight.size(1), weight.size(0), bias=bias is not None, device=weight.device)
    made.weight = nn.Parameter(weight.clone(), requires_grad=like.weight.requires_grad)
    if bias is not None:
        made.bias = nn.Parameter(bias.clone(), requires_grad=like.bias.requires_grad)
    return made.train(like.training)
