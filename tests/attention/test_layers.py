"""Layers equal PyTorch's own where it has them, cached steps equal one pass, padding changes nothing."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Observe, capture, masks, scores
from regard.attention.kv_cache import KVCache
from regard.attention.layers import AddNorm, DecoderBlock, EncoderBlock, FeedForward, FusedQKV, MultiHead, SeparateQKV
from regard.attention.pooling import AttentionPooling
from regard.attention.positions import Rotary
from regard.errors import SettingError, ShapeError

PRE = partial(AddNorm, order="pre")


def from_torch(theirs: nn.MultiheadAttention, ours: MultiHead) -> None:
    """Copy the weights of PyTorch's layer into ours."""
    state = theirs.state_dict()
    with torch.no_grad():
        if isinstance(ours.project, FusedQKV):
            ours.project.joint.weight.copy_(state["in_proj_weight"])
            ours.project.joint.bias.copy_(state["in_proj_bias"])
        else:
            for name, weight, bias in zip(
                ("query", "key", "value"), state["in_proj_weight"].chunk(3), state["in_proj_bias"].chunk(3), strict=True
            ):
                getattr(ours.project, name).weight.copy_(weight)
                getattr(ours.project, name).bias.copy_(bias)
        ours.out.load_state_dict({"weight": state["out_proj.weight"], "bias": state["out_proj.bias"]})


@pytest.mark.parametrize("projections", [SeparateQKV, FusedQKV])
@pytest.mark.parametrize("cross", [False, True])
def test_multihead_equals_torch(projections: type, cross: bool) -> None:
    torch.manual_seed(0)
    theirs, ours = nn.MultiheadAttention(16, 4, batch_first=True), MultiHead(16, projections(16, 4))
    nn.init.normal_(theirs.in_proj_bias)
    from_torch(theirs, ours)
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    other = memory if cross else x
    lengths = torch.tensor([other.size(1), 3])
    hidden = torch.arange(other.size(1)) >= lengths[:, None]
    expected, weights = theirs(x, other, other, key_padding_mask=hidden, average_attn_weights=False)
    with capture(ours, observe=Observe(weights=True)) as heard:
        got = ours(x, memory if cross else None, mask=masks.Padding(lengths))
    torch.testing.assert_close(got, expected)
    torch.testing.assert_close(heard[""].weights, weights)


def test_multihead_trains_as_torch_does() -> None:
    torch.manual_seed(0)
    theirs, ours = nn.MultiheadAttention(16, 4, batch_first=True), MultiHead(16, FusedQKV(16, 4))
    from_torch(theirs, ours)
    x = torch.randn(2, 5, 16)
    future = torch.ones(5, 5, dtype=torch.bool).triu(1)
    theirs(x, x, x, attn_mask=future, need_weights=False)[0].square().sum().backward()
    ours(x, mask=masks.Causal()).square().sum().backward()
    torch.testing.assert_close(ours.project.joint.weight.grad, theirs.in_proj_weight.grad)
    torch.testing.assert_close(ours.out.weight.grad, theirs.out_proj.weight.grad)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_encoder_block_equals_torch(order: str) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, norm_first=order == "pre", batch_first=True)
    ours = EncoderBlock(MultiHead(16, 4), FeedForward(16, 32), partial(AddNorm, order=order))
    from_torch(theirs.self_attn, ours.self)
    ours.feed.inner.load_state_dict(theirs.linear1.state_dict())
    ours.feed.outer.load_state_dict(theirs.linear2.state_dict())
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize("order", ["post", "pre"])
def test_decoder_block_equals_torch(order: str) -> None:
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(16, 4, 32, dropout=0.0, norm_first=order == "pre", batch_first=True)
    ours = DecoderBlock(MultiHead(16, 4), MultiHead(16, 4), FeedForward(16, 32), partial(AddNorm, order=order))
    from_torch(theirs.self_attn, ours.self)
    from_torch(theirs.multihead_attn, ours.cross)
    ours.feed.inner.load_state_dict(theirs.linear1.state_dict())
    ours.feed.outer.load_state_dict(theirs.linear2.state_dict())
    x, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    future = nn.Transformer.generate_square_subsequent_mask(5)
    torch.testing.assert_close(ours(x, memory, mask=masks.Causal()), theirs(x, memory, tgt_mask=future))


@pytest.mark.parametrize("steps", [[1] * 9, [4, 1, 4], [9]])
@pytest.mark.parametrize("grad", [False, True])
def test_cached_steps_equal_one_pass(steps: list[int], grad: bool) -> None:
    """With rotary positions, grouped heads, and a cross-attention whose memory is projected only once."""
    torch.manual_seed(0)
    attention = MultiHead(16, SeparateQKV(16, 4, key_heads=2), rotary=Rotary(4))
    block = DecoderBlock(attention, MultiHead(16, 4), FeedForward(16, 32), PRE)
    x, memory = torch.randn(2, 9, 16), torch.randn(2, 7, 16)
    padding = masks.Padding([7, 4])
    whole = block(x, memory, mask=masks.Causal(), memory_mask=padding)
    caches = (KVCache(), KVCache())
    with torch.set_grad_enabled(grad):
        parts = [
            block(part, memory, mask=masks.Causal(), memory_mask=padding, caches=caches) for part in x.split(steps, 1)
        ]
    torch.testing.assert_close(torch.cat(parts, 1), whole)
    assert (caches[0].length, caches[1].length) == (9, 7)


