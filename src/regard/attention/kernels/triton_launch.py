"""Which kernel serves the dot family and in what tiles, and how it is started: the only place that knows of grids.

Hopper's own kernels (triton_hopper_*.py) take the widths and masks they were written for; triton_forward.py and
triton_statistics.py take everything else. The choice looks at shapes, dtypes and the device alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import torch
import triton  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention.kernels import triton_statistics as general
from regard.attention.kernels.devices import INTERPRETED
from regard.attention.kernels.shapes import tile_width
from regard.attention.kernels.spans import Spans
from regard.attention.kernels.triton_backward_launch import gradients as general_gradients
from regard.attention.kernels.triton_forward import forward as general_forward

LOG2E = 1.4426950408889634
ROOM = 32  # candidates for its largest that are kept of a row: 10.6 on average, of random rows
KEYS = 128  # in a block of Hopper's kernels
NOTED = 32 * 16 * 48  # bytes of what a warp of the statistics pass notes before it puts candidates on lists
RESIDENT = 16  # of its warps may run on a multiprocessor at a time and need room for notes
AHEAD = 2  # tiles of queries that the statistics pass has under way
HELD = 24 * 2**20  # bytes of keys and values that heads worked on together may have: the second-level cache's half


class Tile(NamedTuple):
    """Queries and keys of a block, warps that work on it, blocks fetched ahead."""

    queries: int
    keys: int
    warps: int
    ahead: int


@dataclass(frozen=True)
class Wanted:
    """What the statistics pass is asked for; 0 rows: no thumbnail."""

    received: bool
    rows: int
    cols: int
    top: int


def tile_of(width: int, dtype: torch.dtype) -> Tile:
    """Tiles of the general kernels, by the width of a vector and its numbers'."""
    if INTERPRETED:
        return Tile(16, 16, 1, 1)
    wide = triton.next_power_of_2(width) * dtype.itemsize
    if wide <= 128:
        return Tile(128, 64, 4, 3)
    return Tile(128, 64, 8, 3) if wide <= 256 else Tile(64, 32, 4, 2)


def suits_hopper(q: Tensor, k: Tensor, spans: Spans) -> bool:
    """Whether Hopper's kernels were written for this."""
    return (
        _has_hopper(q.device)
        and q.dtype in (torch.bfloat16, torch.float16)
        and q.size(-1) in (64, 128)
        and spans.asking is None
        and max(q.size(2), k.size(2)) < 2**22
        and q.size(0) * q.size(1) * max(q.size(2), k.size(2)) < 2**31
    )


@cache
def _has_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device)[0] == 9


