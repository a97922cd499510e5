"""The most different attention that keeps the output: if there is one, the map is not the only story.

Jain & Wallace 2019, section 4.2.2: from random starts, maximise the Jensen-Shannon divergence to the real weights while
the output may move by no more than a little. The bound is ln 2 = 0.69, two maps that share nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.faithfulness.counterfactual import Elsewhere, Trial
from regard.inspection import jsd, shared, tvd

PENALTY = 500.0


@dataclass(frozen=True)
class Search:
    """How hard it is tried. As published: Search(starts=5, steps=500, rate=0.01, one_hot=False).

    `tolerance`: how far the output may move, by total variation; `slack`: from where on that is punished. `one_hot`: to
    look at one single token, each in turn, is tried first: nothing differs more from a map than one of these. Texts
    for which that brings `enough` of the largest difference there is are not searched further.
    """

    starts: int = 8
    steps: int = 40
    rate: float = 0.15
    tolerance: float = 0.05
    slack: float = 0.01
    one_hot: bool = True
    enough: float = 0.9


QUICK = Search()
PUBLISHED = Search(starts=5, steps=500, rate=0.01, one_hot=False)


@dataclass(frozen=True, eq=False)
class Found:
    """For each text: the largest divergence (B,), 0 where every other map moved the output; what that map shares with
    the real one (B,), 1 where none was found; the map itself (B, heads, S)."""

    jsd: Tensor
    shared: Tensor
    weights: Tensor


def adversary(trial: Trial, heads: Sequence[int] | None, search: Search, chance: torch.Generator) -> Found:
    """The best other map for each text, the same for all queries that decide."""
    chosen = list(range(trial.weights.size(1))) if heads is None else list(heads)
    real = trial.weights[:, chosen].mean(2)  # (B, h, S)
    best = _Best(real, search.tolerance, trial.plain)
    left = list(range(len(real)))
    if search.one_hot:
        bound = real.new_zeros(len(real))
        for some in torch.arange(real.size(-1)).split(trial.copies):
            bound = torch.maximum(bound, _only(trial, chosen, some, best))
        left = (best.jsd < search.enough * bound).nonzero().squeeze(-1).tolist()
    if left:
        rest = Trial(trial.asker, [trial.rows[at] for at in left], trial.place, search.starts)
        _climb(rest, chosen, search, chance, best, left)
    return Found(best.jsd, best.shared, best.weights)


class _Best:
    """The most different maps so far that kept the output."""

    def __init__(self, real: Tensor, tolerance: float, plain: Tensor) -> None:
        self.real, self.tolerance, self.plain = real, tolerance, plain
        self.jsd, self.shared = real.new_zeros(len(real)), real.new_ones(len(real))
        self.weights = real.clone()

    def offer(self, weights: Tensor, said: Tensor, texts: Sequence[int]) -> None:
        """Maps (copies, n, h, S) of these texts and what is said with them (copies, n, C)."""
        real = self.real[texts]
        far = jsd(weights, real).mean(-1).masked_fill(tvd(said, self.plain[texts]) > self.tolerance, -1.0)
        values, which = far.max(0)
        better = values > self.jsd[texts]
        picked = weights[which, range(len(which))]
        self.jsd[texts] = torch.where(better, values, self.jsd[texts])
        self.shared[texts] = torch.where(better, shared(picked, real).mean(-1), self.shared[texts])
        self.weights[texts] = torch.where(better[:, None, None], picked, self.weights[texts])


def _only(trial: Trial, heads: Sequence[int], tokens: Tensor, best: _Best) -> Tensor:
    """Look at one token alone, these ones in turn, one a copy; how far the furthest of them is from the map, (B,)."""
    B, h, S = best.real.shape
    which = torch.nn.functional.pad(tokens, (0, trial.copies - len(tokens)), value=int(tokens[-1]))
    weights = torch.nn.functional.one_hot(which, S).to(best.real.dtype)[:, None, None, :].expand(-1, B, h, S)
    there = trial.real.to(best.real.device)[:, which].mT[..., None, None]  # padding is no place to look at
    weights = torch.where(there, weights, best.real)
    with torch.no_grad():
        said = trial.said(_instead(weights), heads)
    best.offer(weights, said, range(B))
    return jsd(weights, best.real).mean(-1).max(0).values


def _climb(
    trial: Trial, heads: Sequence[int], search: Search, chance: torch.Generator, best: _Best, texts: Sequence[int]
) -> None:
    """Gradient ascent from random maps, all starts at once, for these texts, which are those of the trial."""
    size = trial.weights.size(-1)  # they may be shorter than the longest of all texts
    real, hidden = best.real[texts][..., :size], ~trial.real[:, None, :].to(best.real.device)
    plain = best.plain[texts]
    logits = 3 * torch.randn(search.starts, *real.shape, generator=chance).to(real.device)
    logits.requires_grad_()
    optimiser = torch.optim.Adam([logits], lr=search.rate, amsgrad=True)
    for step in range(search.steps + 1):
        with torch.enable_grad():
            weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
            said = trial.said(_instead(weights), heads)
            loss = (PENALTY * (tvd(said, plain) - search.slack).relu() - jsd(weights, real).mean(-1)).sum()
        whole = torch.nn.functional.pad(weights.detach(), (0, best.real.size(-1) - size))
        best.offer(whole, said.detach(), texts)
        if step < search.steps:
            (logits.grad,) = torch.autograd.grad(loss, [logits])  # of the map alone: the model's weights are not ours
            optimiser.step()


def _instead(weights: Tensor) -> Elsewhere:
    """These weights (copies, B, h, S), for every query that decides."""
    return lambda old: weights.unsqueeze(3).expand(old.shape)
