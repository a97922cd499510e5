"""The ways to copy: each typed out, all mass dealt out, and words outside the vocabulary said by copying alone."""

from contextlib import contextmanager
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from attention.cases import Largest
from models.rnn_language_models import HIDDEN, UNKNOWN, VOCABULARY, attentive, shares, tokens
from regard.attention import attend, capture
from regard.attention.masks import Past
from regard.attention.observe import Observe
from regard.attention.scores import Additive, Bilinear, Cosine, Dot
from regard.errors import SettingError
from regard.inspection.interventions import intervene
from regard.models.attentive_rnn_lm import AttentiveLM, PastAttention
from regard.models.copy_gates import Average, Gate, Sentinel
from regard.models.cross_entropy import map_unreachable_to_unk
from regard.models.embedding import WordEmbedding
from regard.models.lazy_copy_weights import LazyCopyWeights
from regard.models.neural_cache import NeuralCache
from regard.models.rnn import RecurrentLayers
from regard.text.examples import IGNORED
from regard.training.objectives.stateful_lm import closed_vocabulary_nll

WAYS = {"average": Average, "gate": lambda: Gate(HIDDEN), "sentinel": lambda: Sentinel(HIDDEN)}
by_way = pytest.mark.parametrize("way", list(WAYS))


class Dealt(NamedTuple):
    """The softmax's share (B, T), and what each seen token gets, (B, T, S)."""

    share: Tensor
    copied: Tensor


def attended(copy, score=None):
    """States that look back, and how a way to copy shares the mass."""
    generator = torch.Generator().manual_seed(3)
    states = torch.randn(2, 5, HIDDEN, generator=generator).double().requires_grad_()
    copy = copy.double()
    with torch.no_grad():
        for parameter in copy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    got = attend(states, states, score=score or Dot(), mask=Past(), observe=Observe(weights=True))
    share, rest = copy(states, got)
    return states, got, copy, Dealt(share, got.weights * rest.unsqueeze(-1))


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
    copied = (weights[5, 1] + weights[5, 3]) * (1 - prediction.p_gen[0, 5])
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
    torch.testing.assert_close(prediction.nll(targets), expected)
    torch.testing.assert_close(prediction.log_probs().exp().sum(-1), torch.ones(2, 9).double())


def test_what_cannot_be_is_refused_in_words() -> None:
    for way in (Gate, Sentinel):
        with pytest.raises(SettingError, match="width=0"):
            way(0)


@contextmanager
def nothing_held():
    """Weights are never held where a model can do without."""
    with patch("regard.models.attentive_rnn_lm.max_materialized", lambda device: -1):
        yield


LOOKS = {"average": None, "gate": Bilinear(HIDDEN), "sentinel": Cosine(0.3)}
DOCUMENTS = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2], [3, 3, 3, 3, 3, 3, 3, 3, 3]])


def read_twice(model, text, documents):
    """A prediction that was carried to, from the tokens before."""
    before = None if documents is None else documents[:, :4]
    _, carry = model(text[:, :4], before)
    return model(text[:, 4:], None if documents is None else documents[:, 4:], carry)[0]


@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["one text", "texts"])
@pytest.mark.parametrize("carried", [False, True])
@by_way
def test_weights_that_are_not_held_say_the_same(way, carried, documents) -> None:
    model, text = attentive("lstm", LOOKS[way], WAYS[way]()), tokens(2, 9)
    targets = text.roll(-1, 1)
    targets[0, 5], targets[1, 1] = IGNORED, VOCABULARY + 50
    read = read_twice if carried else lambda model, text, documents: model(text, documents)[0]
    targets = targets[:, 4:] if carried else targets
    held = read(model, text, documents)
    with nothing_held():
        loose = read(model, text, documents)
    assert isinstance(held.copy_weights, Tensor) and isinstance(loose.copy_weights, LazyCopyWeights)
    assert torch.equal(map_unreachable_to_unk(loose, targets, UNKNOWN), map_unreachable_to_unk(held, targets, UNKNOWN))
    torch.testing.assert_close(loose.log_probs(), held.log_probs())
    torch.testing.assert_close(
        closed_vocabulary_nll(loose, targets, UNKNOWN), closed_vocabulary_nll(held, targets, UNKNOWN)
    )
    found = []
    for said in (held, loose):
        total = said.nll(map_unreachable_to_unk(said, targets, UNKNOWN), 0.1)
        found.append((total, torch.autograd.grad(total.sum(), list(model.parameters()))))
    torch.testing.assert_close(found[1], found[0])


def test_weights_that_are_not_held_are_told_to_whoever_listens() -> None:
    model, text = attentive("lstm", Dot(), Sentinel(HIDDEN)), tokens(2, 9)
    want = model(text)[0]
    with nothing_held():
        alone = model(text)[0]
        with capture(model) as heard:
            got = model(text)[0]
        with intervene(model, "past", weights="uniform"):
            other = model(text)[0]
    assert isinstance(got.copy_weights, LazyCopyWeights) and torch.equal(got.nll(text), alone.nll(text))
    torch.testing.assert_close(got.weights(), want.copy_weights)
    assert heard["past"].weights is not None
    copied = other.weights()[0, 5, :5]  # an answer to what it looks at is copied from
    torch.testing.assert_close(copied, copied[:1].expand(5))


def test_a_score_that_is_no_dot_product_holds_its_weights() -> None:
    with nothing_held():
        assert isinstance(attentive("gru", Additive(HIDDEN, 4), Average())(tokens(2, 5))[0].copy_weights, Tensor)


def test_a_cache_around_weights_that_are_not_held() -> None:
    cache, text = NeuralCache(attentive("lstm", Dot(), Sentinel(HIDDEN)), 20, share=0.3).double(), tokens(2, 9)
    want = cache(text)[0].log_probs()
    with nothing_held():
        torch.testing.assert_close(cache(text)[0].log_probs(), want)


def test_a_long_segment_holds_no_map() -> None:
    """More than 2^22 weights: no tensor of both passes has half as many numbers."""
    torch.manual_seed(0)
    look = PastAttention(Bilinear(8), copy=Gate(8))
    model = AttentiveLM(WordEmbedding(20, 8), RecurrentLayers("gru", 8, 8), look)
    text = torch.randint(20, (4, 1100))
    with Largest() as largest:
        said = model(text)[0]
        said.nll(text.roll(-1, 1)).sum().backward()
    assert isinstance(said.copy_weights, LazyCopyWeights) and largest.numel < 4 * 1100**2 / 2
