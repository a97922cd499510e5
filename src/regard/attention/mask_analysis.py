"""Mask analysis: whether a mask hides anything, which queries see any key, and which keys any query sees."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import torch
from torch import Tensor
from torch.compiler import is_compiling
from torch.utils.weak import WeakTensorKeyDictionary

from regard.attention.grid import Grid
from regard.attention.masks import All, Dense, Everything, Mask, Runs, Window
from regard.attention.operator_arguments import OperatorArguments, has_form
from regard.attention.transforms import is_memory_lasting

GPU_NUMBERS = 2**27  # booleans of a mask that are held at a time on a GPU


def mask_of_table(table: Tensor, k: Tensor) -> Mask:
    """A table of booleans (..., T, at least S) as the mask of the keys k (..., S, D). Where fused kernels can make use
    of it and the table can be read, that of a batch with padding, of a window or of packed texts becomes the runs of
    keys that it is; it is read once, and all layers of a model share what was found."""
    size = k.size(-2)
    if not k.is_cuda or k.dtype not in (torch.bfloat16, torch.float16) or not is_memory_lasting(k.device):
        return Dense(table[..., :size])
    if table.is_inference():  # whose changes nobody counts
        return runs_by_content(table[..., :size]) or Dense(table[..., :size])
    version, before = table._version, _KNOWN.get(table)
    if before is None or before[:2] != (version, size):
        before = _KNOWN[table] = version, size, Runs.of(table[..., :size])
    return before[2] or Dense(table[..., :size])


_KNOWN: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
"""Tables that were read: their version, how many keys of them, and the runs that they are, or None."""


def runs_by_content(table: Tensor) -> Runs | None:
    """`Runs.of` for a table that comes again as another tensor, or whose memory may hold another one by now: its
    numbers are compared with those of the last one, which takes a tenth of the time."""
    key = table.device, tuple(table.shape)
    before = _LAST.get(key)
    if before is None or not torch.equal(before[0], table):
        _LAST.clear()
        with torch.inference_mode(False):  # runs whose changes are counted, so that they keep what is made of them
            copy = table.clone()
            before = _LAST[key] = copy, Runs.of(copy)
    return before[1]


_LAST: dict[tuple[torch.device, tuple[int, ...]], tuple[Tensor, Runs | None]] = {}
"""The last table that was read, a copy, and the runs that it is."""


def is_trivial(mask: Mask, grid: Grid) -> bool:
    """Whether this mask surely hides no key from any query, from shapes alone."""
    if isinstance(mask, All):
        return all(is_trivial(inner, grid) for inner in mask.masks)
    if isinstance(mask, Window) and not isinstance(mask.offset, Tensor):
        first = grid.S - grid.T if mask.offset is None else mask.offset
        from_first = mask.left is None or first + grid.T - 1 - mask.left <= 0
        to_last = mask.right is None or first + mask.right + 1 >= grid.S
        return bool(from_first & to_last)
    return isinstance(mask, Everything)


def every_row_and_column_live(mask: Mask, grid: Grid) -> bool:
    """Whether surely every query sees a key and every key is seen by a query, from shapes alone."""
    if not grid.T or not grid.S:
        return False
    if isinstance(mask, Window) and not isinstance(mask.offset, Tensor):
        first = grid.S - grid.T if mask.offset is None else mask.offset
        start, stop = mask.key_bounds(first, grid.S)  # of the first query
        begin, end = mask.key_bounds(first + grid.T - 1, grid.S)  # of the last one
        # joined by &, which is one condition in a compiled graph, where `and` would be four
        return bool((start <= 0) & (stop > 0) & (begin < grid.S) & (end >= grid.S))
    return isinstance(mask, Everything)


def live_queries_and_keys(
    mask: Mask, grid: Grid, more: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Which queries see any key, booleans that broadcast to (*lead, T), and which keys any query sees, (*lead, S).

    `more(rows, cols)`: booleans of anything else that hides keys, such as a predicted window.
    """
    # in a compiled graph, every comparison of the ends of a window would be a graph of its own
    if isinstance(mask, Window) and not isinstance(mask.offset, Tensor) and more is None and not is_compiling():
        return _of_window(mask, grid)
    if isinstance(mask, Runs) and more is None:
        ends: tuple[Tensor, Tensor] = mask.kept("live", grid, lambda: _from_spans(*mask.span(grid), grid))
        return ends
    if mask.contiguous and more is None:
        return _from_spans(*mask.span(grid), grid)
    if is_compiling() and grid.T and grid.S:  # a loop would be one graph for each length
        return _in_graph(mask, grid, more)
    if isinstance(mask, Dense) and more is None and grid.T and grid.S:  # a table that exists
        table = mask.table_of(grid)
        table = table.expand(*table.shape[:-2], grid.T, grid.S)
        return table.any(-1), table.any(-2)
    live_queries, live_keys = [], torch.zeros(grid.S, dtype=torch.bool, device=grid.device)
    cols = torch.arange(grid.S, device=grid.device)
    # a GPU would wait for many small pieces
    step = 64 if grid.device.type == "cpu" else max(64, GPU_NUMBERS // max(prod(grid.lead) * grid.S, 1))
    for rows in torch.arange(grid.T, device=grid.device).split(step):
        tile = mask.allowed(rows, cols, grid)
        tile = tile if more is None else tile & more(rows, cols)
        tile = tile.expand(*tile.shape[:-2], len(rows), grid.S)
        live_queries.append(tile.any(-1))
        live_keys = live_keys | tile.any(-2)
    return torch.cat(live_queries, -1), live_keys


def _in_graph(mask: Mask, grid: Grid, more: Callable[[Tensor, Tensor], Tensor] | None) -> tuple[Tensor, Tensor]:
    """The same in a compiled graph: an operator for a known mask, the whole map at once for anything else."""
    if more is not None or isinstance(mask, Dense) or not has_form(mask):
        tile = mask.table_of(grid)
        if more is not None:
            tile = tile & more(*(torch.arange(size, device=grid.device) for size in (grid.T, grid.S)))
        tile = tile.expand(*tile.shape[:-2], grid.T, grid.S)
        return tile.any(-1), tile.any(-2)
    first = torch.zeros(1, dtype=torch.long, device=grid.device)
    lead = list(mask.allowed(first, first, grid).shape[:-2])
    packed = OperatorArguments([*grid.lead, grid.T, grid.S], [first])
    form = packed.text(mask)
    return _live_operator(*packed.all(), form, lead)


@torch.library.custom_op("regard::live_queries_and_keys", mutates_args=())
def _live_operator(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float], form: str, lead: list[int]
) -> tuple[Tensor, Tensor]:
    packed = OperatorArguments(shape, tensors, sizes, numbers)
    queries, keys = live_queries_and_keys(packed.value(form), packed.grid)
    return queries.expand(*lead, -1).clone(), keys.expand(*lead, -1).clone()


