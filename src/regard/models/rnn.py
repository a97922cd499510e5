"""Recurrent layers (RNN, GRU, LSTM) of language models and encoders, and sequences reversed within their padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import SettingError
from regard.models.cells import build_rnn


def reverse_padded(x: Tensor, lengths: Tensor) -> Tensor:
    """x (B, T, D) with the first `lengths` (B,) positions of each row in reverse order, padding left in place.

    Its own inverse: reverse_padded(reverse_padded(x, lengths), lengths) is x.
    """
    position = torch.arange(x.size(1), device=x.device)
    last = lengths.unsqueeze(-1) - 1
    source = torch.where(position <= last, last - position, position)  # (B, T)
    return x.gather(1, source.unsqueeze(-1).expand_as(x))


CellKind = Literal["rnn", "gru", "lstm"]
Carry = Mapping[str, Tensor]
"""The state of a language model between segments (truncated backpropagation): tensors (B, ...)."""


class RecurrentLayers(nn.Module):
    """A stack of recurrent layers of one kind of cell, with dropout between them.

    RecurrentLayers("lstm", 64, 128, layers=2)         # inputs of width 64, states of 128
    """

    def __init__(self, cell: CellKind, width: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 1:
            raise SettingError(f"layers={layers}", "at least 1", where="RecurrentLayers")
        self.names = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        self.layers = build_rnn(cell, width, hidden, layers, dropout=dropout)
        if cell == "lstm":
            _open_forget_gates(self.layers)

    @property
    def hidden(self) -> int:
        """The width of a state."""
        return int(self.layers.hidden_size)

    def forward(
        self, x: Tensor, carry: Carry | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """x (B, T, width): the states of the last layer (B, T, hidden), and the detached final state as a new carry.

        `carry`: the one an earlier call returned; without it the initial state is zero. With `lengths` (B,) the final
        state of a row is the one after its last real vector, and the states of padding are zeros.
        """
        before = self._zeros(x) if carry is None else {name: carry[name] for name in self.names}
        if not x.size(1):  # torch refuses empty sequences
            return x.new_zeros(len(x), 0, self.hidden), {name: one.detach() for name, one in before.items()}
        initial = tuple(one.to(x.dtype).transpose(0, 1).contiguous() for one in before.values())  # torch: layers first
        start = initial if len(initial) > 1 else initial[0]
        if lengths is None:
            states, after = self.layers(x, start)
        else:
            packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            packed_states, after = self.layers(packed, start)
            states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=x.size(1))
        parts = after if isinstance(after, tuple) else (after,)
        final = dict(zip(self.names, (one.transpose(0, 1) for one in parts), strict=True))
        if lengths is not None:  # torch packs no empty rows either: those were given one vector too many
            nonempty = (lengths > 0).view(-1, 1, 1)
            final = {name: torch.where(nonempty, one, before[name]) for name, one in final.items()}
            states = torch.where(nonempty, states, 0.0)
        return states, {name: one.detach() for name, one in final.items()}

    def _zeros(self, x: Tensor) -> dict[str, Tensor]:
        return {name: x.new_zeros(len(x), self.layers.num_layers, self.hidden) for name in self.names}


def _open_forget_gates(layers: nn.RNNBase) -> None:
    """Forget-gate bias 1 (Jozefowicz et al. 2015): torch adds two biases, so one of them becomes 1."""
    for name, bias in layers.named_parameters():
        if name.startswith("bias_ih"):
            nn.init.ones_(bias.data[layers.hidden_size : 2 * layers.hidden_size])