def forward(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float, entropy: bool, top: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """output (B, H, T, D), lse, entropy (B, H, T). top 1: the largest weight of each row, its key, both (B, H, T, 1);
    more: traces of the largest (B, H, T, 16), which Hopper's kernel alone leaves."""
    B, H, T, D = q.shape
    output = q.new_empty(B, T, H, D).transpose(1, 2)
    lse = q.new_empty(B, H, T, dtype=torch.float32)
    found = torch.empty_like(lse) if entropy else lse.new_empty(0)
    strips = lse.new_empty((B, H, T, 16 if top > 1 else 1) if top else (0,))
    best = lse.new_empty((B, H, T, 1) if top == 1 else (0,), dtype=torch.int64)
    if suits_hopper(q, k, spans):
        _hopper_forward(q, k, v, spans, scale, (output, lse, found, strips, best), entropy, top)
        return output, lse, found, strips, best
    k, v = (x if x.size(2) * x.stride(2) < 2**31 else x.contiguous() for x in (k, v))
    tile = tile_of(D, q.dtype)
    general_forward[(triton.cdiv(T, tile.queries), B * H)](
        q, k, v, output, lse, found, *_told(spans, lse),
        H, H // k.size(1), T, k.size(2), scale * LOG2E, spans.shift_lo, spans.shift_hi,
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *output.stride()[:3], *spans.strides(),
        *_of_documents(spans),
        D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, ENTROPY=entropy, TOLD=spans.told,
        DOCUMENTS=spans.asking is not None, num_warps=tile.warps, num_stages=tile.ahead,
    )  # fmt: skip
    if top == 1:
        _Pass(q, k, lse, spans, scale).largest(strips, best, 1)
    return output, lse, found, strips, best


def _hopper_forward(
    q: Tensor, k: Tensor, v: Tensor, spans: Spans, scale: float, out: tuple[Tensor, ...], entropy: bool, top: int
) -> None:
    from regard.attention.kernels.triton_hopper_forward import forward as kernel

    B, H, T, D = q.shape
    output, lse, found, strips, best = out
    groups = _groups(D, T)
    rows = 64 * groups
    leads = top == 1 and groups == 3  # to look for places costs more than products hide where keys are narrow
    blocks = triton.cdiv(T, rows)
    whole = lse.view(torch.int32)
    lo, hi = (whole if end is None else end for end in (spans.lo, spans.hi))
    bounds = _or(spans.blocks(k.size(2), rows, B, H), whole)
    jobs = blocks * B * H
    programs = min(_processors(q.device), jobs)
    shared = groups == 2 and top <= 1  # else the code for it is slower by as much as there is to win
    taken = whole.new_zeros(1) if shared and programs < jobs else whole
    kernel[(programs,)](
        _tensor(q, 64), _tensor(k, KEYS), _tensor(v, KEYS), output, lse, found, strips, best, taken, lo, hi, bounds,
        H, H // k.size(1), T, k.size(2), scale * LOG2E, spans.shift_lo, spans.shift_hi, blocks, _together(B * H, k),
        jobs,
        *output.stride()[:3], *spans.strides(),
        D=D, BN=KEYS, GROUPS=groups, STAGES=2, ENTROPY=entropy, TOP=top, LEAD=leads, TOLD=spans.told,
        SHARED=shared, num_warps=4,
    )  # fmt: skip
    if leads:
        _Pass(q, k, lse, spans, scale).located(best)


def _groups(width: int, length: int) -> int:
    """How many groups of 64 queries work together: more of them share fewer registers."""
    return 3 if width == 64 and length >= 1024 else 2


def statistics(
    q: Tensor, k: Tensor, lse: Tensor, strips: Tensor, spans: Spans, scale: float, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """received (B, H, S), thumbnail (B, H, R, C), the largest weights (B, H, T, top) and their keys."""
    B, H, T, _ = q.shape
    S = k.size(2)
    lse = lse.contiguous()
    received = lse.new_empty((B, H, S) if wanted.received else (0,))
    cells = (B, H, min(wanted.rows, T), min(wanted.cols, S)) if wanted.rows else (0,)
    most = (B, H, T, wanted.top) if wanted.top else (0,)
    values, places = lse.new_empty(most), lse.new_empty(most, dtype=torch.int64)
    pass_by = _Pass(q, k, lse, spans, scale)
    hopper = suits_hopper(q, k, spans)
    alone = hopper and wanted.rows > 0 and _cells(T, S, *cells[2:])[2]
    counted = torch.zeros(cells, dtype=torch.float32 if alone else torch.int64, device=q.device)
    if hopper:
        pass_by.hopper(received, counted, values, places, strips, wanted)
    else:
        if wanted.received or wanted.rows:
            pass_by.columns(received, counted, wanted)
        if wanted.top:
            pass_by.largest(values, places, wanted.top)
    return received, counted if alone else _means(counted, T, S), values, places


@dataclass(frozen=True, eq=False)
class _Pass:
    """What every kernel of the statistics pass is given."""

    q: Tensor
    k: Tensor
    lse: Tensor
    spans: Spans
    scale: float

    def columns(self, received: Tensor, counted: Tensor, wanted: Wanted) -> None:
        """What each key received, and the thumbnail's sums."""
        B, H, T, D = self.q.shape
        S, tile = self.k.size(2), tile_of(D, self.q.dtype)
        R, C = counted.shape[2:] if wanted.rows else (1, 1)
        general.columns[(triton.cdiv(S, tile.keys), B * H)](
            self.q, self.k, self.lse, received, counted, *_told(self.spans, self.lse),
            H, H // self.k.size(1), T, S, R, C, self.scale * LOG2E, self.spans.shift_lo, self.spans.shift_hi,
            *self._strides(), D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, RECEIVED=wanted.received,
            CELLS=wanted.rows > 0, TOLD=self.spans.told, DOCUMENTS=self.spans.asking is not None, num_warps=tile.warps,
        )  # fmt: skip

    def largest(self, values: Tensor, places: Tensor, top: int, count: Tensor | None = None) -> None:
        """The largest weights by one walk for each; with `count`, only of rows that had too many candidates."""
        B, H, T, D = self.q.shape
        tile = tile_of(D, self.q.dtype)
        general.largest[(triton.cdiv(T, tile.queries), B * H)](
            self.q, self.k, self.lse, places if count is None else count, values, places, *_told(self.spans, self.lse),
            H, H // self.k.size(1), T, self.k.size(2), top, ROOM, self.scale * LOG2E,
            self.spans.shift_lo, self.spans.shift_hi, *self._strides(),
            D=D, BD=tile_width(D), BM=tile.queries, BN=tile.keys, SOME=count is not None,
            TOLD=self.spans.told, DOCUMENTS=self.spans.asking is not None, num_warps=tile.warps,
        )  # fmt: skip

    def located(self, places: Tensor) -> None:
        """The place of the largest weight of each row, from what Hopper's forward pass left of it."""
        B, H, T, D = self.q.shape
        lo, hi, *_ = _told(self.spans, self.lse)
        general.located[(triton.cdiv(T, 32), B * H)](
            self.q, self.k, places, lo, hi, H, H // self.k.size(1), T, self.k.size(2),
            self.spans.shift_lo, self.spans.shift_hi, *self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(),
            D=D, BM=32, TOLD=self.spans.told, num_warps=4,
        )  # fmt: skip

    def hopper(
        self, received: Tensor, counted: Tensor, values: Tensor, places: Tensor, strips: Tensor, wanted: Wanted
    ) -> None:
        """The same by Hopper's kernel, some heads at a time where candidates need room."""
        if wanted.top and strips.numel():
            lines = self.lse.numel()
            count = torch.empty(lines, dtype=torch.int32, device=self.q.device)
            floor = torch.empty_like(self.lse)
            general.floors[(triton.cdiv(lines, 64),)](
                strips, self.lse, floor, count, lines, self.scale * LOG2E,
                TOP=wanted.top, WEIGHTS=_weighs(wanted), BM=64, num_warps=4,
            )  # fmt: skip
            self._collected(received, counted, values, places, floor, count, wanted)
            self.largest(values, places, wanted.top, count)
            return
        if wanted.received or wanted.rows:
            heads, unread = self.q.size(0) * self.q.size(1), self.lse
            whole = unread.view(torch.int32)
            self._hopper(received, counted, unread, unread, unread, whole, whole, 0, heads, wanted, False)
        if wanted.top:
            self.largest(values, places, wanted.top)

    def _collected(
        self,
        received: Tensor,
        counted: Tensor,
        values: Tensor,
        places: Tensor,
        floor: Tensor,
        count: Tensor,
        wanted: Wanted,
    ) -> None:
        B, H, T, _ = self.q.shape
        inputs = 2 * (self.q.numel() + 2 * self.k.numel())
        most = max(inputs, 2**26) * 3 // 4 // (ROOM * 8)  # rows whose candidates there is room for, at 8 bytes each
        step = max(1, min(B * H, most // T))
        found = torch.empty(step * T * ROOM, dtype=torch.int64, device=self.q.device)
        taken = torch.zeros(
            min(step * triton.cdiv(self.k.size(2), KEYS) * 4, _processors(self.q.device) * RESIDENT),
            dtype=torch.int32, device=self.q.device,
        )  # fmt: skip
        noted = found.new_empty(taken.numel() * NOTED // 8)
        for head in range(0, B * H, step):
            heads = min(step, B * H - head)
            lines, at = heads * T, head * T
            part = count[at : at + lines]
            self._hopper(received, counted, floor.flatten()[at:], found, noted, taken, part, head, heads, wanted, True)
            general.chosen[(triton.cdiv(lines, 32),)](
                found, part, self.lse.flatten()[at:], values.flatten()[at * wanted.top :],
                places.flatten()[at * wanted.top :], lines, self.scale * LOG2E,
                TOP=wanted.top, ROOM=ROOM, WEIGHTS=_weighs(wanted), BM=32, num_warps=1,
            )  # fmt: skip

    def _hopper(
        self, received: Tensor, counted: Tensor, floor: Tensor, found: Tensor, noted: Tensor, taken: Tensor,
        count: Tensor, head: int, heads: int, wanted: Wanted, collect: bool,
    ) -> None:  # fmt: skip
        from regard.attention.kernels.triton_hopper_statistics import statistics as kernel

        B, H, T, D = self.q.shape
        S, whole = self.k.size(2), self.lse.view(torch.int32)
        R, C = counted.shape[2:] if wanted.rows else (1, 1)
        cells, even, alone = _cells(T, S, R, C) if wanted.rows else (0, False, False)
        lo, hi = (_or(end, whole) for end in (self.spans.lo, self.spans.hi))
        bounds = _or(self.spans.askers(S, KEYS, B, H), whole)
        blocks = triton.cdiv(S, KEYS)
        lse = self.lse.flatten()[head * T :] if collect else self.lse
        kernel[(blocks, heads)](
            _tensor(self.q, 64), _tensor(self.k, KEYS), lse, floor, count, found, noted, taken, counted, received,
            lo, hi, bounds,
            H, H // self.k.size(1), T, S, R, C, max(T // R, 1), self.scale * LOG2E,
            self.spans.shift_lo, self.spans.shift_hi, blocks, head, *self.spans.strides(), head * T if collect else 0,
            taken.numel(),
            D=D, BN=KEYS, STAGES=AHEAD, CELLS=cells, EVEN=even, ALONE=alone, RECEIVED=wanted.received, TOP=collect,
            ROOM=ROOM, TOLD=self.spans.told, num_warps=4, maxnreg=_registers(wanted, collect),
        )  # fmt: skip

    def _strides(self) -> tuple[int, ...]:
        return (*self.q.stride()[:3], *self.k.stride()[:3], *self.spans.strides(), *_of_documents(self.spans))


def gradients(
    grad: Tensor, of_lse: Tensor | None, q: Tensor, k: Tensor, v: Tensor, output: Tensor, lse: Tensor, spans: Spans,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k and v: by the vendor's kernel where it knows the mask, which is quicker, or by ours."""
    if of_lse is not None or not _suits_vendor(q, k, spans):
        return general_gradients(grad, q, k, v, output, lse, of_lse, spans, scale)
    causal, nothing = spans.shift_hi == 1, torch.zeros((), dtype=torch.int64, device=q.device)  # no dropout: no seed
    found = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        grad, q, k, v, output, lse.unsqueeze(-1), nothing, nothing, None, None, None, q.size(2), k.size(2), 0.0, causal,
        scale=scale,
    )  # fmt: skip
    dq, dk, dv = found
    return dq.contiguous(), dk.contiguous(), dv.contiguous()


def _suits_vendor(q: Tensor, k: Tensor, spans: Spans) -> bool:
    """Whether cuDNN knows this mask, and more: everything, or causal with as many queries as keys."""
    T, S = q.size(2), k.size(2)
    full = spans.shift_hi >= S and spans.shift_lo <= 1 - T
    causal = spans.shift_hi == 1 and spans.shift_lo <= 1 - T and T == S
    return (
        _has_hopper(q.device)
        and q.dtype in (torch.bfloat16, torch.float16)
        and not spans.told
        and spans.asking is None
        and (full or causal)
        and q.size(1) == k.size(1)
        and q.size(-1) in (64, 128)
        and min(T, S) >= 64
    )


def _registers(wanted: Wanted, collects: bool) -> int:
    """Of a lane in the statistics pass: the fewer, the more programs share a multiprocessor."""
    return 168 if collects and _weighs(wanted) else 128


def _weighs(wanted: Wanted) -> bool:
    """Whether the statistics pass needs weights, not scores alone."""
    return wanted.received or wanted.rows > 0


def _cells(T: int, S: int, R: int, C: int) -> tuple[int, bool, bool]:
    """How many columns of cells a block of keys may touch; whether cells are whole multiples of what a lane holds; and
    whether a cell is no more than 16 queries of one warp and keys of one block."""
    wide = S // C
    if S % C == 0 and T % R == 0 and (T // R) % 16 == 0 and wide % 8 == 0 and (KEYS % wide == 0 or wide % KEYS == 0):
        return max(1, KEYS // wide), True, T // R == 16 and wide <= KEYS
    most = KEYS * C // S if KEYS * C % S == 0 else min(-(-KEYS * C // S) + 1, KEYS)
    return max(8, triton.next_power_of_2(most)), False, False


def _means(counted: Tensor, T: int, S: int) -> Tensor:
    """Means of the thumbnail's cells from their sums in units of 2^-40."""
    found = torch.empty_like(counted, dtype=torch.float32)
    if cells := counted.numel():
        R, C = counted.shape[2:]
        general.means[(triton.cdiv(cells, 1024),)](counted, found, T, S, R, C, cells, BLOCK=1024, num_warps=4)
    return found


def _tensor(x: Tensor, rows: int) -> Any:
    """x (B, H, n, D) for the tensor memory accelerator, `rows` of a head at a time."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor  # type: ignore[import-untyped]

    strides = [step if size > 1 else x.size(-2) * x.size(-1) for size, step in zip(x.shape, x.stride(), strict=True)]
    strides[-1] = 1
    if any(step <= 0 or step * x.element_size() % 16 for step in strides[:-1]) or x.data_ptr() % 16:
        x = x.contiguous()
        strides = list(x.stride())
    block = [1, 1, rows, x.size(-1)]
    return TensorDescriptor(x, list(x.shape), strides, block, _shared(rows, x.size(-1), x.dtype))


@cache
def _shared(rows: int, width: int, dtype: torch.dtype) -> Any:
    """How they lie in shared memory; to work it out takes longer than to start a kernel."""
    from triton.experimental.gluon import language as gl  # type: ignore[import-untyped]

    kind = gl.bfloat16 if dtype == torch.bfloat16 else gl.float16
    return gl.NVMMASharedLayout.get_default_for([1, 1, rows, width], kind)


def _told(spans: Spans, like: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tensors of the spans; any tensor stands for one that is not there and is not read."""
    lo, hi, asking, asked = (_or(x, like.view(torch.int32)) for x in (spans.lo, spans.hi, spans.asking, spans.asked))
    return lo, hi, asking, asked


def _of_documents(spans: Spans) -> tuple[int, int]:
    """How far apart the documents of two batch rows lie, of queries and of keys."""
    asking, asked = (0 if ids is None or ids.size(0) == 1 else ids.size(1) for ids in (spans.asking, spans.asked))
    return asking, asked


def _together(heads: int, k: Tensor) -> int:
    """How many heads are worked on at a time: a divisor of all of them whose keys and values stay in the cache."""
    most = max(1, HELD // (k.size(2) * k.size(3) * 2 * k.element_size()))
    return max(count for count in range(1, min(most, heads) + 1) if heads % count == 0)


@cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


def _or(x: Tensor | None, other: Tensor) -> Tensor:
    return other if x is None else x
