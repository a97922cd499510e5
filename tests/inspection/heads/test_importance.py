"""Head importance equals the gradient of a gate on each head, example by example."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.translators import translator
from regard.attention.layers import MultiHead
from regard.errors import SettingError
from regard.inspection.heads.importance import importance
from regard.inspection.interventions import intervene


class Gated(nn.Module):
    """Two layers of heads, written out, with a gate on what every head says."""

    def __init__(self, first: MultiHead, second: MultiHead) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor, gates: Tensor) -> Tensor:
        """x (T, D), gates (2, H): one example."""
        for layer, gate in zip((self.first, self.second), gates, strict=True):
            q, k, v = layer.project.all(x.unsqueeze(0))
            heads = (q @ k.mT / q.size(-1) ** 0.5).softmax(-1) @ v * gate[:, None, None]
            x = x + layer.out(heads.transpose(1, 2).flatten(2)).squeeze(0)
        return x


class Plain(nn.Module):
    def __init__(self, first: MultiHead, second: MultiHead) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.first(x)
        return x + self.second(x)


def test_importance_is_the_mean_absolute_gate_gradient() -> None:
    torch.manual_seed(0)
    first, second = (MultiHead(12, 3).double() for _ in range(2))
    x, wanted = torch.randn(5, 4, 12).double(), torch.randn(5, 4, 12).double()
    expected = torch.zeros(2, 3).double()
    for one, goal in zip(x, wanted, strict=True):
        gates = torch.ones(2, 3).double().requires_grad_()
        loss = (Gated(first, second)(one, gates) - goal).square().sum()
        expected += torch.autograd.grad(loss, gates)[0].abs() / 5
    model = Plain(first, second)

    def loss_of(rows: slice) -> Tensor:
        return (model(x[rows]) - wanted[rows]).square().sum()

    found = importance(model, [lambda: loss_of(slice(0, 3)), lambda: loss_of(slice(3, 5))], normalised=False)
    torch.testing.assert_close(torch.stack([found["first"], found["second"]]), expected)
    shares = importance(model, [lambda: loss_of(slice(0, 5))])
    torch.testing.assert_close(shares["second"], expected[1] / expected[1].norm())


def test_importance_is_output_times_gradient() -> None:
    torch.manual_seed(0)
    heads, x = MultiHead(12, 3).double(), torch.randn(1, 4, 12).double()
    said = heads.tap(*heads.project.all(x)).output.detach().requires_grad_()
    loss = heads.out(said.transpose(1, 2).flatten(2)).square().sum()
    (slope,) = torch.autograd.grad(loss, said)
    found = importance(heads, [lambda: heads(x).square().sum()], normalised=False)
    torch.testing.assert_close(found[""], (said * slope).sum((0, 2, 3)).abs().detach())


def test_the_steps_of_a_decoder_share_a_gate() -> None:
    model = translator("bahdanau")
    ids, lengths, target = torch.tensor([[3, 5, 7, 2]]), torch.tensor([4]), torch.tensor([[1, 4, 6]])

    def loss() -> Tensor:
        return model(ids, lengths, target)[0].log_probs().sum()

    found = importance(model, [loss], normalised=False)
    [place] = found
    gate = torch.ones((), dtype=torch.float64, requires_grad=True)
    with intervene(model, place, weights=lambda weights: weights * gate):
        (slope,) = torch.autograd.grad(loss(), gate)
    torch.testing.assert_close(found[place], slope.abs().reshape(1))


def test_other_models() -> None:
    torch.manual_seed(0)
    theirs, x = nn.MultiheadAttention(12, 3, batch_first=True).double().eval(), torch.randn(2, 4, 12).double()
    found = importance(theirs, [lambda: theirs(x, x, x)[0].square().sum()], normalised=False)
    ours = MultiHead(12, 3).double()
    with torch.no_grad():
        for name, matrix, bias in zip(
            ("query", "key", "value"), theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
        ):
            getattr(ours.project, name).weight.copy_(matrix)
            getattr(ours.project, name).bias.copy_(bias)
        ours.out.load_state_dict(theirs.out_proj.state_dict())
    torch.testing.assert_close(found[""], importance(ours, [lambda: ours(x).square().sum()], normalised=False)[""])


def test_a_loss_that_depends_on_no_head_is_refused() -> None:
    heads, x = MultiHead(12, 3), torch.randn(1, 4, 12)

    @torch.no_grad()
    def silent() -> Tensor:
        return F.mse_loss(heads(x), x)

    with pytest.raises(SettingError, match="does not depend on any head"):
        importance(heads, [silent])
    with pytest.raises(SettingError, match="no losses"):
        importance(heads, [])
