"""Sequences that a text must have: a beam whose places are shared among hypotheses that have met more or less of them.

Post & Vilar 2018: beside the likeliest continuations, each hypothesis tries the tokens that it still owes, and every
bank (hypotheses that have met equally many of those) gets its share of the beam, so that no likely hypothesis without
them crowds out the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from regard.decoding.hypotheses import Choice, Live, likeliest
from regard.decoding.writing import Rules


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
