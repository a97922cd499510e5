"""Laws of models that look at pictures: one pass equals steps, rows alone, places, registers, the paper's penalty."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Observe, attend, capture
from regard.decoding import Greedy, Rules
from regard.errors import SettingError, ShapeError
from regard.models import (
    VIT,
    ConvEncoder,
    ImageClassifier,
    PatchEncoder,
    PhrasePointer,
    doubly_stochastic,
    sine_positions,
    vit_blocks,
)
from regard.models.config import (
    ImageClassifierConfig,
    PhrasePointerConfig,
    RecurrentCaptionerConfig,
    TransformerCaptionerConfig,
)

close = torch.testing.assert_close
SMALL = {"size": 16, "width": 16, "layers": 2, "heads": 2}

CAPTIONERS: dict[str, Callable[[], nn.Module]] = {
    "recurrent": lambda: RecurrentCaptionerConfig(
        vocabulary=12, word_dim=6, hidden=8, attention_dim=5, **SMALL
    ).build(),
    "gru, no gate, with the word": lambda: RecurrentCaptionerConfig(
        vocabulary=12, word_dim=6, hidden=8, cell="gru", gate=False, query="state and word", **SMALL
    ).build(),
    "recurrent on a vit": lambda: RecurrentCaptionerConfig(
        vocabulary=12, word_dim=6, hidden=8, encoder="vit", patch=8, registers=2, **SMALL
    ).build(),
    "transformer": lambda: TransformerCaptionerConfig(vocabulary=12, **SMALL).build(),
    "transformer on a vit": lambda: TransformerCaptionerConfig(
        vocabulary=12, encoder="vit", patch=8, positions="sinusoidal", alignment_layer=0, **SMALL
    ).build(),
}
by_captioner = pytest.mark.parametrize("name", CAPTIONERS)


def large(model: nn.Module) -> nn.Module:
    """In float64, and with weights large enough to tell something."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)) * 0.4)
    return model


def captioner(name: str) -> nn.Module:
    torch.manual_seed(0)
    return large(CAPTIONERS[name]())


def pictures(rows: int = 3, size: int = 16) -> Tensor:
    chance = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (rows, size, size, 3), generator=chance).double()


def captions(rows: int = 3, length: int = 5) -> Tensor:
    return torch.randint(0, 12, (rows, length), generator=torch.Generator().manual_seed(2))


