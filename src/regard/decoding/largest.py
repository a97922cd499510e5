"""The largest of very many: where a vocabulary is large, most of it is out of the race after one look at its maxima."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

CHUNK = 64  # tokens that are looked at together


def largest(scores: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of scores (R, W) + log_probs (R * W, V) in each row, and their places w * V + v: (R, count).

    Equal to one topk over (R, W * V), which sorts several times as long: the largest lie in at most `count` chunks,
    those with the largest maxima.
    """
    rows, width = scores.shape
    size = log_probs.size(1)
    whole = log_probs.view(rows, width * size)
    chunks = -(-size // CHUNK)
    if width * chunks <= 2 * count:  # nearly all chunks would be looked at anyway
        return (scores.unsqueeze(2) + log_probs.view(rows, width, size)).view(rows, -1).topk(count)
    maxima = _maxima(log_probs) + scores.view(-1, 1)
    _, best = maxima.view(rows, width * chunks).topk(count)  # (R, count)
    owner, chunk = best // chunks, best % chunks
    inside = chunk.unsqueeze(2) * CHUNK + torch.arange(CHUNK, device=best.device)  # (R, count, CHUNK)
    places = (owner.unsqueeze(2) * size + inside.clamp(max=size - 1)).view(rows, -1)
    values = whole.gather(1, places).view_as(inside) + scores.gather(1, owner).unsqueeze(2)
    if size % CHUNK:
        values = values.masked_fill(inside >= size, -inf)
    found, at = values.view(rows, -1).topk(count)
    return found, places.gather(1, at)


def _maxima(log_probs: Tensor) -> Tensor:
    """(N, V) to (N, chunks)."""
    whole = log_probs.size(1) // CHUNK * CHUNK
    first = log_probs[:, :whole].unflatten(1, (-1, CHUNK)).amax(-1)
    rest = log_probs[:, whole:]
    return torch.cat((first, rest.amax(-1, keepdim=True)), 1) if rest.size(1) else first
