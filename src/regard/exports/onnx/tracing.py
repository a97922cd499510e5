"""Traceable models for torch.export: modules with data-dependent control flow are swapped for plain ones.

One graph serves every batch, so nothing in it may depend on the values of a batch. `attend` and `Padding` check their
inputs and choose a kernel; they are replaced by the plain definition of attention and an unchecked mask. A recurrent
layer traced step by step would fix the length of texts; RNN, GRU and LSTM become ONNX operators.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from regard.attention import Attended, AttentionInputs, Grid, Index, Normaliser, Observe, Tap, plain
from regard.attention.kernels import recurrent
from regard.attention.kernels.recurrent import PreparedKeys
from regard.attention.masks import Mask, as_mask
from regard.attention.normalise import as_normaliser
from regard.attention.scores import as_score
from regard.attention.windows import LocalM, LocalP
from regard.models import CharCNN, Encoder, Pooler, PoolingClassifier

RNNState = Tensor | tuple[Tensor, ...]
GATE_ORDER = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}  # of torch's gates, in the operator's order
RNN_ATTRIBUTES: dict[str, dict[str, Any]] = {"RNN": {}, "GRU": {"linear_before_reset": 1}, "LSTM": {}}


class OnnxRNN(nn.Module):
    """An RNN, GRU or LSTM of torch as an ONNX operator. It runs in a graph alone: here it returns zeros."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        rnn = cast(nn.RNNBase, layers)
        assert rnn.batch_first and not rnn.bidirectional and rnn.bias, "the layers of our models"
        self.kind = type(rnn).__name__
        self.hidden_size, self.num_layers = rnn.hidden_size, rnn.num_layers
        for layer in range(rnn.num_layers):
            kinds = ("ih", "hh")
            for kind in kinds:
                self.register_buffer(f"{kind}_{layer}", self._reorder_gates(getattr(rnn, f"weight_{kind}_l{layer}")))
            biases = [self._reorder_gates(getattr(rnn, f"bias_{kind}_l{layer}")) for kind in kinds]
            self.register_buffer(f"bias_{layer}", torch.cat(biases, -1))

    def forward(self, x: Tensor, start: RNNState | None = None) -> tuple[Tensor, RNNState]:
        """x (B, T, D) from these states (layers, B, H): the states of the last layer (B, T, H), and the final ones."""
        initial = (start,) if isinstance(start, Tensor) else start
        x, ends = x.transpose(0, 1), []
        for layer in range(self.num_layers):
            x, *end = self._layer(x, layer, None if initial is None else [one[layer : layer + 1] for one in initial])
            ends.append(end)
        last = tuple(torch.cat(parts) for parts in zip(*ends, strict=True))
        return x.transpose(0, 1), last if self.kind == "LSTM" else last[0]

    def _layer(self, x: Tensor, layer: int, initial: list[Tensor] | None) -> tuple[Tensor, ...]:
        """x (T, B, D): all states (T, B, H), and the final ones (1, B, H), of an LSTM c too."""
        length, rows, size = x.size(0), x.size(1), self.hidden_size
        parts = 2 if self.kind == "LSTM" else 1
        weights = [getattr(self, f"{name}_{layer}") for name in ("ih", "hh", "bias")]
        states, *last = torch.onnx.ops.symbolic_multi_out(
            self.kind,
            [
                x,
                *weights,
                *([] if initial is None else [None, *initial]),
            ],  # None: no sequence lengths, padding is included
            {"hidden_size": size, **RNN_ATTRIBUTES[self.kind]},
            dtypes=[x.dtype] * (1 + parts),
            shapes=[(length, 1, rows, size), *[(1, rows, size)] * parts],
        )
        return states.squeeze(1), *last

    def _reorder_gates(self, weight: Tensor) -> Tensor:
        """(G H, ...) with the gates in the operator's order, and the dimension of its directions: (1, G H, ...)."""
        gates = weight.detach().unflatten(0, (len(GATE_ORDER[self.kind]), -1))
        return gates[list(GATE_ORDER[self.kind])].flatten(0, 1).unsqueeze(0).clone()


def make_traceable(model: nn.Module) -> nn.Module:
    """A copy of a model, with the same weights, that torch.export can trace."""
    return _swap(deepcopy(model).eval())


