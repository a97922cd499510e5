"""Who may look where, as GPU kernels read it: each query sees a run of keys, narrowed by documents if there are any."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.grid import Grid
from regard.attention.masks import All, Documents, Everything, Mask, Window

FAR = 2**30  # further than any key


@dataclass(frozen=True, eq=False)
class Spans:
    """Query i sees the keys from max(i + shift_lo, lo[i], 0) up to, and without, min(i + shift_hi, hi[i], S), if
    asking[i] == asked[j]; what is None narrows nothing."""

    shift_lo: int = -FAR
    shift_hi: int = FAR
    lo: Tensor | None = None  # int32 (B or 1, H or 1, T)
    hi: Tensor | None = None
    asking: Tensor | None = None  # whole numbers (B or 1, T)
    asked: Tensor | None = None  # (B or 1, S)

    @classmethod
    def of(cls, mask: Mask, grid: Grid) -> Spans:
        """The mask in this form, if `refuses` has nothing against it."""
        found = cls()
        for part in _parts(mask):
            if isinstance(part, Window) and not isinstance(part.offset, Tensor):
                found = found._shifted(part, grid)
            elif isinstance(part, Documents):
                asking, asked = (_flat(ids, grid, heads=False).contiguous() for ids in part.both(grid))
                found = replace(found, asking=asking, asked=asked)
            elif not isinstance(part, Everything):
                found = found._told(part, grid)
        return found

    def _shifted(self, window: Window, grid: Grid) -> Spans:
        offset = grid.S - grid.T if window.offset is None else int(window.offset)
        lo = -FAR if window.left is None else offset - window.left
        hi = FAR if window.right is None else offset + window.right + 1
        return replace(self, shift_lo=max(self.shift_lo, lo), shift_hi=min(self.shift_hi, hi))

    def _told(self, mask: Mask, grid: Grid) -> Spans:
        lo, hi = (_flat(end.int(), grid, heads=True) for end in torch.broadcast_tensors(*mask.span(grid)))
        if self.lo is not None and self.hi is not None:
            lo, hi = torch.maximum(lo, self.lo), torch.minimum(hi, self.hi)
        return replace(self, lo=lo.contiguous(), hi=hi.contiguous())

    def dense(self, T: int, S: int, device: torch.device | str = "cpu") -> Tensor:
        """The same as booleans that broadcast to (B, H, T, S), where the spans lie."""
        i, j = torch.arange(T, device=device)[:, None], torch.arange(S, device=device)
        seen = ((j >= i + self.shift_lo) & (j < i + self.shift_hi))[None, None]
        if self.lo is not None and self.hi is not None:
            seen = seen & (j >= self.lo[..., None]) & (j < self.hi[..., None])
        if self.asking is not None and self.asked is not None:
            seen = seen & (self.asking[:, None, :, None] == self.asked[:, None, None, :])
        return seen

    @property
    def told(self) -> bool:
        return self.lo is not None

    def ends(self) -> dict[str, Any]:
        """Where what queries see begins and ends, by the names that kernels have for it."""
        limits: dict[str, Any] = {"LO": None, "HI": None, "stride_eb": 0, "stride_eh": 0}
        if self.lo is not None and self.hi is not None:
            lo, hi = (end.contiguous() for end in torch.broadcast_tensors(self.lo, self.hi))
            stride_eb, stride_eh = (lo.stride(n) if lo.size(n) > 1 else 0 for n in (0, 1))
            limits = {"LO": lo, "HI": hi, "stride_eb": stride_eb, "stride_eh": stride_eh}
        return limits | {"shift_lo": self.shift_lo, "shift_hi": self.shift_hi}

    def documents(self) -> dict[str, Any]:
        """The documents of queries and keys, by the names that kernels have for them."""
        if self.asking is None or self.asked is None:
            return {"ASKING": None, "ASKED": None, "stride_ab": 0, "stride_sb": 0}
        asking, asked = self.asking.contiguous(), self.asked.contiguous()
        strides = (x.size(1) if x.size(0) > 1 else 0 for x in (asking, asked))
        return {"ASKING": asking, "ASKED": asked} | dict(zip(("stride_ab", "stride_sb"), strides, strict=True))

    def kinds(self) -> dict[str, bool]:
        """Which masks a kernel is compiled with."""
        return {"TOLD": self.told, "DOCUMENTS": self.asking is not None}

    def strides(self) -> tuple[int, int]:
        """How far apart the ends of two batch rows and of two heads lie; 0 where all share them."""
        if self.lo is None:
            return 0, 0
        B, H, T = self.lo.shape
        return (H * T if B > 1 else 0), (T if H > 1 else 0)

    def blocks(self, S: int, rows: int, B: int, H: int) -> Tensor | None:
        """Of each block of so many queries: first key that any sees, one past the last; the same of what all see.

        int32 (B * H, blocks, 4), from the told ends alone.
        """
        if self.lo is None or self.hi is None:
            return None
        lo, hi = _padded(self.lo, rows), _padded(self.hi, rows)
        sees = hi > lo
        first = torch.where(sees, lo, S).amin(-1)
        last = torch.where(sees, hi, 0).amax(-1)
        bounds = torch.stack((first, last, lo.amax(-1), hi.amin(-1)), -1)
        return bounds.expand(B, H, -1, 4).reshape(B * H, -1, 4).contiguous()

    def askers(self, S: int, keys: int, B: int, H: int) -> Tensor | None:
        """Of each block of so many keys: the first tile of 64 queries that sees any of it, one past the last; the same
        of a run of tiles that see all of it. int32 (B * H, blocks, 4), from the told ends alone."""
        if self.lo is None or self.hi is None:
            return None
        lo, hi = _padded(self.lo, 64), _padded(self.hi, 64)  # (b, h, tiles, 64)
        sees = hi > lo
        low, high = torch.where(sees, lo, S).amin(-1)[..., None], torch.where(sees, hi, 0).amax(-1)[..., None]
        start = torch.arange(0, S, keys, device=lo.device)
        stop = start + keys
        any_of = (low < stop) & (high > start)  # (b, h, tiles, blocks)
        all_of = (lo.amax(-1)[..., None] <= start) & (hi.amin(-1)[..., None] >= stop)
        tiles = torch.arange(any_of.size(-2), device=lo.device)[:, None]
        none = any_of.size(-2)
        first = torch.where(any_of, tiles, none).amin(-2)
        last = torch.where(any_of, tiles + 1, 0).amax(-2)
        all_from = torch.where(all_of, tiles, none).amin(-2)
        all_to = torch.where(~all_of & (tiles >= all_from.unsqueeze(-2)), tiles, none).amin(-2)
        bounds = torch.stack((first, torch.maximum(last, first), all_from, torch.maximum(all_to, all_from)), -1).int()
        return bounds.expand(B, H, -1, 4).reshape(B * H, -1, 4).contiguous()


def refuses(mask: Mask) -> str | None:
    """Why a mask has no such form, in words; None: it has."""
    for part in _parts(mask):
        if not part.solid and not isinstance(part, Documents):
            return f"it knows causal, window, padding and document masks, and {type(part).__name__} is none of them"
    if sum(isinstance(part, Documents) for part in _parts(mask)) > 1:
        return "it reads the documents of one mask, and got those of several"
    return None


def _parts(mask: Mask) -> tuple[Mask, ...]:
    return mask.masks if isinstance(mask, All) else (mask,)


def _padded(ends: Tensor, rows: int) -> Tensor:
    """(b, h, T) in blocks of `rows`, (b, h, blocks, rows); the last end stands for what is past the last query."""
    missing = -ends.size(-1) % rows
    ends = torch.cat((ends, ends[..., -1:].expand(*ends.shape[:-1], missing)), -1) if missing else ends
    return ends.unflatten(-1, (-1, rows))


def _flat(x: Tensor, grid: Grid, *, heads: bool) -> Tensor:
    """x that broadcasts to (*lead, n) as (B or 1, H or 1, n), or without the heads as (B or 1, n)."""
    size = x.size(-1) if x.size(-1) > 1 or not heads else grid.T
    x = x.expand(*x.shape[:-1], size)
    lead = grid.lead
    own = (1,) * (len(lead) - x.dim() + 1) + tuple(x.shape[:-1])
    if len(lead) > 2 and prod(own[:-1]) > 1:
        own = (*lead[:-1], own[-1])
        x = x.expand(*own, size)
    batch, head = (prod(own[:-1]), own[-1]) if len(lead) >= 2 else (prod(own), 1)
    x = x.reshape(batch, head, size)
    return x if heads else x[:, 0]
