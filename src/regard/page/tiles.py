"""Parts of a map as the page draws them: means of the weights in each cell, a row of weights, and a single pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import SettingError
from regard.inspection import Place
from regard.page.payload import finite

BLOCK = 2**21  # numbers that are looked at together


@dataclass(frozen=True)
class Area:
    """Queries from `top` to `bottom` and keys from `left` to `right`, the ends not among them, in rows x cols cells.

    Query i is in row floor((i - top) rows / (bottom - top)), and keys likewise.
    """

    top: int
    bottom: int
    left: int
    right: int
    rows: int
    cols: int

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def width(self) -> int:
        return self.right - self.left

    def fit(self, place: Place) -> None:
        """Refuse what is not a part of this place's map."""
        for name, low, high, most in (
            ("top and bottom", self.top, self.bottom, place.T),
            ("left and right", self.left, self.right, place.S),
        ):
            if not 0 <= low < high <= most:
                raise SettingError(f"{low} and {high}", f"0 <= first < last <= {most}", where=name)
        for name, cells, most in (("rows", self.rows, self.height), ("cols", self.cols, self.width)):
            if not 1 <= cells <= most:
                raise SettingError(f"{cells} {name} for {most} tokens", f"from 1 to {most}", where=name)


def tile(
    place: Place, head: int, area: Area, exact: int, check: Callable[[], None] = lambda: None
) -> tuple[Tensor, bool]:
    """The mean weight of each cell, (rows, cols), and whether it is exact: of more than `exact` weights it is estimated
    from evenly spaced queries of each row of cells. `check` is called now and then, and may raise to end it."""
    area.fit(place)
    kept, _ = place.number(head)
    small = place.statistics.thumbnail
    if small is not None and area.height * area.width > exact and _as_coarse(area, place, small):
        return _from_thumbnail(small[head], area, place), False
    whole = area.height * area.width <= exact
    queries = torch.arange(area.top, area.bottom) if whole else _spaced(area, exact)
    row_of = (queries - area.top) * area.rows // area.height
    firsts = _firsts(area.width, area.cols)
    sums = torch.zeros(area.rows, area.cols, dtype=torch.float64)
    depth = 1 if kept.vector is None else len(kept.vector)
    step = max(1, BLOCK // (area.width * depth))
    for at in range(0, len(queries), step):
        check()
        some = queries[at : at + step]
        low, high = kept.sight.reach(head, some)
        low, high = max(low, area.left), min(high, area.right)
        if low >= high:
            continue
        # from the first cell that anything is seen in, up to the last
        begin, end = ((key - area.left) * area.cols // area.width for key in (low, high - 1))
        left, right = area.left + int(firsts[begin]), area.left + _end(firsts, end, area.width)
        weights = place.tile(head, some, torch.arange(left, right))
        across = _summed(weights, firsts[begin : end + 1] - firsts[begin])
        sums[:, begin : end + 1].index_add_(0, row_of[at : at + step], across.double())
    heights = torch.bincount(row_of, minlength=area.rows)
    widths = torch.from_numpy(np.diff(firsts, append=area.width))
    return (sums / (heights.unsqueeze(-1) * widths)).float(), whole


def _summed(weights: Tensor, firsts: np.ndarray[Any, np.dtype[np.int64]]) -> Tensor:
    """(t, cells): sums of the weights (t, s) from each first key up to the next; cells of one size are quicker."""
    size = weights.size(1) // len(firsts)
    if size * len(firsts) == weights.size(1) and (np.diff(firsts) == size).all():
        return weights.unflatten(1, (len(firsts), size)).sum(-1)
    return torch.from_numpy(np.add.reduceat(weights.numpy(), firsts, axis=1))


def _end(firsts: np.ndarray[Any, np.dtype[np.int64]], cell: int, size: int) -> int:
    return int(firsts[cell + 1]) if cell + 1 < len(firsts) else size


def _as_coarse(area: Area, place: Place, small: Tensor) -> bool:
    """Whether each cell is at least as large as one of the thumbnail."""
    R, C = small.shape[-2:]
    return area.height * R >= area.rows * place.T and area.width * C >= area.cols * place.S


def _from_thumbnail(small: Tensor, area: Area, place: Place) -> Tensor:
    """Means of cells as the thumbnail (R, C) tells them: a cell of it that lies in two of ours is shared out."""
    down = _shares(area.top, area.bottom, area.rows, place.T, small.size(0))
    across = _shares(area.left, area.right, area.cols, place.S, small.size(1))
    return down @ small.float() @ across.mT


def _shares(start: int, stop: int, cells: int, size: int, parts: int) -> Tensor:
    """(cells, parts): how much of each of our cells, from start to stop, lies in each of the parts of `size`."""
    edges = start + torch.from_numpy(_firsts(stop - start, cells, end=1))
    bounds = torch.from_numpy(_firsts(size, parts, end=1))
    low = torch.maximum(edges[:-1, None], bounds[None, :-1])
    high = torch.minimum(edges[1:, None], bounds[None, 1:])
    inside = (high - low).clamp(min=0).double()
    return (inside / inside.sum(-1, keepdim=True)).float()


def row(place: Place, head: int, query: int) -> Tensor:
    """The weights (S,) of one query."""
    _within(query, place.T, "query")
    return place.tile(head, torch.tensor([query]))[0]


@dataclass(frozen=True)
class Pair:
    """How one weight comes about: `terms` of the dimensions sum to `score`; weight = exp(score + added - lse) * gain
    where the key is `seen`, else 0. What is minus infinity is None."""

    q: list[float]
    k: list[float]
    terms: list[float]
    score: float
    added: float | None
    lse: float | None
    gain: float
    seen: bool
    weight: float


def pair(place: Place, head: int, query: int, key: int) -> Pair:
    _within(query, place.T, "query")
    _within(key, place.S, "key")
    kept, number = place.number(head)
    rows, cols = torch.tensor([query]), torch.tensor([key])
    q, group = kept.queries.offsets(number, rows)[0], kept.key_heads[number]
    k = kept.keys.values(group, cols)[0]
    terms = q * k if kept.vector is None else kept.vector * torch.tanh(q + k)
    # lse is kept for keys without their centre, which adds the same to every score of this query
    centre = float(q @ kept.keys.centre[group]) if kept.vector is None else 0.0
    local, sight = kept.local, kept.sight.allowed(head, rows, cols)
    seen = bool(sight) and (local is None or bool(local.inside(head, rows, cols)))
    added = 0.0 if kept.added is None else float(kept.added.tile(head, rows, cols)[0, 0])
    return Pair(
        q=q.tolist(),
        k=k.tolist(),
        terms=terms.tolist(),
        score=float(terms.sum()),
        added=finite(added),
        lse=finite(float(kept.lse[number, query]) + centre),
        gain=1.0 if local is None else float(local.gain(head, rows, cols)),
        seen=seen,
        weight=float(place.tile(head, rows, cols)[0, 0]),
    )


def _within(value: int, size: int, name: str) -> None:
    if not 0 <= value < size:
        raise SettingError(str(value), f"from 0 to {size - 1}", where=name)


def _firsts(size: int, cells: int, end: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first member of each cell: the least i with floor(i cells / size) = cell; with end=1, the size at last."""
    return -(-np.arange(cells + end) * size // cells)


def _spaced(area: Area, most: int) -> Tensor:
    """Evenly spaced queries of each row of cells, about as many as make `most` weights, one of each at least."""
    each = max(1, most // (area.rows * area.width))
    firsts = [*_firsts(area.height, area.rows).tolist(), area.height]
    chosen = []
    for first, last in pairwise(firsts):
        count = min(each, last - first)
        chosen.append(first + (torch.arange(count) * 2 + 1) * (last - first) // (2 * count))
    return area.top + torch.cat(chosen)
