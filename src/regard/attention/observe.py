"""Attention statistics: Observe requests top-k weights, entropy, received weight, thumbnail; Attended returns them.

The functions at the end define each statistic from the full weights; kernels that never hold those are tested against
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache, reduce
from operator import or_
from typing import Any

import torch
from torch import Tensor

from regard.attention.grid import short_repr
from regard.attention.inputs import AttentionInputs
from regard.errors import SettingError


@dataclass(frozen=True, repr=False)
class Observe:
    """Which statistics to report. Nothing here changes one bit of the output.

    top        the k largest weights of each query and the keys they belong to
    entropy    - sum w ln w of each query's weights
    received   the weight each key got, summed over queries
    thumbnail  (rows, columns): the map downsampled to at most that size, each cell the exact mean of its weights
    weights    the full map, T x S
    prepared   what any tile of the map can be recomputed from
    values     the values that were averaged
    """

    top: int = 0
    entropy: bool = False
    received: bool = False
    thumbnail: tuple[int, int] | None = None
    weights: bool = False
    prepared: bool = False
    values: bool = False

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if isinstance(self.top, bool) or not isinstance(self.top, int) or self.top < 0:
            raise SettingError(f"top={self.top!r}", "a whole number of at least 0", where="Observe")
        if self.thumbnail is not None:
            sizes = tuple(self.thumbnail) if isinstance(self.thumbnail, Sequence) else ()
            if len(sizes) != 2 or not all(isinstance(size, int) and size >= 1 for size in sizes):
                raise SettingError(f"thumbnail={self.thumbnail!r}", "(rows, columns), each at least 1", where="Observe")
            object.__setattr__(self, "thumbnail", sizes)

    def __or__(self, other: Observe) -> Observe:
        """All that either requests."""
        sizes = {size for size in (self.thumbnail, other.thumbnail) if size is not None}
        if len(sizes) > 1:
            raise SettingError(
                f"Listeners at one place request thumbnails of {' and '.join(map(str, sorted(sizes)))}",
                where="Observe",
                advice="Choose one size for all of them.",
            )
        return Observe(
            top=max(self.top, other.top),
            entropy=self.entropy or other.entropy,
            received=self.received or other.received,
            thumbnail=next(iter(sizes), None),
            weights=self.weights or other.weights,
            prepared=self.prepared or other.prepared,
            values=self.values or other.values,
        )

    @property
    def statistics(self) -> bool:
        """Whether any statistic is requested that needs a pass over the map."""
        return self.top > 0 or self.entropy or self.received or self.thumbnail is not None


OBSERVED = tuple(one.name for one in fields(Observe) if one.name != "top")


@lru_cache(maxsize=1024)
def union_of(observed: tuple[Observe, ...]) -> Observe:
    """All that any of these requests."""
    return reduce(or_, observed, Observe())


@dataclass(frozen=True, eq=False, repr=False)
class Top:
    """The k largest weights of each query, (..., T, k), largest first, and their keys; missing ones are 0 and -1."""

    values: Tensor
    indices: Tensor

    __repr__ = short_repr


@dataclass(frozen=True, eq=False, repr=False)
class Attended:
    """The weighted average and its statistics; what was not requested is None.

    output (..., T, Dv) in the values' dtype; lse (..., T) and everything else in float32 (float64 for float64).
    """

    output: Tensor
    lse: Tensor
    backend: str
    top: Top | None = None
    entropy: Tensor | None = None
    received: Tensor | None = None
    thumbnail: Tensor | None = None
    weights: Tensor | None = None
    prepared: AttentionInputs | None = None
    values: Tensor | None = None
    sink: Tensor | None = None  # (..., T): what a learned sink took of each query; it always comes where there is one

    __repr__ = short_repr

    @classmethod
    def of_fields(cls, output: Tensor, lse: Tensor, backend: str, found: Mapping[str, Any]) -> Attended:
        """The same as by its constructor, which sets each field of a frozen dataclass by a call of its own."""
        if torch.compiler.is_compiling():
            return cls(output, lse, backend, **found)
        made = object.__new__(cls)
        made.__dict__.update(found, output=output, lse=lse, backend=backend)
        return made

    def restrict(self, observe: Observe) -> Attended:
        """The same, without what `observe` does not request."""
        top = self.top
        if top is not None:
            top = Top(top.values[..., : observe.top], top.indices[..., : observe.top]) if observe.top else None
        kept: dict[str, Any] = {name: getattr(self, name) for name in OBSERVED if getattr(observe, name)}
        return Attended.of_fields(self.output, self.lse, self.backend, kept | {"top": top, "sink": self.sink})

    def with_inputs(self, inputs: AttentionInputs, v: Tensor, observe: Observe) -> Attended:
        """The same, with the inputs and values that `observe` requests."""
        if not observe.prepared and not observe.values:
            return self
        return replace(
            self,
            prepared=inputs.detached(self.lse) if observe.prepared else None,
            values=v.detach() if observe.values else None,
        )


def attention_statistics(weights: Tensor, hidden: Tensor, observe: Observe) -> Mapping[str, Any]:
    """The statistics of a whole map (..., T, S): the definition of each. `hidden`: keys that a query may not see."""
    seen = weights.detach()
    return {
        "top": top_k(seen, hidden, observe.top) if observe.top else None,
        "entropy": torch.special.entr(seen).sum(-1) if observe.entropy else None,
        "received": seen.sum(-2) if observe.received else None,
        "thumbnail": thumbnail_of(seen, *observe.thumbnail) if observe.thumbnail else None,
        "weights": weights if observe.weights else None,
    }


def top_k(weights: Tensor, hidden: Tensor, k: int) -> Top:
    """The k largest of each row, ties lowest index first; a key that is hidden is never among them."""
    ranked = weights.masked_fill(hidden, -1.0)
    values, indices = ranked.sort(dim=-1, descending=True, stable=True)
    return pad_top(values[..., :k], indices[..., :k], k)


def pad_top(values: Tensor, indices: Tensor, k: int) -> Top:
    """Top from at most k sorted candidates, where hidden keys have a negative value."""
    missing = k - values.size(-1)
    if missing:
        values, indices = (torch.nn.functional.pad(x, (0, missing), value=-1) for x in (values, indices))
    return Top(values.clamp(min=0), indices.masked_fill(values < 0, -1))


def thumbnail_of(weights: Tensor, rows: int, cols: int) -> Tensor:
    """The mean weight of every cell; query i is in row floor(i R / T), key j in column floor(j C / S)."""
    T, S = weights.shape[-2:]
    in_row = cell_assignment(T, rows, weights)
    in_col = cell_assignment(S, cols, weights)
    cell_sizes = in_row.sum(-1, keepdim=True) * in_col.sum(-1)  # how many weights each cell holds, (R, C)
    return in_row @ weights @ in_col.mT / cell_sizes


def cell_assignment(size: int, limit: int, like: Tensor) -> Tensor:
    """(cells, size) of ones and zeros: which of `size` places belongs to which of at most `limit` cells."""
    count = min(size, limit)
    place = torch.arange(size, device=like.device)
    return (place * count // max(size, 1) == torch.arange(count, device=like.device)[:, None]).to(like.dtype)
