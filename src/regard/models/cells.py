"""Recurrent cells (RNN, GRU, LSTM) run step by step, for decoders whose next step needs the attention of the last.

The input's part of the gates is computed for all steps at once (`inputs`); the loop adds what is known only then.
Everything else runs in one call of torch.nn.RNN, GRU or LSTM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import unknown

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
CellState = tuple[Tensor, ...]
"""The state of a cell: (h,), or (h, c) of an LSTM, each (B, H). h is its output."""


def build_rnn(
    kind: str, width: int, hidden: int, layers: int = 1, bidirectional: bool = False, dropout: float = 0.0
) -> nn.RNNBase:
    """torch's RNN, GRU or LSTM by name, batch first; `dropout` applies between layers."""
    kinds: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
    if kind not in kinds:
        raise unknown(kind, kinds, kind="cell", where="build_rnn")
    between = dropout if layers > 1 else 0.0
    return kinds[kind](width, hidden, layers, batch_first=True, bidirectional=bidirectional, dropout=between)


class RecurrentCell(nn.Module):
    """One layer of kind "rnn", "gru" or "lstm", step by step, with a second input that is known only at its step.

    gates = cell.inputs(x)                      # (B, T, G H): for all steps at once
    state = cell(gates[:, t], state, extra)     # one step; extra (B, F) or None, such as a context vector

    The formulas and the order of the gates are torch's, so that its weights fit.
    """

    def __init__(self, kind: str, width: int, hidden: int, step_input: int = 0) -> None:
        super().__init__()
        if kind not in GATES:
            raise unknown(kind, GATES, kind="cell", where="RecurrentCell")
        self.kind, self.hidden = kind, hidden
        gates = GATES[kind] * hidden
        self.input = nn.Linear(width, gates)
        self.step_input = nn.Linear(step_input, gates, bias=False) if step_input else None
        self.state = nn.Linear(hidden, gates)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def inputs(self, x: Tensor) -> Tensor:
        """What x (..., width) adds to the gates, (..., G H)."""
        gates: Tensor = self.input(x)
        return gates

    def forward(self, gates: Tensor, state: CellState, extra: Tensor | None = None) -> CellState:
        h = state[0]
        if self.step_input is not None and extra is not None:
            gates = torch.addmm(gates, extra, self.step_input.weight.t())
        if self.kind == "gru":
            return (self._gru(gates, self.state(h), h),)
        gates = gates + self.state(h)
        return (torch.tanh(gates),) if self.kind == "rnn" else self._lstm(gates, state[1])

    def _gru(self, x: Tensor, s: Tensor, h: Tensor) -> Tensor:
        split = 2 * self.hidden
        reset, update = torch.sigmoid(x[:, :split] + s[:, :split]).chunk(2, -1)
        new = torch.tanh(torch.addcmul(x[:, split:], reset, s[:, split:]))
        return torch.lerp(new, h, update)

    def _lstm(self, gates: Tensor, c: Tensor) -> CellState:
        enter, forget, new, leave = gates.chunk(4, -1)
        c = torch.addcmul(torch.sigmoid(forget) * c, torch.sigmoid(enter), torch.tanh(new))
        return torch.sigmoid(leave) * torch.tanh(c), c
