"""Adversarial attention: the most different attention weights that keep the model's output.

If there are any, the map is not the only story. Jain & Wallace 2019, section 4.2.2: from random starts, maximise the
Jensen-Shannon divergence from the real weights while the output may change only a little. The bound is ln 2 = 0.69,
for two maps without overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.faithfulness.counterfactual import Counterfactual, WeightChange
from regard.inspection import jsd, overlap, tvd

PENALTY = 500.0


@dataclass(frozen=True)
class AdversarySearch:
    """Settings of the search. As published: AdversarySearch(starts=5, steps=500, lr=0.01, one_hot=False).

    starts      random initial maps, optimised together for `steps` steps of Adam with learning rate `lr`
    tolerance   how much the output may change, in total variation distance; changes above `slack` are penalised
    one_hot     first try all the weight on one token, for each token: no map is more different than one of these
    enough      texts for which that reaches this share of the largest possible divergence are not searched further
    """

    starts: int = 8
    steps: int = 40
    lr: float = 0.15
    tolerance: float = 0.05
    slack: float = 0.01
    one_hot: bool = True
    enough: float = 0.9


QUICK_SEARCH = AdversarySearch()
PUBLISHED_SEARCH = AdversarySearch(starts=5, steps=500, lr=0.01, one_hot=False)


@dataclass(frozen=True, eq=False)
class AdversarialAttention:
    """For each text: the largest divergence found (B,), 0 where every other map changed the output; the overlap of that
    map with the real one (B,), 1 where none was found; the map itself (B, heads, S)."""

    jsd: Tensor
    overlap: Tensor
    weights: Tensor


def find_adversary(
    counterfactual: Counterfactual, heads: Sequence[int] | None, search: AdversarySearch, rng: torch.Generator
) -> AdversarialAttention:
    """The most different map of each text that keeps the output, the same for all readout queries."""
    chosen = list(range(counterfactual.weights.size(1))) if heads is None else list(heads)
    real = counterfactual.weights[:, chosen].mean(2)  # (B, h, S)
    best = _BestSoFar(real, search.tolerance, counterfactual.plain)
    left = list(range(len(real)))
    if search.one_hot:
        bound = real.new_zeros(len(real))
        for some in torch.arange(real.size(-1)).split(counterfactual.copies):
            bound = torch.maximum(bound, _try_one_hot(counterfactual, chosen, some, best))
        left = (best.jsd < search.enough * bound).nonzero().squeeze(-1).tolist()
    if left:
        rows = [counterfactual.rows[at] for at in left]
        rest = Counterfactual(counterfactual.adapter, rows, counterfactual.place, search.starts)
        _gradient_ascent(rest, chosen, search, rng, best, left)
    return AdversarialAttention(best.jsd, best.overlap, best.weights)


class _BestSoFar:
    """The most different maps so far that kept the output."""

    def __init__(self, real: Tensor, tolerance: float, plain: Tensor) -> None:
        self.real, self.tolerance, self.plain = real, tolerance, plain
        self.jsd, self.overlap = real.new_zeros(len(real)), real.new_ones(len(real))
        self.weights = real.clone()

    def update(self, weights: Tensor, probs: Tensor, texts: Sequence[int]) -> None:
        """Consider maps (copies, n, h, S) of these texts, with the model's output under them (copies, n, C)."""
        real = self.real[texts]
        distance = jsd(weights, real).mean(-1).masked_fill(tvd(probs, self.plain[texts]) > self.tolerance, -1.0)
        values, which = distance.max(0)
        better = values > self.jsd[texts]
        picked = weights[which, range(len(which))]
        self.jsd[texts] = torch.where(better, values, self.jsd[texts])
        self.overlap[texts] = torch.where(better, overlap(picked, real).mean(-1), self.overlap[texts])
        self.weights[texts] = torch.where(better[:, None, None], picked, self.weights[texts])


def _try_one_hot(counterfactual: Counterfactual, heads: Sequence[int], tokens: Tensor, best: _BestSoFar) -> Tensor:
    """Put all the weight on one token, a different one in each copy; returns the largest divergence of these maps from
    the real one, (B,)."""
    B, h, S = best.real.shape
    which = torch.nn.functional.pad(tokens, (0, counterfactual.copies - len(tokens)), value=int(tokens[-1]))
    weights = torch.nn.functional.one_hot(which, S).to(best.real.dtype)[:, None, None, :].expand(-1, B, h, S)
    is_token = counterfactual.is_token.to(best.real.device)[:, which].mT[..., None, None]  # padding gets no weight
    weights = torch.where(is_token, weights, best.real)
    with torch.no_grad():
        probs = counterfactual.probs(_set_weights(weights), heads)
    best.update(weights, probs, range(B))
    return jsd(weights, best.real).mean(-1).max(0).values


def _gradient_ascent(
    counterfactual: Counterfactual,
    heads: Sequence[int],
    search: AdversarySearch,
    rng: torch.Generator,
    best: _BestSoFar,
    texts: Sequence[int],
) -> None:
    """Gradient ascent from random maps, all starts at once; `texts`: the numbers of the counterfactual's texts in
    `best`."""
    size = counterfactual.weights.size(-1)  # may be less than that of all texts
    real, hidden = best.real[texts][..., :size], ~counterfactual.is_token[:, None, :].to(best.real.device)
    plain = best.plain[texts]
    logits = 3 * torch.randn(search.starts, *real.shape, generator=rng).to(real.device)
    logits.requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=search.lr, amsgrad=True)
    for step in range(search.steps + 1):
        with torch.enable_grad():
            weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
            probs = counterfactual.probs(_set_weights(weights), heads)
            loss = (PENALTY * (tvd(probs, plain) - search.slack).relu() - jsd(weights, real).mean(-1)).sum()
        padded = torch.nn.functional.pad(weights.detach(), (0, best.real.size(-1) - size))
        best.update(padded, probs.detach(), texts)
        if step < search.steps:
            (logits.grad,) = torch.autograd.grad(loss, [logits])  # of the map only, not of the model's parameters
            optimizer.step()


def _set_weights(weights: Tensor) -> WeightChange:
    """These weights (copies, B, h, S) for every readout query."""
    return lambda old: weights.unsqueeze(3).expand(old.shape)
