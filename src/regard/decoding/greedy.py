"""Greedy search, and the loop that it shares with sampling: one hypothesis a row, written token by token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from regard.decoding.backpointers import Leaf, Trail
from regard.decoding.constraints import Permit, blank, remembered
from regard.decoding.search import Rules, Search, Stepper, Written
from regard.errors import SettingError


@dataclass(frozen=True)
class Greedy:
    """The likeliest token, then the likeliest after that.

    [[text], ...] = Greedy()(model, model.start(inputs, lengths), first, Rules(end=3, longest=50))
    """

    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Written]]:
        """One text for each of the B rows of `first` (B,), with the attention of its steps where that is asked for."""
        return [[text] for text in write(model, state, first, rules, _likeliest, attention)]


def greedy_decode(
    model: Stepper[Any], state: Any, first: Tensor, end: int | None, longest: int, prefix: Sequence[int] = ()
) -> list[int]:
    """Greedy decoding of one row that begins with `prefix`: at most `longest` tokens, without the end.

    tokens = greedy_decode(model, model.start(source, lengths), first, end=3, longest=50, prefix=[7, 12])

    `first` (1,) is the token to step with first. The prefix is kept whole, also where it is longer than that.
    """
    with torch.no_grad():
        for token in prefix:
            _, _, state = model.step(state, first)
            first = first.new_tensor([token])
    if len(prefix) >= longest:
        return list(prefix)
    [[text]] = Greedy()(model, state, first, Rules(end, longest - len(prefix)))
    return [*prefix, *text.tokens]


def _likeliest(log_probs: Tensor, rows: Tensor, written: int) -> Tensor:
    return log_probs.argmax(-1)


class Choose(Protocol):
    """Which token comes next."""

    def __call__(self, log_probs: Tensor, rows: Tensor, written: int) -> Tensor:
        """log_probs (N, V) of what is allowed to `rows` (N,), which have written so many tokens: the next one, (N,)."""


@torch.no_grad()
def write(
    model: Stepper[Any], state: Any, first: Tensor, rules: Rules, choose: Choose, attention: bool = False
) -> list[Written]:
    """One text for each of the rows that `first` (B,) begins."""
    if any(rules.required or ()):
        raise SettingError(
            "required tokens", "none", where="Rules.required", advice="Beam(...) is the search that can promise them."
        )
    count, device = len(first), first.device
    rows = torch.arange(count, device=device)  # of the batch, in the order in which the model has them
    writing = torch.ones(count, dtype=torch.bool, device=device)
    trail, leaves, permit, recent, tokens = Trail(attention), _Leaves(count), None, None, first
    for written in range(rules.longest if count else 0):
        log_probs, weights, state = model.step(state, tokens)
        if permit is None:
            permit = Permit(rules, count, log_probs.size(1), device)
            recent = blank(count, permit.memory, device)
        allowed = permit(log_probs, written, rows, recent)
        tokens = choose(allowed, rows, written)
        said = log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1)
        chance = said if allowed is log_probs else allowed.gather(1, tokens.unsqueeze(1)).squeeze(1)
        stopped = chance == -inf  # nothing is allowed here
        ended = stopped if rules.end is None else (tokens == rules.end) | stopped
        trail.saw(weights)
        keep = None
        if bool((ended & writing).any()):
            leaves.add(ended & writing, rows, written, torch.where(stopped, inf, said))
            writing = writing & ~ended
            keep = _worth_leaving(writing)
        if keep is not None and not len(keep):
            break
        parents = torch.arange(len(rows), device=device) if keep is None else keep
        if keep is not None:
            rows, tokens, said, writing = rows[keep], tokens[keep], said[keep], writing[keep]
            state = model.reorder(state, keep)
        recent = remembered(recent, tokens, keep)
        trail.grew(tokens, parents, said)
    leaves.rest(writing, rows, rules.longest)
    return trail.texts(leaves.all)


class _Leaves:
    """Where the text of each row ended."""

    def __init__(self, rows: int) -> None:
        self.all = [Leaf(0, row) for row in range(rows)]

    def add(self, ended: Tensor, rows: Tensor, written: int, closing: Tensor) -> None:
        """Rows that ended after so many tokens; `closing`: ln p of the end, inf where there was none."""
        places = ended.nonzero().squeeze(1)
        for place, row, said in zip(places.tolist(), rows[places].tolist(), closing[places].tolist(), strict=True):
            self.all[row] = Leaf(written, place, closing=None if said == inf else said)

    def rest(self, writing: Tensor, rows: Tensor, longest: int) -> None:
        """Rows that were cut off."""
        places = writing.nonzero().squeeze(1)
        for place, row in zip(places.tolist(), rows[places].tolist(), strict=True):
            self.all[row] = Leaf(longest, place)


def _worth_leaving(writing: Tensor) -> Tensor | None:
    """The rows (N',) to go on with, once half of them are done: each leaving copies the state of those that stay."""
    left = int(writing.sum())
    return writing.nonzero().squeeze(1) if 2 * left <= len(writing) else None


if TYPE_CHECKING:
    _search: Search = Greedy()
