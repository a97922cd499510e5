"""Norm-based attention: a weight counts for as much as the vector it lets through is long.

Kobayashi et al. 2020: token j adds w_ij f(x_j) to token i, where f(x) is its value times the head's part of the output
matrix. A large weight on a short vector, as that of [SEP] often is, moves nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RecordError, ShapeError
from regard.inspection.record.place import Place

_OUT = ("out", "o_proj", "out_proj", "c_proj", "o", "to_out", "proj", "dense")  # how models call what joins the heads


def value_norms(values: Tensor, out: Tensor) -> Tensor:
    """values (Hk, S, D), which groups of heads may share, and the output matrix (width, H D), as nn.Linear keeps it:
    || v_j^h W_O^h || for every head and key, (H, S)."""
    if values.dim() != 3 or out.dim() != 2 or not values.size(-1) or out.size(1) % values.size(-1):
        came = f"values {tuple(values.shape)} and an output matrix {tuple(out.shape)}"
        raise ShapeError(came, "(heads, S, D) and (width, heads * D)", where="value_norms")
    by_head = out.detach().unflatten(1, (-1, values.size(-1)))  # (width, H, D)
    heads, key_heads = by_head.size(1), values.size(0)
    if not key_heads or heads % key_heads:
        raise ShapeError(f"values of {key_heads} heads", f"a number that divides {heads}", where="value_norms")
    group = heads // key_heads
    sent = (values[head // group].detach() @ by_head[:, head].mT for head in range(heads))  # one (S, width) at a time
    return torch.stack([vectors.norm(dim=-1) for vectors in sent])


def joining(model: nn.Module, place: str) -> Tensor | None:
    """The matrix (width, heads * D) that joins the heads of a place, wherever models like this one put it."""
    owner: Any = model.get_submodule(place)
    homes = [getattr(owner, name, None) for name in _OUT]
    if place.endswith(".self"):  # BERT's stands beside: attention.self, attention.output.dense
        beside: Any = model.get_submodule(place.removesuffix(".self"))
        homes.append(getattr(getattr(beside, "output", None), "dense", None))
    for home in homes:
        found = home[0] if isinstance(home, nn.Sequential) else home
        matrix = getattr(found, "weight", None)
        if isinstance(matrix, Tensor):
            turned = type(found).__name__ == "Conv1D"  # GPT-2's matrices lie the other way
            return matrix.detach().t() if turned else matrix.detach()
    return None


def sent_norms(model: nn.Module, place: str, values: Tensor, heads: int) -> Tensor:
    """|| v_j W_O || of the values (Hk, S, D) of a place with so many heads: (heads, S).

    Where no output matrix joins the heads, as in a recurrent decoder, a key sends its value as it is: (Hk, S).
    """
    matrix = joining(model, place)
    if matrix is None or matrix.size(1) != heads * values.size(-1):
        return values.norm(dim=-1)
    return value_norms(values, matrix.to(values))


def norm_based(place: Place, head: int | None = None) -> Tensor:
    """|| w_ij f(x_j) || of one head, or summed over all of them, as shares of all that reaches a query: (T, S)."""
    if place.value_norms is None:
        raise RecordError(f"norms of {place.name}", "a place that kept the norms of its values", where="norm_based")
    found = torch.zeros(place.T, place.S)
    for one in range(place.heads) if head is None else (head,):
        found += place.tile(one) * place.value_norms[one]
    total = found.sum(-1, keepdim=True)
    return found / total.masked_fill(total == 0, 1.0)
