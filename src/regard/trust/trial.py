"""Heads made to look elsewhere: what a model says of some texts when the weights at a place are others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.adapters.base import ModelAdapter
from regard.adapters.case import Row
from regard.inspection.measures.gradients import weights_through
from regard.trust.replay import Replay

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
