"""RecurrentLM against its cells' formulas, typed out; how it begins; what it shares; what it refuses."""

import pytest
import torch
from torch import Tensor, nn

from models.rnn_language_models import HIDDEN, VOCABULARY, WIDTH, lively, recurrent, tokens
from regard.errors import SettingError
from regard.models.embedding import OutputProjection, WordEmbedding
from regard.models.rnn import RecurrentLayers
from regard.models.rnn_lm import RecurrentLM


def rnn(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    inward, around, a, b = weights
    return torch.tanh(inward @ x + a + around @ h + b), c


def gru(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    inward, around, a, b = weights
    (r, z, n), (hr, hz, hn) = (inward @ x + a).chunk(3), (around @ h + b).chunk(3)
    reset, update = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
    return (1 - update) * torch.tanh(n + reset * hn) + update * h, c


def lstm(x: Tensor, h: Tensor, c: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
    inward, around, a, b = weights
    i, f, g, o = (inward @ x + a + around @ h + b).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@pytest.mark.parametrize("cell", [rnn, gru, lstm])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_model_is_its_formula(cell, layers) -> None:
    model, text = recurrent(cell.__name__, layers), tokens(7, extra=0)
    weights = list(model.rnn.layers.parameters())
    states = model.words.embedding.weight[text] * WIDTH**0.5
    for layer in range(layers):
        h = c = torch.zeros(HIDDEN).double()
        said = []
        for x in states:
            h, c = cell(x, h, c, weights[4 * layer : 4 * layer + 4])
            said.append(h)
        states = torch.stack(said)
    projected = states @ model.softmax.project.weight.T
    logits = projected @ model.words.embedding.weight.T + model.softmax.bias
    torch.testing.assert_close(model(text[None])[0].logits[0], logits)


def test_tied_words_are_one_parameter_and_free_ones_two() -> None:
    sized = [
        [name for name, one in recurrent(tied=tied).named_parameters() if one.dim() == 2 and VOCABULARY in one.shape]
        for tied in (True, False)
    ]
    assert sized == [["words.embedding.weight"], ["words.embedding.weight", "softmax.weight"]]
    assert recurrent(tied=False).softmax.project is None  # nothing to fit
    equal = RecurrentLM(WordEmbedding(VOCABULARY, HIDDEN), RecurrentLayers("gru", HIDDEN, HIDDEN))
    assert equal.softmax.project is None


def test_it_begins_undecided_and_with_open_forget_gates() -> None:
    torch.manual_seed(0)
    model = RecurrentLM(WordEmbedding(500, 64), RecurrentLayers("lstm", 64, 96, layers=2))
    loss = model(torch.arange(100)[None])[0].nll(torch.arange(1, 101)[None]).mean()
    assert loss.item() == pytest.approx(torch.tensor(500.0).log().item(), abs=0.2)
    for layer in range(2):
        total = sum(getattr(model.rnn.layers, f"bias_{way}_l{layer}")[96:192] for way in ("ih", "hh"))
        assert total.mean().item() == pytest.approx(1, abs=0.05)


def test_gradients_end_where_the_segment_begins() -> None:
    """Truncated back-propagation: what was read before the cut gets none, though it changes the loss."""
    model, first, second = recurrent(), torch.tensor([[3, 4]]), torch.tensor([[5, 6]])
    _, carry = model(first)
    model(second, carry=carry)[0].logits[0, -1, 0].backward()
    touched = model.words.embedding.weight.grad.clone()
    model.zero_grad()
    model(torch.cat((first, second), 1))[0].logits[0, -1, 0].backward()
    whole = model.words.embedding.weight.grad
    assert torch.equal(touched[[3, 4]], torch.zeros(2, WIDTH).double())  # the softmax looked at row 0 alone
    assert whole[[3, 4]].abs().min() > 0
    fresh, other = model(second)[0].logits, model(second, carry=carry)[0].logits
    assert (fresh - other).abs().max() > 1e-3


def test_dropout_falls_in_training_alone_and_between_layers() -> None:
    model = lively(lambda: RecurrentLM(WordEmbedding(11, 6), RecurrentLayers("gru", 6, 8, 2, dropout=0.5), dropout=0.5))
    text = tokens(1, 5, extra=0)
    assert torch.equal(model(text)[0].logits, model(text)[0].logits)
    model.train()
    assert not torch.equal(model(text)[0].logits, model(text)[0].logits)
    assert model.rnn.layers.dropout == 0.5
    assert RecurrentLayers("gru", 6, 8, 1, dropout=0.5).layers.dropout == 0


def test_a_projection_comes_between_words_and_states_of_other_widths() -> None:
    softmax = OutputProjection(HIDDEN, VOCABULARY, WordEmbedding(VOCABULARY, WIDTH))
    assert isinstance(softmax.project, nn.Linear) and softmax(torch.ones(2, HIDDEN)).shape == (2, VOCABULARY)


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match=r"cell 'lsmt'.*lstm"):
        RecurrentLayers("lsmt", 4, 4)
    with pytest.raises(SettingError, match="layers=0"):
        RecurrentLayers("gru", 4, 4, layers=0)
    with pytest.raises(SettingError, match="unknown=11, expected an id from 0 to 10"):
        WordEmbedding(11, 4, unknown=11)