def test_a_cache_gives_gradients_through_all_steps() -> None:
    torch.manual_seed(0)
    heads, x = MultiHead(16, 4), torch.randn(2, 6, 16, requires_grad=True)
    (whole,) = torch.autograd.grad(heads(x, mask=masks.Causal()).square().sum(), x)
    cache = KVCache()
    steps = torch.cat([heads(part, mask=masks.Causal(), cache=cache) for part in x.split(2, 1)], 1)
    (stepped,) = torch.autograd.grad(steps.square().sum(), x)
    torch.testing.assert_close(stepped, whole)


@torch.no_grad()
def test_a_reordered_cache_goes_on_with_those_rows() -> None:
    torch.manual_seed(0)
    heads, x = MultiHead(16, 4), torch.randn(3, 5, 16)
    rows = torch.tensor([2, 0, 0])
    cache = KVCache()
    heads(x[:, :4], mask=masks.Causal(), cache=cache)
    cache.reorder(rows)
    got = heads(x[rows, 4:], mask=masks.Causal(), cache=cache)
    torch.testing.assert_close(got, heads(x[rows], mask=masks.Causal())[:, 4:])


@torch.no_grad()
def test_growing_a_cache_never_changes_what_it_returned_before() -> None:
    cache = KVCache()
    first, _ = cache.extend(torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2))
    for step in range(20):
        cache.extend(torch.full((1, 1, 1, 2), float(step)), torch.zeros(1, 1, 1, 2))
    keys, _ = cache.contents()
    assert torch.equal(first, torch.ones(1, 1, 3, 2))
    assert torch.equal(keys[0, 0, 3:, 0], torch.arange(20.0))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_padded_batch_equals_its_rows_alone(side: str) -> None:
    torch.manual_seed(0)
    block = EncoderBlock(MultiHead(16, 4, rotary=Rotary(4)), FeedForward(16, 32), PRE)
    lengths = [6, 2, 4]
    padded = torch.full((3, 6, 16), torch.nan)  # whatever stands in padding must not matter
    rows = [torch.randn(n, 16) for n in lengths]
    for i, row in enumerate(rows):
        padded[i, slice(0, len(row)) if side == "right" else slice(6 - len(row), None)] = row
    got = block(padded, mask=masks.Causal() & masks.Padding(lengths, lengths, side=side))
    for i, row in enumerate(rows):
        real = got[i, : len(row)] if side == "right" else got[i, 6 - len(row) :]
        torch.testing.assert_close(real, block(row[None], mask=masks.Causal())[0])


def test_fewer_key_heads_equal_repeated_ones() -> None:
    torch.manual_seed(0)
    few, many = MultiHead(16, SeparateQKV(16, 4, key_heads=2)), MultiHead(16, 4)
    many.load_state_dict(
        few.state_dict()
        | {
            f"project.{name}.{kind}": few.state_dict()[f"project.{name}.{kind}"]
            .unflatten(0, (2, 4))
            .repeat_interleave(2, 0)
            .flatten(0, 1)
            for name in ("key", "value")
            for kind in ("weight", "bias")
        }
    )
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(few(x), many(x))


@pytest.mark.parametrize("score", [None, scores.Additive(16, 8), scores.Bilinear(16)])
def test_pooling_gives_a_fixed_size_and_ignores_order_and_padding(score: scores.Score | None) -> None:
    torch.manual_seed(0)
    pool, x = AttentionPooling(16, score), torch.randn(2, 7, 16)
    whole = pool(x)
    assert whole.shape == (2, 16)
    torch.testing.assert_close(pool(x[:, torch.randperm(7)]), whole)
    padded = torch.cat([x, torch.full((2, 3, 16), torch.inf)], 1)
    torch.testing.assert_close(pool(padded, mask=masks.Padding([7, 7])), whole)
    assert AttentionPooling(16, score, num_queries=3)(x).shape == (2, 3, 16)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    heads, x = MultiHead(16, 4, dropout=0.5), torch.randn(2, 5, 16)
    assert not torch.equal(heads(x), heads(x))
    heads.eval()
    assert torch.equal(heads(x), heads(x))


def test_order_matters_only_through_positions() -> None:
    """Self-attention by itself does not know order: permuted tokens give permuted outputs; with rotary they do not."""
    torch.manual_seed(0)
    x, order = torch.randn(1, 6, 16), torch.tensor([3, 1, 5, 0, 2, 4])
    blind, sighted = MultiHead(16, 4), MultiHead(16, 4, rotary=Rotary(4))
    torch.testing.assert_close(blind(x[:, order]), blind(x)[:, order])
    assert not torch.allclose(sighted(x[:, order]), sighted(x)[:, order])


def test_bad_layers_are_refused() -> None:
    with pytest.raises(SettingError, match="3 heads for a width of 16"):
        MultiHead(16, 3)
    with pytest.raises(SettingError, match="3 key heads, expected a divisor of the 4 query heads"):
        SeparateQKV(16, 4, key_heads=3)
    with pytest.raises(SettingError, match="order='middle'"):
        AddNorm(16, order="middle")
    with pytest.raises(ShapeError, match="width 8, expected width 16"):
        MultiHead(16, 4)(torch.randn(2, 5, 8))
    with pytest.raises(ShapeError, match="The cache is empty"):
        KVCache().contents()


def shapes(*tensors: Tensor) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for tensor in tensors]


def test_projections_give_heads() -> None:
    x = torch.randn(2, 5, 16)
    for projections in (SeparateQKV(16, 4, key_heads=2), FusedQKV(16, 4, key_heads=2)):
        assert shapes(*projections.all(x)) == [(2, 4, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)]
    assert shapes(*SeparateQKV(16, 4, memory=10).keys_values(torch.randn(2, 7, 10))) == [(2, 4, 7, 4)] * 2
