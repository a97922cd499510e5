"""What attention can report beside its output: Observe says what is wanted, Attended is what comes back.

The functions at the end define each report from the full weights; kernels that never hold those are tested against
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from regard.attention.inputs import Prepared
from regard.errors import SettingError


@dataclass(frozen=True)
class Observe:
    """What to report. Nothing here changes one bit of the output.

    top        the k largest weights of each query and the keys they belong to
    entropy    - sum w ln w of each query's weights
    received   the weight each key got, summed over queries
    thumbnail  (rows, columns): the map shrunk to at most that size, each cell the exact mean of its weights
    weights    the whole map, T x S
    prepared   what any tile of the map can be recomputed from
    values     what was averaged
    """

    top: int = 0
    entropy: bool = False
    received: bool = False
    thumbnail: tuple[int, int] | None = None
    weights: bool = False
    prepared: bool = False
    values: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.top, bool) or not isinstance(self.top, int) or self.top < 0:
            raise SettingError(f"top={self.top!r}", "a whole number of at least 0", where="Observe")
        if self.thumbnail is not None:
            sizes = tuple(self.thumbnail) if isinstance(self.thumbnail, Sequence) else ()
            if len(sizes) != 2 or not all(isinstance(size, int) and size >= 1 for size in sizes):
                raise SettingError(f"thumbnail={self.thumbnail!r}", "(rows, columns), each at least 1", where="Observe")
            object.__setattr__(self, "thumbnail", sizes)

    def __or__(self, other: Observe) -> Observe:
        """All that either wants."""
        sizes = {size for size in (self.thumbnail, other.thumbnail) if size is not None}
        if len(sizes) > 1:
            raise SettingError(
                f"thumbnails of {' and '.join(map(str, sorted(sizes)))} at one place",
                "one size for all listeners",
                where="Observe",
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
        """Whether anything is wanted that a pass over the map computes."""
        return bool(self.top or self.entropy or self.received or self.thumbnail)


@dataclass(frozen=True, eq=False)
class Top:
    """The k largest weights of each query, (..., T, k), largest first, and their keys; missing ones are 0 and -1."""

    values: Tensor
    indices: Tensor


@dataclass(frozen=True, eq=False)
class Attended:
    """The weighted average and what was observed of it; what nobody asked for is None.

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
    prepared: Prepared | None = None
    values: Tensor | None = None

    def only(self, observe: Observe) -> Attended:
        """The same, without what `observe` did not ask for."""
        top = self.top
        if top is not None:
            top = Top(top.values[..., : observe.top], top.indices[..., : observe.top]) if observe.top else None
        unwanted: dict[str, Any] = {
            f.name: None for f in fields(Observe) if f.name != "top" and not getattr(observe, f.name)
        }
        return replace(self, top=top, **unwanted)

    def with_inputs(self, inputs: Prepared, v: Tensor, observe: Observe) -> Attended:
        """The same, with what it was computed from, as far as that is asked for."""
        if not observe.prepared and not observe.values:
            return self
        return replace(
            self,
            prepared=inputs.kept(self.lse) if observe.prepared else None,
            values=v.detach() if observe.values else None,
        )


def describe(weights: Tensor, hidden: Tensor, observe: Observe) -> Mapping[str, Any]:
    """The statistics of a whole map (..., T, S): the definition of each. `hidden`: keys that a query may not see."""
    seen = weights.detach()
    return {
        "top": top_of(seen, hidden, observe.top) if observe.top else None,
        "entropy": torch.special.entr(seen).sum(-1) if observe.entropy else None,
        "received": seen.sum(-2) if observe.received else None,
        "thumbnail": thumbnail_of(seen, *observe.thumbnail) if observe.thumbnail else None,
        "weights": weights if observe.weights else None,
    }


def top_of(weights: Tensor, hidden: Tensor, k: int) -> Top:
    """The k largest of each row, ties lowest index first; a key that is hidden is never among them."""
    ranked = weights.masked_fill(hidden, -1.0)
    values, indices = ranked.sort(dim=-1, descending=True, stable=True)
    return whole_top(values[..., :k], indices[..., :k], k)


def whole_top(values: Tensor, indices: Tensor, k: int) -> Top:
    """Top from at most k sorted candidates, in which hidden keys have a value below 0."""
    missing = k - values.size(-1)
    if missing:
        values, indices = (torch.nn.functional.pad(x, (0, missing), value=-1) for x in (values, indices))
    return Top(values.clamp(min=0), indices.masked_fill(values < 0, -1))


def thumbnail_of(weights: Tensor, rows: int, cols: int) -> Tensor:
    """The mean weight of every cell; query i is in row floor(i R / T), key j in column floor(j C / S)."""
    T, S = weights.shape[-2:]
    in_row = cells(T, rows, weights)
    in_col = cells(S, cols, weights)
    share = in_row.sum(-1, keepdim=True) * in_col.sum(-1)  # how many weights each cell holds, (R, C)
    return in_row @ weights @ in_col.mT / share


def cells(size: int, most: int, like: Tensor) -> Tensor:
    """(cells, size) of ones and zeros: which of `size` places belongs to which of at most `most` cells."""
    count = min(size, most)
    place = torch.arange(size, device=like.device)
    return (place * count // max(size, 1) == torch.arange(count, device=like.device)[:, None]).to(like.dtype)