def stepped(model, pixels: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    state, said, looked = model.start(pixels), [], []
    for word in target.unbind(1):
        logs, weights, state = model.step(state, word)
        said.append(logs)
        looked.append(weights)
    return torch.stack(said, 1), torch.stack(looked, 1)


@by_captioner
def test_all_steps_at_once_are_the_steps_one_by_one(name: str) -> None:
    model = captioner(name)
    prediction, weights = model(pictures(), captions(), weights=True)
    logs, looked = stepped(model, pictures(), captions())
    close(prediction.log_probs(), logs)
    close(weights, looked)
    close(weights.sum(-1), torch.ones(3, 5, dtype=torch.float64))


@by_captioner
def test_a_picture_in_company_is_the_picture_alone(name: str) -> None:
    model, pixels, target = captioner(name), pictures(), captions()
    together = model(pixels, target)[0].log_probs()
    for row in range(3):
        close(together[row : row + 1], model(pixels[row : row + 1], target[row : row + 1])[0].log_probs())


@by_captioner
def test_what_is_asked_for_changes_nothing(name: str) -> None:
    model = captioner(name)
    bare, none = model(pictures(), captions())
    asked, _ = model(pictures(), captions(), weights=True)
    with capture(model, observe=Observe(top=2)) as heard:
        listened, _ = model(pictures(), captions())
    assert none is None and len(list(heard)) > 0
    close(bare.log_probs(), asked.log_probs())
    close(bare.log_probs(), listened.log_probs())


@by_captioner
def test_captured_statistics_are_those_of_the_definition(name: str) -> None:
    model = captioner(name)
    with torch.no_grad(), capture(model, observe=Observe(weights=True, entropy=True, received=True)) as heard:
        model(pictures(), captions())
    for place in heard:
        for got in heard.calls(place):
            logs = got.weights.where(got.weights > 0, 1.0).log()
            close(got.entropy, -(got.weights * logs).sum(-1))
            close(got.received, got.weights.sum(-2))


@by_captioner
def test_reordered_is_started_in_that_order(name: str) -> None:
    model, pixels, target = captioner(name), pictures(), captions()
    for rows in (torch.tensor([2, 0]), torch.tensor([1, 1, 0, 2])):
        state = model.start(pixels)
        for word in target[:, :3].unbind(1):
            _, _, state = model.step(state, word)
        got, weights, _ = model.step(model.reorder(state, rows), target[rows, 3])
        close(got, stepped(model, pixels[rows], target[rows, :4])[0][:, -1])
        assert weights.shape == (len(rows), model.encoder.rows * model.encoder.cols)


@by_captioner
def test_no_rows_have_no_loss_and_all_weights(name: str) -> None:
    model = captioner(name).train()
    prediction, weights = model(pictures()[:0], captions()[:0], weights=True)
    assert len(weights) == 0
    (prediction.nll(captions()[:0]).sum() + weights.sum()).backward()
    assert all(one.grad is not None for one in model.parameters())


@by_captioner
def test_the_likeliest_word_is_right_in_every_step_exactly_if_the_greedy_caption_is(name: str) -> None:
    model, first = captioner(name), torch.zeros(3, dtype=torch.long)
    with torch.no_grad():
        written = Greedy()(model, model.start(pictures()), first, Rules(end=1, max_length=6))
        for row, (best,) in enumerate(written):
            target = torch.tensor([[0, *best.tokens]])
            likeliest = model(pictures()[row : row + 1], target)[0].log_probs().argmax(-1)[0].tolist()
            assert likeliest[: len(best.tokens)] == best.tokens


def test_the_places_have_the_names_of_other_models() -> None:
    with capture(model := captioner("transformer on a vit")) as heard:
        model(pictures(), captions())
    assert list(heard) == [
        "encoder.blocks.0.self",
        "encoder.blocks.1.self",
        "decoder.0.self",
        "decoder.0.cross",
        "decoder.1.self",
        "decoder.1.cross",
    ]
    with capture(model := captioner("recurrent")) as heard:
        model(pictures(), captions())
    assert list(heard) == ["decoder"] and len(heard.calls("decoder")) == 5


def test_the_penalty_is_that_of_the_paper() -> None:
    weights = torch.rand(2, 4, 3, dtype=torch.float64, requires_grad=True)
    steps = torch.tensor([[True] * 4, [True, True, False, False]])
    expected = []
    for row in range(2):
        total = 0.0
        for place in range(3):
            received = sum(float(weights[row, t, place].detach()) for t in range(4) if steps[row, t])
            total += (1 - received) ** 2
        expected.append(total)
    close(doubly_stochastic(weights, steps), torch.tensor(expected, dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda w: doubly_stochastic(w, steps), [weights])
    even = torch.full((1, 3, 3), 1 / 3)
    close(doubly_stochastic(even, torch.ones(1, 3, dtype=torch.bool)), torch.zeros(1))


def test_the_gate_scales_the_context() -> None:
    model = captioner("recurrent")
    decoder = model.decoder
    with torch.no_grad():
        decoder.gate.weight.zero_()
        decoder.gate.bias.fill_(-1e3)  # beta is 0: nothing of the picture enters but the first state
        state = model.start(pictures())
        found, _ = decoder.step(model.words(captions()[:, 0]), state.decoder)
    context = found.features[:, 0, decoder.hidden : decoder.hidden + model.encoder.width]
    close(context, torch.zeros_like(context))


def vit(**more) -> PatchEncoder:
    torch.manual_seed(0)
    return large(PatchEncoder(16, 4, 16, vit_blocks(2, 16, 2, 32, VIT), VIT.final_norm(16), **more))


@pytest.mark.parametrize(("positions", "stem"), [("learned", "linear"), ("sinusoidal", "conv")])
def test_the_order_of_patches_is_in_their_positions_alone(positions: str, stem: str) -> None:
    encoder = vit(positions=positions, stem=stem, registers=3)
    embedded = encoder.embed(pictures())
    order = torch.randperm(16, generator=torch.Generator().manual_seed(5))
    plain, shuffled = encoder.encode(embedded), encoder.encode(embedded[:, order])
    close(shuffled[:, :4], plain[:, :4])  # class token and registers
    close(shuffled[:, 4:], plain[:, 4:][:, order])


def test_class_token_and_registers_are_not_among_the_patches() -> None:
    encoder = vit(registers=3)
    found, sequence = encoder(pictures()), encoder.encode(encoder.embed(pictures()))
    assert sequence.size(1) == 1 + 3 + 16 and encoder.prefix_tokens == ("[CLS]", "[REG1]", "[REG2]", "[REG3]")
    close(found.states, sequence[:, 4:])
    close(found.summary, sequence[:, 0])
    assert not torch.allclose(found.states, vit(registers=0)(pictures()).states)


def test_a_patch_is_the_pixels_of_its_place() -> None:
    encoder = vit()
    before = encoder.embed(pictures(1))
    changed = pictures(1)
    changed[0, 5, 10] += 50  # row 1, column 2 of 4 x 4 patches
    after = encoder.embed(changed)
    assert (before != after).any(-1)[0].nonzero().flatten().tolist() == [1 * 4 + 2]


def test_2d_sine_positions_tell_rows_from_columns() -> None:
    table = sine_positions(3, 5, 16).unflatten(0, (3, 5))
    close(table[:, 0, :8], table[:, 4, :8])
    close(table[0, :, 8:], table[2, :, 8:])
    assert len({tuple(row.tolist()) for row in table.flatten(0, 1)}) == 15


@pytest.mark.parametrize("encoder", ["vit", "conv"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "attention"])
def test_a_classifier_of_a_batch_is_that_of_its_pictures(encoder: str, pooling: str) -> None:
    torch.manual_seed(0)
    model = large(ImageClassifierConfig(classes=3, encoder=encoder, pooling=pooling, **SMALL).build())
    together = model(pictures())
    for row in range(3):
        close(together[row : row + 1], model(pictures()[row : row + 1]))
    model.train()(pictures()[:0]).sum().backward()
    assert together.shape == (3, 3) and all(one.grad is not None for one in model.parameters())


def test_bytes_are_read_as_the_same_numbers() -> None:
    model = ImageClassifier(ConvEncoder(16, 4, 16), 3).eval()
    close(model(pictures().byte()), model(pictures().float()))


def pointer() -> PhrasePointer:
    torch.manual_seed(0)
    return large(PhrasePointerConfig(vocabulary=12, **SMALL).build())


def test_what_a_phrase_points_with_is_its_attention() -> None:
    model, lengths = pointer(), torch.tensor([5, 3, 4])
    with capture(model, observe=Observe(weights=True)) as heard:
        logs = model(pictures(), captions(), lengths)
    assert list(heard) == ["blocks.0.self", "blocks.0.cross", "blocks.1.self", "blocks.1.cross", "pointer"]
    close(logs.exp(), heard["pointer"].weights[:, 0])
    close(logs.exp().sum(-1), torch.ones(3, dtype=torch.float64))
    for row, length in enumerate(lengths.tolist()):
        alone = model(pictures()[row : row + 1], captions()[row : row + 1, :length], lengths[row : row + 1])
        close(logs[row : row + 1], alone)


def test_the_attention_of_the_recurrent_captioner_is_the_definition() -> None:
    model = captioner("recurrent")
    encoded, state = model.encoder(pictures()), model.start(pictures())
    got = attend(state.decoder.cells[0][0].unsqueeze(1), encoded.states, score=model.decoder.score,
                 observe=Observe(weights=True), backend="plain")  # fmt: skip
    close(model.step(state, captions()[:, 0])[1], got.weights[:, 0])


def test_what_does_not_fit_is_refused_in_words() -> None:
    with pytest.raises(
        SettingError, match=r"PatchEncoder: got patches of 5 pixels in pictures of 16, expected a divisor"
    ):
        PatchEncoder(16, 5, 16, vit_blocks(1, 16, 2, 32, VIT))
    with pytest.raises(SettingError, match="patches of 32 pixels in pictures of 16"):
        ConvEncoder(16, 32, 16)
    with pytest.raises(SettingError, match="patch=6, expected 2, 4, 8 or another power of two"):
        ConvEncoder(18, 6, 16)
    with pytest.raises(SettingError, match=r"registers=2 with encoder 'conv', expected 0"):
        ImageClassifierConfig(classes=3, encoder="conv", registers=2, **SMALL).build()
    with pytest.raises(SettingError, match="positions='rotary'"):
        vit(positions="rotary")
    with pytest.raises(SettingError, match="Unknown stem 'pool'"):
        vit(stem="pool")
    with pytest.raises(ShapeError, match=r"pixels \(1, 8, 8, 3\), expected \(B, 16, 16, 3\)"):
        vit()(pictures(1, 8))
