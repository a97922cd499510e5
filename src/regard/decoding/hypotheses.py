"""Hypotheses of a beam, and the choice of those to go on with: the likeliest of all continuations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Live:
    """R rows of W hypotheses that are being written. Those of a row lie side by side, its best one first.

    A score of -inf stands for no hypothesis.
    """

    rows: Tensor  # (R,): their places in the batch
    scores: Tensor  # (R, W): sums of ln p
    recent: Tensor | None = None  # (R * W, memory): the last tokens, where a rule asks for them
    met: Tensor | None = None  # (R * W, P): which required sequences are in it
    attention: Tensor | None = None  # (R * W, S): what every place of the source got so far, where it counts

    @property
    def owners(self) -> Tensor:
        """The row of each hypothesis, (R * W,)."""
        return self.rows.unsqueeze(1).expand_as(self.scores).reshape(-1)


@dataclass(frozen=True, eq=False)
class Choice:
    """What goes on from R rows of hypotheses, and what ended: (R, W) each, `slots` being those that it came from."""

    scores: Tensor
    slots: Tensor
    tokens: Tensor
    ended: Tensor | None  # whether there is one; None where nothing can end
    ended_scores: Tensor
    ended_slots: Tensor

    def of(self, rows: Tensor) -> Choice:
        """What goes on from some of the rows; what ended there has been taken."""
        return replace(self, scores=self.scores[rows], slots=self.slots[rows], tokens=self.tokens[rows], ended=None)

    def parents(self, width: int) -> Tensor:
        """Where the hypotheses that it came from lie among all, `width` a row: (R, W)."""
        return self.slots + torch.arange(len(self.slots), device=self.slots.device).unsqueeze(1) * width


def likeliest(live: Live, log_probs: Tensor, width: int, end: int | None, may_end: bool = True) -> Choice:
    """The `width` likeliest continuations that do not end, and those that do among the `width` likeliest of all, if any
    may.

    log_probs (R * W, V). Every hypothesis can end in one way only, so twice the width holds enough that do not.
    """
    size = log_probs.size(1)
    count = min(width if end is None else 2 * width, live.scores.size(1) * size)
    scores, places = chunked_topk(live.scores, log_probs, count)
    slots, tokens = places // size, places % size
    if end is None:
        return Choice(scores, slots, tokens, None, scores, slots)
    closing = tokens == end
    ended = (closing & (scores > -inf))[:, :width] if may_end else None
    going, at = scores.masked_fill(closing, -inf).topk(min(width, count))
    return Choice(going, slots.gather(1, at), tokens.gather(1, at), ended, scores[:, :width], slots[:, :width])


CHUNK = 64  # tokens that are looked at together


def chunked_topk(scores: Tensor, log_probs: Tensor, count: int) -> tuple[Tensor, Tensor]:
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
