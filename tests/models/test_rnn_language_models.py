"""Laws of all language models that read on: steps equal one pass, so do segments and rows, and nothing looks ahead."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from models.rnn_language_models import EXTRA, KINDS, UNKNOWN, VOCABULARY, shares, tokens, written
from regard.text.examples import IGNORED

by_kind = pytest.mark.parametrize("kind", list(KINDS))
CLOSE = {"rtol": 0, "atol": 1e-12}
LENGTH = 9


@by_kind
def test_probabilities_sum_to_one(kind) -> None:
    whole = shares(KINDS[kind]()(tokens(3, LENGTH))[0])
    assert whole.shape == (3, LENGTH, VOCABULARY + EXTRA)
    torch.testing.assert_close(whole.sum(-1), torch.ones(3, LENGTH).double(), **CLOSE)


@by_kind
def test_a_later_token_never_changes_what_came_before(kind) -> None:
    model, inputs = KINDS[kind](), tokens(2, LENGTH)
    before = shares(model(inputs)[0])
    for place in range(1, LENGTH):
        other = inputs.clone()
        other[:, place] = (other[:, place] + 1) % VOCABULARY
        after = shares(model(other)[0])
        assert torch.equal(after[:, :place], before[:, :place])
        assert (after[:, place] - before[:, place]).abs().max() > 1e-4


@by_kind
def test_steps_equal_one_pass(kind) -> None:
    model, inputs = KINDS[kind](), tokens(3, LENGTH)
    with torch.no_grad():
        torch.testing.assert_close(written(model, inputs), shares(model(inputs)[0]), **CLOSE)


@by_kind
@pytest.mark.parametrize("lengths", [[4, 0, 7], [0, 0, 0], [7, 7, 7]])
def test_rows_that_begin_with_texts_of_any_length_go_on_as_if_alone(kind, lengths) -> None:
    model, prompts, more = KINDS[kind](), tokens(3, 7), tokens(3, 4, seed=2)
    with torch.no_grad():
        together = written(model, more, model.start(prompts, torch.tensor(lengths)))
        for row, length in enumerate(lengths):
            whole = torch.cat((prompts[row, :length], more[row]))[None]
            torch.testing.assert_close(together[row], shares(model(whole)[0])[0, length:], **CLOSE)


@by_kind
@pytest.mark.parametrize("lengths", [[4, 0, 6], [6, 6, 6]])
def test_steps_keep_texts_apart_as_documents_do(kind, lengths) -> None:
    end, model = 3, KINDS[kind]()
    prompts, more = tokens(3, 6), tokens(3, 5, seed=2)
    prompts[:, 2], prompts[0, 5], more[1:, 1] = end, end, end  # one of them is padding
    with torch.no_grad():
        together = written(model, more, model.start(prompts, torch.tensor(lengths), end))
        for row, length in enumerate(lengths):
            whole = torch.cat((prompts[row, :length], more[row]))[None]
            expected = shares(model(whole, (whole == end).cumsum(1))[0])[0, length:]
            torch.testing.assert_close(together[row], expected, **CLOSE)


@by_kind
@settings(max_examples=8)
@given(cuts=st.lists(st.integers(1, LENGTH - 1), max_size=4, unique=True).map(sorted), apart=st.booleans())
def test_carried_segments_equal_one_long_pass(kind, cuts, apart) -> None:
    model, inputs = KINDS[kind](), tokens(2, LENGTH)
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2], [3, 3, 4, 4, 4, 4, 4, 4, 4]]) if apart else None
    parts, carry = [], None
    with torch.no_grad():
        for first, last in zip([0, *cuts], [*cuts, LENGTH], strict=True):
            part = None if documents is None else documents[:, first:last]
            prediction, carry = model(inputs[:, first:last], part, carry)
            parts.append(shares(prediction))
        torch.testing.assert_close(torch.cat(parts, 1), shares(model(inputs, documents)[0]), **CLOSE)


@by_kind
def test_a_carry_has_one_shape_for_every_length_and_rows_of_its_own(kind) -> None:
    model, inputs = KINDS[kind](), tokens(3, 30)
    carries = [model(inputs[:, :length])[1] for length in (1, 2, 30)]
    shapes = [{name: one.shape for name, one in carry.items()} for carry in carries]
    assert shapes[0] == shapes[1] == shapes[2] and all(shape[0] == 3 for shape in shapes[0].values())
    rows = torch.tensor([2, 0])
    picked = {name: one[rows] for name, one in carries[1].items()}
    got, _ = model(inputs[rows, 2:6], carry=picked)
    torch.testing.assert_close(shares(got), shares(model(inputs[:, 2:6], carry=carries[1])[0])[rows], **CLOSE)


@by_kind
def test_no_gradient_flows_into_a_carry(kind) -> None:
    model, inputs = KINDS[kind](), tokens(2, 4)
    _, carry = model(inputs)
    assert carry and not any(one.requires_grad for one in carry.values())
    handed = {name: one.requires_grad_(one.is_floating_point()) for name, one in carry.items()}
    _, after = model(inputs, carry=handed)
    assert not any(one.requires_grad for one in after.values())


@by_kind
def test_rows_alone_equal_the_batch(kind) -> None:
    model, inputs = KINDS[kind](), tokens(3, 7)
    alone = torch.cat([shares(model(row[None])[0]) for row in inputs])
    torch.testing.assert_close(alone, shares(model(inputs)[0]), **CLOSE)


@by_kind
@pytest.mark.parametrize("documents", [None, torch.zeros(0, 4, dtype=torch.long)])
@pytest.mark.parametrize("carried", [False, True])
def test_no_rows_make_a_loss_of_zero_with_gradients(kind, documents, carried) -> None:
    model = KINDS[kind]()
    carry = model(tokens(0, 4), documents)[1] if carried else None
    prediction, _ = model(tokens(0, 4), documents, carry)
    total = prediction.nll(tokens(0, 4)).sum()
    total.backward()
    assert total.item() == 0
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and not parameter.grad.any(), name


@by_kind
def test_every_parameter_learns(kind) -> None:
    model, inputs = KINDS[kind](), tokens(2, LENGTH)
    _, carry = model(inputs)
    model(inputs, carry=carry)[0].nll(inputs % VOCABULARY).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.any(), name


@by_kind
def test_an_id_beyond_the_vocabulary_is_read_as_unknown(kind) -> None:
    model, inputs = KINDS[kind](), tokens(2, LENGTH)
    assert (inputs >= VOCABULARY).any()
    closed = inputs.where(inputs < VOCABULARY, UNKNOWN)
    got, known = model(inputs)[0], model(closed)[0]
    assert torch.equal(got.logits, known.logits)


@by_kind
def test_surprise_is_minus_the_logarithm_of_the_share(kind) -> None:
    prediction, _ = KINDS[kind]()(tokens(2, LENGTH))
    targets = tokens(2, LENGTH, seed=3, extra=0)
    targets[0, :2] = IGNORED
    expected = -shares(prediction).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1).log()
    expected[0, :2] = 0
    torch.testing.assert_close(prediction.nll(targets), expected, **CLOSE)


@by_kind
def test_rows_are_reordered_with_all_they_know(kind) -> None:
    model, inputs, rows = KINDS[kind](), tokens(3, 6), torch.tensor([2, 0, 0, 1])
    with torch.no_grad():
        state = model.start(inputs[:, :4], torch.tensor([4, 2, 3]))
        _, _, state = model.step(state, inputs[:, 4])
        straight, _, _ = model.step(state, inputs[:, 5])
        turned, _, _ = model.step(model.reorder(state, rows), inputs[rows, 5])
    torch.testing.assert_close(turned, straight[rows], **CLOSE)


@by_kind
def test_a_state_that_was_handed_out_is_never_changed(kind) -> None:
    model, inputs = KINDS[kind](), tokens(2, 6)
    with torch.no_grad():
        state = model.start(inputs[:, :4], torch.tensor([4, 3]))
        first, _, _ = model.step(state, inputs[:, 4])
        model.step(state, inputs[:, 5])
        again, _, _ = model.step(state, inputs[:, 4])
    assert torch.equal(first, again)


@by_kind
def test_half_precision_reads_on_too(kind) -> None:
    model, inputs = KINDS[kind]().float(), tokens(2, 6)
    exact = shares(model(inputs)[0])
    with torch.autocast("cpu", torch.bfloat16):
        first, carry = model(inputs[:, :3])
        second, _ = model(inputs[:, 3:], carry=carry)
        loss = first.nll(inputs[:, :3] % VOCABULARY) + second.nll(inputs[:, 3:] % VOCABULARY)
    assert loss.dtype == torch.float32
    rough = torch.cat((shares(first), shares(second)), 1)
    torch.testing.assert_close(rough, exact, rtol=0, atol=0.15)
