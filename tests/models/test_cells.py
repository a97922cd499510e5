"""A cell is torch's own cell, taken apart: what it gets from its input for all steps at once, the rest step by step."""

import pytest
import torch
from torch import nn

from regard.errors import SettingError
from regard.models.cells import RecurrentCell, build_rnn


@pytest.mark.parametrize(("kind", "theirs"), [("rnn", nn.RNNCell), ("gru", nn.GRUCell), ("lstm", nn.LSTMCell)])
def test_a_cell_is_torchs_with_the_same_weights(kind: str, theirs: type[nn.Module]) -> None:
    torch.manual_seed(0)
    ours, other = RecurrentCell(kind, 3, 4, step_input=2).double(), theirs(5, 4).double()
    with torch.no_grad():
        other.weight_ih.copy_(torch.cat((ours.input.weight, ours.step_input.weight), 1))
        other.bias_ih.copy_(ours.input.bias)
        other.weight_hh.copy_(ours.state.weight)
        other.bias_hh.copy_(ours.state.bias)
    x, fed, h, c = torch.randn(6, 3), torch.randn(6, 2), torch.randn(6, 4), torch.randn(6, 4)
    x, fed, h, c = (one.double() for one in (x, fed, h, c))
    state = (h, c) if kind == "lstm" else (h,)
    got = ours(ours.inputs(x), state, fed)
    expected = other(torch.cat((x, fed), 1), state if kind == "lstm" else h)
    torch.testing.assert_close(got, expected if kind == "lstm" else (expected,))


def test_a_gru_cell_is_its_formula() -> None:
    torch.manual_seed(0)
    cell = RecurrentCell("gru", 3, 2).double()
    x, h = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    W, U, b, d = cell.input.weight, cell.state.weight, cell.input.bias, cell.state.bias
    r = torch.sigmoid(x @ W[:2].T + b[:2] + h @ U[:2].T + d[:2])
    z = torch.sigmoid(x @ W[2:4].T + b[2:4] + h @ U[2:4].T + d[2:4])
    n = torch.tanh(x @ W[4:].T + b[4:] + r * (h @ U[4:].T + d[4:]))
    torch.testing.assert_close(cell(cell.inputs(x), (h,))[0], (1 - z) * n + z * h)


def test_unknown_cells_are_refused_by_name() -> None:
    with pytest.raises(SettingError, match="gru"):
        RecurrentCell("grü", 3, 4)
    with pytest.raises(SettingError, match="lstm"):
        build_rnn("lsmt", 3, 4)
