"""Masks as the GPU kernels read them: a run of keys for each query, narrowed to its document if there are any.

Any other mask (sparse keys, a dense table, a union, a complement) is packed: one bit for each query and `unit` keys,
and which tiles of queries and keys have a bit at all, so that kernels skip the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import torch
from torch import Tensor

from regard.attention.grid import Grid
from regard.attention.masks import All, Blocks, Documents, Everything, Keys, Mask, Runs, Window
from regard.attention.transforms import is_memory_lasting

FAR = 2**30  # further than any key
TILE = 16  # queries and keys of the smallest tile that may be skipped
PACKED_NUMBERS = 2**26  # booleans that are held at a time while a mask is packed


@dataclass(frozen=True, eq=False)
class KeySpans:
    """Query i sees key j if max(i + shift_lo, lo[i], 0) <= j < min(i + shift_hi, hi[i], S) and
    query_docs[i] == key_docs[j] and bit j // unit of bits[i] is set; a tensor that is None narrows nothing."""

    shift_lo: int = -FAR
    shift_hi: int = FAR
    lo: Tensor | None = None  # int32 (B or 1, H or 1, T)
    hi: Tensor | None = None
    query_docs: Tensor | None = None  # whole numbers (B or 1, T)
    key_docs: Tensor | None = None  # (B or 1, S)
    bits: Tensor | None = None  # int32 (B or 1, H or 1, T, words), 32 bits each
    tiles: Tensor | None = None  # bool (B or 1, H or 1, T / TILE, S / TILE): whether a tile has a bit
    unit: int = 1
    _bounds: dict[Any, Tensor] = field(default_factory=dict, init=False, repr=False)  # of blocks of queries or keys

    @classmethod
    def of(cls, mask: Mask, grid: Grid) -> KeySpans:
        """The mask in this form."""
        if isinstance(mask, Runs):
            found: KeySpans = mask.kept("spans", grid, lambda: cls()._narrowed(mask, grid))
            return found
        spans = cls()
        runs, packed = _divided(mask)
        if packed:
            spans = spans._packed(packed, grid)
        for part in runs:
            if isinstance(part, Window) and not isinstance(part.offset, Tensor):
                spans = spans._shifted(part, grid)
            elif isinstance(part, Documents):
                query_docs, key_docs = (_as_bht(ids, grid, heads=False).contiguous() for ids in part.document_ids(grid))
                spans = replace(spans, query_docs=query_docs, key_docs=key_docs)
            elif not isinstance(part, Everything):
                spans = spans._narrowed(part, grid)
        return spans

    def _shifted(self, window: Window, grid: Grid) -> KeySpans:
        offset = grid.S - grid.T if window.offset is None else int(window.offset)
        lo = -FAR if window.left is None else offset - window.left
        hi = FAR if window.right is None else offset + window.right + 1
        return replace(self, shift_lo=max(self.shift_lo, lo), shift_hi=min(self.shift_hi, hi))

    def _narrowed(self, mask: Mask, grid: Grid) -> KeySpans:
        lo, hi = (_as_bht(end.int(), grid, heads=True) for end in torch.broadcast_tensors(*mask.span(grid)))
        if self.lo is not None and self.hi is not None:
            lo, hi = torch.maximum(lo, self.lo), torch.minimum(hi, self.hi)
        return replace(self, lo=lo.contiguous(), hi=hi.contiguous())

    def _packed(self, parts: list[Mask], grid: Grid) -> KeySpans:
        """These masks as bits, some queries at a time."""
        sizes = {part.size for part in parts if isinstance(part, Blocks)}
        unit = sizes.pop() if len(sizes) == 1 and all(isinstance(part, Blocks) for part in parts) else 1
        units = -(-grid.S // unit)
        mask, coarse = parts[0] if len(parts) == 1 else All(*parts), grid
        if unit > 1:  # a block is a key
            chosen = [Keys(part.indices) for part in parts if isinstance(part, Blocks)]
            mask, coarse = chosen[0] if len(chosen) == 1 else All(*chosen), replace(grid, S=units)
        cols, keys = torch.arange(units, device=grid.device), torch.arange(grid.S, device=grid.device)
        lead = mask.allowed(cols[:1], cols[:1], coarse).shape[:-2]
        step = max(PACKED_NUMBERS // (prod(lead) * units) // TILE, 1) * TILE
        words, tiles = [], []
        for rows in torch.arange(grid.T, device=grid.device).split(step):
            seen = mask.allowed(rows, cols, coarse).expand(*lead, len(rows), units)
            words.append(_words(seen))
            some = _in_tiles(seen.mT).any(-1)  # (..., units, tiles of queries)
            some = some if unit == 1 else some[..., keys // unit, :]
            tiles.append(_in_tiles(some.mT).any(-1))
        return replace(
            self, bits=_as_bhtw(torch.cat(words, -2), grid), tiles=_as_bhtw(torch.cat(tiles, -2), grid), unit=unit
        )

    def tile_lists(self, rows: int, keys: int, T: int, S: int, *, by_keys: bool = False) -> tuple[Tensor, Tensor]:
        """For each block of `rows` queries the blocks of `keys` keys that have a bit and are within the shifts, in
        order, int32 (b, h, blocks, all blocks of keys), and how many these are, (b, h, blocks). `by_keys`: for each
        block of keys the blocks of queries."""
        assert self.tiles is not None, "only a packed mask has tiles"
        tall, wide = rows // TILE, keys // TILE
        some = self.tiles
        some = torch.nn.functional.pad(some, (0, -some.size(-1) % wide, 0, -some.size(-2) % tall))
        some = some.unflatten(-1, (-1, wide)).any(-1).unflatten(-2, (-1, tall)).any(-2)
        i = torch.arange(0, T, rows, device=some.device)[:, None]
        j = torch.arange(0, S, keys, device=some.device)
        some = some & (j < i + rows - 1 + self.shift_hi) & (j + keys > i + self.shift_lo)
        some = (some.mT if by_keys else some).contiguous()
        order = some.to(torch.uint8).argsort(dim=-1, descending=True, stable=True)
        return order.int(), some.sum(-1, dtype=torch.int32)

    def packed_args(self) -> dict[str, Any]:
        """The kernel arguments of the bits: words of a query, and the strides of batch rows and heads, in heads."""
        if self.bits is None:
            return {"BITS": None, "words": 0, "lead_b": 0, "lead_h": 0, "PER_BIT": 1}
        B, H, _, words = self.bits.shape
        strides = {"lead_b": H if B > 1 else 0, "lead_h": 1 if H > 1 else 0}
        return {"BITS": self.bits, "words": words, "PER_BIT": self.unit} | strides

    def dense(self, T: int, S: int, device: torch.device | str = "cpu") -> Tensor:
        """The mask as booleans that broadcast to (B, H, T, S), on the device of the spans."""
        i, j = torch.arange(T, device=device)[:, None], torch.arange(S, device=device)
        seen = ((j >= i + self.shift_lo) & (j < i + self.shift_hi))[None, None]
        if self.lo is not None and self.hi is not None:
            seen = seen & (j >= self.lo[..., None]) & (j < self.hi[..., None])
        if self.query_docs is not None and self.key_docs is not None:
            seen = seen & (self.query_docs[:, None, :, None] == self.key_docs[:, None, None, :])
        if self.bits is not None:
            bit = torch.arange(S, device=device) // self.unit
            seen = seen & ((self.bits[..., bit // 32] >> (bit % 32) & 1) != 0)
        return seen

    @property
    def has_ends(self) -> bool:
        return self.lo is not None

    def hides_nothing(self, T: int, S: int) -> bool:
        """Whether T queries surely see all S keys."""
        tensors = (self.lo, self.query_docs, self.bits)
        return self.shift_lo <= 1 - T and self.shift_hi >= S and all(x is None for x in tensors)

    def signature(self) -> tuple[Any, ...]:
        """All that the launch of a kernel depends on, but the tensors themselves."""
        if self.lo is None and self.query_docs is None and self.bits is None:
            return self.shift_lo, self.shift_hi
        parts = (self.lo, self.hi, self.query_docs, self.key_docs, self.bits, self.tiles)
        shapes = tuple(None if x is None else (x.shape, x.stride(), x.dtype) for x in parts)
        return self.shift_lo, self.shift_hi, self.unit, shapes

    def end_args(self) -> dict[str, Any]:
        """The kernel arguments of where the run of each query begins and ends."""
        limits: dict[str, Any] = {"LO": None, "HI": None, "stride_eb": 0, "stride_eh": 0}
        if self.lo is not None and self.hi is not None:
            lo, hi = (end.contiguous() for end in torch.broadcast_tensors(self.lo, self.hi))
            stride_eb, stride_eh = (lo.stride(n) if lo.size(n) > 1 else 0 for n in (0, 1))
            limits = {"LO": lo, "HI": hi, "stride_eb": stride_eb, "stride_eh": stride_eh}
        return limits | {"shift_lo": self.shift_lo, "shift_hi": self.shift_hi}

    def document_args(self) -> dict[str, Any]:
        """The kernel arguments of the documents of queries and keys."""
        if self.query_docs is None or self.key_docs is None:
            return {"QDOC": None, "KDOC": None, "stride_ab": 0, "stride_sb": 0}
        query_docs, key_docs = self.query_docs.contiguous(), self.key_docs.contiguous()
        strides = (x.size(1) if x.size(0) > 1 else 0 for x in (query_docs, key_docs))
        return {"QDOC": query_docs, "KDOC": key_docs} | dict(zip(("stride_ab", "stride_sb"), strides, strict=True))

    def flags(self) -> dict[str, bool]:
        """The constants that a kernel is compiled with: whether there are explicit ends, and documents."""
        return {"ENDS": self.has_ends, "DOCUMENTS": self.query_docs is not None}

    def strides(self) -> tuple[int, int]:
        """The batch and head strides of the ends; 0 where all share them."""
        if self.lo is None:
            return 0, 0
        B, H, T = self.lo.shape
        return (H * T if B > 1 else 0), (T if H > 1 else 0)

    def query_block_bounds(self, S: int, rows: int, B: int, H: int) -> Tensor | None:
        """For each block of `rows` queries: the first key that any of them sees, one past the last; the same of the
        keys that all of them see. int32 (B * H, blocks, 4), from the explicit ends alone."""
        if self.lo is None or self.hi is None:
            return None
        if (found := self._bounds.get(("queries", S, rows, B, H))) is not None:
            return found
        lo, hi = _in_blocks(self.lo, rows), _in_blocks(self.hi, rows)
        sees = hi > lo
        first = torch.where(sees, lo, S).amin(-1)
        last = torch.where(sees, hi, 0).amax(-1)
        bounds = torch.stack((first, last, lo.amax(-1), hi.amin(-1)), -1)
        bounds = bounds.expand(B, H, -1, 4).reshape(B * H, -1, 4).contiguous()
        return self._keep(("queries", S, rows, B, H), bounds)

    def key_block_bounds(self, S: int, keys: int, B: int, H: int) -> Tensor | None:
        """For each block of `keys` keys: the first tile of 64 queries that sees any of them, one past the last; the
        same of a run of tiles that see all of them. int32 (B * H, blocks, 4), from the explicit ends alone."""
        if self.lo is None or self.hi is None:
            return None
        if (found := self._bounds.get(("keys", S, keys, B, H))) is not None:
            return found
        lo, hi = _in_blocks(self.lo, 64), _in_blocks(self.hi, 64)  # (b, h, tiles, 64)
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
        bounds = bounds.expand(B, H, -1, 4).reshape(B * H, -1, 4).contiguous()
        return self._keep(("keys", S, keys, B, H), bounds)

    def from_query(self, first: int) -> KeySpans:
        """The same without the queries before this one; not of packed masks, whose tiles begin at multiples of TILE."""
        assert self.bits is None, "packed masks are not cut"
        lo, hi = (None if x is None else x[..., first:].contiguous() for x in (self.lo, self.hi))
        query_docs = None if self.query_docs is None else self.query_docs[..., first:].contiguous()
        lowest = -FAR if self.shift_lo == -FAR else self.shift_lo + first
        highest = min(self.shift_hi + first, FAR)
        return replace(self, shift_lo=lowest, shift_hi=highest, lo=lo, hi=hi, query_docs=query_docs)

    def _keep(self, key: Any, bounds: Tensor) -> Tensor:
        """These bounds, kept for the next layer that has the same mask."""
        if is_memory_lasting(bounds.device):
            self._bounds[key] = bounds
        return bounds


def unsupported_reason(mask: Mask) -> str | None:
    """Why a mask has no such form without bits; None: it has."""
    packed = _divided(mask)[1]
    if packed and isinstance(packed[0], Documents):
        return "it takes one document mask, not several"
    if packed:
        return f"it takes causal, window, padding and document masks; {type(packed[0]).__name__} is none of them"
    return None


def needs_bits(mask: Mask) -> bool:
    """Whether a mask is not runs of keys and one document for each query, so that it is packed."""
    return len(_divided(mask)[1]) > 0  # compilers do not know what bool() says of a list


def _divided(mask: Mask) -> tuple[list[Mask], list[Mask]]:
    """The masks that are runs of keys, or the first of documents; and those that must be packed."""
    runs: list[Mask] = []
    packed: list[Mask] = []
    for part in mask.masks if isinstance(mask, All) else (mask,):
        documents = isinstance(part, Documents) and not any(isinstance(one, Documents) for one in runs)
        (runs if part.contiguous or documents else packed).append(part)
    return runs, packed


def _words(seen: Tensor) -> Tensor:
    """Booleans (..., n) as int32 (..., words): bit j % 32 of word j // 32 is number j."""
    eights = torch.nn.functional.pad(seen, (0, -seen.size(-1) % 32)).view(torch.uint8).unflatten(-1, (-1, 8))
    values = 2 ** torch.arange(8, dtype=torch.uint8, device=seen.device)
    return (eights * values).sum(-1, dtype=torch.uint8).view(torch.int32)


def _in_tiles(x: Tensor) -> Tensor:
    """Booleans (..., n) as (..., tiles, TILE), padded with False."""
    return torch.nn.functional.pad(x, (0, -x.size(-1) % TILE)).unflatten(-1, (-1, TILE))


def _as_bhtw(x: Tensor, grid: Grid) -> Tensor:
    """x (..., rows, words) that broadcasts over the leading dimensions as (B or 1, H or 1, rows, words)."""
    return (
        _as_bht(x.flatten(-2), grid, heads=True, size=x.size(-2) * x.size(-1)).unflatten(-1, x.shape[-2:]).contiguous()
    )


def _in_blocks(ends: Tensor, rows: int) -> Tensor:
    """(b, h, T) in blocks of `rows`, (b, h, blocks, rows), padded with the last end."""
    missing = -ends.size(-1) % rows
    ends = torch.cat((ends, ends[..., -1:].expand(*ends.shape[:-1], missing)), -1) if missing else ends
    return ends.unflatten(-1, (-1, rows))


def _as_bht(x: Tensor, grid: Grid, *, heads: bool, size: int | None = None) -> Tensor:
    """x that broadcasts to (*lead, n) as (B or 1, H or 1, n), or without the heads as (B or 1, n)."""
    size = size or (x.size(-1) if x.size(-1) > 1 or not heads else grid.T)
    x = x.expand(*x.shape[:-1], size)
    lead = grid.lead
    own = (1,) * (len(lead) - x.dim() + 1) + tuple(x.shape[:-1])
    if len(lead) > 2 and prod(own[:-1]) > 1:
        own = (*lead[:-1], own[-1])
        x = x.expand(*own, size)
    batch, head = (prod(own[:-1]), own[-1]) if len(lead) >= 2 else (prod(own), 1)
    x = x.reshape(batch, head, size)
    return x if heads else x[:, 0]
