"""The record of a place, from its captured calls: a single one, or one for each generated token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import Attended, AttentionInputs, Observe, attend, cell_assignment
from regard.attention.masks import Causal, Everything, Mask
from regard.attention.normalise import Entmax, Sink
from regard.attention.scores import Additive, Dot
from regard.errors import SettingError
from regard.inspection.record.mask_codec import MAX_TABLE, BiasTerm, GaussianWindow, MaskSpans, NotReconstructible
from regard.inspection.record.place import PlaceStatistics, StoredQK
from regard.inspection.record.quantize import Int16Tensor

TOP_K = 8
THUMBNAIL, LARGE_THUMBNAIL = 256, 1024  # rows and columns of a thumbnail, and those for long texts
LONG_TEXT = 2048  # tokens
BLOCK_ROWS = 256


def record_observe(length: int, prepared: bool = True) -> Observe:
    """The statistics that a record of a text of this length needs."""
    side = THUMBNAIL if length <= LONG_TEXT else LARGE_THUMBNAIL
    return Observe(top=TOP_K, entropy=True, received=True, thumbnail=(side, side), prepared=prepared)


def store_qk(calls: Sequence[Attended], heads: Sequence[int] | None, row: int = 0) -> StoredQK:
    """Queries and keys that the maps of these heads (all: None) are recomputed from; raises NotReconstructible, with
    the reason, where they cannot be.

    `calls`: consecutive calls of one place; the queries of later ones come after those of earlier ones, and attend to
    the same keys or more of them.
    """
    parts = [_row_inputs(call, row) for call in calls]
    last = max(parts, key=lambda part: part.grid.S)
    merged = _merge_calls(parts, last)
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
    S = max(_row_of(call.received, row, 1).size(-1) for call in calls)
    entropy = torch.cat([_row_of(call.entropy, row, 1) for call in calls], -1)
    received = torch.stack([_pad_keys(_row_of(call.received, row, 1), S) for call in calls]).sum(0)
    tops = [call.top for call in calls if call.top is not None]
    values = torch.cat([_row_of(top.values, row, 2) for top in tops], -2)
    indices = torch.cat([_row_of(top.indices, row, 2) for top in tops], -2).to(torch.int32)
    if len(calls) == 1:
        thumbnail: Tensor | None = _row_of(calls[0].thumbnail, row, 2)
    else:
        thumbnail = None if stored is None else thumbnails_of(stored, entropy.size(0), entropy.size(-1), S)
    sinks = [_row_of(call.sink, row, 1).float() for call in calls if call.sink is not None]
    sink = torch.cat(sinks, -1) if sinks else None
    return PlaceStatistics(entropy.float(), received.float(), values.float(), indices, thumbnail, sink)


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


@dataclass(frozen=True, eq=False)
class _MergedCalls:
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


def _row_inputs(call: Attended, row: int) -> AttentionInputs:
    """One row of a call."""
    prepared = call.prepared
    assert prepared is not None, "a record needs Observe(prepared=True)"
    if not isinstance(prepared.score, Dot | Additive):
        raise NotReconstructible(f"its score, {type(prepared.score).__name__}, cannot be recomputed from a file")
    lead = prepared.grid.lead
    if lead:
        prepared = prepared.part((slice(row, row + 1), *(slice(0, size) for size in lead[1:])))
    return prepared.precise()


def _merge_calls(parts: Sequence[AttentionInputs], last: AttentionInputs) -> _MergedCalls:
    score = last.score
    vector = score.vector.detach().float().cpu() if isinstance(score, Additive) else None
    scale = score.scale(last.k.size(-1)) if isinstance(score, Dot) else 1.0
    k = _flatten_heads(last.k)
    how: dict[str, Any] = {
        "cap": score.cap if isinstance(score, Dot) else None,
        "alpha": last.normalise.alpha if isinstance(last.normalise, Entmax) else None,
        "sink": _sink_logits(last),
    }
    if len(parts) == 1:
        [part] = parts
        terms = MaskSpans.encode(part), BiasTerm.encode(part), GaussianWindow.encode(part)
        return _MergedCalls(_queries(part, k) * scale, k, vector, *terms, **how)
    same = all(torch.equal(_flatten_heads(part.k), k[:, : part.grid.S]) for part in parts)
    masks = [MaskSpans.encode(part) for part in parts] if same else []
    if not same or any(mask.table is not None for mask in masks) or any(part.bias is not None for part in parts):
        return _store_log_weights(parts, k)
    heads = max(mask.first.size(0) for mask in masks)
    each = zip(*map(_span_ends, masks), strict=True)
    ends = [torch.cat([end.expand(heads, -1) for end in ends], -1) for ends in each]
    windows = [GaussianWindow.encode(part) for part in parts]
    centres = [one.centre for one in windows if one is not None]
    window = None if windows[0] is None else GaussianWindow(torch.cat(centres, -1), windows[0].half_width)
    queries = torch.cat([_queries(part, k) for part in parts], 1) * scale
    return _MergedCalls(queries, k, vector, MaskSpans(*ends), None, window, **how)


def _store_log_weights(parts: Sequence[AttentionInputs], k: Tensor) -> _MergedCalls:
    """ln w of each pair as a bias, in place of everything else, where the scores depend on the call: on keys that
    remember past attention, say."""
    S = k.size(1)
    rows = [_pad_keys(_flatten_heads(part.tile()), S) for part in parts]
    if sum(one.numel() for one in rows) > MAX_TABLE:
        raise NotReconstructible(
            "its keys or its mask change from call to call, and the map is too large to store whole"
        )
    logs = torch.cat(rows, 1).log()
    heads, T, _ = logs.shape
    nothing = torch.zeros(heads, T, 1), torch.zeros(heads, S, 1)
    mask = MaskSpans(torch.zeros(1, T, dtype=torch.int32), torch.full((1, T), S, dtype=torch.int32))
    return _MergedCalls(*nothing, None, mask, BiasTerm("pair", logs, T), None, log_weights=True)


def _sink_logits(part: AttentionInputs) -> Tensor | None:
    """The logits (H,) of a sink, for one row of a batch; None where there is none."""
    if not isinstance(part.normalise, Sink):
        return None
    return part.normalise.logits.detach().float().cpu().expand(part.grid.lead).reshape(-1)


def _with_sink(stored: StoredQK, lse: Tensor, logits: Tensor) -> Tensor:
    """lse (n, T) with these logits (n,) in it: a sink's does not shift with the centre of the keys, as scores do."""
    centre = torch.stack([stored.keys.centre[group] for group in stored.key_heads])
    queries = torch.stack([stored.queries.offsets(number) for number in range(len(stored.heads))])
    shifted = logits.unsqueeze(-1) - (queries @ centre.unsqueeze(-1)).squeeze(-1)
    return torch.logaddexp(lse, shifted).masked_fill(lse == -torch.inf, -torch.inf)


