"""Rules as tensors: what a row may write next, given how much it has written and with what it ended."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import torch
from torch import Tensor

from regard.decoding.writing import Ids, Rules
from regard.errors import SettingError


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
        self.openings = _padded([ids[:-1] for ids in several], device, left=True)  # (K, memory)
        self.lasts = torch.tensor([ids[-1] for ids in several], dtype=torch.long, device=device)
        self.prefix = _padded(rules.prefix or [()] * rows, device)  # (B, P)

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


def _padded(sequences: Sequence[Ids], device: torch.device, left: bool = False) -> Tensor:
    """(K, longest) with -1 where a sequence is shorter."""
    size = max(map(len, sequences), default=0)
    rows = [[-1] * (size - len(ids)) + list(ids) if left else [*ids, *[-1] * (size - len(ids))] for ids in sequences]
    return torch.tensor(rows, dtype=torch.long, device=device).view(len(sequences), size)


def _expect_inside(rules: Rules, width: int) -> None:
    phrases = (phrase for row in rules.required or () for phrase in row)
    for ids in (*rules.banned, *(rules.prefix or ()), *phrases, () if rules.end is None else (rules.end,)):
        if ids and max(ids) >= width:
            raise SettingError(f"token {max(ids)}", f"0 to {width - 1}, what the model can say", where="Rules")
