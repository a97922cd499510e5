"""Greedy search, and the decoding loop that it shares with sampling: one hypothesis for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from regard.decoding.backpointers import Backpointers, Leaf
from regard.decoding.constraints import ConstraintMask, empty_history, extend_history
from regard.decoding.search import Hypothesis, Rules, Search, Stepper
from regard.errors import SettingError


@dataclass(frozen=True)
class Greedy:
    """Greedy search: the likeliest token at every step.

    [[text], ...] = Greedy()(model, model.start(inputs, lengths), first, Rules(end=3, max_length=50))
    """

    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Hypothesis]]:
        """One text for each of the B rows of `first` (B,); `attention`: with the weights of its steps."""
        return [[text] for text in decode_rows(model, state, first, rules, _argmax, attention)]


def greedy_decode(
    model: Stepper[Any], state: Any, first: Tensor, end: int | None, max_length: int, prefix: Sequence[int] = ()
) -> list[int]:
    """Greedy decoding of one row that begins with `prefix`: at most `max_length` tokens, without the end.

    tokens = greedy_decode(model, model.start(source, lengths), first, end=3, max_length=50, prefix=[7, 12])

    `first` (1,) is the token to step with first. The prefix is returned in full even where it is longer.
    """
    with torch.no_grad():
        for token in prefix:
            _, _, state = model.step(state, first)
            first = first.new_tensor([token])
    if len(prefix) >= max_length:
        return list(prefix)
    [[text]] = Greedy()(model, state, first, Rules(end, max_length - len(prefix)))
    return [*prefix, *text.tokens]


def _argmax(log_probs: Tensor, rows: Tensor, written: int) -> Tensor:
    return log_probs.argmax(-1)


class ChooseToken(Protocol):
    """The choice of the next token."""

    def __call__(self, log_probs: Tensor, rows: Tensor, written: int) -> Tensor:
        """log_probs (N, V) of allowed tokens of `rows` (N,), which have this many tokens: the next token, (N,)."""


@torch.no_grad()
def decode_rows(
    model: Stepper[Any], state: Any, first: Tensor, rules: Rules, choose: ChooseToken, attention: bool = False
) -> list[Hypothesis]:
    """One text for each of the rows of `first` (B,)."""
    if any(rules.required or ()):
        raise SettingError(
            "Required tokens need a beam search", where="Rules.required", advice="Pass Beam(...) as the search."
        )
    count, device = len(first), first.device
    rows = torch.arange(count, device=device)  # of the batch, in the order of the model's state
    active = torch.ones(count, dtype=torch.bool, device=device)
    backpointers, endings, tokens = Backpointers(attention), _Endings(count), first
    constraints, recent = None, None
    for written in range(rules.max_length if count else 0):
        log_probs, weights, state = model.step(state, tokens)
        if constraints is None:
            constraints = ConstraintMask(rules, count, log_probs.size(1), device)
            recent = empty_history(count, constraints.memory, device)
        allowed = constraints(log_probs, written, rows, recent)
        tokens = choose(allowed, rows, written)
        token_log_probs = log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1)
        constrained = token_log_probs
        if allowed is not log_probs:
            constrained = allowed.gather(1, tokens.unsqueeze(1)).squeeze(1)
        stopped = constrained == -inf  # the rules allow no token
        ended = stopped if rules.end is None else (tokens == rules.end) | stopped
        backpointers.add_attention(weights)
        keep = None
        if bool((ended & active).any()):
            endings.add(ended & active, rows, written, torch.where(stopped, inf, token_log_probs))
            active = active & ~ended
            keep = _rows_to_keep(active)
        if keep is not None and not len(keep):
            break
        parents = torch.arange(len(rows), device=device) if keep is None else keep
        if keep is not None:
            rows, tokens, token_log_probs, active = rows[keep], tokens[keep], token_log_probs[keep], active[keep]
            state = model.reorder(state, keep)
        recent = extend_history(recent, tokens, keep)
        backpointers.add_step(tokens, parents, token_log_probs)
    endings.add_unfinished(active, rows, rules.max_length)
    return backpointers.trace(endings.all)


class _Endings:
    """The leaf of each row."""

    def __init__(self, rows: int) -> None:
        self.all = [Leaf(0, row) for row in range(rows)]

    def add(self, ended: Tensor, rows: Tensor, written: int, log_probs: Tensor) -> None:
        """Rows that ended after this many tokens; `log_probs`: ln p of the end token, inf where there was none."""
        at = ended.nonzero().squeeze(1)
        for index, row, log_prob in zip(at.tolist(), rows[at].tolist(), log_probs[at].tolist(), strict=True):
            self.all[row] = Leaf(written, index, end_log_prob=None if log_prob == inf else log_prob)

    def add_unfinished(self, active: Tensor, rows: Tensor, max_length: int) -> None:
        """Rows that reached the maximum length."""
        at = active.nonzero().squeeze(1)
        for index, row in zip(at.tolist(), rows[at].tolist(), strict=True):
            self.all[row] = Leaf(max_length, index)


def _rows_to_keep(active: Tensor) -> Tensor | None:
    """The active rows (N',) once half of them are done, else None: dropping rows copies the state of the others."""
    left = int(active.sum())
    return active.nonzero().squeeze(1) if 2 * left <= len(active) else None


if TYPE_CHECKING:
    _search: Search = Greedy()
