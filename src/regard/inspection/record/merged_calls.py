"""The calls of a place as one map: queries and keys of all of them, and a mask that keeps apart what was apart.

Windows and chunks become blocks along the diagonal: block number n holds the queries of sequence n, which see its keys
alone. Their biases and masks are stored block by block, so the whole stays linear in the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import AttentionInputs, cell_assignment
from regard.attention.normalise import Entmax, Sink
from regard.attention.scores import Additive, Dot
from regard.inspection.record.mask_codec import MAX_TABLE, BiasTerm, GaussianWindow, MaskSpans, NotReconstructible
from regard.inspection.record.sequences import CallSlice


@dataclass(frozen=True, eq=False)
class MergedCalls:
    """The calls of a place as one: q (H, T, D), scaled, and k (Hk, S, D)."""

    q: Tensor
    k: Tensor
    vector: Tensor | None
    mask: MaskSpans
    bias: BiasTerm | None
    window: GaussianWindow | None
    cap: float | None = None  # of the scores
    alpha: float | None = None  # of an entmax
    sink: Tensor | None = None  # (H,), the logits of a sink
    log_weights: bool = False  # whether the scores are the logarithms of the weights already


def join_blocks(parts: Sequence[AttentionInputs]) -> MergedCalls:
    """Sequences that see their own keys alone, as one map with a block for each along its diagonal."""
    if any(part.window is not None for part in parts):
        raise NotReconstructible("windows of predicted positions are not joined over several sequences")
    last = parts[-1]
    keys = [flatten_heads(part.k) for part in parts]
    queries = [queries_of(part, k) * score_scale(part) for part, k in zip(parts, keys, strict=True)]
    masks = [MaskSpans.encode(part) for part in parts]
    offsets = block_starts([part.grid.S for part in parts])
    heads = max(mask.first.size(0) for mask in masks)
    ends = [
        torch.cat([(end + at).expand(heads, -1) for end, at in zip(some, offsets, strict=True)], -1).to(torch.int32)
        for some in ([mask.first for mask in masks], [mask.last for mask in masks])
    ]
    starts = torch.cat([torch.full((part.grid.T,), at) for part, at in zip(parts, offsets, strict=True)])
    bias = _block_bias(parts, masks, starts.to(torch.int32))
    vector = last.score.vector.detach().float().cpu() if isinstance(last.score, Additive) else None
    terms = vector, MaskSpans(ends[0], ends[1]), bias, None
    return MergedCalls(torch.cat(queries, 1), torch.cat(keys, 1), *terms, *normaliser_terms(last))


BLOCK_ROWS = 256  # of a map that is computed at once
LOST = -(2.0**24)  # a bias so low that float32 has no digits left for the scores beside it
LOW = -1e4  # one so low that a log-sum-exp loses what distinguishes it from the scores


def shift_low_rows(merged: MergedCalls) -> MergedCalls:
    """The same map, where every bias of some query is a huge negative number, as models write it for padding: these
    rows are shifted, which changes no weight of a softmax, and their scores are left out where the model lost them."""
    bias = merged.bias
    if bias is None or bias.kind == "distance" or merged.sink is not None or merged.alpha is not None:
        return merged
    table = bias.table.unsqueeze(1) if bias.kind == "key" else bias.table
    top = table.amax(-1, keepdim=True) if table.size(-1) else table.new_zeros(*table.shape[:-1], 1)
    low = (top < LOW) & (top > -torch.inf)
    if not bool(low.any()):
        return merged
    shifted = table - top.where(low, 0.0)
    shifted = shifted.squeeze(1) if bias.kind == "key" else shifted
    rows = torch.arange(merged.q.size(1)) % table.size(1)
    lost = ((top < LOST) & low)[:, rows]
    return replace(merged, q=merged.q.masked_fill(lost, 0.0), bias=replace(bias, table=shifted))


def block_starts(sizes: Sequence[int]) -> list[int]:
    """The first position of each block."""
    return [0, *accumulate(sizes)][:-1]


def _block_bias(parts: Sequence[AttentionInputs], masks: Sequence[MaskSpans], starts: Tensor) -> BiasTerm | None:
    """The biases of all blocks, with minus infinity in the gaps of their masks; one table where all are the same."""
    if all(part.bias is None for part in parts) and all(mask.table is None for mask in masks):
        return None
    tiles = [_bias_with_gaps(part, mask) for part, mask in zip(parts, masks, strict=True)]
    heads, S = max(tile.size(0) for tile in tiles), max(tile.size(-1) for tile in tiles)
    same = all(tile.shape == tiles[0].shape and torch.equal(tile, tiles[0]) for tile in tiles)
    kept = tiles[:1] if same else tiles
    if heads * sum(tile.size(1) for tile in kept) * S > MAX_TABLE:
        rows = sum(tile.size(1) for tile in kept)
        raise NotReconstructible(f"its biases depend on each pair, and {rows} x {S} of them are too many to store")
    table = torch.cat([pad(tile.expand(heads, -1, -1), (0, S - tile.size(-1))) for tile in kept], 1)
    return BiasTerm("block", table.contiguous(), len(starts), starts)


def _bias_with_gaps(part: AttentionInputs, mask: MaskSpans) -> Tensor:
    """(1 or H, T, S)"""
    T, S = part.grid.T, part.grid.S
    rows, cols = (torch.arange(size, device=part.grid.device) for size in (T, S))
    tile = torch.zeros(1, T, S) if part.bias is None else part.bias.tile(rows, cols).float()
    tile = tile.expand(*tile.shape[:-2], T, S).reshape(-1, T, S).cpu()
    return tile if mask.table is None else tile.masked_fill(~mask.table, -torch.inf)


def block_thumbnails(slices: Sequence[CallSlice], rows: int, cols: int) -> Tensor:
    """Thumbnails (H, R, C) of the joined map of sequences, from the weights of each in turn."""
    sizes = [one.size for one in slices]
    T, S = sum(t for t, _ in sizes), sum(s for _, s in sizes)
    R, C = min(rows, T), min(cols, S)
    found = torch.zeros(0)
    for one, (t, s), top, left in zip(
        slices, sizes, block_starts([t for t, _ in sizes]), block_starts([s for _, s in sizes]), strict=True
    ):
        inputs, seen = one.inputs(), torch.arange(left, left + s)
        in_col = ((seen * C // S) == torch.arange(C).unsqueeze(-1)).float()
        wide = _range_of(in_col)
        for some in torch.arange(t).split(BLOCK_ROWS):  # a frame may have thousands of patches
            tile = flatten_heads(inputs.tile(some.to(inputs.grid.device))).float()
            found = torch.zeros(tile.size(0), R, C) if not found.numel() else found
            in_row = (((top + some) * R // T) == torch.arange(R).unsqueeze(-1)).float()
            high = _range_of(in_row)
            found[:, high, wide] += in_row[high] @ tile @ in_col[wide].mT
    counts = cell_assignment(T, R, found).sum(-1, keepdim=True) * cell_assignment(S, C, found).sum(-1)
    return found / counts


def _range_of(cells: Tensor) -> slice:
    """The cells, one a row of these booleans, that hold something: they are consecutive."""
    at = cells.any(1).nonzero()
    return slice(int(at[0]), int(at[-1]) + 1)


def normaliser_terms(part: AttentionInputs) -> tuple[float | None, float | None, Tensor | None]:
    """The soft cap of the scores, the alpha of an entmax, and the logits (H,) of a sink, for one row of a batch; None
    where there is none."""
    cap = part.score.cap if isinstance(part.score, Dot) else None
    alpha = part.normalise.alpha if isinstance(part.normalise, Entmax) else None
    sink = None
    if isinstance(part.normalise, Sink):
        sink = part.normalise.logits.detach().float().cpu().expand(part.grid.lead).reshape(-1)
    return cap, alpha, sink


def score_scale(part: AttentionInputs) -> float:
    """The factor of dot products."""
    return part.score.scale(part.k.size(-1)) if isinstance(part.score, Dot) else 1.0


def queries_of(part: AttentionInputs, k: Tensor) -> Tensor:
    """(H, T, D), one for each head even where all heads share the queries."""
    q = flatten_heads(part.q)
    heads = part.grid.lead[-1] if len(part.grid.lead) > 1 else 1
    return q.expand(max(heads, k.size(0)), -1, -1)


def flatten_heads(x: Tensor) -> Tensor:
    """(1, H, N, D), (1, N, D) or (N, D) as (H, N, D), on the CPU."""
    return x.reshape(-1, *x.shape[-2:]).detach().cpu()
