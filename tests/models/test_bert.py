"""Laws of BERT: published sizes, torch's own encoder beside it, padding, masked places alone, what a task may tune."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from regard.attention import Observe, capture
from regard.errors import SettingError
from regard.models.bert import SIZES, Bert, BertSize, MaskedLM
from regard.models.bert_heads import BertFeatures, Pooler, SequenceClassifier, SpanPredictor, TokenClassifier
from regard.models.blocks import BERT

V, WIDTH, T = 20, 8, 7
SMALL = BertSize(3, WIDTH, heads=2)
lengths = torch.tensor([7, 4, 2])
generator = torch.Generator().manual_seed(0)
inputs = torch.randint(0, V, (3, T), generator=generator)
real = torch.arange(T) < lengths[:, None]
segments = ((torch.arange(T) >= torch.tensor([3, 2, 1])[:, None]) & real).long()


def bert(dropout: float = 0.0) -> Bert:
    torch.manual_seed(0)
    model = Bert.of(V, SMALL, max_positions=9, dropout=dropout)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(std=0.3)  # what begins as zero is tested too
    return model.double()


@pytest.mark.parametrize(
    ("name", "count"),
    [("tiny", 4_385_920), ("mini", 11_170_560), ("small", 28_763_648), ("medium", 41_373_184), ("base", 109_482_240)],
)
def test_parameters_are_those_of_the_published_sizes(name: str, count: int) -> None:
    with torch.device("meta"):
        model = Bert.of(30_522, SIZES[name])
        whole = MaskedLM(model)
    assert sum(one.numel() for one in model.parameters()) == count
    heads = {block.self.project.heads for block in model.encoder.blocks}
    assert heads == {model.width // 64} and model.max_positions == 512
    width = model.width  # the output is tied: above the encoder stand dense, norm, bias and two classes
    assert sum(one.numel() for one in whole.parameters()) == count + width**2 + 3 * width + 30_522 + 2 * width + 2


def of_torch(block: nn.Module) -> nn.TransformerEncoderLayer:
    """torch's own layer with the weights of ours."""
    theirs = nn.TransformerEncoderLayer(
        WIDTH, 2, 4 * WIDTH, dropout=0.0, activation="gelu", layer_norm_eps=1e-12, batch_first=True, dtype=torch.double
    )
    pairs = {
        "self_attn.in_proj_": block.self.project.joint,
        "self_attn.out_proj.": block.self.out,
        "linear1.": block.feed.inner,
        "linear2.": block.feed.outer,
        "norm1.": block.after_self.norm,
        "norm2.": block.after_feed.norm,
    }
    theirs.load_state_dict(
        {f"{name}{kind}": getattr(one, kind) for name, one in pairs.items() for kind in ("weight", "bias")}
    )
    return theirs


def test_it_is_torchs_encoder_over_three_embeddings() -> None:
    model = bert()
    embedded = model.encoder.embedding
    where = embedded.positions.table.weight[:T]
    x = embedded.tokens.weight[inputs] + where + embedded.segments.weight[segments]
    x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, correction=0)
    x = x * embedded.norm.weight + embedded.norm.bias
    states = model.states(inputs, lengths, segments)
    assert states.shape == (3, 4, T, WIDTH)
    torch.testing.assert_close(states[:, 0], x)
    for number, block in enumerate(model.encoder.blocks, 1):
        x = of_torch(block)(x, src_key_padding_mask=~real)
        torch.testing.assert_close(states[:, number][real], x[real])
    torch.testing.assert_close(model(inputs, lengths, segments)[real], x[real])
    pooled = model.pooled(model(inputs, lengths, segments))
    torch.testing.assert_close(pooled, torch.tanh(x[:, 0] @ model.pooler.weight.T + model.pooler.bias))


def test_rows_alone_equal_the_batch_whatever_the_padding() -> None:
    model = bert()
    more = nn.functional.pad(inputs, (0, 2), value=3)
    more_segments = nn.functional.pad(segments, (0, 2), value=1)
    together, padded = model.states(inputs, lengths, segments), model.states(more, lengths, more_segments)
    for row, length in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        alone = model.states(inputs[one, :length], lengths[one], segments[one, :length])[0]
        for states in (together, padded):
            torch.testing.assert_close(states[row, :, :length], alone)


def test_every_token_sees_both_sides_and_segments_and_places_matter() -> None:
    model = bert()
    states = model(inputs, lengths, segments)
    for place in range(T):
        other = inputs.clone()
        other[0, place] = (other[0, place] + 1) % V
        assert ((model(other, lengths, segments)[0] - states[0]).abs().amax(-1) > 1e-9).all()
    assert not torch.allclose(model(inputs, lengths)[0], states[0])
    turned = inputs.clone()
    turned[0] = inputs[0].flip(0)
    assert not torch.allclose(model(turned, lengths, torch.zeros_like(segments))[0].flip(0), model(inputs, lengths)[0])


def test_guesses_for_masked_places_are_the_whole_layer_gathered() -> None:
    torch.manual_seed(0)
    model = MaskedLM(bert()).double()
    places = torch.tensor([9, 1, 14, 1])
    said = model(inputs, lengths, segments, places)
    states = model.bert(inputs, lengths, segments)
    whole = model.lm_head(states, model.bert.words).flatten(0, 1)
    assert said.logits.shape == (4, V) and whole.shape == (3 * T, V)
    torch.testing.assert_close(said.logits, whole[places])
    torch.testing.assert_close(said.next_sentence, model.next_sentence(model.bert.pooled(states)))
    x = nn.functional.gelu(states[1, 2] @ model.lm_head.dense.weight.T + model.lm_head.dense.bias)  # place 9, typed out
    x = (x - x.mean()) / (x.var(correction=0) + 1e-12).sqrt() * model.lm_head.norm.weight + model.lm_head.norm.bias
    torch.testing.assert_close(said.logits[0], model.bert.encoder.embedding.tokens.weight @ x + model.lm_head.bias)


