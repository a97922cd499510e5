"""Constrained decoding: Rules as tensors, for what a row may write next (Permit) and what it must have (Required).

Required sequences are met as in Post & Vilar 2018: beside the likeliest continuations, each hypothesis of a beam tries
the tokens that it still owes, and every bank (hypotheses that have met equally many of those) gets its share of the
beam, so that no likely hypothesis without them crowds out the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from regard.decoding.hypotheses import Choice, Live, likeliest
from regard.decoding.search import Ids, Rules
from regard.errors import SettingError
from regard.text import pad_rows


class Permit:
    """Takes ln p of what the rules forbid away. `memory`: how many of the last tokens it wants to be shown.

    permit = Permit(rules, rows=B, width=V, device)
    log_probs = permit(log_probs, written=3, rows=rows, recent=recent)       # the same tensor where all is allowed
    """

    def __init__(self, rules: Rules, rows: int, width: int, device: torch.device) -> None:
        rules.check(rows)
        _expect_inside(rules, width)
        single = [ids[0] for ids in rules.banned if len(ids) == 1]
        several = [ids for ids in rules.banned if len(ids) > 1]
        self.end = torch.tensor([] if rules.end is None else [rules.end], dtype=torch.long, device=device)
        self.shortest = 0 if rules.end is None else rules.shortest
        self.bias = _forbidding(single, width, device) if single else None
        self.memory = max((len(ids) - 1 for ids in several), default=0)
        self.openings = pad_rows([ids[:-1] for ids in several], -1, device, left=True)[0]  # (K, memory)
        self.lasts = torch.tensor([ids[-1] for ids in several], dtype=torch.long, device=device)
        self.prefix = pad_rows(rules.prefix or [()] * rows, -1, device)[0]  # (B, P)

    def __call__(
        self, log_probs: Tensor, written: int, rows: Tensor, recent: Tensor | None, but_the_end: bool = False
    ) -> Tensor:
        """log_probs (N, V) of hypotheses that belong to `rows` (N,) and ended with `recent` (N, memory or more).

        `but_the_end`: the end is left as it is; who asks knows by `may_end` what to do with it, and a copy is saved.
        """
        found = log_probs if self.bias is None else log_probs + self.bias
        if self.memory and recent is not None:
            found = found + self._continuing(found, recent)
        if not but_the_end and not self.may_end(written):
            found = found.index_fill(1, self.end, -inf)
        if written < self.prefix.size(1):
            found = _forced(found, log_probs, self.prefix[rows, written])
        return found

    def may_end(self, written: int) -> bool:
        """Whether a text of so many tokens is long enough."""
        return written >= self.shortest

    def _continuing(self, log_probs: Tensor, recent: Tensor) -> Tensor:
        """(N, V): -inf for the last token of every banned sequence whose others were just written."""
        same = recent[:, None, -self.memory :] == self.openings
        complete = (same | (self.openings < 0)).all(-1)  # (N, K)
        falls = torch.zeros_like(complete, dtype=log_probs.dtype).masked_fill(complete, -inf)
        return torch.zeros_like(log_probs).index_add(1, self.lasts, falls)  # sequences may share their last token


def blank(count: int, memory: int, device: torch.device) -> Tensor | None:
    """What hypotheses that wrote nothing ended with: (count, memory) of -1."""
    return torch.full((count, memory), -1, device=device) if memory else None


def remembered(recent: Tensor | None, tokens: Tensor, parents: Tensor | None = None) -> Tensor | None:
    """What hypotheses ended with after these tokens (N,); `parents` (N,): those that they came from."""
    if recent is None:
        return None
    before = recent if parents is None else recent[parents]
    return torch.cat((before[:, 1:], tokens.unsqueeze(1)), 1)


def _forced(log_probs: Tensor, own: Tensor, tokens: Tensor) -> Tensor:
    """Nothing but tokens (N,) is left, with the model's own ln p; where the token is -1, everything stays."""
    free, place = (tokens < 0).unsqueeze(1), tokens.clamp(min=0).unsqueeze(1)
    alone = torch.full_like(log_probs, -inf).scatter(1, place, own.gather(1, place).to(log_probs.dtype))
    return torch.where(free, log_probs, alone)


def _forbidding(tokens: Ids, width: int, device: torch.device) -> Tensor:
    bias = torch.zeros(width, device=device)
    bias[torch.tensor(tokens, device=device)] = -inf
    return bias


def _expect_inside(rules: Rules, width: int) -> None:
    phrases = (phrase for row in rules.required or () for phrase in row)
    for ids in (*rules.banned, *(rules.prefix or ()), *phrases, () if rules.end is None else (rules.end,)):
        if ids and max(ids) >= width:
            raise SettingError(f"token {max(ids)}", f"0 to {width - 1}, what the model can say", where="Rules")


