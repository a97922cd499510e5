"""torch's recurrent layers as the operators RNN, GRU and LSTM of ONNX, for texts of any length.

Followed step by step, a recurrent layer would be a graph for texts of one length. The operators are the same formulas;
only the gates lie in another order: input, output, forget, cell for an LSTM; update, reset, new for a GRU.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

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
