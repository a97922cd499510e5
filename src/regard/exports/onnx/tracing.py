"""Models as a graph can hold them: the same modules, but for those that look at numbers before they compute.

A graph is drawn once for every batch, so nothing in it may depend on what a batch holds. `attend` and `Padding` check
their inputs and choose a kernel; in their places stand the plain definition of attention and a mask that believes. A
recurrent layer, followed step by step, would be a graph for texts of one length; RNN, GRU and LSTM become operators.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import Attended, Grid, Observe, Prepared, Tap, Where, plain
from regard.attention.kernels import recurrent
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.masks import Mask, as_mask
from regard.attention.scores import as_score
from regard.attention.windows import LocalM, LocalP
from regard.models import Encoder, PoolingClassifier, Spelled, Summary

State = Tensor | tuple[Tensor, ...]
ORDER = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}  # of our gates, as the operator takes them
EXTRA: dict[str, dict[str, Any]] = {"RNN": {}, "GRU": {"linear_before_reset": 1}, "LSTM": {}}


class Operator(nn.Module):
    """One RNN, GRU or LSTM of torch, its weights as ONNX has them. Only a graph can run it: here it gives zeros."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        own = cast(nn.RNNBase, layers)
        assert own.batch_first and not own.bidirectional and own.bias, "the layers of our models"
        self.kind = type(own).__name__
        self.hidden_size, self.num_layers = own.hidden_size, own.num_layers
        for layer in range(own.num_layers):
            ways = ("ih", "hh")
            for way in ways:
                self.register_buffer(f"{way}_{layer}", self._sorted(getattr(own, f"weight_{way}_l{layer}")))
            biases = [self._sorted(getattr(own, f"bias_{way}_l{layer}")) for way in ways]
            self.register_buffer(f"bias_{layer}", torch.cat(biases, -1))

    def forward(self, x: Tensor, start: State | None = None) -> tuple[Tensor, State]:
        """x (B, T, D) from these states (layers, B, H): the states of the last layer (B, T, H), and the last ones."""
        begins = (start,) if isinstance(start, Tensor) else start
        x, ends = x.transpose(0, 1), []
        for layer in range(self.num_layers):
            x, *end = self._layer(x, layer, None if begins is None else [one[layer : layer + 1] for one in begins])
            ends.append(end)
        last = tuple(torch.cat(parts) for parts in zip(*ends, strict=True))
        return x.transpose(0, 1), last if self.kind == "LSTM" else last[0]

    def _layer(self, x: Tensor, layer: int, begin: list[Tensor] | None) -> tuple[Tensor, ...]:
        """x (T, B, D): all states (T, B, H), and the last (1, B, H), of an LSTM the inner ones too."""
        length, rows, size = x.size(0), x.size(1), self.hidden_size
        parts = 2 if self.kind == "LSTM" else 1
        weights = [getattr(self, f"{name}_{layer}") for name in ("ih", "hh", "bias")]
        states, *last = torch.onnx.ops.symbolic_multi_out(
            self.kind,
            [x, *weights, *([] if begin is None else [None, *begin])],  # None: rows are read to their padded end
            {"hidden_size": size, **EXTRA[self.kind]},
            dtypes=[x.dtype] * (1 + parts),
            shapes=[(length, 1, rows, size), *[(1, rows, size)] * parts],
        )
        return states.squeeze(1), *last

    def _sorted(self, weight: Tensor) -> Tensor:
        """(G H, ...) with the gates in the operator's order, and the dimension of its directions: (1, G H, ...)."""
        gates = weight.detach().unflatten(0, (len(ORDER[self.kind]), -1))
        return gates[list(ORDER[self.kind])].flatten(0, 1).unsqueeze(0).clone()


def traceable(model: nn.Module) -> nn.Module:
    """A copy of a model that torch.export can follow; its weights are the same."""
    return _swapped(deepcopy(model).eval())


def _swapped(module: nn.Module) -> nn.Module:
    for name, child in list(module.named_children()):
        setattr(module, name, _swapped(child))
    swap = SWAPS.get(type(module))
    return module if swap is None else swap(module)


@dataclass(frozen=True, eq=False)
class LengthMask(Mask):
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
            states.append(block(states[-1], mask=LengthMask(lengths)))
        return [*states[:-1], self.last(states[-1])]


class PlainSummary(nn.Module):
    """Summary, likewise."""

    def __init__(self, summary: nn.Module) -> None:
        super().__init__()
        self.own = cast(Summary, summary)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        if self.own.question is None:
            return cast(Tensor, self.own(states, lengths))
        return cast(Tensor, self.own.question(states, mask=LengthMask(lengths)))


class PlainPooling(nn.Module):
    """PoolingClassifier, likewise."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.own = cast(PoolingClassifier, classifier)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        x = self.own.embedding(inputs)
        x = x if self.own.states is None else self.own.states(x, lengths)
        return cast(Tensor, self.own.classes(self.own.pooling(x, mask=LengthMask(lengths))))


class PrecomputedTable(nn.Module):
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
    Spelled: PrecomputedTable,
    nn.RNN: Operator,
    nn.GRU: Operator,
    nn.LSTM: Operator,
}
