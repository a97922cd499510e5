"""Laws of ELMo: who reads what, what padding cannot change, its formula typed out, letters for words, layers mixed."""

import pytest
import torch
from torch import nn

from regard.errors import SettingError, ShapeError
from regard.models.char_cnn import CharCNN, WordTable
from regard.models.elmo import BiLSTMStack, ELMo, ScalarMix, Tagger
from regard.models.rnn import reverse_padded
from regard.text.tokenizers.char_ids import CHAR_BEGIN, CHAR_END, CHAR_PAD, CHAR_SPECIAL, spell_vocabulary, spell_words
from regard.text.tokenizers.tokenizer import Tokenizer
from regard.text.tokenizers.trainers import BPE, WordLevel

WIDTH, CLASSES = 6, 3
TEXTS = ["he took a train in the morning", "he likes to train", "a cat"]
tokenizer = Tokenizer.train(WordLevel(30), TEXTS)
V, UNKNOWN = len(tokenizer), tokenizer.special.need("unknown")
lengths = torch.tensor([7, 4, 2])
inputs = nn.utils.rnn.pad_sequence([torch.tensor(tokenizer.encode(text).ids) for text in TEXTS], batch_first=True)
real = torch.arange(7) < lengths[:, None]
spellings = spell_words(["trained", "Yellen"])


def looked() -> WordTable:
    return WordTable(V, WIDTH, UNKNOWN)


def spelled() -> CharCNN:
    return CharCNN(spell_vocabulary(tokenizer), WIDTH, UNKNOWN, char_dim=5, filters=((1, 3), (3, 4), (9, 2)))


by_words = pytest.mark.parametrize("words", [looked, spelled])


def elmo(words=looked, layers: int = 2) -> ELMo:
    torch.manual_seed(0)
    return ELMo(words(), layers).double()


@by_words
def test_forth_knows_nothing_of_what_comes_and_back_nothing_of_what_was(words) -> None:
    model = elmo(words)
    states = model.states(inputs, lengths)
    assert states.shape == (3, 3, 7, 2 * WIDTH)
    for place in range(7):
        other = inputs.clone()
        other[0, place] = (other[0, place] + 1) % V
        moved = (model.states(other, lengths)[0] - states[0]).abs() > 1e-9  # (layers, T, 2 x width)
        forth, back = (half.any(-1) for half in moved.chunk(2, -1))
        here = torch.arange(7)
        assert torch.equal(forth[1:], (here >= place).expand(2, 7))
        assert torch.equal(back[1:], (here <= place).expand(2, 7))
        assert torch.equal(forth[0], here == place) and torch.equal(back[0], here == place)


