"""Laws of sequence to sequence: one pass equals steps, rows alone, no look ahead, and the formulas of the papers."""

import pytest
import torch
from tests.models.translators import (
    HIDDEN,
    SIZES,
    STATES,
    WIDTH,
    WORDS,
    batch,
    by_attending,
    by_decoder,
    large,
    stepped,
    translator,
    words,
)
from torch import Tensor

from regard.attention import Observe, capture
from regard.attention.scores import Bilinear, Dot
from regard.attention.windows import LocalP
from regard.errors import SettingError
from regard.models.cross_entropy import Logits, SampledSoftmax
from regard.models.decoders import Bahdanau, Luong, LuongInputFeeding
from regard.models.embedding import OutputProjection
from regard.models.rnn_encoder import BiRNNEncoder
from regard.models.seq2seq import Seq2Seq
from regard.text.examples import IGNORED

close = torch.testing.assert_close


def said(model: Seq2Seq, source: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
    return model(source, lengths, target)[0].log_probs()


@by_decoder
def test_all_steps_at_once_are_the_steps_one_by_one(name: str) -> None:
    model, given = translator(name), batch()
    close(said(model, *given), stepped(model, *given))


@by_decoder
def test_a_row_in_company_is_the_row_alone(name: str) -> None:
    model, (source, lengths, target) = translator(name), batch(rows=4)
    together = said(model, source, lengths, target)
    for row, length in enumerate(lengths.tolist()):
        alone = said(model, source[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        close(together[row : row + 1], alone)


@by_decoder
def test_a_later_word_never_changes_an_earlier_prediction(name: str) -> None:
    model, (source, lengths, target) = translator(name), batch()
    before = said(model, source, lengths, target)
    target[:, 3] = (target[:, 3] + 1) % WORDS
    after = said(model, source, lengths, target)
    close(after[:, :3], before[:, :3])
    assert not torch.allclose(after[:, 3:], before[:, 3:])


@by_decoder
def test_reordered_is_started_in_that_order(name: str) -> None:
    model, (source, lengths, target) = translator(name), batch()
    for rows in (torch.tensor([2, 0]), torch.tensor([1, 1, 0, 2]), torch.tensor([0, 1, 2])):
        state = model.start(source, lengths)
        for word in target[:, :3].unbind(1):
            _, _, state = model.step(state, word)
        got, weights, _ = model.step(model.reorder(state, rows), target[rows, 3])
        close(got, stepped(model, source[rows], lengths[rows], target[rows, :4])[:, -1])
        assert weights is None or weights.shape == (len(rows), source.size(1))


@by_decoder
def test_a_batch_of_no_rows_has_no_loss_and_all_weights(name: str) -> None:
    model, (source, lengths, target) = translator(name), batch()
    prediction, more = model(source[:0], lengths[:0], target[:0])
    total = prediction.nll(target[:0]).sum() + (0 if more is None else more.sum())
    assert total == 0
    total.backward()
    assert all(one.grad is not None and not one.grad.any() for one in model.decoder.parameters())


@by_attending
def test_whoever_listens_hears_every_step_and_changes_nothing(name: str) -> None:
    model, (source, lengths, target) = translator(name), batch()
    before = said(model, source, lengths, target)
    with capture(model, "decoder", Observe(weights=True)) as heard:
        assert torch.equal(said(model, source, lengths, target), before)
    weights = torch.cat([call.weights for call in heard.calls("decoder")], 1)
    assert weights.shape == (3, 5, 7)
    assert all(not weights[row, :, length:].any() for row, length in enumerate(lengths))
    if "local" not in name:  # local-p is not renormalised, and beyond a short source local-m sees nothing
        close(weights.sum(-1), torch.ones(3, 5).double())


def test_a_bottleneck_gets_the_last_states_and_nothing_else() -> None:
    model, (source, lengths, target) = translator("bottleneck"), batch()
    read = model.encoder(source, lengths)
    words = model.words(target)
    first = model.decoder(words, model.decoder.initial_state(read))
    nothing = torch.full_like(read.states, torch.nan)
    blind = read._replace(states=nothing, values=nothing)
    close(model.decoder(words, model.decoder.initial_state(blind)).vectors, first.vectors)


def test_the_reader_reads_both_ways_from_each_rows_own_end() -> None:
    (source, lengths, _), half = batch(rows=2), STATES // 2
    reader = large(BiRNNEncoder(words(), STATES, cell="gru"))
    read, length = reader(source, lengths), int(lengths[1])
    theirs = torch.nn.GRU(WIDTH, half, batch_first=True, bidirectional=True).double()
    for ours, end in ((reader.forward_rnn[0], ""), (reader.backward_rnn[0], "_reverse")):
        for name, weight in ours.named_parameters():
            getattr(theirs, name + end).data.copy_(weight)
    given = reader.words(source[1:, :length])
    both, _ = theirs(given)
    close(read.states[1:, :length], both)
    close(read.values[1:, :length], both + reader.word_projection(given))
    close(read.last[1:], torch.cat((both[:, -1, :half], both[:, 0, half:]), -1))


def test_a_second_layer_reads_both_ways_of_the_first() -> None:
    (source, lengths, _), reader = batch(rows=1), large(BiRNNEncoder(words(), STATES, layers=2))
    before = reader(source, lengths).states
    source[0, -1] = (source[0, -1] + 1) % WORDS
    assert ((reader(source, lengths).states - before).abs().amax(-1) > 1e-9).all()


def test_bahdanau_is_the_formula_of_the_paper() -> None:
    model, (source, lengths, target) = translator("bahdanau"), batch(rows=1)
    decoder = model.decoder
    assert isinstance(decoder, Bahdanau)
    states, values, _, last = model.encoder(source, lengths)
    words = model.words(target)
    s = torch.tanh(last @ decoder.bridge.weight.T + decoder.bridge.bias)
    expected = []
    for t in range(target.size(1)):
        e = torch.tanh(s @ decoder.score.query.weight.T + states[0] @ decoder.score.key.weight.T) @ decoder.score.vector
        c = e.softmax(0) @ values[0]
        gates = (
            words[:, t] @ decoder.cell.input.weight.T + decoder.cell.input.bias + c @ decoder.cell.step_input.weight.T
        )
        mine = s @ decoder.cell.state.weight.T + decoder.cell.state.bias
        r, z = torch.sigmoid(gates[:, : 2 * HIDDEN] + mine[:, : 2 * HIDDEN]).chunk(2, -1)
        s = (1 - z) * torch.tanh(gates[:, 2 * HIDDEN :] + r * mine[:, 2 * HIDDEN :]) + z * s
        v = torch.tanh(torch.cat((s[0], c, words[0, t])) @ decoder.vector.weight.T + decoder.vector.bias)
        expected.append((model.softmax(v)).log_softmax(-1))
    close(said(model, source, lengths, target)[0], torch.stack(expected))


def test_luong_with_and_without_feeding_is_the_formula_of_the_paper() -> None:
    torch.manual_seed(0)
    source, lengths, target = batch(rows=1)
    for kind in (Luong, LuongInputFeeding):
        score = Bilinear(HIDDEN, STATES)
        model = large(Seq2Seq(BiRNNEncoder(words(), STATES), kind(*SIZES, score, cell="rnn"), words()))
        states, values, _, last = model.encoder(source, lengths)
        decoder, given = model.decoder, model.words(target)[0]
        h, v = torch.tanh(decoder.bridge(last))[0], torch.zeros(WIDTH).double()
        expected = []
        for word in given:
            if kind is LuongInputFeeding:
                cell = decoder.first
                h = torch.tanh(cell.input(word) + cell.step_input.weight @ v + cell.state(h))
            else:
                w = decoder.rnn
                h = torch.tanh(w.weight_ih_l0 @ word + w.bias_ih_l0 + w.weight_hh_l0 @ h + w.bias_hh_l0)
            a = (states[0] @ (h @ score.weight)).softmax(0)
            v = torch.tanh(decoder.vector.weight @ torch.cat((h, a @ values[0])) + decoder.vector.bias)
            expected.append((model.softmax(v)).log_softmax(-1))
        close(said(model, source, lengths, target)[0], torch.stack(expected))


def test_local_p_with_a_huge_window_tends_to_global() -> None:
    given = batch()
    torch.manual_seed(0)
    everywhere = large(Seq2Seq(BiRNNEncoder(words(), STATES), Luong(*SIZES, Dot()), words()))
    expected, gaps = said(everywhere, *given), []
    for half in (3, 30, 300, 30_000):
        local = Seq2Seq(BiRNNEncoder(words(), STATES), Luong(*SIZES, Dot(), LocalP(HIDDEN, half)), words()).double()
        local.load_state_dict(everywhere.state_dict(), strict=False)
        gaps.append(float((said(local, *given) - expected).detach().abs().max()))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-6 < gaps[0]


def test_local_m_looks_no_further_than_its_window() -> None:
    model, (source, lengths, target) = translator("local-m"), batch(rows=1)
    state = model.start(source, lengths)
    for step, word in enumerate(target.unbind(1)):
        _, weights, state = model.step(state, word)
        places = weights[0].nonzero().squeeze(-1).tolist()
        assert places == [place for place in range(7) if abs(place - step) <= 2]


def test_an_odd_width_of_states_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match="even"):
        BiRNNEncoder(words(), 7)


def test_coverage_needs_an_additive_score() -> None:
    with pytest.raises(SettingError, match="Additive"):
        Bahdanau(*SIZES, Dot(), coverage=True)


def test_a_softmax_over_all_candidates_is_the_whole_one() -> None:
    model, (source, lengths, target) = translator("bahdanau"), batch()
    whole, _ = model(source, lengths, target)
    after = target.roll(-1, 1)
    model.train()
    model.num_sampled, model.eos = 10 * WORDS, 1
    everything, _ = model(source, lengths, target)
    assert isinstance(everything, SampledSoftmax) and everything.ids.tolist() == list(range(WORDS))
    close(everything.nll(after), whole.nll(after))
    close(everything.log_probs(), whole.log_probs())
    close(everything.nll(after, 0.1), whole.nll(after, 0.1))
    assert isinstance(model.eval()(source, lengths, target)[0], Logits)


def test_some_candidates_stand_for_the_others_and_targets_are_always_among_them() -> None:
    torch.manual_seed(0)
    softmax, hidden = OutputProjection(4, 200).double(), torch.randn(1, 4).double()
    surely, target = torch.tensor([3, 9, 150]), torch.tensor([9])
    whole = Logits(softmax(hidden))
    sums = []
    for _ in range(2000):
        some = softmax.sampled(hidden, surely, 40)
        assert set(surely.tolist()) <= set(some.ids.tolist())
        sums.append(some.logits.logsumexp(-1).exp())
    close(torch.stack(sums).mean(), whole.logits.exp().sum(), rtol=0.02, atol=0)
    ignored = softmax.sampled(hidden, surely, 40).nll(torch.tensor([IGNORED]))
    few = softmax.sampled(hidden, surely, 0)
    assert few.ids.tolist() == surely.tolist() and few.nll(torch.tensor([4])).item() == torch.inf
    assert few.nll(torch.tensor([199])).item() == torch.inf
    assert ignored.item() == 0 and abs(some.nll(target) - whole.nll(target)).item() < 1


def test_negatives_need_the_word_that_targets_end_with() -> None:
    with pytest.raises(SettingError, match="end with"):
        Seq2Seq(BiRNNEncoder(words(), STATES), Bahdanau(*SIZES), words(), num_sampled=5)
