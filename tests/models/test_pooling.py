"""Laws of the pooling classifier: what it is by its formula, what padding and company cannot change, who is heard."""

import pytest
import torch
from torch import nn

from regard.attention import capture, scores
from regard.errors import SettingError
from regard.models.pooling import BiRNN, PoolingClassifier, Positionwise

WIDTH, CLASSES = 6, 3
STATES = [None, BiRNN, Positionwise, lambda width: BiRNN(width, 4, "lstm"), lambda width: Positionwise(width, 4)]
SCORES = [
    None,
    lambda width: scores.Dot(),
    scores.Bilinear,
    lambda width: scores.Additive(width, 4),
    lambda width: scores.Cosine(),
]
inputs = torch.tensor([[5, 6, 7, 8, 9], [4, 3, 2, 0, 0], [1, 0, 0, 0, 0]])
lengths = torch.tensor([5, 3, 1])


def classifier(states=None, score=None) -> PoolingClassifier:
    """`score`: made for vectors of the width that states have."""
    torch.manual_seed(0)
    made = None if states is None else states(WIDTH)
    score = score if score is None or isinstance(score, nn.Module) else score(WIDTH if made is None else made.width)
    return PoolingClassifier(10, CLASSES, WIDTH, score, encoder=made).double()


def test_it_is_its_formula() -> None:
    model = classifier()
    x = model.embedding(inputs[0])
    weights = (x @ model.pooling.queries[0] / WIDTH**0.5).softmax(0)
    expected = model.classes.weight @ (weights @ x) + model.classes.bias
    torch.testing.assert_close(model(inputs[:1], lengths[:1])[0], expected)


@pytest.mark.parametrize("states", STATES)
@pytest.mark.parametrize("score", SCORES)
def test_a_row_alone_equals_the_row_in_company(states, score) -> None:
    model = classifier(states, score)
    together = model(inputs, lengths)
    assert together.shape == (3, CLASSES)
    for row, length in enumerate(lengths.tolist()):
        alone = model(inputs[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(alone[0], together[row])


@pytest.mark.parametrize("states", STATES)
def test_what_stands_in_the_padding_does_not_matter(states) -> None:
    model = classifier(states)
    other = inputs.masked_fill(torch.arange(5) >= lengths[:, None], 9)
    assert torch.equal(model(other, lengths), model(inputs, lengths))


def test_without_states_it_knows_no_order_and_with_them_it_does() -> None:
    turned = inputs[:1].flip(1)
    torch.testing.assert_close(classifier()(turned, lengths[:1]), classifier()(inputs[:1], lengths[:1]))
    model = classifier(BiRNN)
    assert (model(turned, lengths[:1]) - model(inputs[:1], lengths[:1])).abs().max() > 1e-3


@pytest.mark.parametrize(("states", "cell"), [(WIDTH, "gru"), (4, "gru"), (WIDTH, "lstm"), (10, "lstm")])
def test_both_ways_is_torchs_bidirectional_network(states: int, cell: str) -> None:
    torch.manual_seed(0)
    network = {"gru": nn.GRU, "lstm": nn.LSTM}[cell]
    ours, theirs = BiRNN(WIDTH, states, cell), network(WIDTH, states // 2, batch_first=True, bidirectional=True)
    state = dict(ours.forward_rnn.state_dict())
    state |= {f"{name}_reverse": value for name, value in ours.backward_rnn.state_dict().items()}
    theirs.load_state_dict(state)
    x = torch.randn(3, 5, WIDTH)
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
    expected, _ = nn.utils.rnn.pad_packed_sequence(theirs(packed)[0], batch_first=True)
    real = torch.arange(5) < lengths[:, None]
    torch.testing.assert_close(ours(x, lengths)[real], expected[real])
    with pytest.raises(SettingError, match="got width=5, expected an even width"):
        BiRNN(5)


def test_without_more_words_it_is_a_gru_as_wide_as_words() -> None:
    assert isinstance(BiRNN(WIDTH).forward_rnn, nn.GRU) and BiRNN(WIDTH).width == Positionwise(WIDTH).width == WIDTH


def test_alone_is_its_formula_and_reads_no_other_word() -> None:
    torch.manual_seed(0)
    states, x = Positionwise(WIDTH, 4), torch.randn(2, 5, WIDTH)
    torch.testing.assert_close(states(x, lengths[:2]), torch.tanh(x @ states.layer.weight.t() + states.layer.bias))
    other = x.clone()
    other[:, 2] += 1
    changed = (states(x, lengths[:2]) != states(other, lengths[:2])).any(-1)
    assert changed[:, 2].all() and not changed[:, [0, 1, 3, 4]].any()


def test_it_is_heard() -> None:
    model = classifier(BiRNN)
    with capture(model) as heard:
        model(inputs, lengths)
    assert heard.places == ["pooling"]
    weights = heard["pooling"].weights
    assert weights.shape == (3, 1, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1).double())
    assert (weights[2, 0, 1:] == 0).all()


@pytest.mark.parametrize("states", STATES)
def test_no_rows_make_a_loss_of_zero_with_gradients(states) -> None:
    model = classifier(states)
    logits = model(inputs[:0], lengths[:0])
    assert logits.shape == (0, CLASSES)
    logits.sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and not parameter.grad.any(), name


@pytest.mark.parametrize("states", STATES)
@pytest.mark.parametrize("score", SCORES)
def test_every_parameter_learns(states, score) -> None:
    model = classifier(states, score)
    model(inputs, lengths)[:, 0].sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())
