"""Constrained decoding: which next tokens are allowed (ConstraintMask), which phrases must occur (RequiredPhrases).

Required sequences as in Post & Vilar 2018 (dynamic beam allocation): beside the likeliest continuations, each
hypothesis of a beam tries the required tokens that it lacks, and every bank (hypotheses that have met equally many of
them) gets its share of the beam, so that likely hypotheses without them do not crowd out the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from regard.decoding.hypotheses import BeamStep, LiveHypotheses, select_likeliest
from regard.decoding.search import Ids, Rules
from regard.errors import SettingError
from regard.text import pad_rows


class ConstraintMask:
    """Sets ln p of tokens that the rules forbid to -inf. `memory`: how many of the last tokens it needs.

    constraints = ConstraintMask(rules, rows=B, width=V, device)
    log_probs = constraints(log_probs, written=3, rows=rows, recent=recent)   # the same tensor where all is allowed
    """

    def __init__(self, rules: Rules, rows: int, width: int, device: torch.device) -> None:
        rules.check(rows)
        _expect_inside(rules, width)
        single = [ids[0] for ids in rules.banned if len(ids) == 1]
        several = [ids for ids in rules.banned if len(ids) > 1]
        self.end = torch.tensor([] if rules.end is None else [rules.end], dtype=torch.long, device=device)
        self.min_length = 0 if rules.end is None else rules.min_length
        self.bias = _ban_bias(single, width, device) if single else None
        self.memory = max((len(ids) - 1 for ids in several), default=0)
        self.openings = pad_rows([ids[:-1] for ids in several], -1, device, left=True)[0]  # (K, memory)
        self.lasts = torch.tensor([ids[-1] for ids in several], dtype=torch.long, device=device)
        self.prefix = pad_rows(rules.prefix or [()] * rows, -1, device)[0]  # (B, P)

    def __call__(
        self, log_probs: Tensor, written: int, rows: Tensor, recent: Tensor | None, ignore_end: bool = False
    ) -> Tensor:
        """log_probs (N, V) of hypotheses of `rows` (N,) whose last tokens are `recent` (N, memory or more).

        `ignore_end`: leave the end token as it is, which saves a copy; the caller then uses `may_end`.
        """
        found = log_probs if self.bias is None else log_probs + self.bias
        if self.memory and recent is not None:
            found = found + self._banned_sequences(found, recent)
        if not ignore_end and not self.may_end(written):
            found = found.index_fill(1, self.end, -inf)
        if written < self.prefix.size(1):
            found = _force_tokens(found, log_probs, self.prefix[rows, written])
        return found

    def may_end(self, written: int) -> bool:
        """Whether a text with this many tokens is long enough."""
        return written >= self.min_length

    def _banned_sequences(self, log_probs: Tensor, recent: Tensor) -> Tensor:
        """(N, V): -inf for the last token of every banned sequence whose other tokens were just generated."""
        same = recent[:, None, -self.memory :] == self.openings
        complete = (same | (self.openings < 0)).all(-1)  # (N, K)
        penalty = torch.zeros_like(complete, dtype=log_probs.dtype).masked_fill(complete, -inf)
        return torch.zeros_like(log_probs).index_add(1, self.lasts, penalty)  # sequences may share their last token


def empty_history(count: int, memory: int, device: torch.device) -> Tensor | None:
    """The last tokens of empty hypotheses: (count, memory) of -1."""
    return torch.full((count, memory), -1, device=device) if memory else None


def extend_history(recent: Tensor | None, tokens: Tensor, parents: Tensor | None = None) -> Tensor | None:
    """The last tokens of hypotheses after these tokens (N,); `parents` (N,): their indices before the step."""
    if recent is None:
        return None
    before = recent if parents is None else recent[parents]
    return torch.cat((before[:, 1:], tokens.unsqueeze(1)), 1)


def _force_tokens(log_probs: Tensor, own: Tensor, tokens: Tensor) -> Tensor:
    """Allow the tokens (N,) alone, with the model's own ln p; rows with token -1 are unchanged."""
    free, place = (tokens < 0).unsqueeze(1), tokens.clamp(min=0).unsqueeze(1)
    only = torch.full_like(log_probs, -inf).scatter(1, place, own.gather(1, place).to(log_probs.dtype))
    return torch.where(free, log_probs, only)


def _ban_bias(tokens: Ids, width: int, device: torch.device) -> Tensor:
    bias = torch.zeros(width, device=device)
    bias[torch.tensor(tokens, device=device)] = -inf
    return bias


def _expect_inside(rules: Rules, width: int) -> None:
    phrases = (phrase for row in rules.required or () for phrase in row)
    for ids in (*rules.banned, *(rules.prefix or ()), *phrases, () if rules.end is None else (rules.end,)):
        if ids and max(ids) >= width:
            raise SettingError(f"token {max(ids)}", f"0 to {width - 1}, the tokens of the model", where="Rules")