def _span_ends(mask: MaskSpans) -> tuple[Tensor, Tensor]:
    return mask.first, mask.last


def _queries(part: AttentionInputs, k: Tensor) -> Tensor:
    """(H, T, D), one for each head even where all heads share the queries."""
    q = _flatten_heads(part.q)
    heads = part.grid.lead[-1] if len(part.grid.lead) > 1 else 1
    return q.expand(max(heads, k.size(0)), -1, -1)


def _flatten_heads(x: Tensor) -> Tensor:
    """(1, H, N, D), (1, N, D) or (N, D) as (H, N, D), on the CPU."""
    return x.reshape(-1, *x.shape[-2:]).detach().cpu()


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
        scores = (stored.scores(number, rows, torch.arange(S)) for rows in torch.arange(T).split(BLOCK_ROWS))
        found.append(torch.cat([_row_lse(stored, some) for some in scores]) if T else torch.empty(0))
    return torch.stack(found)


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


def _row_of(x: Tensor | None, row: int, trailing: int) -> Tensor:
    """One row of a batch, (H, ...), on the CPU."""
    assert x is not None, "a record needs the statistics of record_observe"
    lead = x.dim() - trailing
    x = x[row] if lead else x
    return (x if lead > 1 else x.unsqueeze(0)).detach().cpu()


def _pad_keys(x: Tensor, size: int) -> Tensor:
    return pad(x, (0, size - x.size(-1)))
