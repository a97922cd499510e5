"""Tiles of an attention map for the page: mean weights of cells, a row of weights, and the score of a single pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.attention.scores import soft_cap
from regard.errors import SettingError
from regard.inspection import PlaceRecord
from regard.page.payload import finite_or_null

MAX_BLOCK = 2**21  # numbers computed at once


@dataclass(frozen=True)
class TileBounds:
    """Queries from `top` to before `bottom` and keys from `left` to before `right`, in rows x cols cells.

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

    def check(self, place: PlaceRecord) -> None:
        """Raise where the tile exceeds the map of this place."""
        for name, low, high, size in (
            ("top and bottom", self.top, self.bottom, place.T),
            ("left and right", self.left, self.right, place.S),
        ):
            if not 0 <= low < high <= size:
                raise SettingError(f"{low} and {high}", f"0 <= first < last <= {size}", where=name)
        for name, cells, size in (("rows", self.rows, self.height), ("cols", self.cols, self.width)):
            if not 1 <= cells <= size:
                raise SettingError(f"{cells} {name} for {size} tokens", f"1 to {size}", where=name)


def compute_tile(
    place: PlaceRecord, head: int, bounds: TileBounds, max_exact: int, check: Callable[[], None] = lambda: None
) -> tuple[Tensor, bool]:
    """The mean weight of each cell, (rows, cols), and whether it is exact: for more than `max_exact` weights it is
    estimated from evenly spaced queries of each row of cells. `check` is called regularly, and may raise to cancel."""
    bounds.check(place)
    stored, _ = place.stored_head(head)
    thumbnail = place.statistics.thumbnail
    if (
        thumbnail is not None
        and bounds.height * bounds.width > max_exact
        and _thumbnail_suffices(bounds, place, thumbnail)
    ):
        return _from_thumbnail(thumbnail[head], bounds, place), False
    is_exact = bounds.height * bounds.width <= max_exact
    queries = torch.arange(bounds.top, bounds.bottom) if is_exact else _sample_queries(bounds, max_exact)
    row_of = (queries - bounds.top) * bounds.rows // bounds.height
    firsts = _cell_starts(bounds.width, bounds.cols)
    sums = torch.zeros(bounds.rows, bounds.cols, dtype=torch.float64)
    depth = 1 if stored.vector is None else len(stored.vector)
    step = max(1, MAX_BLOCK // (bounds.width * depth))
    for at in range(0, len(queries), step):
        check()
        some = queries[at : at + step]
        low, high = stored.mask.key_range(head, some)
        low, high = max(low, bounds.left), min(high, bounds.right)
        if low >= high:
            continue
        # from the first cell with visible keys to the last
        begin, end = ((key - bounds.left) * bounds.cols // bounds.width for key in (low, high - 1))
        left, right = bounds.left + int(firsts[begin]), bounds.left + _cell_end(firsts, end, bounds.width)
        weights = place.tile(head, some, torch.arange(left, right))
        cell_sums = _sum_cells(weights, firsts[begin : end + 1] - firsts[begin])
        sums[:, begin : end + 1].index_add_(0, row_of[at : at + step], cell_sums.double())
    heights = torch.bincount(row_of, minlength=bounds.rows)
    widths = torch.from_numpy(np.diff(firsts, append=bounds.width))
    return (sums / (heights.unsqueeze(-1) * widths)).float(), is_exact


def _sum_cells(weights: Tensor, firsts: np.ndarray[Any, np.dtype[np.int64]]) -> Tensor:
    """(t, cells): sums of the weights (t, s) of each cell; cells of equal size are faster."""
    size = weights.size(1) // len(firsts)
    if size * len(firsts) == weights.size(1) and (np.diff(firsts) == size).all():
        return weights.unflatten(1, (len(firsts), size)).sum(-1)
    return torch.from_numpy(np.add.reduceat(weights.numpy(), firsts, axis=1))


def _cell_end(firsts: np.ndarray[Any, np.dtype[np.int64]], cell: int, size: int) -> int:
    return int(firsts[cell + 1]) if cell + 1 < len(firsts) else size


def _thumbnail_suffices(bounds: TileBounds, place: PlaceRecord, thumbnail: Tensor) -> bool:
    """Whether each cell is at least as large as a cell of the thumbnail."""
    R, C = thumbnail.shape[-2:]
    return bounds.height * R >= bounds.rows * place.T and bounds.width * C >= bounds.cols * place.S


def _from_thumbnail(thumbnail: Tensor, bounds: TileBounds, place: PlaceRecord) -> Tensor:
    """Mean weights of cells from the thumbnail (R, C), whose cells are split where they overlap two."""
    vertical = _overlap_shares(bounds.top, bounds.bottom, bounds.rows, place.T, thumbnail.size(0))
    horizontal = _overlap_shares(bounds.left, bounds.right, bounds.cols, place.S, thumbnail.size(1))
    return vertical @ thumbnail.float() @ horizontal.mT


def _overlap_shares(start: int, stop: int, cells: int, size: int, parts: int) -> Tensor:
    """(cells, parts): the share of each cell, from start to stop, that lies in each of the parts of `size`."""
    edges = start + torch.from_numpy(_cell_starts(stop - start, cells, end=1))
    bounds = torch.from_numpy(_cell_starts(size, parts, end=1))
    low = torch.maximum(edges[:-1, None], bounds[None, :-1])
    high = torch.minimum(edges[1:, None], bounds[None, 1:])
    inside = (high - low).clamp(min=0).double()
    return (inside / inside.sum(-1, keepdim=True)).float()


def compute_row(place: PlaceRecord, head: int, query: int) -> Tensor:
    """The weights (S,) of one query."""
    _check_index(query, place.T, "query")
    return place.tile(head, torch.tensor([query]))[0]


@dataclass(frozen=True)
class ScoreBreakdown:
    """The computation of one weight: `terms`, of the dimensions, sum to `score`, which a soft cap turns into `capped`;
    weight = exp(capped + bias - lse) * window_weight where the key is `visible`, else 0. Minus infinity is None.

    Of an entmax, lse is the threshold: weight = max(0, (alpha - 1) (capped + bias) - lse) ** (1 / (alpha - 1)).
    """

    q: list[float]
    k: list[float]
    terms: list[float]
    score: float
    capped: float
    bias: float | None
    lse: float | None
    window_weight: float
    visible: bool
    weight: float


def explain_pair(place: PlaceRecord, head: int, query: int, key: int) -> ScoreBreakdown:
    _check_index(query, place.T, "query")
    _check_index(key, place.S, "key")
    stored, number = place.stored_head(head)
    rows, cols = torch.tensor([query]), torch.tensor([key])
    q, group = stored.queries.offsets(number, rows)[0], stored.key_heads[number]
    k = stored.keys.values(group, cols)[0]
    terms = q * k if stored.vector is None else stored.vector * torch.tanh(q + k)
    # the stored lse is of keys without their centre, which adds the same to every score of this query
    centre = float(q @ stored.keys.centre[group]) if stored.vector is None else 0.0
    window, allowed = stored.window, stored.mask.allowed(head, rows, cols)
    visible = bool(allowed) and (window is None or bool(window.inside(head, rows, cols)))
    bias = 0.0 if stored.bias is None else float(stored.bias.tile(head, rows, cols)[0, 0])
    shift = centre if stored.alpha is None else centre * (stored.alpha - 1)
    return ScoreBreakdown(
        q=q.tolist(),
        k=k.tolist(),
        terms=terms.tolist(),
        score=float(terms.sum()),
        capped=float(soft_cap(terms.sum(), stored.cap)),
        bias=finite_or_null(bias),
        lse=finite_or_null(float(stored.lse[number, query]) + shift),
        window_weight=1.0 if window is None else float(window.factor(head, rows, cols)),
        visible=visible,
        weight=float(place.tile(head, rows, cols)[0, 0]),
    )


def _check_index(value: int, size: int, name: str) -> None:
    if not 0 <= value < size:
        raise SettingError(str(value), f"0 to {size - 1}", where=name)


def _cell_starts(size: int, cells: int, end: int = 0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The first index of each cell: the least i with floor(i cells / size) = cell; with end=1, also the size."""
    return -(-np.arange(cells + end) * size // cells)


def _sample_queries(bounds: TileBounds, max_weights: int) -> Tensor:
    """Evenly spaced queries of each row of cells, about `max_weights` weights in all, at least one query a row."""
    each = max(1, max_weights // (bounds.rows * bounds.width))
    firsts = [*_cell_starts(bounds.height, bounds.rows).tolist(), bounds.height]
    chosen = []
    for first, last in pairwise(firsts):
        count = min(each, last - first)
        chosen.append(first + (torch.arange(count) * 2 + 1) * (last - first) // (2 * count))
    return bounds.top + torch.cat(chosen)