@dataclass(frozen=True, eq=False)
class RequiredPhrases:
    """Required sequences: for each of B rows up to P of up to `memory` tokens; met once they occur in the text."""

    phrases: Tensor  # (B, P, memory), -1 where there is none
    lengths: Tensor  # (B, P)
    max_tokens: int  # required by any row

    @classmethod
    def of(cls, rules: Rules, device: torch.device) -> RequiredPhrases | None:
        """None where nothing is required."""
        rows = [list(dict.fromkeys(tuple(ids) for ids in row)) for row in rules.required or ()]
        count = max(map(len, rows), default=0)
        if not count:
            return None
        memory = max(len(ids) for row in rows for ids in row)
        filled = [[*row, *[()] * (count - len(row))] for row in rows]
        phrases = [[[*ids, *[-1] * (memory - len(ids))] for ids in row] for row in filled]
        lengths = [[len(ids) for ids in row] for row in filled]
        return cls(torch.tensor(phrases, device=device), torch.tensor(lengths, device=device), max(map(sum, lengths)))

    @property
    def memory(self) -> int:
        return self.phrases.size(2)

    def met(self, rows: Tensor) -> Tensor:
        """What empty texts of these rows (N,) have met, (N, P): padding alone."""
        return self.lengths[rows] == 0

    def progress(self, recent: Tensor, rows: Tensor) -> Tensor:
        """How many tokens of each sequence a text (N,) ends with, (N, P)."""
        phrases, lengths = self.phrases[rows], self.lengths[rows]
        found = torch.zeros_like(lengths)
        for size in range(1, self.memory + 1):
            same = (recent[:, None, -size:] == phrases[:, :, :size]).all(-1)
            found = found.masked_fill(same & (size <= lengths), size)
        return found

    def update(self, met: Tensor, recent: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What is met (N, P) by texts that end with `recent`, and how many required tokens they have, (N,)."""
        lengths, progress = self.lengths[rows], self.progress(recent, rows)
        met = met | (progress == lengths)
        return met, torch.where(met, lengths, progress).sum(-1)

    def select(self, live: LiveHypotheses, log_probs: Tensor, width: int, end: int | None) -> BeamStep:
        """As `select_likeliest`, with the beam divided among the banks; only texts that have met all may end."""
        assert live.met is not None
        size = log_probs.size(1)
        if end is not None:
            closed = log_probs[:, end].masked_fill(~live.met.all(-1), -inf)
            log_probs = log_probs.index_copy(1, torch.tensor([end], device=closed.device), closed.unsqueeze(1))
        scores, places = self._candidates(live, log_probs, width, end)
        slots, tokens = places // size, places % size
        banks = self._banks(live, slots, tokens)
        closing = torch.zeros_like(tokens, dtype=torch.bool) if end is None else tokens == end
        chosen = self._allocate(scores, banks, width)
        ended = (closing & (scores > -inf)).gather(1, chosen)
        ongoing = scores.masked_fill(closing, -inf)
        at = self._allocate(ongoing, banks, width)
        ongoing, order = ongoing.gather(1, at).sort(-1, descending=True)
        at = at.gather(1, order)
        return BeamStep(
            ongoing, slots.gather(1, at), tokens.gather(1, at), ended, scores.gather(1, chosen), slots.gather(1, chosen)
        )

    def _candidates(
        self, live: LiveHypotheses, log_probs: Tensor, width: int, end: int | None
    ) -> tuple[Tensor, Tensor]:
        """Continuations (R, K), best first: the likeliest of all, and for each hypothesis its likeliest token, the
        required tokens it lacks, and its end."""
        assert live.recent is not None and live.met is not None
        rows, size = len(live.rows), log_probs.size(1)
        top = select_likeliest(live, log_probs, 2 * width, None)
        progress = self.progress(live.recent, live.owners).minimum((self.lengths[live.owners] - 1).clamp(min=0))
        lacking = self.phrases[live.owners].gather(2, progress.unsqueeze(2)).squeeze(2)  # (R * W, P)
        likeliest = log_probs.argmax(-1, keepdim=True)
        lacking = torch.where(live.met, likeliest, lacking)
        tried = (lacking, likeliest) if end is None else (lacking, likeliest, torch.full_like(likeliest, end))
        tokens = torch.cat(tried, 1)
        added = log_probs.gather(1, tokens) + live.scores.view(-1, 1)
        slots = torch.arange(live.scores.size(1), device=tokens.device).repeat(rows).unsqueeze(1)
        places = torch.cat((top.slots * size + top.tokens, (slots * size + tokens).view(rows, -1)), 1)
        scores = torch.cat((top.scores, added.view(rows, -1)), 1)
        places, order = places.sort(-1)
        duplicate = torch.zeros_like(places, dtype=torch.bool)
        duplicate[:, 1:] = places[:, 1:] == places[:, :-1]
        scores, order = scores.gather(1, order).masked_fill(duplicate, -inf).sort(-1, descending=True)
        return scores, places.gather(1, order)

    def _banks(self, live: LiveHypotheses, slots: Tensor, tokens: Tensor) -> Tensor:
        """How many of the required tokens each continuation (R, K) has met."""
        assert live.recent is not None and live.met is not None
        width = live.scores.size(1)
        parents = (slots + torch.arange(len(slots), device=slots.device).unsqueeze(1) * width).view(-1)
        recent = torch.cat((live.recent[parents, 1:], tokens.view(-1, 1)), 1)
        rows = live.rows.unsqueeze(1).expand_as(slots).reshape(-1)
        return self.update(live.met[parents], recent, rows)[1].view_as(slots)

    def _allocate(self, scores: Tensor, banks: Tensor, width: int) -> Tensor:
        """Which continuations (R, K), best first, stay in the beam: the best of each bank, then the second of each, ...

        Banks that have met more come first where the beam is full; what a bank cannot fill goes to the others.
        """
        valid = scores > -inf
        each = (banks.unsqueeze(2) == torch.arange(self.max_tokens + 1, device=banks.device)) & valid.unsqueeze(2)
        rank = each.long().cumsum(1).gather(2, banks.unsqueeze(2)).squeeze(2)
        turn = rank * (self.max_tokens + 1) + self.max_tokens - banks
        last = turn.max() + 1 if turn.numel() else turn.new_zeros(())
        return turn.where(valid, last).topk(min(width, scores.size(1)), largest=False).indices.sort(-1).values
