"""One step of a recurrent network at a time, for loops that nothing can undo: where each step needs the one before.

What a step takes from its input is computed for all steps at once (`inputs`); the loop adds what it only then knows.
Everything else runs in one call of torch.nn.RNN, GRU or LSTM.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.errors import unknown

GATES = {"rnn": 1, "gru": 3, "lstm": 4}
State = tuple[Tensor, ...]
"""What a cell hands to its next step: (h,), or (h, c) of an LSTM, each (B, H). The first one is what others see."""


def recurrent(
    kind: str, width: int, hidden: int, layers: int = 1, both: bool = False, dropout: float = 0.0
) -> nn.RNNBase:
    """torch's own recurrent layers by name, rows first; `dropout` falls between layers."""
    makers: dict[str, Callable[..., nn.RNNBase]] = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
    if kind not in makers:
        raise unknown(kind, makers, kind="cell", where="recurrent")
    between = dropout if layers > 1 else 0.0
    return makers[kind](width, hidden, layers, batch_first=True, bidirectional=both, dropout=between)


class Cell(nn.Module):
    """A layer of kind "rnn", "gru" or "lstm", step by step, with a second input that each step learns only then.

    gates = cell.inputs(x)                      # (B, T, G H): for all steps at once
    state = cell(gates[:, t], state, fed)       # one step; fed (B, F) or None

    The formulas and the order of the gates are torch's, so that its weights fit.
    """

    def __init__(self, kind: str, width: int, hidden: int, fed: int = 0) -> None:
        super().__init__()
        if kind not in GATES:
            raise unknown(kind, GATES, kind="cell", where="Cell")
        self.kind, self.hidden = kind, hidden
        gates = GATES[kind] * hidden
        self.input = nn.Linear(width, gates)
        self.fed = nn.Linear(fed, gates, bias=False) if fed else None
        self.state = nn.Linear(hidden, gates)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden**-0.5), hidden**-0.5)

    def inputs(self, x: Tensor) -> Tensor:
        """What x (..., width) adds to the gates, (..., G H)."""
        gates: Tensor = self.input(x)
        return gates

    def forward(self, gates: Tensor, state: State, fed: Tensor | None = None) -> State:
        h = state[0]
        if self.fed is not None and fed is not None:
            gates = torch.addmm(gates, fed, self.fed.weight.t())
        if self.kind == "gru":
            return (self._gru(gates, self.state(h), h),)
        gates = gates + self.state(h)
        return (torch.tanh(gates),) if self.kind == "rnn" else self._lstm(gates, state[1])

    def _gru(self, x: Tensor, s: Tensor, h: Tensor) -> Tensor:
        split = 2 * self.hidden
        reset, update = torch.sigmoid(x[:, :split] + s[:, :split]).chunk(2, -1)
        new = torch.tanh(torch.addcmul(x[:, split:], reset, s[:, split:]))
        return torch.lerp(new, h, update)

    def _lstm(self, gates: Tensor, c: Tensor) -> State:
        enter, forget, new, leave = gates.chunk(4, -1)
        c = torch.addcmul(torch.sigmoid(forget) * c, torch.sigmoid(enter), torch.tanh(new))
        return torch.sigmoid(leave) * torch.tanh(c), c
