"""AttentiveLM: the look back typed out, what it may see, what it carries, and that it is heard."""

import pytest
import torch

from models.rnn_language_models import HIDDEN, VOCABULARY, attentive, shares, tokens
from regard.attention import capture
from regard.attention.scores import Additive, Bilinear, Dot
from regard.errors import SettingError
from regard.models.attentive_rnn_lm import AttentiveLM, PastAttention
from regard.models.copy_gates import Sentinel
from regard.models.embedding import WordEmbedding
from regard.models.rnn import RecurrentLayers


def test_it_is_an_average_of_earlier_states_beside_the_state() -> None:
    model, text = attentive("gru", Bilinear(HIDDEN)), tokens(1, 6, extra=0)
    states = model.rnn(model.words(text))[0][0]
    got = model(text)[0].logits[0]
    for place in range(6):
        context = torch.zeros(HIDDEN).double()  # the first token sees nothing
        if place:
            weights = torch.stack([states[place] @ model.score.weight @ key for key in states[:place]]).softmax(0)
            context = weights @ states[:place]
        hidden = torch.tanh(model.join.weight @ torch.cat((states[place], context)) + model.join.bias)
        logits = model.words.embedding.weight @ (model.softmax.project.weight @ hidden) + model.softmax.bias
        torch.testing.assert_close(got[place], logits)


def test_a_segment_is_one_look_and_strictly_back() -> None:
    model = attentive("lstm", Dot())
    with capture(model) as heard:
        model(tokens(2, 5))
    assert heard.places == ["past"]
    weights = heard["past"].weights
    assert weights.shape == (2, 5, 5) and not weights.triu().any()
    torch.testing.assert_close(weights.sum(-1), torch.tensor([0.0, 1, 1, 1, 1]).double().expand(2, 5))


def test_states_of_other_texts_are_not_seen_carried_or_not() -> None:
    model, text = attentive("lstm", Dot()), tokens(1, 8)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    with capture(model) as heard:
        model(text, documents)
        _, carry = model(text[:, :4], documents[:, :4])
        model(text[:, 4:], documents[:, 4:], carry)
    whole, first, second = (one.weights[0] for one in heard.calls("past"))
    assert not whole[3:, :3].any() and not whole[3].any() and (whole[4:, 3] > 0).all()
    assert not first[3].any()
    torch.testing.assert_close(second[:, -8:], whole[4:])


@pytest.mark.parametrize("memory", [0, 1, 3])
def test_only_the_last_states_are_carried(memory) -> None:
    model, text = attentive("gru", Dot(), memory=memory), tokens(1, 8)
    _, carry = model(text[:, :5])
    with capture(model) as heard:
        model(text[:, 5:], carry=carry)
    weights = heard["past"].weights[0]
    assert weights.shape == (3, memory + 3) and (weights[:, :memory] > 0).all()
    assert weights[0].any() == (memory > 0)


def test_places_that_were_never_filled_get_no_weight() -> None:
    model, text = attentive("gru", Dot(), memory=6), tokens(2, 4)
    _, carry = model(text[:, :2])
    assert carry["memory.tokens"][:, :4].eq(-1).all()
    with capture(model) as heard:
        model(text[:, 2:], carry=carry)
    weights = heard["past"].weights
    assert not weights[..., :4].any() and (weights[..., 4:6] > 0).all()


def test_steps_tell_what_they_looked_at() -> None:
    model, text = attentive("lstm", Additive(HIDDEN, 4)), tokens(2, 7)
    with capture(model) as heard:
        model(text)
    whole = heard["past"].weights
    state = model.start(text[:, :3], torch.tensor([3, 3]))
    for place in range(3, 7):
        _, weights, state = model.step(state, text[:, place])
        assert weights.shape == (2, place)  # one more at every step
        torch.testing.assert_close(weights, whole[:, place, :place])


def test_padding_of_a_prompt_gets_no_weight() -> None:
    model, text = attentive("lstm", Dot()), tokens(2, 4)
    _, weights, state = model.step(model.start(text, torch.tensor([4, 2])), text[:, 0])
    assert not weights[1, 2:].any() and (weights[0] > 0).all() and (weights[1, :2] > 0).all()
    _, later, _ = model.step(state, text[:, 1])
    assert later.shape == (2, 5) and not later[1, 2:4].any() and (later[:, 4] > 0).all()


def test_steps_can_say_what_was_read_and_have_one_width_from_the_first() -> None:
    model = attentive("lstm", Dot(), Sentinel(HIDDEN))
    assert model.copies and not attentive("lstm", Dot()).copies
    state = model.start(torch.tensor([[1, VOCABULARY], [1, 0]]), torch.tensor([2, 1]))
    one, _, state = model.step(state, torch.tensor([3, VOCABULARY + 2]))
    two, _, _ = model.step(state, torch.tensor([3, 4]))
    assert one.shape == two.shape == (2, VOCABULARY + 3)
    assert one[0, VOCABULARY] > -20 and one[1, VOCABULARY] == -torch.inf
    assert two[1, VOCABULARY + 2] > -20 and two[0, VOCABULARY + 2] == -torch.inf


def test_the_order_of_what_is_carried_does_not_matter() -> None:
    model, text = attentive("gru", Dot(), Sentinel(HIDDEN), memory=4), tokens(1, 4)
    _, carry = model(text)
    order = torch.tensor([2, 0, 3, 1])
    turned = {name: one[:, order] if name.startswith("memory") else one for name, one in carry.items()}
    more = tokens(1, 3, seed=4)
    straight, other = (shares(model(more, carry=one)[0]) for one in (carry, turned))
    torch.testing.assert_close(other, straight)


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="memory=-1, expected 0 or more states"):
        AttentiveLM(WordEmbedding(5, 4), RecurrentLayers("gru", 4, 4), PastAttention(memory=-1))
