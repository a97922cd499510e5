"""Listening changes nothing, reports everything that was requested, and may replace weights."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from regard.attention import Attended, Observe, Tap, attend, capture, masks
from regard.attention.layers import DecoderBlock, EncoderBlock, FeedForward, MultiHead
from regard.attention.tap import TapListener, listen, places_of
from regard.errors import PlaceError, RegardError, ShapeError

ALL = Observe(top=3, entropy=True, received=True, thumbnail=(4, 4), weights=True, prepared=True)


class Translator(nn.Module):
    """Two encoder blocks and one decoder block, named as real models name theirs."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.encoder = nn.ModuleList(
            EncoderBlock(MultiHead(16, 4, dropout=dropout), FeedForward(16, 32)) for _ in range(2)
        )
        self.decoder = nn.ModuleList([DecoderBlock(MultiHead(16, 4), MultiHead(16, 2), FeedForward(16, 32))])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        for block in self.encoder:
            source = block(source)
        for block in self.decoder:
            target = block(target, source, mask=masks.Causal())
        return target


@pytest.fixture
def model() -> Translator:
    torch.manual_seed(0)
    return Translator()


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    return torch.randn(2, 7, 16), torch.randn(2, 5, 16)


def answering(model: nn.Module, places: str, answer: Callable[[Attended], Tensor | None]) -> TapListener:
    """A listener that wants the weights and says something back."""
    return TapListener(places_of(model, places), Observe(weights=True), lambda _, got: answer(got))


def test_places_are_named_after_the_module_that_owns_the_tap(model: Translator) -> None:
    expected = ["encoder.0.self", "encoder.1.self", "decoder.0.self", "decoder.0.cross"]
    assert list(places_of(model).values()) == expected
    assert list(places_of(model, "*.cross").values()) == ["decoder.0.cross"]
    assert list(places_of(model, ["encoder.0.*", "*.cross"]).values()) == ["encoder.0.self", "decoder.0.cross"]


@pytest.mark.parametrize("training", [False, True])
def test_listening_changes_no_bit(batch: tuple[Tensor, Tensor], training: bool) -> None:
    """In training too, where dropout draws random numbers: listening draws none."""
    torch.manual_seed(0)
    model = Translator(dropout=0.2).train(training)
    torch.manual_seed(2)
    alone = model(*batch)
    torch.manual_seed(2)
    with capture(model, observe=ALL), capture(model, "*.self", Observe(entropy=True)):
        heard = model(*batch)
    assert torch.equal(alone, heard)


def test_what_is_captured_is_what_was_attended(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    with capture(model, "*.cross", ALL) as heard:
        model(*batch)
    got = heard["decoder.0.cross"]
    assert got.weights.shape == (2, 2, 5, 7)
    torch.testing.assert_close(got.weights.sum(-1), torch.ones(2, 2, 5))
    torch.testing.assert_close(got.received, got.weights.sum(-2).detach())
    torch.testing.assert_close(got.prepared.tile(), got.weights)
    assert got.top.values.shape == (2, 2, 5, 3)


def test_every_call_is_captured_in_order(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    source, target = batch
    with capture(model, "encoder.0.self", Observe(entropy=True)) as heard:
        model(source, target)
        model(source[:1], target[:1])
    assert [len(got.entropy) for got in heard.calls("encoder.0.self")] == [2, 1]
    assert list(heard) == heard.places == ["encoder.0.self"] and len(heard) == 1
    with pytest.raises(PlaceError, match=r"2 calls at 'encoder.0.self'.*heard.calls"):
        heard["encoder.0.self"]
    with pytest.raises(PlaceError, match=r"Unknown place 'encoder.1.self'. Did you mean 'encoder.0.self'\?"):
        heard.calls("encoder.1.self")


def test_nothing_is_stored_without_listeners(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    before = {name: set(vars(module)) for name, module in model.named_modules()}
    with capture(model) as heard:
        model(*batch)
    model(*batch)
    assert len(heard.calls("decoder.0.cross")) == 1, "a call outside the block is not heard"
    assert {name: set(vars(module)) for name, module in model.named_modules()} == before
    buffers = [name for name, _ in model.named_buffers()]
    assert not buffers


def test_each_listener_gets_only_what_it_requested(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    with (
        capture(model, "*.cross", Observe(top=5)) as one,
        capture(model, "*.cross", Observe(top=2, entropy=True)) as other,
    ):
        model(*batch)
    first, second = one["decoder.0.cross"], other["decoder.0.cross"]
    assert (first.top.values.size(-1), second.top.values.size(-1)) == (5, 2)
    assert first.entropy is None and second.entropy is not None and first.weights is None


def test_one_place_has_thumbnails_of_one_size(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    with (
        capture(model, observe=Observe(thumbnail=(2, 2))),
        capture(model, observe=Observe(thumbnail=(3, 3))),
        pytest.raises(RegardError, match=r"\(2, 2\) and \(3, 3\)"),
    ):
        model(*batch)


def test_replacing_weights_by_themselves_changes_no_bit_of_plain() -> None:
    torch.manual_seed(0)
    tap, q, k, v = Tap(), torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
    alone = attend(q, k, v, mask=masks.Causal(), backend="plain").output
    with listen(answering(tap, "*", lambda got: got.weights)):
        answered = tap(q, k, v, mask=masks.Causal(), backend="plain").output
    assert torch.equal(alone, answered)


def test_replaced_weights_are_averaged_and_described() -> None:
    torch.manual_seed(0)
    tap, q, v = Tap(), torch.randn(5, 8), torch.randn(6, 8)
    uniform = torch.full((5, 6), 1 / 6)
    with (
        listen(answering(tap, "*", lambda got: torch.full_like(got.weights, 1 / 6))),
        capture(tap, observe=Observe(entropy=True, weights=True)) as heard,
    ):
        got = tap(q, v)
    torch.testing.assert_close(got.output, uniform @ v)
    later = heard[""]
    torch.testing.assert_close(later.weights, uniform)
    torch.testing.assert_close(later.entropy, torch.full((5,), 6.0).log())


def test_replaced_weights_change_the_output(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    alone = model(*batch)
    with listen(answering(model, "*.cross", lambda got: torch.zeros_like(got.weights))):
        silenced = model(*batch)
    assert not torch.allclose(alone, silenced)
    assert torch.equal(alone, model(*batch)), "the intervention ends with its block"


def test_wrong_weights_and_places_are_refused(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    with (
        listen(answering(model, "*.cross", lambda got: got.weights[..., :3])),
        pytest.raises(ShapeError, match=r"\(2, 2, 5, 3\), expected \(2, 2, 5, 7\)"),
    ):
        model(*batch)
    with (
        pytest.raises(PlaceError, match=r"No place matches '\*.corss'. Did you mean '\*.cross'\?.*decoder.0.cross"),
        capture(model, "*.corss"),
    ):
        pass
    with capture(nn.Linear(2, 2)) as heard:
        pass
    with pytest.raises(PlaceError, match=r"no attention was captured. No attention was computed"):
        heard["anywhere"]


def test_an_error_inside_the_block_ends_the_listening(model: Translator, batch: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ZeroDivisionError), capture(model) as heard:
        raise ZeroDivisionError
    model(*batch)
    assert not heard.calls("decoder.0.cross")
