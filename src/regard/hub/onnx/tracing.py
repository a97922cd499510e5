"""Models as a graph can hold them: the same modules, but for those that look at numbers before they compute.

A graph is drawn once for every batch, so nothing in it may depend on what a batch holds. `attend` and `Padding` check
their inputs and choose a kernel; in their places stand the plain definition of attention and a mask that believes.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention.attend import plain
from regard.attention.grid import Grid
from regard.attention.inputs import Prepared, Where
from regard.attention.kernels import recurrent
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.masks import Mask, as_mask
from regard.attention.observe import Attended, Observe
from regard.attention.scores import as_score
from regard.attention.tap import Tap
from regard.attention.windows import LocalM, LocalP
from regard.hub.onnx.recurrence import Operator
from regard.models.encoder import Encoder
from regard.models.heads import Summary
from regard.models.pooling import PoolingClassifier
from regard.models.spelling import Spelled


def traceable(model: nn.Module) -> nn.Module:
    """A copy of a model that torch.export can follow; its weights are the same."""
    return _swapped(deepcopy(model).eval())


def _swapped(module: nn.Module) -> nn.Module:
    for name, child in list(module.named_children()):
        setattr(module, name, _swapped(child))
    swap = SWAPS.get(type(module))
    return module if swap is None else swap(module)


@dataclass(frozen=True, eq=False)
class Real(Mask):
    """The first `lengths` (B,) keys of each row, which nobody checks."""

    lengths: Tensor

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return cols < grid.by_batch(self.lengths, trailing=2)


class Pairs(Prepared):
    """Prepared, of which nobody asks for a part: sizes may be unknown, and a slice of them cannot be counted."""

    def index(self, where: Where, size: int) -> Tensor:
        return torch.arange(size, device=self.grid.device)


class PlainTap(nn.Module):
    """A Tap that nobody hears: attention by its definition."""

    def __init__(self, tap: nn.Module) -> None:
        super().__init__()

    def forward(
        self,
        q: Tensor,
        k: Tensor | PreparedKeys,
        v: Tensor | None = None,
        *,
        score: Any = None,
        mask: Mask | None = None,
        window: LocalM | LocalP | None = None,
        observe: Observe | None = None,
        **how: Any,
    ) -> Attended:
        if isinstance(k, PreparedKeys):
            given, observe = k.inputs(q, window), observe or Observe()
            if window is None:
                return recurrent.compute(given, k.values, 0.0, observe)
            pairs = Pairs(given.score, given.q, given.k, given.mask, None, given.window, given.aim, given.grid)
            return plain(pairs, k.values, 0.0, observe)
        grid = Grid(tuple(q.shape[:-2]), q.size(-2), k.size(-2), q.device)
        asked = as_score(score)
        prepared = Pairs(asked, *asked.prepare(q, k), as_mask(mask), None, None, None, grid)
        return plain(prepared, k if v is None else v, 0.0, Observe())


class PlainEncoder(nn.Module):
    """Encoder, with a mask that believes its lengths."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        own = cast(Encoder, encoder)
        self.embedded, self.blocks, self.last = own.embedded, own.blocks, own.last

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.layers(ids, lengths, segments)[-1]

    def layers(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        states = [self.embedded(ids, segments=segments)]
        for block in self.blocks:
            states.append(block(states[-1], mask=Real(lengths)))
        return [*states[:-1], self.last(states[-1])]


class PlainSummary(nn.Module):
    """Summary, likewise."""

    def __init__(self, summary: nn.Module) -> None:
        super().__init__()
        self.own = cast(Summary, summary)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        if self.own.question is None:
            return cast(Tensor, self.own(states, lengths))
        return cast(Tensor, self.own.question(states, mask=Real(lengths)))


class PlainPooling(nn.Module):
    """PoolingClassifier, likewise."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.own = cast(PoolingClassifier, classifier)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        x = self.own.embedding(inputs)
        x = x if self.own.states is None else self.own.states(x, lengths)
        return cast(Tensor, self.own.classes(self.own.pooling(x, mask=Real(lengths))))


class ReadOnce(nn.Module):
    """Spelled, with every word of the vocabulary read beforehand: a table. Words outside of it are unknown here."""

    table: Tensor

    def __init__(self, spelled: nn.Module) -> None:
        super().__init__()
        own = cast(Spelled, spelled)
        self.vocabulary, self.width = own.vocabulary, own.width
        with torch.no_grad():
            self.register_buffer("table", own.vectors(own.table))

    def forward(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor:
        return nn.functional.embedding(inputs, self.table)


SWAPS: dict[type[nn.Module], type[nn.Module]] = {
    Tap: PlainTap,
    Encoder: PlainEncoder,
    Summary: PlainSummary,
    PoolingClassifier: PlainPooling,
    Spelled: ReadOnce,
    nn.RNN: Operator,
    nn.GRU: Operator,
    nn.LSTM: Operator,
}
