"""Models that never heard of us are heard all the same, and their output does not change by one bit."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention import Attended, Observe, capture
from regard.attention.tap import TapListener, listen, places_of
from regard.attention.torch_hooks import intercept_attention
from regard.errors import PlaceError

ALL = Observe(top=3, entropy=True, received=True, thumbnail=(4, 4), weights=True, prepared=True, values=True)


class CausalSelfAttention(nn.Module):
    """As small GPTs are written: one matrix, heads, F.scaled_dot_product_attention with is_causal."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.dropout = heads, dropout

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.c_attn(x).chunk(3, -1))
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=None, dropout_p=dropout, is_causal=True)
        return self.c_proj(y.transpose(1, 2).flatten(2))


class SmallGPT(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.wte = nn.Embedding(11, 16)
        self.h = nn.ModuleList(nn.ModuleDict({"attn": CausalSelfAttention(16, 2, dropout)}) for _ in range(2))
        self.head = nn.Linear(16, 11)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.wte(ids)
        for block in self.h:
            x = x + block["attn"](x)
        return self.head(x)


class Picture(nn.Module):
    """As image models are written: qkv at once, a call by position, no mask, keys normed."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.ModuleDict({"attn": _Patches()})])

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block["attn"](x)
        return x


class _Patches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm = nn.Linear(16, 48), nn.LayerNorm(4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        return F.scaled_dot_product_attention(self.norm(q), self.norm(k), v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("training", [False, True])
def test_a_gpt_is_heard_and_not_changed(training: bool) -> None:
    torch.manual_seed(0)
    model = SmallGPT(dropout=0.3).train(training)
    ids = torch.randint(11, (2, 7))
    torch.manual_seed(1)
    alone = model(ids)
    torch.manual_seed(1)
    with capture(model, observe=ALL) as heard:
        told = model(ids)
    assert torch.equal(alone, told)
    assert heard.places == ["h.0.attn", "h.1.attn"]
    got = heard["h.0.attn"]
    q, k, _ = (y.unflatten(-1, (2, -1)).transpose(1, 2) for y in model.h[0]["attn"].c_attn(model.wte(ids)).chunk(3, -1))
    scores = (q @ k.mT / math.sqrt(8)).masked_fill(~torch.ones(7, 7).tril().bool(), -torch.inf)
    torch.testing.assert_close(got.weights, scores.softmax(-1))
    torch.testing.assert_close(got.prepared.tile(), scores.softmax(-1))


def test_places_are_chosen_by_pattern_and_hooks_are_gone_afterwards() -> None:
    model = SmallGPT().eval()
    with capture(model, "h.1.*") as heard:
        model(torch.randint(11, (1, 4)))
    assert heard.places == ["h.1.attn"]
    model(torch.randint(11, (1, 4)))
    assert len(heard.calls("h.1.attn")) == 1
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with pytest.raises(PlaceError, match="No place matches"), capture(model, "nowhere.*"):
        pass


def test_gradients_are_those_of_the_model_alone() -> None:
    torch.manual_seed(0)
    model, ids = SmallGPT(), torch.randint(11, (2, 5))
    model(ids).square().sum().backward()
    alone = [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    with capture(model, observe=Observe(entropy=True)):
        model(ids).square().sum().backward()
    assert all(torch.equal(one.grad, other) for one, other in zip(model.parameters(), alone, strict=True))


def test_an_image_model_is_heard() -> None:
    torch.manual_seed(0)
    model, patches = Picture().eval(), torch.randn(2, 9, 16)
    alone = model(patches)
    with capture(model, observe=Observe(weights=True)) as heard:
        assert torch.equal(model(patches), alone)
    assert heard["blocks.0.attn"].weights.shape == (2, 4, 9, 9)


@pytest.mark.parametrize("wanted", [True, False], ids=["weights", "no weights"])
@pytest.mark.parametrize("kind", ["bool", "float", "none"])
def test_multihead_attention_is_heard(wanted: bool, kind: str) -> None:
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 4, batch_first=True)
    x = torch.randn(2, 6, 16)
    hidden = torch.ones(6, 6).triu(1).bool()
    mask = {"bool": hidden, "float": torch.zeros(6, 6).masked_fill(hidden, -torch.inf), "none": None}[kind]
    how = {"attn_mask": mask, "need_weights": wanted, "average_attn_weights": False}
    alone, _ = model(x, x, x, **how)
    _, weights = model(x, x, x, **{**how, "need_weights": True})
    with capture(model, observe=Observe(weights=True, entropy=True)) as heard:
        told, _ = model(x, x, x, **how)
    assert torch.equal(told, alone)
    torch.testing.assert_close(heard[""].weights, weights)


PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])


def torch_encoder(order: str) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True, norm_first=order == "pre")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=order == "post").eval()


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("padding", [None, PADDING], ids=["no padding", "padding"])
@pytest.mark.parametrize("how", ["gradients", "training", "no fast path"])
def test_an_encoder_of_torch_is_heard_in_each_layer_to_the_last_bit(
    order: str, padding: Tensor | None, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = torch_encoder(order).train(how == "training"), torch.randn(2, 5, 16)
    if how == "no fast path":
        monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", False)
    with torch.set_grad_enabled(how != "no fast path"):
        alone = model(x, src_key_padding_mask=padding)
        with capture(model, observe=Observe(weights=True)) as heard:
            assert torch.equal(model(x, src_key_padding_mask=padding), alone)
    assert heard.places == ["layers.0.self_attn", "layers.1.self_attn"]
    assert padding is None or not heard["layers.0.self_attn"].weights[1, :, :, 3:].any()


@pytest.mark.parametrize("order", ["post", "pre"])
@torch.no_grad()
def test_the_fast_path_of_torch_gives_way_and_real_positions_are_equal_to_rounding(order: str) -> None:
    """As docs/looking.md says: it cannot be heard; it sets padded positions to 0, where the ordinary path does not."""
    model, x = torch_encoder(order), torch.randn(2, 5, 16)
    alone = model(x, src_key_padding_mask=PADDING)
    with capture(model):
        told = model(x, src_key_padding_mask=PADDING)
    assert not torch.equal(told, alone)
    assert (told - alone)[~PADDING].abs().max() < 2e-6
    assert order == "pre" or (not alone[PADDING].any() and told[PADDING].abs().max() > 1)
    attention = model.layers[0].self_attn
    alone = attention(x, x, x, need_weights=False)[0]
    with capture(attention):
        assert (attention(x, x, x, need_weights=False)[0] - alone).abs().max() < 1e-6


def test_replaced_weights_change_the_output() -> None:
    torch.manual_seed(0)
    model, ids = SmallGPT().eval(), torch.randint(11, (1, 5))

    def even(place: str, got: Attended) -> Tensor:
        return torch.full_like(got.weights, 0.2)

    alone = model(ids)
    with listen(TapListener(places_of(model, "h.0.attn"), Observe(weights=True), even)), intercept_attention(model):
        changed = model(ids)
    assert not torch.allclose(alone, changed)
