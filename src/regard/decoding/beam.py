"""Beam search: several hypotheses a row are written side by side, and the best of those that ended are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.decoding.backpointers import Leaf, Trail
from regard.decoding.constraints import Permit, Required, blank, remembered
from regard.decoding.hypotheses import Choice, Live, likeliest
from regard.decoding.search import Rules, Search, Stepper, Written
from regard.errors import SettingError


@dataclass(frozen=True)
class LengthPenalty:
    """What a sum of n terms ln p is divided by: ((start + n) / (start + 1))^alpha; the end is one of the terms.

    LengthPenalty()              1: texts are ranked by their probability
    LengthPenalty(0.6)           Wu et al. 2016, eq. 14: longer texts are forgiven a part of their length
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

    def most(self, fewest: int, longest: int) -> float:
        """The largest divisor of `fewest` to `longest` terms; it rises or falls all the way, so it is at an end."""
        return max(self(fewest), self(longest))


SUM = LengthPenalty()


def uncovered(attention: Tensor) -> Tensor:
    """Wu et al. 2016, eq. 14: the sum over the source of ln min(attention it got in all, 1), of (N, S): (N,).

    A place that got none at all is padding.
    """
    return attention.where(attention > 0, 1.0).clamp(max=1.0).log().sum(-1)


@dataclass(frozen=True)
class Beam:
    """The `width` likeliest hypotheses of each row at every step; the `best` texts of each row are given.

    Beam(5, LengthPenalty(0.6), best=3)

    score = sum of ln p / length_penalty + coverage * sum over the source of ln min(attention it got in all, 1)

    as Wu et al. 2016, eq. 14, have it; a place of the source that got no weight at all is taken for padding.
    A row is done when `width` texts have ended, each among the likeliest of its step; or when nothing that is being
    written can overtake the last of the `best`; or when all of it is as long as it may be, unfinished. It gives fewer
    than `best` where there are no more, and a text that breaks off where the rules let nothing end.
    """

    width: int = 5
    length_penalty: LengthPenalty = SUM
    coverage: float = 0.0
    best: int = 1

    def __post_init__(self) -> None:
        if self.width < 1:
            raise SettingError(f"width={self.width}", "at least 1", where="Beam")
        if not 1 <= self.best <= self.width:
            raise SettingError(f"best={self.best}", f"1 to width={self.width}", where="Beam")
        if not 0 <= self.coverage < inf:
            raise SettingError(f"coverage={self.coverage}", "0 (none) or more", where="Beam")

    @torch.no_grad()
    def __call__(
        self, model: Stepper[Any], state: Any, first: Tensor, rules: Rules, attention: bool = False
    ) -> list[list[Written]]:
        """The best texts of each of the B rows of `first` (B,), with the attention of their steps where asked for.

        The model is stepped with the hypotheses of a row side by side, as many for each row; rows that are done leave.
        """
        if not len(first):
            return []
        return _Writing(self, rules, first, attention).run(model, state)