def _swap(module: nn.Module) -> nn.Module:
    for name, child in list(module.named_children()):
        setattr(module, name, _swap(child))
    swap = SWAPS.get(type(module))
    return module if swap is None else swap(module)


@dataclass(frozen=True, eq=False)
class LengthMask(Mask):
    """Padding without checks: the first `lengths` (B,) keys of each row."""

    lengths: Tensor

    def allowed(self, rows: Tensor, cols: Tensor, grid: Grid) -> Tensor:
        return cols < grid.by_batch(self.lengths, trailing=2)


class TraceableInputs(AttentionInputs):
    """AttentionInputs with symbolic sizes, of which no slice can be taken."""

    def index(self, where: Index, size: int) -> Tensor:
        return torch.arange(size, device=self.grid.device)


class PlainTap(nn.Module):
    """A Tap without listeners: attention by its plain definition."""

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
        normalise: Normaliser | None = None,
        observe: Observe | None = None,
        **how: Any,
    ) -> Attended:
        if isinstance(k, PreparedKeys):
            given, observe = k.inputs(q, window, normalise), observe or Observe()
            if window is None and normalise is None:
                return recurrent.compute(given, k.values, 0.0, observe)
            terms = given.mask, None, given.window, given.predicted
            pairs = TraceableInputs(given.score, given.q, given.k, *terms, given.grid, given.normalise)
            return plain(pairs, k.values, 0.0, observe)
        grid = Grid(tuple(q.shape[:-2]), q.size(-2), k.size(-2), q.device)
        scores = as_score(score)
        queries, keys = scores.prepare(q, k)
        normaliser = as_normaliser(normalise)
        prepared = TraceableInputs(scores, queries, keys, as_mask(mask), None, None, None, grid, normaliser)
        return plain(prepared, k if v is None else v, 0.0, Observe())


class PlainEncoder(nn.Module):
    """Encoder with an unchecked padding mask."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        original = cast(Encoder, encoder)
        self.embedding, self.blocks, self.final_norm = original.embedding, original.blocks, original.final_norm

    def forward(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.layers(ids, lengths, segments)[-1]

    def layers(self, ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> list[Tensor]:
        states = [self.embedding(ids, segments=segments)]
        for block in self.blocks:
            states.append(block(states[-1], mask=LengthMask(lengths)))
        return [*states[:-1], self.final_norm(states[-1])]


class PlainPooler(nn.Module):
    """Pooler with an unchecked padding mask."""

    def __init__(self, pooler: nn.Module) -> None:
        super().__init__()
        self.original = cast(Pooler, pooler)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        if self.original.attention is None:
            return cast(Tensor, self.original(states, lengths))
        return cast(Tensor, self.original.attention(states, mask=LengthMask(lengths)))


class PlainPoolingClassifier(nn.Module):
    """PoolingClassifier with an unchecked padding mask."""

    def __init__(self, classifier: nn.Module) -> None:
        super().__init__()
        self.original = cast(PoolingClassifier, classifier)

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        x = self.original.embedding(inputs)
        x = x if self.original.encoder is None else self.original.encoder(x, lengths)
        return cast(Tensor, self.original.classes(self.original.pooling(x, mask=LengthMask(lengths))))


class PrecomputedTable(nn.Module):
    """A CharCNN whose vectors of the whole vocabulary are precomputed. Words outside of it are not supported."""

    table: Tensor

    def __init__(self, char_cnn: nn.Module) -> None:
        super().__init__()
        original = cast(CharCNN, char_cnn)
        self.vocabulary, self.width = original.vocabulary, original.width
        with torch.no_grad():
            self.register_buffer("table", original.vectors(original.table))

    def forward(self, inputs: Tensor, spellings: Tensor | None = None) -> Tensor:
        return nn.functional.embedding(inputs, self.table)


SWAPS: dict[type[nn.Module], type[nn.Module]] = {
    Tap: PlainTap,
    Encoder: PlainEncoder,
    Pooler: PlainPooler,
    PoolingClassifier: PlainPoolingClassifier,
    CharCNN: PrecomputedTable,
    nn.RNN: OnnxRNN,
    nn.GRU: OnnxRNN,
    nn.LSTM: OnnxRNN,
}
