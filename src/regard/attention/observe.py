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
from regard.attention.groups import Queries, Spans
from regard.attention.inputs import AttentionInputs
from regard.errors import SettingError


@dataclass(frozen=True, repr=False)
class Observe:
    """Which statistics to report. Nothing here changes one bit of the output.

    top        the k largest weights of each query and the keys they belong to
    entropy    - sum w ln w of each query's weights
    received   the weight each key got, summed over queries: all of them, or those that Queries or a boolean tensor (T,)
               name
    thumbnail  (rows, columns): the map downsampled to at most that size, each cell the exact mean of its weights
    peak       the largest score of each query
    distance   of each query, the mean and the variance of the distance to keys, under its weights
    spans      Spans: the weights summed between groups of queries and groups of keys
    weights    the full map, T x S
    prepared   what any tile of the map can be recomputed from
    values     the values that were averaged
    """

    top: int = 0
    entropy: bool = False
    received: bool | Queries | Tensor = False
    thumbnail: tuple[int, int] | None = None
    peak: bool = False
    distance: bool = False
    spans: Spans | None = None
    weights: bool = False
    prepared: bool = False
    values: bool = False

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if isinstance(self.top, bool) or not isinstance(self.top, int) or self.top < 0:
            raise SettingError(f"top={self.top!r}", "a whole number of at least 0", where="Observe")
        if isinstance(self.received, Tensor):
            object.__setattr__(self, "received", Queries(marked=self.received))
        if type(self.received) not in (bool, Queries):
            expected = "True, Queries(...) or a boolean tensor (T,)"
            raise SettingError(f"received={self.received!r}", expected, where="Observe")
        if self.spans is not None and not isinstance(self.spans, Spans):
            raise SettingError(f"spans={self.spans!r}", "Spans(queries, keys)", where="Observe")
        if self.thumbnail is not None:
            sizes = tuple(self.thumbnail) if isinstance(self.thumbnail, Sequence) else ()
            if len(sizes) != 2 or not all(isinstance(size, int) and size >= 1 for size in sizes):
                raise SettingError(f"thumbnail={self.thumbnail!r}", "(rows, columns), each at least 1", where="Observe")
            object.__setattr__(self, "thumbnail", sizes)

    def __or__(self, other: Observe) -> Observe:
        """All that either requests."""
        return Observe(
            top=max(self.top, other.top),
            entropy=self.entropy or other.entropy,
            received=_only_one("received of queries", self.received, other.received) or False,
            thumbnail=_only_one("thumbnails", self.thumbnail, other.thumbnail),
            peak=self.peak or other.peak,
            distance=self.distance or other.distance,
            spans=_only_one("spans", self.spans, other.spans),
            weights=self.weights or other.weights,
            prepared=self.prepared or other.prepared,
            values=self.values or other.values,
        )

    @property
    def statistics(self) -> bool:
        """Whether any statistic is requested that needs a pass over the map."""
        more = self.peak or self.distance or self.spans is not None
        return self.top > 0 or self.entropy or bool(self.received) or self.thumbnail is not None or more

    @property
    def counted(self) -> Queries | None:
        """The queries that count in `received`; None: all of them."""
        return self.received if isinstance(self.received, Queries) else None


def _only_one(what: str, first: Any, second: Any) -> Any:
    """The one that is requested; two different ones are refused."""
    if not first or not second or first == second:
        return first or second
    raise SettingError(
        f"Listeners at one place request {what} of two kinds: {first!r} and {second!r}",
        where="Observe",
        advice="Choose one for all of them.",
    )


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
    peak: Tensor | None = None
    distance: Tensor | None = None
    spans: Tensor | None = None
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


def attention_statistics(weights: Tensor, hidden: Tensor, observe: Observe) -> dict[str, Any]:
    """The statistics of a whole map (..., T, S): the definition of each but `peak`, which is of scores. `hidden`: keys
    that a query may not see."""
    seen = weights.detach()
    return {
        "top": top_k(seen, hidden, observe.top) if observe.top else None,
        "entropy": torch.special.entr(seen).sum(-1) if observe.entropy else None,
        "received": received_by_keys(seen, observe.counted) if observe.received else None,
        "thumbnail": thumbnail_of(seen, *observe.thumbnail) if observe.thumbnail else None,
        "distance": distance_of(seen) if observe.distance else None,
        "spans": observe.spans.sum(seen) if observe.spans is not None else None,
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


def received_by_keys(weights: Tensor, counted: Queries | None = None) -> Tensor:
    """What each key got (..., S), from all queries or from those that count."""
    if counted is None:
        return weights.sum(-2)
    T = weights.size(-2)
    return (weights * counted.counted(slice(0, T), T, weights.device).unsqueeze(-1)).sum(-2)


def distance_of(weights: Tensor, first: int = 0, T: int | None = None, start: int = 0, S: int | None = None) -> Tensor:
    """The mean and the variance (..., t, 2) of |query position - key position| under the weights (..., t, s) of queries
    from `first` of T on and keys from `start` of S on. Query i is at position i + S - T. Where weights do not sum to 1,
    they count as if they did; of weights of 0 both are 0."""
    T, S = weights.size(-2) if T is None else T, weights.size(-1) if S is None else S
    rows = torch.arange(first, first + weights.size(-2), device=weights.device)
    cols = torch.arange(start, start + weights.size(-1), device=weights.device)
    far = (rows.unsqueeze(-1) + (S - T) - cols).abs().to(weights.dtype)
    total = weights.sum(-1)
    total = total.masked_fill(total == 0, 1.0)
    mean = (weights * far).sum(-1) / total
    variance = (weights * (far - mean.unsqueeze(-1)).square()).sum(-1) / total
    return torch.stack((mean, variance), -1)


def received_by_key_heads(received: Tensor, key_heads: int, how: str = "sum") -> Tensor:
    """What the keys of each key head got, (..., key heads, S), of what they got from each query head (..., heads, S):
    the "sum" over the query heads that share a key head, or the "mean"."""
    heads = received.size(-2)
    if how not in ("sum", "mean"):
        raise SettingError(f"how={how!r}", "'sum' or 'mean'", where="received_by_key_heads")
    if key_heads < 1 or heads % key_heads:
        raise SettingError(f"{key_heads} key heads", f"a divisor of {heads} heads", where="received_by_key_heads")
    grouped = received.unflatten(-2, (key_heads, heads // key_heads))
    return grouped.sum(-2) if how == "sum" else grouped.mean(-2)


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
