"""Recurrent layers that language models and encoders share, and sequences reversed within their padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.errors import SettingError
from regard.models.cells import recurrent


def turned(x: Tensor, lengths: Tensor) -> Tensor:
    """x (B, T, D) with the first `lengths` (B,) places of each row in reverse, the others where they are.

    Its own inverse: turned(turned(x, lengths), lengths) is x.
    """
    here = torch.arange(x.size(1), device=x.device)
    last = lengths.unsqueeze(-1) - 1
    there = torch.where(here <= last, last - here, here)  # (B, T)
    return x.gather(1, there.unsqueeze(-1).expand_as(x))


Cell = Literal["rnn", "gru", "lstm"]
Carry = Mapping[str, Tensor]
"""What a model takes along: tensors (B, ...), each row with what belongs to it."""


class Recurrence(nn.Module):
    """Layers of one kind of cell, the states of each being read by the next, with dropout between them.

    Recurrence("lstm", 64, 128, layers=2)         # vectors of 64, states of 128
    """

    def __init__(self, cell: Cell, width: int, hidden: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        if layers < 1:
            raise SettingError(f"layers={layers}", "at least 1", where="Recurrence")
        self.names = ("hidden", "cell") if cell == "lstm" else ("hidden",)
        self.layers = recurrent(cell, width, hidden, layers, dropout=dropout)
        if cell == "lstm":
            _remember(self.layers)

    @property
    def hidden(self) -> int:
        """The width of a state."""
        return int(self.layers.hidden_size)

    def forward(
        self, x: Tensor, carry: Carry | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """x (B, T, width): the states of the last layer (B, T, hidden), and what to go on with, cut from its past.

        `carry`: what an earlier call gave; without it the cells remember nothing. Rows of which only the first
        `lengths` (B,) vectors are real are left where those end; their other states are zeros.
        """
        before = self._fresh(x) if carry is None else {name: carry[name] for name in self.names}
        if not x.size(1):  # torch reads no empty texts
            return x.new_zeros(len(x), 0, self.hidden), {name: one.detach() for name, one in before.items()}
        told = tuple(one.to(x.dtype).transpose(0, 1).contiguous() for one in before.values())  # torch: layers first
        start = told if len(told) > 1 else told[0]
        if lengths is None:
            states, after = self.layers(x, start)
        else:
            packed = pack_padded_sequence(x, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False)
            packed_states, after = self.layers(packed, start)
            states, _ = pad_packed_sequence(packed_states, batch_first=True, total_length=x.size(1))
        parts = after if isinstance(after, tuple) else (after,)
        ended = dict(zip(self.names, (one.transpose(0, 1) for one in parts), strict=True))
        if lengths is not None:  # torch packs no empty rows either: they have read one vector too many
            some = (lengths > 0).view(-1, 1, 1)
            ended = {name: torch.where(some, one, before[name]) for name, one in ended.items()}
            states = torch.where(some, states, 0.0)
        return states, {name: one.detach() for name, one in ended.items()}

    def _fresh(self, x: Tensor) -> dict[str, Tensor]:
        return {name: x.new_zeros(len(x), self.layers.num_layers, self.hidden) for name in self.names}


def _remember(layers: nn.RNNBase) -> None:
    """Forget gates that start open (Jozefowicz et al. 2015): torch adds two biases, so one of them becomes 1."""
    for name, bias in layers.named_parameters():
        if name.startswith("bias_ih"):
            nn.init.ones_(bias.data[layers.hidden_size : 2 * layers.hidden_size])