@by_words
def test_rows_alone_equal_the_batch_whatever_the_padding(words) -> None:
    model = elmo(words)
    more = nn.functional.pad(inputs, (0, 2), value=9)
    together, padded = model.states(inputs, lengths), model.states(more, lengths)
    predicted = model(more, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = inputs[row : row + 1, :length], lengths[row : row + 1]
        for states in (together, padded):
            torch.testing.assert_close(states[row, :, :length], model.states(*alone)[0])
        for said, one in zip(predicted, model(*alone), strict=True):
            torch.testing.assert_close(said[row, :length], one[0])


def test_layer_0_is_the_word_twice() -> None:
    model = elmo()
    words = model.encoder.words(inputs)
    assert torch.equal(model.states(inputs, lengths)[:, 0], torch.cat((words, words), -1))


def typed_out(lstm: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
    """i, f, g, o = W x + U h + b; c = sigmoid(f) c + sigmoid(i) tanh(g); h = sigmoid(o) tanh(c)."""
    h = c = torch.zeros(WIDTH).double()
    states = []
    for one in x:
        total = lstm.weight_ih_l0 @ one + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ h + lstm.bias_hh_l0
        i, f, g, o = total.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return torch.stack(states)


def test_it_is_its_formula() -> None:
    model, row, length = elmo(), 1, 4
    reader = model.encoder
    x = reader.words(inputs[row, :length])
    forth, back = [x], [x.flip(0)]
    for stack, layers in ((reader.forward_rnn, forth), (reader.backward_rnn, back)):
        layers.append(typed_out(stack[0], layers[0]))
        layers.append(typed_out(stack[1], layers[1]) + layers[1])  # the second layer adds to the first
    expected = torch.stack([torch.cat((a, b.flip(0)), -1) for a, b in zip(forth, back, strict=True)])
    torch.testing.assert_close(model.states(inputs, lengths)[row, :, :length], expected)
    after, before = model(inputs, lengths)
    assert after.shape == before.shape == (3, 7, V)
    torch.testing.assert_close(after[row, :length], model.output(forth[2]))
    torch.testing.assert_close(before[row, :length], model.output(back[2].flip(0)))


@by_words
def test_every_parameter_learns_and_no_rows_teach_nothing(words) -> None:
    model = elmo(words)
    sum(said[real].square().sum() for said in model(inputs, lengths)).backward()
    assert all(one.grad is not None and one.grad.any() for one in model.parameters())
    model.zero_grad()
    sum(said.sum() for said in model(inputs[:0, :1], lengths[:0])).backward()
    assert all(one.grad is not None and not one.grad.any() for one in model.parameters())


def test_dropout_falls_while_training_alone() -> None:
    torch.manual_seed(0)
    model = ELMo(looked(), 2, dropout=0.5)
    assert not torch.equal(model(inputs, lengths).forward, model(inputs, lengths).forward)
    model.eval()
    assert torch.equal(model(inputs, lengths).forward, model(inputs, lengths).forward)


def test_a_known_word_spelled_has_the_vector_of_the_vocabulary() -> None:
    torch.manual_seed(0)
    words = spelled().double()
    for word in ("train", "a", "morning"):
        known = torch.tensor([[tokenizer.id(f"▁{word}")]])
        given = words(torch.tensor([[V]]), spell_words([word]))
        torch.testing.assert_close(words(known), given)
        padded = nn.functional.pad(spell_words([word]), (0, 11), value=CHAR_PAD)
        torch.testing.assert_close(words(torch.tensor([[V]]), padded), given)


def test_a_word_outside_the_vocabulary_has_a_vector_by_its_letters() -> None:
    torch.manual_seed(0)
    words = spelled().double()
    vectors = words(torch.tensor([[V, V + 1, UNKNOWN, V]]), spellings)[0]
    assert torch.equal(vectors[0], vectors[3])
    distances = torch.cdist(vectors[:3], vectors[:3]) + torch.eye(3)
    assert distances.min() > 1e-3
    nobody = words(torch.tensor([[V, UNKNOWN]]))[0]  # without spellings it is unknown
    torch.testing.assert_close(nobody[0], nobody[1])


def test_a_table_reads_all_words_outside_as_one() -> None:
    model = elmo()
    ids = torch.tensor([[V, V + 5, UNKNOWN]])
    words = model.states(ids, torch.tensor([3]), spellings)[0, 0]
    assert torch.equal(words[0], words[2]) and torch.equal(words[1], words[2])


def test_each_word_of_a_batch_is_read_once() -> None:
    words, read = spelled(), []
    words.characters.register_forward_hook(lambda module, args, output: read.append(len(args[0])))
    words(inputs.repeat(5, 3), spellings)
    assert read == [len(inputs.unique())]


def test_spellings_are_bytes_between_signs() -> None:
    assert spell_words(["cat", "é"]).tolist() == [
        [CHAR_BEGIN, *(byte + 1 for byte in b"cat"), CHAR_END],
        [CHAR_BEGIN, *(byte + 1 for byte in "é".encode()), CHAR_END, CHAR_PAD],
    ]
    assert spell_words(["abcdef"], max_chars=4).tolist() == [[CHAR_BEGIN, 98, 99, CHAR_END]]
    assert spell_words([]).shape == (0, 1)
    table = spell_vocabulary(tokenizer)
    assert len(table) == V
    row = table[tokenizer.id("▁cat")]
    assert row[row != CHAR_PAD].tolist() == spell_words(["cat"])[0].tolist()
    signs = {int(table[number, 1]) for number in tokenizer.special.all}
    assert len(signs) == len(tokenizer.special.all) and min(signs) == CHAR_SPECIAL  # each special token is a sign
    with pytest.raises(SettingError, match="max_chars=2"):
        spell_words(["a"], max_chars=2)


def test_a_piece_that_goes_on_does_not_begin() -> None:
    pieces = Tokenizer.train(BPE(40), ["tram train tracks rain"])
    table = spell_vocabulary(pieces)
    for number in set(range(len(pieces))) - pieces.special.all:
        assert (table[number, 0] == CHAR_BEGIN) == pieces.token(number).startswith("▁")


def test_turning_is_its_own_inverse_and_leaves_padding_alone() -> None:
    x = torch.randn(3, 7, 2)
    there = reverse_padded(x, lengths)
    assert torch.equal(reverse_padded(there, lengths), x)
    assert torch.equal(there[~real], x[~real])
    assert torch.equal(there[1, :4], x[1, :4].flip(0))


def test_a_mix_is_a_weighted_mean_times_gamma() -> None:
    mix, states = ScalarMix(3), torch.randn(2, 3, 5, 4)
    torch.testing.assert_close(mix(states), states.mean(1))
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([1.0, -2.0, 0.5]))
        mix.gamma.fill_(3.0)
    assert mix.weights.sum().item() == pytest.approx(1) and mix.weights.min() > 0
    shares = torch.tensor([1.0, -2.0, 0.5]).exp() / torch.tensor([1.0, -2.0, 0.5]).exp().sum()
    expected = 3 * sum(share * states[:, layer] for layer, share in enumerate(shares))
    torch.testing.assert_close(mix(states), expected)
    with pytest.raises(ShapeError, match="got 2 layers, expected 3"):
        mix(states[:, :2])


@by_words
def test_a_tagger_learns_with_its_reader_or_above_it(words) -> None:
    for tuned in (True, False):
        torch.manual_seed(0)
        model = Tagger(BiLSTMStack(words(), 2, dropout=0.5), CLASSES, finetune=tuned)
        logits = model.train()(inputs, lengths)
        assert logits.shape == (3, 7, CLASSES)
        logits[real].square().sum().backward()
        learned = {name for name, one in model.named_parameters() if one.grad is not None and one.grad.any()}
        above = {"mix.scores", "mix.gamma", "classes.weight", "classes.bias"}
        assert learned == ({name for name, _ in model.named_parameters()} if tuned else above)
        same = torch.equal(model(inputs, lengths), model(inputs, lengths))
        assert same != tuned  # a frozen reader gives features that no dropout disturbs


def test_a_reader_of_no_layers_knows_no_neighbours() -> None:
    model = Tagger(BiLSTMStack(looked(), 0), CLASSES)
    other = inputs.clone()
    other[0, 0] = (other[0, 0] + 1) % V
    before, after = model(inputs, lengths), model(other, lengths)
    assert torch.equal(before[0, 1:], after[0, 1:]) and not torch.equal(before[0, 0], after[0, 0])


def test_what_cannot_be_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="layers=0, expected at least 1"):
        ELMo(looked(), 0)
    with pytest.raises(SettingError, match="layers=-1"):
        BiLSTMStack(looked(), -1)
    with pytest.raises(ShapeError, match=r"\(V, C\) of integers"):
        CharCNN(torch.zeros(3, 4), WIDTH, UNKNOWN)
