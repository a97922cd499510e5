"""Counterfactual attention: what a model predicts when its weights are permuted, uniform or erased.

Permutation test and uniform attention baseline: Jain & Wallace 2019, algorithm 2; if attention is the reason for the
output, other attention weights should change the output. Erasure: Serrano & Smith 2019; if the largest weights decide,
fewer of them need to be removed than of weights in random order, or in the order of the gradient. What a model computes
before the changed place is computed once and replayed from an activation cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.adapters import InputRow, ModelAdapter
from regard.inspection import intercept_weights


class ActivationCache:
    """Runs of a model on the same input, in which all but the first start at one place.

    cache = ActivationCache(model)
    with cache.run(): ...     # the first run; the hook at the place calls cache.reach_place()
    with cache.run(): ...     # the second: modules that finished before the place return their cached outputs
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._outputs: dict[nn.Module, list[Any]] = {}
        self._is_filled = self._before_place = False

    def reach_place(self) -> None:
        """The place has been reached: what follows depends on its weights and is not cached."""
        self._before_place = False

    @contextmanager
    def run(self) -> Iterator[None]:
        """One run of the model."""
        self._before_place = not self._is_filled
        if not self._is_filled:
            self._outputs.clear()  # of a first run that failed
        modules = [one for one in self.model.modules() if one is not self.model and "forward" not in vars(one)]
        for module in modules:
            module.forward = self._cached(module, module.forward)
        try:
            yield
        finally:
            for module in modules:
                del module.forward
        self._is_filled = True

    def _cached(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        def cached_forward(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            number, calls = calls, calls + 1
            outputs = self._outputs.get(module, [])
            if self._is_filled:
                return outputs[number] if number < len(outputs) else forward(*args, **kwargs)
            counts = {one: len(self._outputs.get(one, [])) for one in module.modules()}
            output = forward(*args, **kwargs)
            if self._before_place:
                for one, count in counts.items():  # the submodules of a module that is not run are not called
                    del self._outputs.get(one, [])[count:]
                self._outputs.setdefault(module, []).append(output)
            return output

        return cached_forward


WeightChange = Callable[[Tensor], Tensor]
"""A function of the weights of the readout queries, (copies, B, heads, queries, S), that returns other weights."""


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """Some texts, `copies` times in one batch; each copy may attend differently at one place.

    Only the readout query is changed: the one from which the decision is read; all queries where there is no such one.
    """

    adapter: ModelAdapter
    rows: Sequence[InputRow]
    place: str
    copies: int = 1

    def probs(self, change: WeightChange | None = None, heads: Sequence[int] | None = None) -> Tensor:
        """p (copies, B, C) of every class with changed weights of these heads (all of them, if None)."""
        self._unchanged  # noqa: B018 - the run that fills the cache
        return self._run(change, heads).unflatten(0, (self.copies, -1))

    @property
    def weights(self) -> Tensor:
        """The real weights of the readout queries: (B, H, queries, S)."""
        return self._unchanged[1].unflatten(0, (self.copies, -1))[0]

    @property
    def plain(self) -> Tensor:
        """p (B, C) with the real weights."""
        return self._unchanged[0].unflatten(0, (self.copies, -1))[0]

    @property
    def is_token(self) -> Tensor:
        """(B, S): which keys are tokens of the text, not padding."""
        lengths = torch.tensor([len(row.ids) for row in self.rows])
        return torch.arange(self.weights.size(-1)) < lengths.unsqueeze(1)

    @cached_property
    def _cache(self) -> ActivationCache:
        return ActivationCache(self.adapter.model)

    @cached_property
    def _readout(self) -> list[int] | None:
        positions = self.adapter.readout_position(self.place, self.rows)
        return None if positions is None else positions * self.copies

    @cached_property
    def _unchanged(self) -> tuple[Tensor, Tensor]:
        calls: list[Tensor] = []
        probs = self._run(None, None, calls)
        weights, at = torch.cat(calls, 2), self._readout
        return probs, weights if at is None else weights[range(len(at)), :, at].unsqueeze(2)

    def _run(
        self, change: WeightChange | None, heads: Sequence[int] | None, calls: list[Tensor] | None = None
    ) -> Tensor:
        """p (copies * B, C); the weights of each call at the place are appended to `calls`."""
        queries = 0  # of the calls before this one

        def intervene(place: str, weights: Tensor) -> Tensor:
            nonlocal queries
            self._cache.reach_place()
            first, queries = queries, queries + weights.size(2)
            if calls is not None:
                calls.append(weights.detach())
            if change is None:
                return weights
            return self._changed(weights, first, change, heads)

        with_grad = change is not None and torch.is_grad_enabled()
        intercepted = intercept_weights(self.adapter.model, self.place)
        with torch.set_grad_enabled(with_grad), self._cache.run(), intercepted(intervene):
            return self.adapter.log_probs(list(self.rows) * self.copies).exp()

    def _changed(self, weights: Tensor, first: int, change: WeightChange, heads: Sequence[int] | None) -> Tensor:
        chosen = list(range(weights.size(1))) if heads is None else list(heads)
        new = weights.clone()
        if self._readout is None:
            old = weights[:, chosen].unflatten(0, (self.copies, -1))
            new[:, chosen] = change(old).flatten(0, 1)
            return new
        rows = [row for row, at in enumerate(self._readout) if first <= at < first + weights.size(2)]
        if not rows:
            return weights
        # a call with the readout queries of some texts passes the weights of all texts, and changes those of these
        at = [min(max(at - first, 0), weights.size(2) - 1) for at in self._readout]
        old = weights[range(len(at)), :, at][:, chosen].unsqueeze(2)
        changed = change(old.unflatten(0, (self.copies, -1))).flatten(0, 1).squeeze(2)
        index = torch.tensor(rows).unsqueeze(1), torch.tensor(chosen).unsqueeze(0), torch.tensor([at[r] for r in rows])
        return new.index_put((*index[:2], index[2].unsqueeze(1)), changed[rows])


def predict_permuted(
    counterfactual: Counterfactual, heads: Sequence[int] | None, times: int, rng: torch.Generator
) -> Tensor:
    """p (times, B, C) when the weights of each text are permuted at random among its tokens."""
    rounds = -(-times // counterfactual.copies)
    probs = [counterfactual.probs(_permute(_random_orders(counterfactual, rng)), heads) for _ in range(rounds)]
    return torch.cat(probs)[:times]


def predict_uniform(counterfactual: Counterfactual, heads: Sequence[int] | None) -> Tensor:
    """p (B, C) when every visible token gets the same weight."""

    def uniform(weights: Tensor) -> Tensor:
        visible = (weights > 0).to(weights.dtype)
        return visible / visible.sum(-1, keepdim=True).clamp(min=1)

    return counterfactual.probs(uniform, heads)[0]


def decision_flips(probs: Tensor, plain: Tensor) -> Tensor:
    """Whether the predicted class differs from that of plain (B, C): (..., B), as 0 and 1."""
    return (probs.argmax(-1) != plain.argmax(-1)).to(plain.dtype)


def _random_orders(counterfactual: Counterfactual, rng: torch.Generator) -> Tensor:
    """(copies, B, S): a random permutation of the tokens of each text; padding keeps its place."""
    is_token = counterfactual.is_token
    keys = torch.rand(counterfactual.copies, *is_token.shape, generator=rng).masked_fill(~is_token, 2.0)
    return keys.argsort(dim=-1, stable=True)


def _permute(orders: Tensor) -> WeightChange:
    def permuted(weights: Tensor) -> Tensor:
        index = orders[:, :, None, None].expand(weights.shape).to(weights.device)
        return weights.gather(-1, index)

    return permuted


ERASURE_STEPS = 10  # shares of the tokens after whose removal the decision is checked


def erasure_shares(steps: int = ERASURE_STEPS) -> list[float]:
    """1/steps, 2/steps ... 1: shares of the tokens to erase."""
    return [(number + 1) / steps for number in range(steps)]


def rank_tokens(scores: Tensor, is_token: Tensor) -> Tensor:
    """Token positions (B, S) from the highest score to the lowest, ties by position; padding comes last."""
    return scores.masked_fill(~is_token, -torch.inf).argsort(dim=-1, descending=True, stable=True)


def predict_erased(counterfactual: Counterfactual, heads: Sequence[int] | None, erased: Tensor) -> Tensor:
    """p (copies, B, C) with the weights of tokens `erased` (copies, B, S) set to 0 and the others renormalised."""
    return counterfactual.probs(_erase(erased), heads)


def erase_until_flip(
    counterfactual: Counterfactual, heads: Sequence[int] | None, order: Tensor, steps: int = ERASURE_STEPS
) -> tuple[Tensor, Tensor]:
    """Erase tokens in this order (B, S). Returns whether the first alone flips the decision (B,), and the smallest
    share that does, of those checked; 1 where none does. Never all tokens: there would be no weight left."""
    lengths = counterfactual.is_token.sum(-1)
    rank = order.argsort(-1)
    counts = [torch.ones_like(lengths)]
    counts += [
        (share * lengths.double() - 1e-9).ceil().long().clamp(max=lengths - 1) for share in erasure_shares(steps)
    ]
    flips = []
    for some in torch.stack(counts).split(counterfactual.copies):
        filled = torch.cat((some, some[-1:].expand(counterfactual.copies - len(some), -1)))
        probs = predict_erased(counterfactual, heads, rank < filled.unsqueeze(-1))
        flips.append((probs.argmax(-1) != counterfactual.plain.argmax(-1))[: len(some)])
    flat = torch.cat(flips)  # (1 + steps, B)
    shares = torch.stack(counts) / lengths
    smallest = torch.where(flat, shares, torch.ones(())).min(0).values
    return flat[0].to(counterfactual.plain.dtype), smallest


def _erase(erased: Tensor) -> WeightChange:
    def renormalised(weights: Tensor) -> Tensor:
        rest = weights.masked_fill(erased[:, :, None, None, :], 0.0)
        before, after = weights.sum(-1, keepdim=True), rest.sum(-1, keepdim=True)
        return rest * (before / after.masked_fill(after == 0, 1.0))

    return renormalised
