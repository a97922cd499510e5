"""Models that compute a softmax of their own are heard exactly, are not changed, and what is not heard is named."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Observe, capture
from regard.errors import CaptureWarning
from regard.inspection.interventions import intervene

ALL = Observe(top=3, entropy=True, received=True, thumbnail=(4, 4), weights=True, prepared=True, values=True)
WIDTH, HEADS = 16, 4


class EagerAttention(nn.Module):
    """As models are written by hand, in one of several ways to average."""

    def __init__(self, way: str, dropout: float = 0.0, causal: bool = True) -> None:
        super().__init__()
        self.way, self.causal, self.num_heads = way, causal, HEADS
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.softmax, self.dropout = nn.Softmax(dim=-1), nn.Dropout(dropout)

    def scores(self, x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / math.sqrt(WIDTH / HEADS)
        if self.causal:
            hidden = torch.ones(scores.shape[-2:]).triu(1).bool()
            scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        return scores, v

    def forward(self, x: Tensor) -> Tensor:
        scores, v = self.scores(x)
        if self.way == "bmm":
            weights = self.dropout(F.softmax(scores.flatten(0, 1), dim=-1, dtype=torch.float32).to(x.dtype))
            mean = torch.bmm(weights, v.flatten(0, 1)).unflatten(0, (-1, HEADS)).transpose(1, 2)
        elif self.way == "einsum":
            weights = self.dropout(self.softmax(scores))
            mean = torch.einsum("bnij,jbnd->ibnd", weights, v.permute(2, 0, 1, 3)).transpose(0, 1)
        else:
            mean = (self.dropout(scores.softmax(-1)) @ v).transpose(1, 2)
        return self.out(mean.flatten(2))


class Layers(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def made(way: str, dropout: float = 0.0) -> Layers:
    torch.manual_seed(0)
    return Layers(EagerAttention(way, dropout), EagerAttention(way, dropout, causal=False))


WAYS = pytest.mark.parametrize("way", ["matmul", "bmm", "einsum"])


@WAYS
@pytest.mark.parametrize("training", [False, True])
def test_eager_attention_is_heard_and_not_changed(way: str, training: bool) -> None:
    model, x = made(way, dropout=0.5).train(training), torch.randn(2, 6, WIDTH)
    torch.manual_seed(1)
    alone = model(x)
    torch.manual_seed(1)
    with capture(model, observe=ALL) as heard:
        assert torch.equal(model(x), alone)
    assert heard.places == ["layers.0", "layers.1"] and not heard.unheard
    scores, values = model.layers[0].scores(x)
    got, weights = heard["layers.0"], scores.softmax(-1)  # before dropout
    torch.testing.assert_close(got.weights, weights)
    torch.testing.assert_close(got.prepared.tile(), weights)
    torch.testing.assert_close(got.lse, scores.logsumexp(-1))
    torch.testing.assert_close(got.entropy, torch.special.entr(weights).sum(-1))
    torch.testing.assert_close(got.values, values)
    assert got.top.indices[0, 0, 0].tolist() == [0, -1, -1]  # the first token sees itself alone
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


@WAYS
def test_gradients_are_those_of_the_model_alone(way: str) -> None:
    model, x = made(way), torch.randn(1, 5, WIDTH)
    model(x).square().sum().backward()
    alone = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    with capture(model):
        model(x).square().sum().backward()
    assert all(torch.equal(one.grad, other) for one, other in zip(model.parameters(), alone, strict=True))


@WAYS
def test_other_weights_change_the_output_as_they_should(way: str) -> None:
    model, x = made(way).eval(), torch.randn(2, 5, WIDTH)
    before = model(x)
    with intervene(model, weights=lambda weights: weights):
        torch.testing.assert_close(model(x), before)
    with intervene(model, "layers.1", heads=[1], weights="zero"):
        silenced = model(x)
    with torch.no_grad():
        model.layers[1].out.weight[:, 4:8] = 0  # the columns that read head 1
    torch.testing.assert_close(silenced, model(x))


class SlidingAttention(nn.Module):
    """Scores in a form whose product with the values is no matrix product: a band of three keys a query."""

    def forward(self, x: Tensor) -> Tensor:
        near = F.pad(x, (0, 0, 1, 1)).unfold(1, 3, 1)  # (B, T, D, 3)
        weights = (x.unsqueeze(-1) * near).sum(2).softmax(-1)  # (B, T, 3)
        return (weights.unsqueeze(2) * near).sum(-1)


class LandmarkAttention(nn.Module):
    """Two softmaxes, one of which alone looks like the attention of all tokens (Nystroemformer's landmarks)."""

    def forward(self, x: Tensor) -> Tensor:
        marks = x.unflatten(1, (-1, 2)).mean(2)
        first, second = (x @ marks.mT).softmax(-1), (marks @ x.mT).softmax(-1)
        return first @ (second @ x)


@pytest.mark.parametrize("kind", [SlidingAttention, LandmarkAttention])
def test_what_cannot_be_heard_is_named_and_never_shown_in_part(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = Layers(EagerAttention("matmul"), kind()), torch.randn(2, 6, WIDTH)
    with pytest.warns(CaptureWarning, match=rf"1 of 2 .*layers.1 \({kind.__name__}\)"), capture(model) as heard:
        model(x)
    assert heard.places == ["layers.0"] and heard.unheard == {"layers.1": kind.__name__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with capture(model, "layers.0") as heard:  # nobody asked for the other
            model(x)
    assert heard.places == ["layers.0"] and not heard.unheard


def test_weights_that_were_changed_on_their_way_are_not_reported() -> None:
    class GatedAttention(EagerAttention):
        def forward(self, x: Tensor) -> Tensor:
            scores, v = self.scores(x)
            return self.out(((scores.softmax(-1) * 0.5) @ v).transpose(1, 2).flatten(2))

    model = Layers(GatedAttention("matmul"))
    with pytest.warns(CaptureWarning, match=r"0 of 1 .*GatedAttention"), capture(model) as heard:
        model(torch.randn(1, 4, WIDTH))
    assert not heard.places


def test_a_softmax_that_is_no_attention_is_not_heard() -> None:
    class Router(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * x.softmax(-1).amax(-1, keepdim=True)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with capture(Layers(Router())) as heard:
            Layers(Router())(torch.randn(1, 4, WIDTH))
    assert not heard.places and not heard.unheard


def test_nested_captures_hear_each_call_once() -> None:
    model, x = made("matmul").eval(), torch.randn(1, 4, WIDTH)
    with capture(model) as outer, capture(model, "layers.1") as inner:
        model(x)
    assert [len(outer.calls(place)) for place in outer] == [1, 1] and len(inner.calls("layers.1")) == 1
