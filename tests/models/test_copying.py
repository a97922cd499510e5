"""The ways to copy: each typed out, all mass dealt out, and words outside the vocabulary said by copying alone."""

import pytest
import torch

from models.readers import HIDDEN, VOCABULARY, attentive, shares, tokens
from regard.attention import attend, capture
from regard.attention.masks import Past
from regard.attention.observe import Observe
from regard.attention.scores import Additive, Dot
from regard.errors import SettingError
from regard.models.copying import Average, Gate, Sentinel
from regard.models.predictions import IGNORED

WAYS = {"average": Average, "gate": lambda: Gate(HIDDEN), "sentinel": lambda: Sentinel(HIDDEN)}
by_way = pytest.mark.parametrize("way", list(WAYS))


def attended(copy, score=None):
    """States that look back, and how a way to copy shares the mass."""
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(2, 5, HIDDEN, generator=generator).double().requires_grad_()
    copy = copy.double()
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    got = attend(states, states, score=score or Dot(), mask=Past(), observe=Observe(weights=True))
    return states, got, copy, copy(states, got)


@by_way
def test_all_mass_is_dealt_out_and_the_softmax_gets_all_where_nothing_was_seen(way) -> None:
    *_, (share, copied) = attended(WAYS[way]())
    torch.testing.assert_close(share + copied.sum(-1), torch.ones(2, 5).double())
    assert (share[:, 0] == 1).all() and not copied[:, 0].any()
    assert ((share[:, 1:] > 0) & (share[:, 1:] < 1)).all() and not copied.triu().any()


def test_an_average_is_half_and_half() -> None:
    _, got, _, (share, copied) = attended(Average())
    assert (share[:, 1:] == 0.5).all()
    torch.testing.assert_close(copied, got.weights / 2)


def test_a_gate_looks_at_state_and_context() -> None:
    states, got, copy, (share, copied) = attended(Gate(HIDDEN))
    for row, place in [(0, 1), (1, 4)]:
        both = torch.cat((states[row, place], got.output[row, place]))
        expected = torch.sigmoid(copy.gate.weight[0] @ both + copy.gate.bias[0])
        torch.testing.assert_close(share[row, place], expected)
        torch.testing.assert_close(copied[row, place], (1 - expected) * got.weights[row, place])


@pytest.mark.parametrize("score", [Dot(), Additive(HIDDEN, 4)], ids=["dot", "additive"])
def test_a_sentinel_is_one_more_thing_to_look_at(score) -> None:
    states, _, copy, shared = attended(Sentinel(HIDDEN), score.double())
    scores = score(states, states).masked_fill(~Past().dense(5, 5), -torch.inf)
    joined = torch.cat((scores, (states @ copy.vector).unsqueeze(-1)), -1).softmax(-1)
    torch.testing.assert_close(shared.share, joined[..., -1])
    torch.testing.assert_close(shared.copied, joined[..., :-1])
    weigh = torch.arange(12).double().reshape(2, 6)  # and so are its gradients
    got = torch.autograd.grad((torch.cat((shared.copied[:, 3], shared.share[:, 3:4]), -1) * weigh).sum(), states)[0]
    expected = torch.autograd.grad((joined[:, 3] * weigh).sum(), states)[0]
    torch.testing.assert_close(got, expected)


@by_way
def test_a_word_outside_the_vocabulary_is_said_by_copying_alone(way) -> None:
    model = attentive("lstm", Dot(), WAYS[way]())
    text = torch.tensor([[1, VOCABULARY + 1, 3, VOCABULARY + 1, 4, 5]])
    with capture(model) as heard:
        prediction, _ = model(text)
    whole, weights = shares(prediction)[0], heard["past"].weights[0]
    assert not whole[:2, VOCABULARY:].any()  # nothing of the kind was seen yet
    assert (whole[2:, VOCABULARY + 1] > 0).all() and not whole[:, VOCABULARY].any()
    # the share of each of its two places, once both are seen
    copied = (weights[5, 1] + weights[5, 3]) * (1 - prediction.share[0, 5])
    torch.testing.assert_close(whole[5, VOCABULARY + 1], copied)


@by_way
def test_surprise_of_words_outside_the_vocabulary(way) -> None:
    model, text = attentive("gru", Dot(), WAYS[way]()), tokens(2, 9)
    prediction, _ = model(text)
    targets = text.roll(1, 1)  # each was just seen, and one place back is allowed from the second place on
    targets[:, :2] = IGNORED
    expected = -prediction.log_probs().gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    expected[:, :2] = 0
    assert (targets >= VOCABULARY).any()
    torch.testing.assert_close(prediction.surprise(targets), expected)
    torch.testing.assert_close(prediction.log_probs().exp().sum(-1), torch.ones(2, 9).double())


def test_what_cannot_be_is_refused_in_words() -> None:
    for way in (Gate, Sentinel):
        with pytest.raises(SettingError, match="width=0"):
            way(0)
