"""A place of a record from the calls that were heard there: one, or one for each token that was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from regard.attention import Attended, Observe, Prepared, attend, cells
from regard.attention.masks import Causal, Everything, Mask
from regard.attention.scores import Additive, Dot
from regard.errors import SettingError
from regard.inspection.record.mask_codec import WHOLE, Added, Local, Sight, Unkept
from regard.inspection.record.place import Kept, Statistics
from regard.inspection.record.quantize import Fixed

TOP = 8
SMALL, LARGE = 256, 1024  # rows and columns of a thumbnail, and from so many tokens on
LONG = 2048
ROWS = 256


def observing(length: int, prepared: bool = True) -> Observe:
    """What a record needs to hear of texts of this length."""
    side = SMALL if length <= LONG else LARGE
    return Observe(top=TOP, entropy=True, received=True, thumbnail=(side, side), prepared=prepared)


def kept_of(calls: Sequence[Attended], heads: Sequence[int] | None, row: int = 0) -> Kept:
    """What the maps of these heads (all: None) come back from; raises Unkept, with the reason, where they cannot.

    `calls` of one place that follow each other: the queries of later ones come after those of earlier ones, and look at
    the same keys or more of them.
    """
    parts = [_part(call, row) for call in calls]
    last = max(parts, key=lambda part: part.grid.S)
    whole = _joined(parts, last)
    all_heads = whole.q.size(0)
    chosen = tuple(range(all_heads)) if heads is None else tuple(heads)
    wrong = next((head for head in chosen if not 0 <= head < all_heads), None)
    if wrong is not None:
        raise SettingError(f"head {wrong}", f"heads from 0 to {all_heads - 1}", where="record")
    group = all_heads // whole.k.size(0)
    used = sorted({head // group for head in chosen})
    queries, keys = Fixed.of(whole.q[list(chosen)]), Fixed.of(whole.k[used], centred=whole.vector is None)
    key_heads = tuple(used.index(head // group) for head in chosen)
    none = queries.scale.new_empty(0)
    kept = Kept(chosen, key_heads, queries, keys, whole.vector, whole.sight, whole.added, whole.local, none)
    return replace(kept, lse=torch.zeros(whole.q.shape[:2])[list(chosen)] if whole.summed else _lse(kept))


def statistics_of(calls: Sequence[Attended], kept: Kept | None, row: int = 0) -> Statistics:
    """The statistics of all calls together, as if they had been one."""
    S = max(_of_row(call.received, row, 1).size(-1) for call in calls)
    entropy = torch.cat([_of_row(call.entropy, row, 1) for call in calls], -1)
    received = torch.stack([_wide(_of_row(call.received, row, 1), S) for call in calls]).sum(0)
    tops = [call.top for call in calls if call.top is not None]
    values = torch.cat([_of_row(top.values, row, 2) for top in tops], -2)
    indices = torch.cat([_of_row(top.indices, row, 2) for top in tops], -2).to(torch.int32)
    if len(calls) == 1:
        thumbnail: Tensor | None = _of_row(calls[0].thumbnail, row, 2)
    else:
        thumbnail = None if kept is None else shrunk(kept, entropy.size(0), entropy.size(-1), S)
    return Statistics(entropy.float(), received.float(), values.float(), indices, thumbnail)


def shrunk(kept: Kept, heads: int, T: int, S: int) -> Tensor:
    """Thumbnails (H, R, C) computed from what was kept; zeros for heads that were not."""
    R, C = min(SMALL, T), min(SMALL, S)
    found = torch.zeros(heads, R, C)
    in_col = cells(S, C, found)
    counts = cells(T, R, found).sum(-1, keepdim=True) * in_col.sum(-1)
    for rows in torch.arange(T).split(ROWS):
        in_row = (rows * R // T == torch.arange(R)[:, None]).float()
        for number, head in enumerate(kept.heads):
            found[head] += in_row @ kept.weights(number, rows, torch.arange(S)) @ in_col.mT
    return found / counts


@dataclass(frozen=True, eq=False)
class _Whole:
    """The calls of a place as one: q (H, T, D), scaled, and k (Hk, S, D)."""

    q: Tensor
    k: Tensor
    vector: Tensor | None
    sight: Sight
    added: Added | None
    local: Local | None
    summed: bool = False  # whether the scores are logarithms of weights already


def _part(call: Attended, row: int) -> Prepared:
    """One row of a call."""
    prepared = call.prepared
    assert prepared is not None, "whoever makes a record listens for what is prepared"
    if not isinstance(prepared.score, Dot | Additive):
        raise Unkept(f"its score, {type(prepared.score).__name__}, cannot be computed again from what a file holds")
    lead = prepared.grid.lead
    if lead:
        prepared = prepared.part((slice(row, row + 1), *(slice(0, size) for size in lead[1:])))
    return prepared.precise()


def _joined(parts: Sequence[Prepared], last: Prepared) -> _Whole:
    score = last.score
    vector = score.vector.detach().float().cpu() if isinstance(score, Additive) else None
    scale = score.scale(last.k.size(-1)) if isinstance(score, Dot) else 1.0
    k = _flat(last.k)
    if len(parts) == 1:
        [part] = parts
        return _Whole(_queries(part, k) * scale, k, vector, Sight.of(part), Added.of(part), Local.of(part))
    same = all(torch.equal(_flat(part.k), k[:, : part.grid.S]) for part in parts)
    sights = [Sight.of(part) for part in parts] if same else []
    if not same or any(sight.table is not None for sight in sights) or any(part.bias is not None for part in parts):
        return _written_out(parts, k)
    heads = max(sight.first.size(0) for sight in sights)
    ends = [torch.cat([end.expand(heads, -1) for end in ends], -1) for ends in zip(*map(_ends, sights), strict=True)]
    locals_ = [Local.of(part) for part in parts]
    centres = [one.centre for one in locals_ if one is not None]
    local = None if locals_[0] is None else Local(torch.cat(centres, -1), locals_[0].half_width)
    return _Whole(torch.cat([_queries(part, k) for part in parts], 1) * scale, k, vector, Sight(*ends), None, local)


def _written_out(parts: Sequence[Prepared], k: Tensor) -> _Whole:
    """Where what bears on the scores changes from call to call, as keys do that remember where was looked: ln w of each
    pair takes the place of everything else."""
    S = k.size(1)
    rows = [_wide(_flat(part.tile()), S) for part in parts]
    if sum(one.numel() for one in rows) > WHOLE:
        raise Unkept("its keys or its mask changed from one call to the next, and the text is too long to write it out")
    logs = torch.cat(rows, 1).log()
    heads, T, _ = logs.shape
    nothing = torch.zeros(heads, T, 1), torch.zeros(heads, S, 1)
    sight = Sight(torch.zeros(1, T, dtype=torch.int32), torch.full((1, T), S, dtype=torch.int32))
    return _Whole(*nothing, None, sight, Added("pair", logs, T), None, summed=True)


def _ends(sight: Sight) -> tuple[Tensor, Tensor]:
    return sight.first, sight.last


def _queries(part: Prepared, k: Tensor) -> Tensor:
    """(H, T, D), one for each head even where all of them ask alike."""
    q = _flat(part.q)
    heads = part.grid.lead[-1] if len(part.grid.lead) > 1 else 1
    return q.expand(max(heads, k.size(0)), -1, -1)


def _flat(x: Tensor) -> Tensor:
    """(1, H, N, D), (1, N, D) or (N, D) as (H, N, D), on the CPU."""
    return x.reshape(-1, *x.shape[-2:]).detach().cpu()


def _lse(kept: Kept) -> Tensor:
    """ln of the sum over all keys that each query sees, from the numbers as they are kept, (n, T)."""
    T, S = kept.queries.steps.size(1), kept.keys.steps.size(1)
    mask = _usual(kept, T, S)
    if mask is not None:
        one = [
            attend(kept.queries.offsets(n), kept.keys.offsets(kept.key_heads[n]), score=Dot(), mask=mask).lse
            for n in range(len(kept.heads))
        ]
        return torch.stack(one)
    found = []
    for number in range(len(kept.heads)):
        scores = (kept.scores(number, rows, torch.arange(S)) for rows in torch.arange(T).split(ROWS))
        found.append(torch.cat([torch.logsumexp(some, -1) for some in scores]) if T else torch.empty(0))
    return torch.stack(found)


def _usual(kept: Kept, T: int, S: int) -> Mask | None:
    """The mask, where a fused kernel knows it and nothing else bears on the scores."""
    sight = kept.sight
    if kept.vector is not None or kept.added is not None or kept.local is not None or sight.table is not None:
        return None
    if not T or not S or sight.first.size(0) > 1 or bool(sight.first.any()):
        return None
    if bool((sight.last == S).all()):
        return Everything()
    causal = T == S and torch.equal(sight.last[0], torch.arange(1, T + 1, dtype=torch.int32))
    return Causal() if causal else None


def _of_row(x: Tensor | None, row: int, trailing: int) -> Tensor:
    """One row of a batch, (H, ...), on the CPU."""
    assert x is not None, "whoever makes a record listens for its statistics"
    lead = x.dim() - trailing
    x = x[row] if lead else x
    return (x if lead > 1 else x.unsqueeze(0)).detach().cpu()


def _wide(x: Tensor, size: int) -> Tensor:
    return pad(x, (0, size - x.size(-1)))
