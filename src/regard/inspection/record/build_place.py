"""The record of a place, from its captured calls: a single one, one for each generated token, or windows and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import Attended, AttentionInputs, Observe, attend, cell_assignment
from regard.attention.masks import Causal, Everything, Mask
from regard.attention.scores import Additive, Dot
from regard.errors import SettingError
from regard.inspection.record.mask_codec import MAX_TABLE, BiasTerm, GaussianWindow, MaskSpans, NotReconstructible
from regard.inspection.record.merged_calls import (
    MergedCalls,
    block_starts,
    block_thumbnails,
    flatten_heads,
    join_blocks,
    normaliser_terms,
    queries_of,
    score_scale,
    shift_low_rows,
)
from regard.inspection.record.place import PlaceStatistics, StoredQK
from regard.inspection.record.quantize import Int16Tensor
from regard.inspection.record.sequences import CallSlice, Join, row_slice

TOP_K = 8
THUMBNAIL, LARGE_THUMBNAIL = 256, 1024  # rows and columns of a thumbnail, and those for long texts
LONG_TEXT = 2048  # tokens
BLOCK_ROWS = 256


def record_observe(length: int, prepared: bool = True) -> Observe:
    """The statistics that a record of a text of this length needs."""
    side = _thumbnail_side(length)
    return Observe(top=TOP_K, entropy=True, received=True, thumbnail=(side, side), prepared=prepared)


def _thumbnail_side(length: int) -> int:
    return THUMBNAIL if length <= LONG_TEXT else LARGE_THUMBNAIL


def store_qk(calls: Sequence[Attended], heads: Sequence[int] | None, row: int = 0) -> StoredQK:
    """Queries and keys that the maps of these heads (all: None) are recomputed from; raises NotReconstructible, with
    the reason, where they cannot be.

    `calls`: consecutive calls of one place; the queries of later ones come after those of earlier ones, and attend to
    the same keys or more of them.
    """
    return store_slices([row_slice(call, row) for call in calls], heads)


def store_slices(slices: Sequence[CallSlice], heads: Sequence[int] | None, join: Join = "steps") -> StoredQK:
    """As `store_qk`, of sequences that are joined to one map as `join` says."""
    parts = [_recomputable_inputs(one) for one in slices]
    merged = shift_low_rows(_merge_calls(parts) if join == "steps" else join_blocks(parts))
    all_heads = merged.q.size(0)
    chosen = tuple(range(all_heads)) if heads is None else tuple(heads)
    wrong = next((head for head in chosen if not 0 <= head < all_heads), None)
    if wrong is not None:
        raise SettingError(f"head {wrong}", f"heads from 0 to {all_heads - 1}", where="record")
    group = all_heads // merged.k.size(0)
    used = sorted({head // group for head in chosen})
    queries = Int16Tensor.quantize(merged.q[list(chosen)])
    keys = Int16Tensor.quantize(merged.k[used], centred=merged.vector is None and merged.cap is None)
    key_heads = tuple(used.index(head // group) for head in chosen)
    none = queries.scale.new_empty(0)
    terms = (merged.vector, merged.mask, merged.bias, merged.window)
    stored = StoredQK(chosen, key_heads, queries, keys, *terms, none, merged.cap, merged.alpha)
    if merged.log_weights:
        return replace(stored, lse=torch.zeros(merged.q.shape[:2])[list(chosen)])
    lse = _lse(stored)
    return replace(stored, lse=lse if merged.sink is None else _with_sink(stored, lse, merged.sink[list(chosen)]))


def merge_statistics(calls: Sequence[Attended], stored: StoredQK | None, row: int = 0) -> PlaceStatistics:
    """The statistics of all calls together, as if they had been one."""
    return merge_slices([row_slice(call, row) for call in calls], stored)


def merge_slices(slices: Sequence[CallSlice], stored: StoredQK | None, join: Join = "steps") -> PlaceStatistics:
    """As `merge_statistics`, of sequences that are joined to one map as `join` says."""
    entropy = torch.cat([one.statistic(one.call.entropy, 1) for one in slices], -1)
    each = [one.statistic(one.call.received, 1) for one in slices]
    if join == "steps":
        S = max(one.size(-1) for one in each)
        received, offsets = torch.stack([_pad_keys(one, S) for one in each]).sum(0), [0] * len(slices)
    else:
        received, offsets = torch.cat(each, -1), block_starts([one.size(-1) for one in each])
    values, indices = _merge_top(slices, offsets)
    if len(slices) == 1:
        thumbnail: Tensor | None = slices[0].statistic(slices[0].call.thumbnail, 2)
    elif join != "steps":
        side = _thumbnail_side(max(entropy.size(-1), received.size(-1)))
        thumbnail = block_thumbnails(slices, side, side)
    else:
        thumbnail = (
            None if stored is None else thumbnails_of(stored, entropy.size(0), entropy.size(-1), received.size(-1))
        )
    sinks = [one.statistic(one.call.sink, 1).float() for one in slices if one.call.sink is not None]
    sink = torch.cat(sinks, -1) if sinks else None
    return PlaceStatistics(entropy.float(), received.float(), values, indices, thumbnail, sink)


def _merge_top(slices: Sequence[CallSlice], offsets: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest weights of each query and their keys, (H, T, k) of all sequences, whose keys begin at `offsets`."""
    found = []
    for one, offset in zip(slices, offsets, strict=True):
        top = one.call.top
        assert top is not None, "a record needs the statistics of record_observe"
        values, indices = one.statistic(top.values, 2), one.statistic(top.indices, 2)
        found.append((values.float(), torch.where(indices >= 0, indices + offset, indices).to(torch.int32)))
    most = max(values.size(-1) for values, _ in found)
    values = torch.cat([_pad_keys(values, most) for values, _ in found], -2)
    return values, torch.cat([_pad_keys(indices, most, -1) for _, indices in found], -2)