def test_every_parameter_learns_and_no_rows_teach_nothing() -> None:
    model = MaskedLM(bert()).double()
    for rows, places in ((3, [1, 9]), (0, [])):
        model.zero_grad()
        said = model(inputs[:rows], lengths[:rows], segments[:rows], torch.tensor(places, dtype=torch.int64))
        (said.logits.square().sum() + said.next_sentence.square().sum()).backward()
        assert all(one.grad is not None and bool(one.grad.any()) == bool(rows) for one in model.parameters())


def test_places_of_attention_are_heard() -> None:
    model = bert()
    with capture(model, places="encoder.blocks.*.self", observe=Observe(weights=True)) as heard:
        model(inputs, lengths)
    weights = heard["encoder.blocks.2.self"].weights
    assert weights.shape == (3, 2, T, T)
    assert not weights[1, ..., 4:].any()


def test_dropout_falls_while_training_alone() -> None:
    model = bert(dropout=0.5)
    assert not torch.equal(model(inputs, lengths), model(inputs, lengths))
    model.eval()
    assert torch.equal(model(inputs, lengths), model(inputs, lengths))
    looked = Bert.of(V, SMALL, max_positions=9, block=replace(BERT, attention_dropout=0.3))
    assert {block.self.dropout for block in looked.encoder.blocks} == {0.3}


@pytest.mark.parametrize("pooling", ["pooler", "cls", "mean", "attention"])
def test_a_text_alone_equals_the_text_in_a_batch(pooling) -> None:
    torch.manual_seed(0)
    model = SequenceClassifier(BertFeatures(bert(), pooler=pooling == "pooler"), 4, pooling).double()
    together = model(inputs, lengths, segments)
    assert together.shape == (3, 4)
    for row, length in enumerate(lengths.tolist()):
        alone = inputs[row : row + 1, :length], lengths[row : row + 1], segments[row : row + 1, :length]
        torch.testing.assert_close(together[row], model(*alone)[0])


def test_a_summary_is_what_it_says() -> None:
    states = torch.randn(3, T, WIDTH)
    assert torch.equal(Pooler(WIDTH, "cls")(states, lengths), states[:, 0])
    means = torch.stack([states[row, :length].mean(0) for row, length in enumerate(lengths.tolist())])
    torch.testing.assert_close(Pooler(WIDTH, "mean")(states, lengths), means)
    asked = Pooler(WIDTH, "attention")
    scores = states[1, :4] @ asked.attention.queries[0] / WIDTH**0.5
    torch.testing.assert_close(asked(states, lengths)[1], scores.softmax(0) @ states[1, :4])


@pytest.mark.parametrize("layer", [None, 0, 1, "mix"])
@pytest.mark.parametrize("tuned", [True, False])
def test_what_a_task_needs_learns_and_nothing_else(layer, tuned) -> None:
    torch.manual_seed(0)
    model = SequenceClassifier(BertFeatures(bert(dropout=0.5), layer, tuned), 2, "mean").double().train()
    states = model.features.eval()(inputs, lengths, segments)
    every = model.features.bert.states(inputs, lengths, segments)
    expected = every.mean(1) if layer == "mix" else every[:, 3 if layer is None else layer]
    torch.testing.assert_close(states, expected)
    model.train()(inputs, lengths, segments).square().sum().backward()
    for name, one in model.named_parameters():
        assert (one.grad is not None) == one.requires_grad, name
    learned = {
        name.removeprefix("features.bert.").split(".")[0]
        for name, one in model.named_parameters()
        if one.grad is not None
    }
    mixed = {"features"} if layer == "mix" else set()
    assert learned == {"outputs"} | mixed | ({"encoder"} if tuned else set())
    blocks = [any(one.requires_grad for one in block.parameters()) for block in model.features.bert.encoder.blocks]
    upto = 3 if layer in (None, "mix") else layer
    assert blocks == [tuned and number < upto for number in range(3)]
    same = torch.equal(model.features(inputs, lengths), model.features(inputs, lengths))
    assert same != tuned  # features are not dropped out


def test_a_span_lies_in_the_passage() -> None:
    torch.manual_seed(0)
    model = SpanPredictor(BertFeatures(bert())).double()
    for logits in model(inputs, lengths, segments):
        # the passage begins at 3, 2 and 1, and [SEP] ends it
        assert logits.isfinite().tolist() == [
            [3 <= at < 6 for at in range(T)],
            [2 <= at < 3 for at in range(T)],
            [False] * T,
        ]
    tags = TokenClassifier(BertFeatures(bert()), 5).double()(inputs, lengths)
    assert tags.shape == (3, T, 5)


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="0 layers"):
        Bert.of(V, BertSize(0, 8))
    with pytest.raises(SettingError, match="3 heads for a width of 8"):
        Bert.of(V, BertSize(1, 8, heads=3))
    with pytest.raises(SettingError, match="got layer 4, expected 0 to 3, or 'mix'"):
        BertFeatures(bert(), 4)
    with pytest.raises(SettingError, match="'pooler' of layer 1"):
        SequenceClassifier(BertFeatures(bert(), 1), 2)
