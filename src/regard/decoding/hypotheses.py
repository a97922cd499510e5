"""The hypotheses of a beam search, and one step of it: the likeliest of all continuations (a chunked top-k)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class LiveHypotheses:
    """R rows of W unfinished hypotheses. Those of a row are adjacent, the best first.

    A score of -inf is an empty slot.
    """

    rows: Tensor  # (R,): their indices in the batch
    scores: Tensor  # (R, W): sums of ln p
    recent: Tensor | None = None  # (R * W, memory): the last tokens, where a rule needs them
    met: Tensor | None = None  # (R * W, P): which required sequences have occurred
    attention: Tensor | None = None  # (R * W, S): the attention so far, for the coverage penalty

    @property
    def owners(self) -> Tensor:
        """The row of each hypothesis, (R * W,)."""
        return self.rows.unsqueeze(1).expand_as(self.scores).reshape(-1)


@dataclass(frozen=True, eq=False)
class BeamStep:
    """The continuations of R rows of hypotheses, and those that ended: (R, W) each; `slots`: their parents."""

    scores: Tensor
    slots: Tensor
    tokens: Tensor
    ended: Tensor | None  # whether one ended in this slot; None where none can end
    ended_scores: Tensor
    ended_slots: Tensor

    def select(self, rows: Tensor) -> BeamStep:
        """The continuations of some of the rows, without those that ended."""
        return replace(self, scores=self.scores[rows], slots=self.slots[rows], tokens=self.tokens[rows], ended=None)

    def parents(self, width: int) -> Tensor:
        """The indices of the parents in the layout, with `width` hypotheses a row: (R, W)."""
        return self.slots + torch.arange(len(self.slots), device=self.slots.device).unsqueeze(1) * width


def select_likeliest(
    live: LiveHypotheses, log_probs: Tensor, width: int, end: int | None, may_end: bool = True
) -> BeamStep:
    """The `width` likeliest continuations without an end; if `may_end`, also the ended ones among the likeliest.

    log_probs (R * W, V). Every hypothesis has one end token only, so the top 2 * width hold enough that do not end.
    """
    size = log_probs.size(1)
    count = min(width if end is None else 2 * width, live.scores.size(1) * size)
    scores, places = chunked_topk(live.scores, log_probs, count)
    slots, tokens = places // size, places % size
    if end is None:
        return BeamStep(scores, slots, tokens, None, scores, slots)
    closing = tokens == end
    ended = (closing & (scores > -inf))[:, :width] if may_end else None
    ongoing, at = scores.masked_fill(closing, -inf).topk(min(width, count))
    return BeamStep(ongoing, slots.gather(1, at), tokens.gather(1, at), ended, scores[:, :width], slots[:, :width])


CHUNK = 64  # tokens


def chunked_topk(scores: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of scores (R, W) + log_probs (R * W, V) in each row, and their indices w * V + v: (R, count).

    Equal to one topk over (R, W * V), which takes several times as long: the largest are in at most `count` chunks,
    those with the largest maxima.
    """
    rows, width = scores.shape
    size = log_probs.size(1)
    flat = log_probs.view(rows, width * size)
    chunks = -(-size // CHUNK)
    if width * chunks <= 2 * count:  # nearly all chunks would be needed anyway
        return (scores.unsqueeze(2) + log_probs.view(rows, width, size)).view(rows, -1).topk(count)
    maxima = _maxima(log_probs) + scores.view(-1, 1)
    _, best = maxima.view(rows, width * chunks).topk(count)  # (R, count)
    owner, chunk = best // chunks, best % chunks
    inside = chunk.unsqueeze(2) * CHUNK + torch.arange(CHUNK, device=best.device)  # (R, count, CHUNK)
    places = (owner.unsqueeze(2) * size + inside.clamp(max=size - 1)).view(rows, -1)
    values = flat.gather(1, places).view_as(inside) + scores.gather(1, owner).unsqueeze(2)
    if size % CHUNK:
        values = values.masked_fill(inside >= size, -inf)
    found, at = values.view(rows, -1).topk(count)
    return found, places.gather(1, at)


def _maxima(log_probs: Tensor) -> Tensor:
    """(N, V) to (N, chunks)."""
    full = log_probs.size(1) // CHUNK * CHUNK
    first = log_probs[:, :full].unflatten(1, (-1, CHUNK)).amax(-1)
    rest = log_probs[:, full:]
    return torch.cat((first, rest.amax(-1, keepdim=True)), 1) if rest.size(1) else first