@_live_operator.register_fake
def _(
    tensors: list[Tensor], shape: list[int], sizes: list[int], numbers: list[float], form: str, lead: list[int]
) -> tuple[Tensor, Tensor]:
    queries, keys = (tensors[0].new_empty(*lead, size, dtype=torch.bool) for size in shape[-2:])
    return queries, keys


def _of_window(window: Window, grid: Grid) -> tuple[Tensor, Tensor]:
    """The same for a window: one run of queries sees one run of keys, and no device is queried."""
    first = grid.S - grid.T if window.offset is None else int(window.offset)
    begin = 0 if window.right is None else min(max(-first - window.right, 0), grid.T)
    end = grid.T if window.left is None else min(max(grid.S - first + window.left, begin), grid.T)
    live_queries, live_keys = (torch.zeros(size, dtype=torch.bool, device=grid.device) for size in (grid.T, grid.S))
    if begin < end and grid.S:
        live_queries[begin:end] = True
        start, stop = window.key_bounds(first + begin, grid.S)[0], window.key_bounds(first + end - 1, grid.S)[1]
        live_keys[max(int(start), 0) : min(int(stop), grid.S)] = True
    return live_queries, live_keys


def _from_spans(lo: Tensor, hi: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    lo, hi = torch.broadcast_tensors(lo, hi)
    lo, hi = (end.expand(*end.shape[:-1], grid.T) for end in (lo, hi))
    opens = (hi > lo).long()
    change = torch.zeros(*lo.shape[:-1], grid.S + 1, dtype=torch.long, device=grid.device)
    change = change.scatter_add(-1, lo, opens).scatter_add(-1, hi, -opens)
    return hi > lo, change.cumsum(-1)[..., : grid.S] > 0
