"""NeuralCache: the formula typed out, what it may look at, and that without a share it is the model."""

import pytest
import torch

from models.rnn_language_models import EXTRA, HIDDEN, VOCABULARY, attentive, recurrent, shares, tokens, window
from regard.attention import capture
from regard.attention.scores import Dot
from regard.errors import SettingError
from regard.models.copy_gates import Sentinel
from regard.models.neural_cache import NeuralCache

MODELS = {
    "window": window,
    "lstm": recurrent,
    "attentive": lambda: attentive("gru", Dot()),
    "sentinel": lambda: attentive("lstm", Dot(), Sentinel(HIDDEN)),
}
by_model = pytest.mark.parametrize("kind", list(MODELS))


@by_model
@pytest.mark.parametrize("size", [2, 5, 50])
def test_it_is_its_formula(kind, size) -> None:
    model, text, flatness, share = MODELS[kind](), tokens(1, 9), 0.7, 0.4
    reading = model.predict(text)
    own, states, ids = shares(reading.prediction)[0], reading.hidden[0], text[0]
    got = shares(NeuralCache(model, size, flatness, share)(text)[0])[0]
    torch.testing.assert_close(got[0], own[0])  # nothing is cached yet
    for place in range(1, 9):
        earlier = range(max(0, place - size), place)
        weights = torch.stack([flatness * states[place] @ states[at] for at in earlier]).softmax(0)
        cache = torch.zeros(VOCABULARY + EXTRA).double()
        for weight, at in zip(weights, earlier, strict=True):
            cache[ids[at + 1]] += weight
        torch.testing.assert_close(got[place], (1 - share) * own[place] + share * cache)


@by_model
def test_without_a_share_it_is_the_model(kind) -> None:
    model, text = MODELS[kind](), tokens(2, 6)
    cached, own = NeuralCache(model, 4, share=0.0)(text)[0], model(text)[0]
    torch.testing.assert_close(shares(cached), shares(own))


@by_model
def test_segments_look_back_over_their_beginning_and_no_further_than_the_size(kind) -> None:
    cache, text = NeuralCache(MODELS[kind](), 3).double(), tokens(2, 10)
    whole = shares(cache(text)[0])
    _, carry = cache(text[:, :6])
    assert carry["memory.states"].shape == (2, 3, HIDDEN)
    with capture(cache, "cached") as heard:
        later = shares(cache(text[:, 6:], carry=carry)[0])
    torch.testing.assert_close(later, whole[:, 6:])
    assert ((heard["cached"].weights > 0).sum(-1) == 3).all()


def test_other_texts_are_not_looked_at() -> None:
    cache, text = NeuralCache(recurrent(), 9).double(), tokens(1, 6)
    with capture(cache) as heard:
        cache(text, torch.tensor([[0, 0, 0, 1, 1, 1]]))
    weights = heard["cached"].weights[0]
    assert not weights[3:, :3].any() and weights[5, 3:5].sum().item() == pytest.approx(1)


def test_it_trains_nothing_of_its_own() -> None:
    model = recurrent()
    assert [id(one) for one in NeuralCache(model, 5).parameters()] == [id(one) for one in model.parameters()]


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="size=0"):
        NeuralCache(recurrent(), 0)
    with pytest.raises(SettingError, match="share=1"):
        NeuralCache(recurrent(), 5, share=1.0)