@dataclass(frozen=True, eq=False)
class Required:
    """For each of B rows up to P sequences of up to `memory` tokens; a sequence is met where it stands in the text."""

    phrases: Tensor  # (B, P, memory), -1 where there is none
    lengths: Tensor  # (B, P)
    most: int  # the tokens that any row requires

    @classmethod
    def of(cls, rules: Rules, device: torch.device) -> Required | None:
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
        """What texts of these rows (N,) have met before they begin, (N, P): nothing but what is not asked for."""
        return self.lengths[rows] == 0

    def progress(self, recent: Tensor, rows: Tensor) -> Tensor:
        """How much of each sequence a text (N,) has just written, (N, P)."""
        phrases, lengths = self.phrases[rows], self.lengths[rows]
        found = torch.zeros_like(lengths)
        for size in range(1, self.memory + 1):
            same = (recent[:, None, -size:] == phrases[:, :, :size]).all(-1)
            found = found.masked_fill(same & (size <= lengths), size)
        return found

    def after(self, met: Tensor, recent: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What is met (N, P) once texts end with `recent`, and of how many tokens they can boast, (N,)."""
        lengths, progress = self.lengths[rows], self.progress(recent, rows)
        met = met | (progress == lengths)
        return met, torch.where(met, lengths, progress).sum(-1)

    def choose(self, live: Live, log_probs: Tensor, width: int, end: int | None) -> Choice:
        """As `likeliest`, the places of the beam shared among the banks; only texts that have met all may end."""
        assert live.met is not None
        size = log_probs.size(1)
        if end is not None:
            closed = log_probs[:, end].masked_fill(~live.met.all(-1), -inf)
            log_probs = log_probs.index_copy(1, torch.tensor([end], device=closed.device), closed.unsqueeze(1))
        scores, places = self._tried(live, log_probs, width, end)
        slots, tokens = places // size, places % size
        banks = self._banks(live, slots, tokens)
        closing = torch.zeros_like(tokens, dtype=torch.bool) if end is None else tokens == end
        among = self._shared(scores, banks, width)
        ended = (closing & (scores > -inf)).gather(1, among)
        going = scores.masked_fill(closing, -inf)
        at = self._shared(going, banks, width)
        going, order = going.gather(1, at).sort(-1, descending=True)
        at = at.gather(1, order)
        return Choice(
            going, slots.gather(1, at), tokens.gather(1, at), ended, scores.gather(1, among), slots.gather(1, among)
        )

    def _tried(self, live: Live, log_probs: Tensor, width: int, end: int | None) -> tuple[Tensor, Tensor]:
        """Continuations (R, K), largest first: the likeliest of all, and of each hypothesis its own likeliest, what it
        owes, and its end."""
        assert live.recent is not None and live.met is not None
        rows, size = len(live.rows), log_probs.size(1)
        top = likeliest(live, log_probs, 2 * width, None)
        progress = self.progress(live.recent, live.owners).minimum((self.lengths[live.owners] - 1).clamp(min=0))
        owed = self.phrases[live.owners].gather(2, progress.unsqueeze(2)).squeeze(2)  # (R * W, P)
        own = log_probs.argmax(-1, keepdim=True)
        owed = torch.where(live.met, own, owed)
        tokens = torch.cat((owed, own) if end is None else (owed, own, torch.full_like(own, end)), 1)
        more = log_probs.gather(1, tokens) + live.scores.view(-1, 1)
        slots = torch.arange(live.scores.size(1), device=tokens.device).repeat(rows).unsqueeze(1)
        places = torch.cat((top.slots * size + top.tokens, (slots * size + tokens).view(rows, -1)), 1)
        scores = torch.cat((top.scores, more.view(rows, -1)), 1)
        places, order = places.sort(-1)
        again = torch.zeros_like(places, dtype=torch.bool)
        again[:, 1:] = places[:, 1:] == places[:, :-1]
        scores, order = scores.gather(1, order).masked_fill(again, -inf).sort(-1, descending=True)
        return scores, places.gather(1, order)

    def _banks(self, live: Live, slots: Tensor, tokens: Tensor) -> Tensor:
        """How many of the required tokens each continuation (R, K) has met."""
        assert live.recent is not None and live.met is not None
        width = live.scores.size(1)
        parents = (slots + torch.arange(len(slots), device=slots.device).unsqueeze(1) * width).view(-1)
        recent = torch.cat((live.recent[parents, 1:], tokens.view(-1, 1)), 1)
        rows = live.rows.unsqueeze(1).expand_as(slots).reshape(-1)
        return self.after(live.met[parents], recent, rows)[1].view_as(slots)

    def _shared(self, scores: Tensor, banks: Tensor, width: int) -> Tensor:
        """Which continuations (R, K), largest first, get a place: the best of every bank, then the second of each, ...

        Banks that have met more come first where places run out; what a bank cannot fill goes to the others.
        """
        there = scores > -inf
        each = (banks.unsqueeze(2) == torch.arange(self.most + 1, device=banks.device)) & there.unsqueeze(2)
        rank = each.long().cumsum(1).gather(2, banks.unsqueeze(2)).squeeze(2)
        turn = rank * (self.most + 1) + self.most - banks
        last = turn.max() + 1 if turn.numel() else turn.new_zeros(())
        return turn.where(there, last).topk(min(width, scores.size(1)), largest=False).indices.sort(-1).values
