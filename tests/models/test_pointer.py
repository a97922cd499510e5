"""Laws of the pointer-generator: shares sum to one, it says what it never learned, and pays for looking again."""

import pytest
import torch
from tests.models.translators import UNKNOWN, WORDS, batch, pointer, stepped

from regard.models.cross_entropy import Logits, Mixture
from regard.text.examples import IGNORED

close = torch.testing.assert_close


@pytest.mark.parametrize("coverage", [True, False])
def test_shares_sum_to_one_over_the_extended_vocabulary(coverage: bool) -> None:
    model, given = pointer(coverage), batch(most=WORDS + 3)
    logs = model(*given)[0].log_probs()
    assert logs.size(-1) == int(given[0].max()) + 1 > WORDS
    close(logs.exp().sum(-1), torch.ones(3, 5).double())


@pytest.mark.parametrize("coverage", [True, False])
def test_all_steps_at_once_are_the_steps_one_by_one(coverage: bool) -> None:
    model, given = pointer(coverage), batch(most=WORDS + 3)
    close(model(*given)[0].log_probs(), stepped(model, *given))


def test_a_word_of_no_vocabulary_is_said_by_pointing_alone() -> None:
    model, (source, lengths, target) = pointer(), batch(rows=1)
    source[0, 2] = source[0, 4] = WORDS
    mixture, _ = model(source, lengths, target)
    close(mixture.log_probs()[..., WORDS].exp(), mixture.copy_weights[..., 2] + mixture.copy_weights[..., 4])
    elsewhere = source.masked_fill(source == WORDS, WORDS + 1)
    assert not model(elsewhere, lengths, target)[0].log_probs()[..., WORDS].exp().any()


def test_words_beyond_the_vocabulary_are_read_as_unknown() -> None:
    model, (source, lengths, target) = pointer(), batch(most=WORDS + 3)
    known = [ids.masked_fill(ids >= WORDS, UNKNOWN) for ids in (source, target)]
    ours, plain = model(source, lengths, target)[0], model(known[0], lengths, known[1])[0]
    close((ours.logits, ours.p_gen, ours.copy_weights), (plain.logits, plain.p_gen, plain.copy_weights))


def test_the_gate_mixes_as_in_the_paper() -> None:
    model, (source, lengths, target) = pointer(coverage=False), batch(rows=1)
    mixture, _ = model(source, lengths, target)
    expected = mixture.logits.softmax(-1) * mixture.p_gen.unsqueeze(-1)
    attention = mixture.copy_weights / (1 - mixture.p_gen).unsqueeze(-1)
    close(attention.sum(-1), torch.ones(1, 5).double())
    for place, word in enumerate(source[0].tolist()):
        expected[..., word] += (1 - mixture.p_gen) * attention[..., place]
    close(mixture.log_probs().exp(), expected)


def test_looking_again_is_charged_by_what_both_looks_share() -> None:
    model, (source, lengths, target) = pointer(), batch(rows=1)
    mixture, charge = model(source, lengths, target)
    attention = (mixture.copy_weights / (1 - mixture.p_gen).unsqueeze(-1))[0]
    covered, expected = torch.zeros(7).double(), []
    for step in attention:
        expected.append(torch.minimum(step, covered).sum())
        covered = covered + step
    close(charge[0], torch.stack(expected))
    assert charge[0, 0] == 0 < charge[0, -1]
    assert pointer(coverage=False)(source, lengths, target)[1] is None


def test_coverage_shifts_the_scores_inside_the_tanh() -> None:
    model, (source, lengths, target) = pointer(), batch(rows=1)
    read, decoder = model.encoder(source, lengths), model.decoder
    state = decoder.initial_state(read)
    words = model.words(target)
    first, state = decoder.step(words[:, 0], state)
    second, _ = decoder.step(words[:, 1], state)
    score, h = decoder.score, state.cells[0][0][0]
    keys = read.states[0] @ score.key.weight.T + first.weights[0, 0].unsqueeze(-1) * decoder.coverage
    e = torch.tanh(score.query.weight @ h + keys) @ score.vector
    close(second.weights[0, 0], e.softmax(0))


def test_surprise_is_minus_ln_p_and_nothing_where_ignored() -> None:
    model, (source, lengths, target) = pointer(), batch(most=WORDS + 2)
    targets = target.clone()
    targets[0, 0], targets[0, 1] = int(source[0, 0]), IGNORED
    mixture, _ = model(source, lengths, target)
    logs = mixture.log_probs()
    found = mixture.nll(targets)
    assert found[0, 1] == 0
    for row, step in ((0, 0), (1, 2), (2, 4)):
        token = int(targets[row, step])
        expected = -logs[row, step, token] if token < logs.size(-1) else None
        if expected is not None and torch.isfinite(expected):
            close(found[row, step], expected)


def test_what_nobody_can_say_is_a_finite_surprise_without_a_gradient() -> None:
    logits = torch.randn(1, 1, 4, requires_grad=True)
    mixture = Mixture(logits, torch.ones(1, 1), torch.zeros(1, 1, 2), torch.tensor([[1, 2]]))
    found = mixture.nll(torch.tensor([[9]]))
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert not logits.grad.any()


def test_smoothing_is_torchs_for_a_softmax_alone() -> None:
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[0, 4, IGNORED], [1, 1, 2]])
    alone = Mixture(logits, torch.ones(2, 3), torch.zeros(2, 3, 1), torch.zeros(2, 1, dtype=torch.long))
    close(alone.nll(targets, 0.1), Logits(logits).nll(targets, 0.1))
