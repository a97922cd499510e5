"""Norm-based attribution (Kobayashi et al. 2020): each weight times the norm of the transformed value that it scales.

Token j adds w_ij f(x_j) to token i, where f(x) is its value times the head's part of the output projection. A large
weight on a short vector, as that of [SEP] often is, contributes little.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.errors import RecordError, ShapeError
from regard.inspection.record.place import PlaceRecord

_OUTPUT_NAMES = ("out", "o_proj", "out_proj", "c_proj", "o", "to_out", "proj", "dense")  # names of output projections


def value_norms(values: Tensor, out: Tensor) -> Tensor:
    """values (Hk, S, D), which groups of heads may share, and the output matrix (width, H D) of an nn.Linear:
    || v_j^h W_O^h || of every head and key, (H, S)."""
    if values.dim() != 3 or out.dim() != 2 or not values.size(-1) or out.size(1) % values.size(-1):
        came = f"values {tuple(values.shape)} and an output matrix {tuple(out.shape)}"
        raise ShapeError(came, "(heads, S, D) and (width, heads * D)", where="value_norms")
    by_head = out.detach().unflatten(1, (-1, values.size(-1)))  # (width, H, D)
    heads, key_heads = by_head.size(1), values.size(0)
    if not key_heads or heads % key_heads:
        raise ShapeError(f"values of {key_heads} heads", f"a number that divides {heads}", where="value_norms")
    group = heads // key_heads
    each = (values[head // group].detach() @ by_head[:, head].mT for head in range(heads))  # one (S, width) at a time
    return torch.stack([vectors.norm(dim=-1) for vectors in each])


def output_projection(model: nn.Module, place: str) -> Tensor | None:
    """The output matrix (width, heads * D) of a place, found by the names that models give it; None if not found."""
    owner: Any = model.get_submodule(place)
    candidates = [getattr(owner, name, None) for name in _OUTPUT_NAMES]
    if place.endswith(".self"):  # in a BERT it is a sibling: attention.self, attention.output.dense
        parent: Any = model.get_submodule(place.removesuffix(".self"))
        candidates.append(getattr(getattr(parent, "output", None), "dense", None))
    for candidate in candidates:
        found = candidate[0] if isinstance(candidate, nn.Sequential) else candidate
        matrix = getattr(found, "weight", None)
        if isinstance(matrix, Tensor):
            transposed = type(found).__name__ == "Conv1D"  # GPT-2's matrices are (in, out)
            return matrix.detach().t() if transposed else matrix.detach()
    return None


def transformed_norms(model: nn.Module, place: str, values: Tensor, heads: int) -> Tensor:
    """|| v_j W_O || of the values (Hk, S, D) of a place with `heads` heads: (heads, S).

    Without an output projection, as in a recurrent decoder, the norms of the values themselves: (Hk, S).
    """
    matrix = output_projection(model, place)
    if matrix is None or matrix.size(1) != heads * values.size(-1):
        return values.norm(dim=-1)
    return value_norms(values, matrix.to(values))


def norm_based_attention(place: PlaceRecord, head: int | None = None) -> Tensor:
    """|| w_ij f(x_j) || of one head, or summed over all, normalised so that each row sums to one: (T, S)."""
    if place.value_norms is None:
        raise RecordError("The record has no value norms", where=place.name)
    found = torch.zeros(place.T, place.S)
    for one in range(place.heads) if head is None else (head,):
        found += place.tile(one) * place.value_norms[one]
    total = found.sum(-1, keepdim=True)
    return found / total.masked_fill(total == 0, 1.0)
