"""Counterfactual attention: what a model predicts when heads attend elsewhere, by permuted, uniform or erased weights.

Permutation and uniform weights: Jain & Wallace 2019, algorithm 2; if attention says why, then another attention ought
to say something else. Erasure: Serrano & Smith 2019; if the largest weights decide, then fewer of them need to go than
of weights taken at random, or in the order of the gradient. What a model computes before the changed place is computed
once and replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from regard.adapters import ModelAdapter, Row
from regard.inspection import tvd, weights_through


class Replay:
    """Runs of a model with the same input, of which all after the first begin at a place.

    replay = Replay(model)
    with replay.running(): ...     # the first run; whoever hears the place calls replay.here()
    with replay.running(): ...     # the second: modules that were done before give what they gave
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._given: dict[nn.Module, list[Any]] = {}
        self._recorded = self._before = False

    def here(self) -> None:
        """The place has been reached: what is computed from now on depends on what is done there."""
        self._before = False

    @contextmanager
    def running(self) -> Iterator[None]:
        """One run of the model."""
        self._before = not self._recorded
        if not self._recorded:
            self._given.clear()  # of a first run that failed
        modules = [one for one in self.model.modules() if one is not self.model and "forward" not in vars(one)]
        for module in modules:
            module.forward = self._wrapped(module, module.forward)
        try:
            yield
        finally:
            for module in modules:
                del module.forward
        self._recorded = True

    def _wrapped(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        calls = 0

        def instead(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            number, calls = calls, calls + 1
            known = self._given.get(module, [])
            if self._recorded:
                return known[number] if number < len(known) else forward(*args, **kwargs)
            inner = {one: len(self._given.get(one, [])) for one in module.modules()}
            found = forward(*args, **kwargs)
            if self._before:
                for one, count in inner.items():  # nobody will call what is within a module that is not run
                    del self._given.get(one, [])[count:]
                self._given.setdefault(module, []).append(found)
            return found

        return instead


Elsewhere = Callable[[Tensor], Tensor]
"""From the weights of the rows that decide, (copies, B, heads, queries, S), to others."""


@dataclass(frozen=True, eq=False)
class Trial:
    """Some texts, `copies` times side by side, of which each copy may look elsewhere at one place.

    Only the queries that decide are changed: the one from which the decision is read or, where there is none such, all.
    """

    asker: ModelAdapter
    rows: Sequence[Row]
    place: str
    copies: int = 1

    def said(self, elsewhere: Elsewhere | None = None, heads: Sequence[int] | None = None) -> Tensor:
        """p (copies, B, C) of every class, if these heads look elsewhere (all of them, if None)."""
        self._first  # noqa: B018 - the run that all later ones begin from
        return self._run(elsewhere, heads).unflatten(0, (self.copies, -1))

    @property
    def weights(self) -> Tensor:
        """The weights as they are, of the queries that decide: (B, H, queries, S)."""
        return self._first[1].unflatten(0, (self.copies, -1))[0]

    @property
    def plain(self) -> Tensor:
        """p (B, C), if nobody looks elsewhere."""
        return self._first[0].unflatten(0, (self.copies, -1))[0]

    @property
    def real(self) -> Tensor:
        """(B, S): which keys are tokens of the text, and no padding."""
        lengths = torch.tensor([len(row.ids) for row in self.rows])
        return torch.arange(self.weights.size(-1)) < lengths.unsqueeze(1)

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self.asker.model)

    @cached_property
    def _decider(self) -> list[int] | None:
        found = self.asker.readout_position(self.place, self.rows)
        return None if found is None else found * self.copies

    @cached_property
    def _first(self) -> tuple[Tensor, Tensor]:
        calls: list[Tensor] = []
        said = self._run(None, None, calls)
        whole, at = torch.cat(calls, 2), self._decider
        return said, whole if at is None else whole[range(len(at)), :, at].unsqueeze(2)

    def _run(
        self, elsewhere: Elsewhere | None, heads: Sequence[int] | None, calls: list[Tensor] | None = None
    ) -> Tensor:
        """p (copies * B, C); `calls` are filled with the weights of each call at the place."""
        asked = 0  # queries that calls before this one have asked

        def change(place: str, weights: Tensor) -> Tensor:
            nonlocal asked
            self._replay.here()
            first, asked = asked, asked + weights.size(2)
            if calls is not None:
                calls.append(weights.detach())
            if elsewhere is None:
                return weights
            return self._changed(weights, first, elsewhere, heads)

        learns = elsewhere is not None and torch.is_grad_enabled()
        passing = weights_through(self.asker.model, self.place)
        with torch.set_grad_enabled(learns), self._replay.running(), passing(change):
            return self.asker.log_probs(list(self.rows) * self.copies).exp()

    def _changed(self, weights: Tensor, first: int, elsewhere: Elsewhere, heads: Sequence[int] | None) -> Tensor:
        chosen = list(range(weights.size(1))) if heads is None else list(heads)
        new = weights.clone()
        if self._decider is None:
            old = weights[:, chosen].unflatten(0, (self.copies, -1))
            new[:, chosen] = elsewhere(old).flatten(0, 1)
            return new
        rows = [row for row, at in enumerate(self._decider) if first <= at < first + weights.size(2)]
        if not rows:
            return weights
        # a call that has the queries of some texts alone takes from all of them, and changes those
        at = [min(max(at - first, 0), weights.size(2) - 1) for at in self._decider]
        old = weights[range(len(at)), :, at][:, chosen].unsqueeze(2)
        changed = elsewhere(old.unflatten(0, (self.copies, -1))).flatten(0, 1).squeeze(2)
        index = torch.tensor(rows).unsqueeze(1), torch.tensor(chosen).unsqueeze(0), torch.tensor([at[r] for r in rows])
        return new.index_put((*index[:2], index[2].unsqueeze(1)), changed[rows])


def permuted(trial: Trial, heads: Sequence[int] | None, times: int, chance: torch.Generator) -> Tensor:
    """p (times, B, C) when the real tokens of each text exchange their weights at random."""
    rounds = -(-times // trial.copies)
    said = [trial.said(_exchange(_orders(trial, chance)), heads) for _ in range(rounds)]
    return torch.cat(said)[:times]


def uniform(trial: Trial, heads: Sequence[int] | None) -> Tensor:
    """p (B, C) when every token that is seen gets the same weight."""

    def even(weights: Tensor) -> Tensor:
        seen = (weights > 0).to(weights.dtype)
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)

    return trial.said(even, heads)[0]


def moved(said: Tensor, plain: Tensor) -> Tensor:
    """Total variation between what is said now (..., B, C) and what was said (B, C): (..., B)."""
    return tvd(said, plain)


def flipped(said: Tensor, plain: Tensor) -> Tensor:
    """Whether the decision is another one, (..., B), as 0 and 1."""
    return (said.argmax(-1) != plain.argmax(-1)).to(plain.dtype)


def _orders(trial: Trial, chance: torch.Generator) -> Tensor:
    """(copies, B, S): a random order of the real tokens of every text; padding stays where it is."""
    real = trial.real
    keys = torch.rand(trial.copies, *real.shape, generator=chance).masked_fill(~real, 2.0)
    return keys.argsort(dim=-1, stable=True)


def _exchange(orders: Tensor) -> Elsewhere:
    def exchanged(weights: Tensor) -> Tensor:
        index = orders[:, :, None, None].expand(weights.shape).to(weights.device)
        return weights.gather(-1, index)

    return exchanged


POINTS = 10  # shares of the tokens at which it is looked whether the decision has flipped


def shares(points: int = POINTS) -> list[float]:
    """1/points, 2/points ... of the tokens; never all, since nothing could be shared out then."""
    return [(number + 1) / points for number in range(points)]


def order_of(scores: Tensor, real: Tensor) -> Tensor:
    """Tokens (B, S) from the highest score to the lowest, the first of equals first; padding comes last."""
    return scores.masked_fill(~real, -torch.inf).argsort(dim=-1, descending=True, stable=True)


def erased(trial: Trial, heads: Sequence[int] | None, gone: Tensor) -> Tensor:
    """p (copies, B, C) without the weights of tokens `gone` (copies, B, S), the others larger by as much."""
    return trial.said(_rest(gone), heads)


def flipping(trial: Trial, heads: Sequence[int] | None, order: Tensor, points: int = POINTS) -> tuple[Tensor, Tensor]:
    """Tokens go in this order (B, S): whether the first alone flips the decision (B,), and the smallest share that
    does, of those looked at; 1 where none does."""
    lengths = trial.real.sum(-1)
    place = order.argsort(-1)  # when each token goes
    counts = [torch.ones_like(lengths)]
    counts += [(share * lengths.double() - 1e-9).ceil().long().clamp(max=lengths - 1) for share in shares(points)]
    flips = []
    for some in torch.stack(counts).split(trial.copies):
        filled = torch.cat((some, some[-1:].expand(trial.copies - len(some), -1)))
        said = erased(trial, heads, place < filled.unsqueeze(-1))
        flips.append((said.argmax(-1) != trial.plain.argmax(-1))[: len(some)])
    flat = torch.cat(flips)  # (1 + points, B)
    portions = torch.stack(counts) / lengths
    smallest = torch.where(flat, portions, torch.ones(())).min(0).values
    return flat[0].to(trial.plain.dtype), smallest


def _rest(gone: Tensor) -> Elsewhere:
    def left(weights: Tensor) -> Tensor:
        kept = weights.masked_fill(gone[:, :, None, None, :], 0.0)
        before, after = weights.sum(-1, keepdim=True), kept.sum(-1, keepdim=True)
        return kept * (before / after.masked_fill(after == 0, 1.0))

    return left