class _Writing:
    """One search: what is live, what is kept, and the trail behind it."""

    def __init__(self, beam: Beam, rules: Rules, first: Tensor, attention: bool) -> None:
        rules.check(len(first))
        self.beam, self.rules, self.first = beam, rules, first
        self.trail = Trail(attention)
        self.kept: list[list[Leaf]] = [[] for _ in first]  # by row, in the order in which they came
        self.live = Live(torch.arange(len(first), device=first.device), torch.zeros(len(first), 1, device=first.device))
        self.last = torch.full((len(first),), -inf, device=first.device)  # what must be beaten, for each live row
        self.required = Required.of(rules, first.device)
        self.permit: Permit | None = None

    def run(self, model: Stepper[Any], state: Any) -> list[list[Written]]:
        tokens, rules = self.first, self.rules
        for written in range(rules.longest):
            log_probs, weights, state = model.step(state, tokens)
            permit = self.permit or self._begin(log_probs)
            self._look(weights)
            choice = self._chosen(permit, log_probs, written)
            parents = choice.parents(self.live.scores.size(1))
            stay = self._close(choice, log_probs, written)
            if stay is not None:
                if not len(stay):
                    return self._texts()
                choice, parents = choice.of(stay), parents[stay]
            parents, tokens = parents.view(-1), choice.tokens.view(-1)
            said = log_probs.take(parents * log_probs.size(1) + tokens)
            self.trail.grew(tokens, parents, said)
            self._move(choice, parents, stay)
            if written + 1 < rules.longest:
                state = model.reorder(state, parents)
        self._cut_off()
        return self._texts()

    def _chosen(self, permit: Permit, log_probs: Tensor, written: int) -> Choice:
        live, width, end = self.live, self.beam.width, self.rules.end
        if self.required is not None:
            return self.required.choose(live, permit(log_probs, written, live.owners, live.recent), width, end)
        allowed = permit(log_probs, written, live.owners, live.recent, but_the_end=True)
        return likeliest(live, allowed, width, end, permit.may_end(written))

    def _begin(self, log_probs: Tensor) -> Permit:
        """Now that the width of what the model says is known."""
        rows, device, required = self.live.rows, self.first.device, self.required
        self.permit = permit = Permit(self.rules, len(rows), log_probs.size(1), device)
        memory = permit.memory if required is None else max(permit.memory, required.memory)
        met = None if required is None else required.met(rows)
        self.live = replace(self.live, recent=blank(len(rows), memory, device), met=met)
        return permit

    def _look(self, weights: Tensor | None) -> None:
        self.trail.saw(weights)
        if not self.beam.coverage:
            return
        if weights is None:
            raise SettingError(
                f"coverage={self.beam.coverage} for a model that reports no attention", "0", where="Beam"
            )
        before = self.live.attention
        self.live = replace(self.live, attention=weights if before is None else before + weights)

    def _close(self, choice: Choice, log_probs: Tensor, written: int) -> Tensor | None:
        """Keep what ended; the rows (R',) that go on, or None where all of them do."""
        longest, penalty = self.rules.longest, self.beam.length_penalty
        # the most that a hypothesis can come to: no further loss, and the kindest length that it can still reach
        hope = choice.scores[:, 0] / penalty.most(min(written + 2, longest), longest)
        news = hope <= self.last
        if choice.ended is not None:
            news = news | choice.ended.any(1)
        if not bool(news.any()):
            return None
        rows, width = self.live.rows.tolist(), self.live.scores.size(1)
        if choice.ended is not None:
            row, rank = choice.ended.nonzero(as_tuple=True)
            places = row * width + choice.ended_slots[row, rank]
            closing = log_probs[places, self.rules.end].tolist()
            scores = self._scores(choice.ended_scores[row, rank], written + 1, places)
            for number, place, said, score in zip(row.tolist(), places.tolist(), closing, scores, strict=True):
                self.kept[rows[number]].append(Leaf(written, place, said, score))
        self.last = torch.tensor([self._to_beat(row) for row in rows], dtype=hope.dtype, device=hope.device)
        beaten = (hope <= self.last).tolist()
        done = [beaten[at] or len(self.kept[row]) >= self.beam.width for at, row in enumerate(rows)]
        for at, row in enumerate(rows):
            if done[at] and not self.kept[row]:  # nothing is allowed any more
                self._break_off(at, written)
        stay = [at for at, over in enumerate(done) if not over]
        return None if len(stay) == len(rows) else torch.tensor(stay, dtype=torch.long, device=hope.device)

    def _to_beat(self, row: int) -> float:
        """The score of the last of the best texts of a row, as long as there are so many."""
        scores = sorted((leaf.score or 0.0 for leaf in self.kept[row]), reverse=True)
        return scores[self.beam.best - 1] if len(scores) >= self.beam.best else -inf

    def _scores(self, sums: Tensor, terms: int, places: Tensor) -> list[float]:
        """What texts (n,) are ranked by; they end at these places among the hypotheses."""
        scores = sums / self.beam.length_penalty(terms)
        if self.live.attention is not None:
            scores = scores + self.beam.coverage * uncovered(self.live.attention[places])
        found: list[float] = scores.tolist()
        return found

    def _move(self, choice: Choice, parents: Tensor, stay: Tensor | None) -> None:
        """Go on with what was chosen."""
        live, required = self.live, self.required
        rows = live.rows if stay is None else live.rows[stay]
        self.last = self.last if stay is None else self.last[stay]
        recent = remembered(live.recent, choice.tokens.view(-1), parents)
        attention = None if live.attention is None else live.attention[parents]
        self.live = Live(rows, choice.scores, recent, None, attention)
        if required is not None and recent is not None and live.met is not None:
            self.live = replace(self.live, met=required.after(live.met[parents], recent, self.live.owners)[0])

    def _cut_off(self) -> None:
        """Keep what is as long as it may be, if it has what it must have."""
        live, longest = self.live, self.rules.longest
        there = live.scores > -inf
        if live.met is not None:
            there = there & live.met.all(-1).view_as(there)
        row, slot = there.nonzero(as_tuple=True)
        places = row * live.scores.size(1) + slot
        scores = self._scores(live.scores[row, slot], longest, places)
        for number, place, score in zip(live.rows[row].tolist(), places.tolist(), scores, strict=True):
            self.kept[number].append(Leaf(longest, place, score=score))
        for at, number in enumerate(live.rows.tolist()):
            if not self.kept[number]:
                self._break_off(at, longest)

    def _break_off(self, at: int, written: int) -> None:
        """Keep the best that is live in a row, or of those that met the most of what they must have, unfinished."""
        live = self.live
        worth = live.scores[at]
        if self.required is not None and live.recent is not None and live.met is not None:
            banks = self.required.after(live.met, live.recent, live.owners)[1].view_as(live.scores)[at]
            worth = worth.where((banks == banks[worth > -inf].max()), -inf)
        place = at * live.scores.size(1) + int(worth.argmax())
        sums, places = live.scores.view(-1)[[place]], torch.tensor([place], device=worth.device)
        score = self._scores(sums, max(written, 1), places)[0]
        self.kept[int(live.rows[at])].append(Leaf(written, place, score=score))

    def _texts(self) -> list[list[Written]]:
        best = [sorted(row, key=lambda leaf: -(leaf.score or 0.0))[: self.beam.best] for row in self.kept]
        texts = iter(self.trail.texts([leaf for row in best for leaf in row]))
        return [[next(texts) for _ in row] for row in best]


if TYPE_CHECKING:
    _search: Search = Beam()
