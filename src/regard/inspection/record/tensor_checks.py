"""Checks of a place's tensors against its metadata: which there are, their shapes, dtypes and ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from regard.errors import RecordError

if TYPE_CHECKING:
    from regard.inspection.record.record_schema import PlaceMetadata

MAX_THUMBNAIL = 1024  # rows, and columns
MAX_TOP = 1024  # largest weights of a query
MAX_WIDTH = 2**16  # of queries, keys and values
NAMES = {torch.float32: "float32", torch.int16: "int16", torch.int32: "int32", torch.uint8: "uint8"}

Dims = tuple[int | str | tuple[int, ...], ...]


class Expected(NamedTuple):
    """A tensor: its type, and for each dimension its size, a choice of sizes, or a letter that tensors share."""

    dtype: torch.dtype
    dims: Dims
    low: float | None = None  # of the numbers; None: any that are finite
    high: float | None = None
    infinite: bool = False  # whether infinities are allowed


def check_tensors(places: list[PlaceMetadata], tensors: Mapping[str, Tensor], where: str) -> None:
    """Raise RecordError, with the name of the tensor, where one is missing, unknown or of another kind."""
    known: set[str] = set()
    for number, place in enumerate(places):
        table = _expected(place, {name.partition(".")[2] for name in tensors if name.startswith(f"{number}.")})
        known |= {f"{number}.{name}" for name in table}
        limits = {"K": MAX_TOP, "R": min(place.T, MAX_THUMBNAIL), "C": min(place.S, MAX_THUMBNAIL)}
        sizes: dict[str, int] = {}
        for name, expected in table.items():
            full = f"{number}.{name}"
            if full not in tensors:
                raise _damaged(full, "is missing", where)
            _check_tensor(tensors[full], expected, sizes, limits, full, where)
        _check_groups(place, sizes, f"places.{number}", where)
    unknown = next((name for name in tensors if name not in known), None)
    if unknown is not None:
        raise _damaged(unknown[:60], "belongs to no place of the record", where)


def _expected(place: PlaceMetadata, present: set[str]) -> dict[str, Expected]:
    """The tensors of a place, by name; optional ones where they are there."""
    H, T, S = place.heads, place.T, place.S
    real, code = torch.float32, torch.int16
    table = {
        "entropy": Expected(real, (H, T)),
        "received": Expected(real, (H, S)),
        "top_values": Expected(real, (H, T, "K")),
        "top_indices": Expected(torch.int32, (H, T, "K"), -1, S - 1),
    }
    optional = {"value_norms": Expected(real, (H, S)), "sink": Expected(real, (H, T))}
    if {"thumbnail", "thumbnail_peak"} & present:
        table |= {
            "thumbnail": Expected(torch.uint8, (H, "R", "C")),
            "thumbnail_peak": Expected(real, (H,), 0),
        }
    how = place.stored
    if how is not None:
        n, each = len(how.heads), (1, H)
        table |= {
            "queries": Expected(code, (n, T, "D")),
            "queries_scale": Expected(real, (n, "D")),
            "keys": Expected(code, ("G", S, "D")),
            "keys_scale": Expected(real, ("G", "D")),
            "keys_centre": Expected(real, ("G", "D")),
            "first": Expected(torch.int32, (each, T), 0, S),
            "last": Expected(torch.int32, (each, T), 0, S),
            "lse": Expected(real, (n, T), infinite=True),
        }
        optional["mask"] = Expected(torch.uint8, (each, T, S), 0, 1)
        if how.score == "additive":
            table["vector"] = Expected(real, ("D",))
        if how.bias is not None:
            shape: dict[str, Dims] = {"distance": (T + S - 1,), "key": (S,), "pair": (T, S), "block": ("P", "B")}
            table["bias"] = Expected(real, (each, *shape[how.bias]), infinite=True)
        if how.bias == "block":
            table["bias_starts"] = Expected(torch.int32, (T,), -S, S)
        if how.half_width is not None:
            table["centre"] = Expected(real, (each, T))
    if place.value_heads is not None and how is not None:
        table |= {
            "output_grads": Expected(code, (len(how.heads), T, "V")),
            "output_grads_scale": Expected(real, (len(how.heads), "V")),
            "values": Expected(code, ("W", S, "V")),
            "values_scale": Expected(real, ("W", "V")),
        }
    return table | {name: one for name, one in optional.items() if name in present}


def _check_tensor(
    tensor: Tensor, expected: Expected, sizes: dict[str, int], limits: Mapping[str, int], name: str, where: str
) -> None:
    if tensor.dtype != expected.dtype:
        problem = f"is of {str(tensor.dtype).removeprefix('torch.')}, not of {NAMES[expected.dtype]}"
        raise _damaged(name, problem, where)
    fits = tensor.dim() == len(expected.dims)
    for size, dim in zip(tensor.shape, expected.dims, strict=False):
        if isinstance(dim, str):
            least = 0 if dim == "K" else 1
            fits = fits and least <= size <= limits.get(dim, MAX_WIDTH) and sizes.setdefault(dim, size) == size
        else:
            fits = fits and (size in dim if isinstance(dim, tuple) else size == dim)
    if not fits:
        shape = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in expected.dims)
        said = ", ".join(" or ".join(map(str, dim)) if isinstance(dim, tuple) else str(dim) for dim in shape)
        raise _damaged(name, f"has the shape {tuple(tensor.shape)}, not ({said})", where)
    if not tensor.numel():
        return
    low, high = (float(end) for end in tensor.aminmax())  # NaN where any is
    if low != low or (not expected.infinite and not (abs(low) < torch.inf and abs(high) < torch.inf)):
        raise _damaged(name, "has numbers that are not finite, as those of a model whose weights are not", where)
    if (expected.low is not None and low < expected.low) or (expected.high is not None and high > expected.high):
        bounds = f"{expected.low} to {expected.high}" if expected.high is not None else f"{expected.low} and above"
        raise _damaged(name, f"has numbers from {low:g} to {high:g}, not {bounds}", where)


def _check_groups(place: PlaceMetadata, sizes: Mapping[str, int], field: str, where: str) -> None:
    """Every stored head has its keys, and its values, among those of the file."""
    numbers = {"value_heads": (place.value_heads, "W")}
    if place.stored is not None:
        numbers["stored.key_heads"] = (place.stored.key_heads, "G")
    for name, (heads, letter) in numbers.items():
        if heads is not None and max(heads, default=0) >= sizes[letter]:
            raise _damaged(f"{field}.{name}", f"has {max(heads)}, of {sizes[letter]} heads", where)


def _damaged(name: str, problem: str, where: str) -> RecordError:
    return RecordError(f"The record is incomplete or damaged: {name} {problem}", where=where)
