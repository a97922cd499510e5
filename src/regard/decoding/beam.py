"""Beam search, with length penalty and coverage penalty (Wu et al. 2016)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.decoding.backpointers import Backpointers, Leaf
from regard.decoding.constraints import ConstraintMask, RequiredPhrases, empty_history, extend_history
from regard.decoding.hypotheses import BeamStep, LiveHypotheses, select_likeliest
from regard.decoding.search import Hypothesis, Rules, Search, Stepper
from regard.errors import SettingError


@dataclass(frozen=True)
class LengthPenalty:
    """Length normalisation: a sum of n terms ln p, the end included, is divided by ((start + n) / (start + 1))^alpha.

    LengthPenalty()              1: texts are ranked by their probability
    LengthPenalty(0.6)           Wu et al. 2016, eq. 14
    LengthPenalty(1.0, start=0)  n: texts are ranked by their mean ln p
    """

    alpha: float = 0.0
    start: float = 5.0

    def __post_init__(self) -> None:
        if not isfinite(self.alpha):
            raise SettingError(f"alpha={self.alpha}", "a number", where="LengthPenalty")
        if not 0 <= self.start < inf:
            raise SettingError(f"start={self.start}", "0 or more", where="LengthPenalty")

    def __call__(self, terms: int) -> float:
        return float(((self.start + terms) / (self.start + 1)) ** self.alpha)

    def largest(self, first: int, last: int) -> float:
        """The largest divisor for `first` to `last` terms; it is monotone, so it is at one of them."""
        return max(self(first), self(last))


NO_PENALTY = LengthPenalty()


def log_coverage(attention: Tensor) -> Tensor:
    """The coverage term of Wu et al. 2016, eq. 14, (N, S) to (N,): the sum over the source of ln min(attention, 1).

    Positions without any attention are padding.
    """
    return attention.where(attention > 0, 1.0).clamp(max=1.0).log().sum(-1)


@dataclass(frozen=True)
class Beam:
    """Beam search: keeps the `width` likeliest hypotheses of each row, and returns the `n_best` texts of each.

    Beam(5, LengthPenalty(0.6), n_best=3)

    score = sum of ln p / length_penalty + coverage_penalty * sum over the source of ln min(total attention, 1)

    as in Wu et al. 2016, eq. 14; source positions without any weight are taken for padding. A row is done when `width`
    texts have ended, each among the likeliest of its step; or when no live hypothesis can overtake the last of the
    `n_best`; or at the maximum length. It returns fewer than `n_best` texts where there are no more, and an unfinished
    one where the rules allow no end.
    """

    width: int = 5
    length_penalty: LengthPenalty = NO_PENALTY
    coverage_penalty: float = 0.0
    n_best: int = 1

    def __post_init__(self) -> None:
        if self.width < 1:
            raise SettingError(f"width={self.width}", "at least 1", where="Beam")
        if not 1 <= self.n_best <= self.width:
            raise SettingError(f"n_best={self.n_best}", f"1 to width={self.width}", where="Beam")
        if not 0 <= self.coverage_penalty < inf:
            raise SettingError(f"coverage_penalty={self.coverage_penalty}", "0 (none) or more", where="Beam")

    @torch.no_grad()
    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Hypothesis]]:
        """The best texts of each of the B rows of `first` (B,); `attention`: with the weights of their steps.

        The model steps all live hypotheses together, the same number for each row; rows that are done drop out.
        """
        if not len(first):
            return []
        return _BeamSearch(self, rules, first, attention).run(model, state)


class _BeamSearch:
    """One search: the live hypotheses, the finished ones, and the backpointers."""

    def __init__(self, beam: Beam, rules: Rules, first: Tensor, attention: bool) -> None:
        rules.check(len(first))
        self.beam, self.rules, self.first = beam, rules, first
        self.backpointers = Backpointers(attention)
        self.finished: list[list[Leaf]] = [[] for _ in first]  # by row, in the order in which they ended
        self.live = LiveHypotheses(
            torch.arange(len(first), device=first.device), torch.zeros(len(first), 1, device=first.device)
        )
        self.threshold = torch.full((len(first),), -inf, device=first.device)  # the score to beat, for each live row
        self.required = RequiredPhrases.of(rules, first.device)
        self.constraints: ConstraintMask | None = None

    def run(self, model: Stepper[Any], state: Any) -> list[list[Hypothesis]]:
        tokens, rules = self.first, self.rules
        for written in range(rules.max_length):
            log_probs, weights, state = model.step(state, tokens)
            constraints = self.constraints or self._start(log_probs)
            self._add_attention(weights)
            step = self._select(constraints, log_probs, written)
            parents = step.parents(self.live.scores.size(1))
            active = self._finish(step, log_probs, written)
            if active is not None:
                if not len(active):
                    return self._texts()
                step, parents = step.select(active), parents[active]
            parents, tokens = parents.view(-1), step.tokens.view(-1)
            token_log_probs = log_probs.take(parents * log_probs.size(1) + tokens)
            self.backpointers.add_step(tokens, parents, token_log_probs)
            self._advance(step, parents, active)
            if written + 1 < rules.max_length:
                state = model.reorder(state, parents)
        self._truncate()
        return self._texts()

    def _select(self, constraints: ConstraintMask, log_probs: Tensor, written: int) -> BeamStep:
        live, width, end = self.live, self.beam.width, self.rules.end
        if self.required is not None:
            return self.required.select(live, constraints(log_probs, written, live.owners, live.recent), width, end)
        allowed = constraints(log_probs, written, live.owners, live.recent, ignore_end=True)
        return select_likeliest(live, allowed, width, end, constraints.may_end(written))

    def _start(self, log_probs: Tensor) -> ConstraintMask:
        """Set up the constraints, now that the width of the distribution is known."""
        rows, device, required = self.live.rows, self.first.device, self.required
        self.constraints = constraints = ConstraintMask(self.rules, len(rows), log_probs.size(1), device)
        memory = constraints.memory if required is None else max(constraints.memory, required.memory)
        met = None if required is None else required.met(rows)
        self.live = replace(self.live, recent=empty_history(len(rows), memory, device), met=met)
        return constraints

    def _add_attention(self, weights: Tensor | None) -> None:
        self.backpointers.add_attention(weights)
        if not self.beam.coverage_penalty:
            return
        if weights is None:
            raise SettingError(
                f"coverage_penalty={self.beam.coverage_penalty} for a model that reports no attention",
                "0",
                where="Beam",
            )
        before = self.live.attention
        self.live = replace(self.live, attention=weights if before is None else before + weights)

    def _finish(self, step: BeamStep, log_probs: Tensor, written: int) -> Tensor | None:
        """Record the hypotheses that ended; the rows (R',) that continue, or None where all of them do."""
        max_length, penalty = self.rules.max_length, self.beam.length_penalty
        # the upper bound of a hypothesis: no further loss, and the best length penalty that it can still reach
        bound = step.scores[:, 0] / penalty.largest(min(written + 2, max_length), max_length)
        changed = bound <= self.threshold
        if step.ended is not None:
            changed = changed | step.ended.any(1)
        if not bool(changed.any()):
            return None
        rows, width = self.live.rows.tolist(), self.live.scores.size(1)
        if step.ended is not None:
            row, rank = step.ended.nonzero(as_tuple=True)
            indices = row * width + step.ended_slots[row, rank]
            end_log_probs = log_probs[indices, self.rules.end].tolist()
            scores = self._scores(step.ended_scores[row, rank], written + 1, indices)
            for number, index, log_prob, score in zip(
                row.tolist(), indices.tolist(), end_log_probs, scores, strict=True
            ):
                self.finished[rows[number]].append(Leaf(written, index, log_prob, score))
        thresholds = [self._threshold(row) for row in rows]
        self.threshold = torch.tensor(thresholds, dtype=bound.dtype, device=bound.device)
        beaten = (bound <= self.threshold).tolist()
        done = [beaten[at] or len(self.finished[row]) >= self.beam.width for at, row in enumerate(rows)]
        for at, row in enumerate(rows):
            if done[at] and not self.finished[row]:  # the rules allow no continuation
                self._break_off(at, written)
        active = [at for at, over in enumerate(done) if not over]
        return None if len(active) == len(rows) else torch.tensor(active, dtype=torch.long, device=bound.device)

    def _threshold(self, row: int) -> float:
        """The score of the n-th best finished text of a row, -inf where there are fewer."""
        scores = sorted((leaf.score or 0.0 for leaf in self.finished[row]), reverse=True)
        return scores[self.beam.n_best - 1] if len(scores) >= self.beam.n_best else -inf

    def _scores(self, sums: Tensor, terms: int, indices: Tensor) -> list[float]:
        """The scores of texts (n,) that end at these indices of the layout."""
        scores = sums / self.beam.length_penalty(terms)
        if self.live.attention is not None:
            scores = scores + self.beam.coverage_penalty * log_coverage(self.live.attention[indices])
        found: list[float] = scores.tolist()
        return found

    def _advance(self, step: BeamStep, parents: Tensor, active: Tensor | None) -> None:
        """Make the chosen continuations the live hypotheses."""
        live, required = self.live, self.required
        rows = live.rows if active is None else live.rows[active]
        self.threshold = self.threshold if active is None else self.threshold[active]
        recent = extend_history(live.recent, step.tokens.view(-1), parents)
        attention = None if live.attention is None else live.attention[parents]
        self.live = LiveHypotheses(rows, step.scores, recent, None, attention)
        if required is not None and recent is not None and live.met is not None:
            self.live = replace(self.live, met=required.update(live.met[parents], recent, self.live.owners)[0])

    def _truncate(self) -> None:
        """Record the hypotheses of maximum length that contain what is required."""
        live, max_length = self.live, self.rules.max_length
        valid = live.scores > -inf
        if live.met is not None:
            valid = valid & live.met.all(-1).view_as(valid)
        row, slot = valid.nonzero(as_tuple=True)
        indices = row * live.scores.size(1) + slot
        scores = self._scores(live.scores[row, slot], max_length, indices)
        for number, index, score in zip(live.rows[row].tolist(), indices.tolist(), scores, strict=True):
            self.finished[number].append(Leaf(max_length, index, score=score))
        for at, number in enumerate(live.rows.tolist()):
            if not self.finished[number]:
                self._break_off(at, max_length)

    def _break_off(self, at: int, written: int) -> None:
        """Record the best live hypothesis of a row as unfinished, among those that met most of what is required."""
        live = self.live
        scores = live.scores[at]
        if self.required is not None and live.recent is not None and live.met is not None:
            banks = self.required.update(live.met, live.recent, live.owners)[1].view_as(live.scores)[at]
            scores = scores.where((banks == banks[scores > -inf].max()), -inf)
        index = at * live.scores.size(1) + int(scores.argmax())
        sums, indices = live.scores.view(-1)[[index]], torch.tensor([index], device=scores.device)
        score = self._scores(sums, max(written, 1), indices)[0]
        self.finished[int(live.rows[at])].append(Leaf(written, index, score=score))

    def _texts(self) -> list[list[Hypothesis]]:
        best = [sorted(row, key=lambda leaf: -(leaf.score or 0.0))[: self.beam.n_best] for row in self.finished]
        texts = iter(self.backpointers.trace([leaf for row in best for leaf in row]))
        return [[next(texts) for _ in row] for row in best]


if TYPE_CHECKING:
    _search: Search = Beam()
