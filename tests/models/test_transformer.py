"""Laws of the Transformer: steps equal one pass, rows alone, no look ahead; torch's own layers; the published size."""

import math
from dataclasses import replace

import pytest
import torch
from tests.models.translators import WORDS, batch, large, stepped
from torch import Tensor, nn

from regard.attention import Observe, capture
from regard.attention.positions import Learned, Rotary, Sinusoidal
from regard.decoding import Beam, Greedy, Rules
from regard.errors import SettingError
from regard.models.blocks import LLAMA, BlockConfig, InputEmbedding, decoder_blocks, encoder_blocks
from regard.models.cross_entropy import Logits, SampledSoftmax
from regard.models.encoder import Encoder
from regard.models.transformer import BASE, Transformer, TransformerSize, build_transformer

SMALL = TransformerSize(layers=2, width=8, heads=2, feedforward_dim=12)
WIDTH, HEADS = SMALL.width, SMALL.heads
FORMS = {
    "published": {},
    "norms before": {"block": BlockConfig(order="pre")},
    "modern": {"block": replace(LLAMA, key_heads=1), "positions": Rotary(WIDTH // HEADS)},
    "modern, places across": {"block": LLAMA, "positions": (Sinusoidal(WIDTH), Rotary(WIDTH // HEADS))},
    "learned positions": {"positions": Learned(WIDTH, 12)},
    "two vocabularies": {"vocabulary": (WORDS + 3, WORDS)},
}
by_form = pytest.mark.parametrize("form", FORMS)
close = torch.testing.assert_close


def model_of(form: str = "published", **more: object) -> Transformer:
    torch.manual_seed(0)
    return large(build_transformer(**{"vocabulary": WORDS, "size": SMALL, **FORMS[form], **more}))


def said(model: Transformer, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    return model(source, lengths, target)[0].log_probs()


@by_form
@pytest.mark.parametrize("gradients", [False, True])
def test_all_steps_at_once_are_the_steps_one_by_one(form: str, gradients: bool) -> None:
    model, given = model_of(form), batch()
    with torch.set_grad_enabled(gradients):
        close(stepped(model, *given), said(model, *given))


@by_form
def test_a_row_in_company_is_the_row_alone(form: str) -> None:
    model, (source, lengths, target) = model_of(form), batch(rows=4)
    together = said(model, source, lengths, target)
    assert len(lengths.unique()) > 2
    for row, length in enumerate(lengths.tolist()):
        alone = said(model, source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        close(together[row : row + 1], alone)


@by_form
def test_what_the_padding_says_does_not_matter(form: str) -> None:
    model, (source, lengths, target) = model_of(form), batch(rows=4)
    before = said(model, source, lengths, target)
    padding = torch.arange(source.size(1)) >= lengths.unsqueeze(1)
    assert torch.equal(said(model, source.masked_fill(padding, 0), lengths, target), before)


@by_form
def test_the_future_is_never_seen(form: str) -> None:
    model, (source, lengths, target) = model_of(form), batch()
    before = said(model, source, lengths, target)
    for place in range(1, target.size(1)):
        other = target.clone()
        other[:, place:] = (other[:, place:] + 1) % WORDS
        after = said(model, source, lengths, other)
        assert torch.equal(after[:, :place], before[:, :place])  # not one bit
        assert (after[:, place:] - before[:, place:]).abs().amax((0, 2)).min() > 1e-6


@by_form
def test_every_word_of_the_source_matters(form: str) -> None:
    model, (source, lengths, target) = model_of(form), batch(rows=1)
    before = said(model, source, lengths, target)
    for place in range(source.size(1)):
        other = source.clone()
        other[:, place] = (other[:, place] + 1) % WORDS
        assert (said(model, other, lengths, target) - before).abs().amax((0, 2)).min() > 1e-6


@by_form
@torch.no_grad()
def test_reordering_equals_starting_from_other_rows(form: str) -> None:
    model, (source, lengths, target) = model_of(form), batch(rows=3)
    for rows in ([2, 0, 0, 1], [0, 1, 2], [1]):
        order = torch.tensor(rows)
        for cut in (0, 1, 3):
            state = model.start(source, lengths)
            for word in target[:, :cut].unbind(1):
                _, _, state = model.step(state, word)
            state = model.reorder(state, order)
            logs, weights, _ = model.step(state, target[order, cut])
            close(logs, said(model, source[order], lengths[order], target[order, : cut + 1])[:, -1])
            assert not (weights > 0)[torch.arange(source.size(1)) >= lengths[order, None]].any()


@torch.no_grad()
def test_a_reordered_state_is_its_own() -> None:
    """Two ways of going on from one state do not write into each other's caches."""
    model, (source, lengths, target), both = model_of(), batch(rows=2), torch.arange(2)
    state = model.start(source, lengths)
    for word in target[:, :3].unbind(1):  # now the caches have room to spare
        _, _, state = model.step(state, word)
    one, other = model.reorder(state, both), model.reorder(state, both)
    _, _, one = model.step(one, target[:, 3])
    _, _, other = model.step(other, (target[:, 3] + 1) % WORDS)
    logs, _, _ = model.step(one, target[:, 4])
    close(logs, said(model, source, lengths, target)[:, -1])


@by_form
def test_a_beam_of_one_is_greedy_and_both_tell_the_truth(form: str) -> None:
    model, (source, lengths, _) = model_of(form), batch()
    first, rules = torch.full((3,), 2), Rules(end=0, max_length=8)
    found = [search(model, model.start(source, lengths), first, rules, True) for search in (Greedy(), Beam(1), Beam(4))]
    for row, (greedy, beam, wide) in enumerate(zip(*found, strict=True)):
        assert greedy[0].tokens == beam[0].tokens
        close(greedy[0].weights, beam[0].weights)
        best = wide[0]
        steps = [*best.tokens, 0] if best.finished else best.tokens
        target = torch.tensor([[2, *steps[:-1]]])
        logs = said(model, source[row : row + 1], lengths[row : row + 1], target)[0]
        close(torch.tensor(best.log_probs), logs.gather(1, torch.tensor(steps)[:, None]).squeeze(1).float())


@pytest.mark.parametrize("form", ["published", "modern"])
@torch.no_grad()
def test_every_place_is_heard_by_name(form: str) -> None:
    model, given = model_of(form), batch(rows=2)
    with capture(model) as heard:
        model(*given)
    assert heard.places == [
        *("encoder.blocks.0.self", "encoder.blocks.1.self"),
        *("decoder.0.self", "decoder.0.cross", "decoder.1.self", "decoder.1.cross"),
    ]
    assert heard["encoder.blocks.1.self"].weights.shape == (2, HEADS, 7, 7)
    assert heard["decoder.1.self"].weights.shape == (2, HEADS, 5, 5)
    assert heard["decoder.1.cross"].weights.shape == (2, HEADS, 5, 7)
    assert not heard["decoder.0.self"].weights.triu(1).any()


@pytest.mark.parametrize("looks", [0, 1, -1])
@torch.no_grad()
def test_a_step_tells_the_mean_of_the_heads_of_one_block(looks: int) -> None:
    model, (source, lengths, target) = model_of(alignment_layer=looks), batch()
    with capture(model, "*.cross") as heard:
        model(source, lengths, target)
    expected = heard[f"decoder.{looks % 2}.cross"].weights.mean(1)
    state = model.start(source, lengths)
    with capture(model, "*.cross", Observe(top=1)) as steps:  # who else listens gets what they asked for
        for at, word in enumerate(target.unbind(1)):
            _, weights, state = model.step(state, word)
            close(weights, expected[:, at])
    calls = steps.calls("decoder.1.cross")
    assert len(calls) == target.size(1) and all(call.weights is None and call.top is not None for call in calls)


# Against others


def in_torch(model: Transformer, order: str) -> tuple[nn.Module, nn.Module]:
    """torch's own encoder and decoder with the same weights."""
    how = {"dropout": 0.0, "batch_first": True, "norm_first": order == "pre", "dtype": torch.float64}
    layer, other = (kind(WIDTH, HEADS, 12, **how) for kind in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))
    last = [nn.LayerNorm(WIDTH).double() if order == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(layer, SMALL.layers, last[0], enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(other, SMALL.layers, last[1])
    norms = {"after_self": "norm1", "after_cross": "norm2", "after_feed": "norm3"}
    for half, blocks in ((encoder, model.encoder.blocks), (decoder, model.decoder)):
        for one, block in zip(half.layers, blocks, strict=True):
            take(one.self_attn, block.self.project.joint, block.self.out)
            take_linear(one.linear1, block.feed.inner)
            take_linear(one.linear2, block.feed.outer)
            if half is decoder:
                parts = block.cross.project
                joint = nn.Linear(WIDTH, 3 * WIDTH)
                joint.weight, joint.bias = (
                    nn.Parameter(torch.cat([getattr(getattr(parts, name), part) for name in ("query", "key", "value")]))
                    for part in ("weight", "bias")
                )
                take(one.multihead_attn, joint, block.cross.out)
            for ours, theirs in norms.items():
                theirs = "norm2" if half is encoder and ours == "after_feed" else theirs
                if hasattr(block, ours):
                    getattr(one, theirs).load_state_dict(getattr(block, ours).norm.state_dict())
    for norm, ours in zip(last, (model.encoder.final_norm, model.final_norm), strict=True):
        if norm is not None:
            norm.load_state_dict(ours.state_dict())
    return encoder.eval(), decoder.eval()


def take(theirs: nn.MultiheadAttention, joint: nn.Linear, out: nn.Linear) -> None:
    theirs.in_proj_weight, theirs.in_proj_bias = joint.weight, joint.bias
    take_linear(theirs.out_proj, out)


def take_linear(theirs: nn.Linear, ours: nn.Linear) -> None:
    theirs.weight, theirs.bias = ours.weight, ours.bias


@pytest.mark.parametrize("order", ["post", "pre"])
@torch.no_grad()
def test_it_is_torchs_transformer(order: str) -> None:
    model, (source, lengths, target) = model_of(block=BlockConfig(order=order)), batch(rows=4)
    encoder, decoder = in_torch(model, order)
    place = torch.arange(7)[:, None] / 10000 ** (torch.arange(0, WIDTH, 2) / WIDTH).double()
    sines = torch.stack((place.sin(), place.cos()), -1).flatten(1)
    table = model.embedding.tokens.weight
    padding = torch.arange(7) >= lengths[:, None]
    memory = encoder(table[source] * math.sqrt(WIDTH) + sines, src_key_padding_mask=padding)
    ahead = nn.Transformer.generate_square_subsequent_mask(5, dtype=torch.float64)
    x = decoder(table[target] * math.sqrt(WIDTH) + sines[:5], memory, ahead, memory_key_padding_mask=padding)
    close(said(model, source, lengths, target), (x @ table.T + model.output.bias).log_softmax(-1))


# What it is made of


def test_the_published_size() -> None:
    """65 million (table 3), as near as 37,000 tokens come to it: biases and norms counted, positions free."""
    with torch.device("meta"):
        model = build_transformer(37_000)
    heads, feed, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
    expected = 6 * (heads + feed + 2 * norm) + 6 * (2 * heads + feed + 3 * norm) + 37_000 * (512 + 1)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == expected
    assert count == pytest.approx(65e6, rel=0.03)
    assert {block.after_self.order for block in model.decoder} == {"post"}
    assert {one.p for one in model.modules() if isinstance(one, nn.Dropout)} == {0.1, 0.0}
    assert BASE == (6, 512, 8, 2048) and isinstance(model.embedding.positions, Sinusoidal)


def test_which_embeddings_are_shared() -> None:
    one, two = model_of(), model_of("two vocabularies")
    assert one.embedding is one.encoder.embedding and one.output.weight is one.embedding.tokens.weight
    assert two.encoder.embedding.tokens.num_embeddings == WORDS + 3
    assert two.output.weight is two.embedding.tokens.weight is not two.encoder.embedding.tokens.weight


def test_it_is_put_together_by_hand_too() -> None:
    style = BlockConfig(order="pre")
    read, written = (InputEmbedding(words, WIDTH, Sinusoidal(WIDTH)) for words in (20, WORDS))
    encoder = Encoder(read, encoder_blocks(3, WIDTH, HEADS, 12, style), style.final_norm(WIDTH))
    model = large(Transformer(encoder, written, decoder_blocks(1, WIDTH, HEADS, 12, style), style.final_norm(WIDTH)))
    close(stepped(model, *batch()), said(model, *batch()))
    assert model.output.weight is written.tokens.weight


def test_a_fresh_one_guesses_evenly_and_every_weight_learns() -> None:
    torch.manual_seed(0)
    model = build_transformer(500, TransformerSize(2, 64, 4, 128))
    logs = said(model.eval(), *batch(rows=4, most=500))
    assert -logs.mean().item() == pytest.approx(math.log(500), abs=1.0)
    model.train()(*batch(rows=4, most=500))[0].nll(batch(rows=4, most=500)[2]).sum().backward()
    still = [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]
    assert all(name.endswith("joint.bias") for name in still)  # a bias of all keys changes no softmax


def test_a_gain_changes_how_words_learn_and_nothing_else() -> None:
    made = []
    for gain in (1.0, 8.0):
        torch.manual_seed(0)
        made.append(build_transformer(WORDS, SMALL, BlockConfig(), embedding_lr_scale=gain).double())
    one, eight = made
    close(said(eight, *batch()), said(one, *batch()))
    close(eight.embedding.tokens.weight * 8, one.embedding.tokens.weight)


def test_queries_begin_as_the_keys_they_look_at() -> None:
    model = build_transformer(WORDS, TransformerSize(1, 8, 4, 8), replace(LLAMA, key_heads=2))
    cross, joint = model.decoder[0].cross.project, model.decoder[0].self.project.joint.weight
    keys = [cross.key.weight[:2], cross.key.weight[2:]]
    assert torch.equal(cross.query.weight, torch.cat([keys[0], keys[0], keys[1], keys[1]]))
    assert torch.equal(joint[:4], joint[8:10].repeat(2, 1)) and not torch.equal(joint[8:12], joint[12:])


def test_training_may_look_at_some_words_only() -> None:
    model, (source, lengths, target) = model_of(num_sampled=2, eos=0).train(), batch()
    found, _ = model(source, lengths, target)
    assert isinstance(found, SampledSoftmax) and {0, *target.unique().tolist()} <= set(found.ids.tolist())
    assert isinstance(model.eval()(source, lengths, target)[0], Logits)
    with pytest.raises(SettingError, match="num_sampled needs eos"):
        model_of(num_sampled=2)


def test_a_rank_without_rows_takes_part() -> None:
    model = model_of()
    source, lengths, target = batch()
    found, _ = model(source[:0], lengths[:0], target[:0])
    total = found.nll(target[:0]).sum()
    total.backward()
    assert total == 0 and all(one.grad is not None and not one.grad.any() for one in model.parameters())


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="alignment_layer=2, expected one of the 2 decoder blocks"):
        model_of(alignment_layer=2)
    with pytest.raises(SettingError, match="3 heads for a width of 8"):
        build_transformer(WORDS, TransformerSize(1, 8, 3, 8))
    with pytest.raises(SettingError, match="layers=0"):
        build_transformer(WORDS, TransformerSize(0, 8, 2, 8))