def thumbnails_of(stored: StoredQK, heads: int, T: int, S: int) -> Tensor:
    """Thumbnails (H, R, C) computed from stored queries and keys; zeros for the other heads."""
    R, C = min(THUMBNAIL, T), min(THUMBNAIL, S)
    found = torch.zeros(heads, R, C)
    in_col = cell_assignment(S, C, found)
    counts = cell_assignment(T, R, found).sum(-1, keepdim=True) * in_col.sum(-1)
    for rows in torch.arange(T).split(BLOCK_ROWS):
        in_row = (rows * R // T == torch.arange(R)[:, None]).float()
        for number, head in enumerate(stored.heads):
            found[head] += in_row @ stored.weights(number, rows, torch.arange(S)) @ in_col.mT
    return found / counts


def _recomputable_inputs(one: CallSlice) -> AttentionInputs:
    """The inputs of a sequence, if its scores can be recomputed from a file."""
    inputs = one.inputs()
    if not isinstance(inputs.score, Dot | Additive):
        raise NotReconstructible(f"its score, {type(inputs.score).__name__}, cannot be recomputed from a file")
    return inputs


def _merge_calls(parts: Sequence[AttentionInputs]) -> MergedCalls:
    """Consecutive calls, each with the keys of the one before or more of them."""
    last = max(parts, key=lambda part: part.grid.S)
    score = last.score
    vector = score.vector.detach().float().cpu() if isinstance(score, Additive) else None
    scale = score_scale(last)
    k = flatten_heads(last.k)
    how = normaliser_terms(last)
    if len(parts) == 1:
        [part] = parts
        terms = MaskSpans.encode(part), BiasTerm.encode(part), GaussianWindow.encode(part)
        return MergedCalls(queries_of(part, k) * scale, k, vector, *terms, *how)
    same = all(torch.equal(flatten_heads(part.k), k[:, : part.grid.S]) for part in parts)
    masks = [MaskSpans.encode(part) for part in parts] if same else []
    if not same or any(mask.table is not None for mask in masks) or any(part.bias is not None for part in parts):
        return _store_log_weights(parts, k)
    heads = max(mask.first.size(0) for mask in masks)
    each = zip(*map(_span_ends, masks), strict=True)
    ends = [torch.cat([end.expand(heads, -1) for end in ends], -1) for ends in each]
    windows = [GaussianWindow.encode(part) for part in parts]
    centres = [one.centre for one in windows if one is not None]
    window = None if windows[0] is None else GaussianWindow(torch.cat(centres, -1), windows[0].half_width)
    queries = torch.cat([queries_of(part, k) for part in parts], 1) * scale
    return MergedCalls(queries, k, vector, MaskSpans(*ends), None, window, *how)


def _store_log_weights(parts: Sequence[AttentionInputs], k: Tensor) -> MergedCalls:
    """ln w of each pair as a bias, in place of everything else, where the scores depend on the call: on keys that
    remember past attention, say."""
    S = k.size(1)
    rows = [_pad_keys(flatten_heads(part.tile()), S) for part in parts]
    if sum(one.numel() for one in rows) > MAX_TABLE:
        raise NotReconstructible(
            "its keys or its mask change from call to call, and the map is too large to store whole"
        )
    logs = torch.cat(rows, 1).log()
    heads, T, _ = logs.shape
    nothing = torch.zeros(heads, T, 1), torch.zeros(heads, S, 1)
    mask = MaskSpans(torch.zeros(1, T, dtype=torch.int32), torch.full((1, T), S, dtype=torch.int32))
    return MergedCalls(*nothing, None, mask, BiasTerm("pair", logs, T), None, log_weights=True)


def _with_sink(stored: StoredQK, lse: Tensor, logits: Tensor) -> Tensor:
    """lse (n, T) with these logits (n,) in it: a sink's does not shift with the centre of the keys, as scores do."""
    centre = torch.stack([stored.keys.centre[group] for group in stored.key_heads])
    queries = torch.stack([stored.queries.offsets(number) for number in range(len(stored.heads))])
    shifted = logits.unsqueeze(-1) - (queries @ centre.unsqueeze(-1)).squeeze(-1)
    return torch.logaddexp(lse, shifted).masked_fill(lse == -torch.inf, -torch.inf)


def _span_ends(mask: MaskSpans) -> tuple[Tensor, Tensor]:
    return mask.first, mask.last


def _lse(stored: StoredQK) -> Tensor:
    """The log-sum-exp over all keys that each query sees, from the stored (quantised) numbers, (n, T)."""
    T, S = stored.queries.codes.size(1), stored.keys.codes.size(1)
    mask = _fused_mask(stored, T, S)
    if mask is not None:
        one = [
            attend(stored.queries.offsets(n), stored.keys.offsets(stored.key_heads[n]), score=Dot(), mask=mask).lse
            for n in range(len(stored.heads))
        ]
        return torch.stack(one)
    found = []
    for number in range(len(stored.heads)):
        lse = [_row_lse(stored, _visible_scores(stored, number, rows)) for rows in torch.arange(T).split(BLOCK_ROWS)]
        found.append(torch.cat(lse) if T else torch.empty(0))
    return torch.stack(found)


def _visible_scores(stored: StoredQK, number: int, rows: Tensor) -> Tensor:
    """The scores of these queries for all keys that any of them sees, at least one."""
    first, last = stored.mask.key_range(stored.heads[number], rows)
    S = stored.keys.codes.size(1)
    return stored.scores(number, rows, torch.arange(first, max(last, min(first + 1, S))))


def _row_lse(stored: StoredQK, scores: Tensor) -> Tensor:
    """The log-sum-exp of whole rows (t, S), or the threshold of an entmax; -inf for a row without keys."""
    if stored.alpha is None:
        return torch.logsumexp(scores, -1)
    empty = (scores == -torch.inf).all(-1)
    return stored.normaliser.normalise(scores.masked_fill(empty.unsqueeze(-1), 0.0))[1].masked_fill(empty, -torch.inf)


def _fused_mask(stored: StoredQK, T: int, S: int) -> Mask | None:
    """The mask, where a fused kernel has it and the scores have no other term."""
    mask = stored.mask
    if stored.vector is not None or stored.bias is not None or stored.window is not None or mask.table is not None:
        return None
    if stored.cap is not None or stored.alpha is not None:
        return None
    if not T or not S or mask.first.size(0) > 1 or bool(mask.first.any()):
        return None
    if bool((mask.last == S).all()):
        return Everything()
    causal = T == S and torch.equal(mask.last[0], torch.arange(1, T + 1, dtype=torch.int32))
    return Causal() if causal else None


def _pad_keys(x: Tensor, size: int, value: float = 0.0) -> Tensor:
    return pad(x, (0, size - x.size(-1)), value=value)
