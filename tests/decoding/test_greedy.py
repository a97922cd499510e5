"""Laws of greedy search: always the likeliest token that the rules allow, in every row as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from decoding.toys import END, Toy, begin
from regard.decoding import Greedy, Hypothesis, Rules, greedy_decode
from regard.errors import SettingError


def greedy(toy: Toy, rules: Rules, numbers, attention: bool = False) -> list[Hypothesis]:
    state, first = begin(toy, numbers)
    return [text for (text,) in Greedy()(toy, state, first, rules, attention)]


def by_hand(toy: Toy, rules: Rules, number: int, row: int) -> tuple[list[int], bool]:
    """The definition, token by token, over Python lists."""
    text: list[int] = []
    prefix = rules.prefix[row] if rules.prefix else ()
    while len(text) < rules.max_length:
        said = toy.opinion((number, 1, *text)).copy()
        if rules.end is not None and len(text) < rules.min_length:
            said[rules.end] = -np.inf
        for ids in rules.banned:
            if list(ids[:-1]) == text[len(text) - len(ids) + 1 :] or len(ids) == 1:
                said[ids[-1]] = -np.inf
        token = prefix[len(text)] if len(text) < len(prefix) else int(said.argmax())
        if token == rules.end:
            return text, True
        text.append(token)
    return text, False


@settings(max_examples=40)
@given(
    numbers=st.lists(st.integers(0, 99), min_size=1, max_size=6),
    max_length=st.integers(3, 12),
    min_length=st.integers(0, 3),
    end=st.sampled_from([END, None]),
)
def test_it_is_the_likeliest_token_that_is_allowed(numbers, max_length, min_length, end) -> None:
    toy = Toy(5, sharp=2.0)
    prefix = [[number % 4 + 1] * (number % 4) for number in numbers]
    rules = Rules(end, max_length, min_length, prefix, banned=[[3], [2, 2], [1, 4, 1]])
    for row, (number, text) in enumerate(zip(numbers, greedy(toy, rules, numbers), strict=True)):
        assert (text.tokens, text.finished) == by_hand(toy, rules, number, row)
        steps = [*text.tokens, END] if text.finished else text.tokens
        np.testing.assert_allclose(text.log_probs, toy.log_probs(number, steps))
        assert text.score == pytest.approx(sum(text.log_probs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_belongs_to_what_was_written(dtype) -> None:
    """Rows end one after the other and leave the batch; what each step looked at stays with its text."""
    toy, numbers = Toy(6, places=4, sharp=3.0, dtype=dtype), list(range(12))
    for number, text in zip(numbers, greedy(toy, Rules(END, 20), numbers, attention=True), strict=True):
        steps = [*text.tokens, END] if text.finished else text.tokens
        assert text.weights.dtype == dtype and text.weights.shape == (len(text.log_probs), 4)
        np.testing.assert_allclose(text.weights, toy.weights(number, steps), rtol=1e-6)
    assert len(set(toy.steps)) > 2
    assert greedy(toy, Rules(END, 20), [3])[0].weights is None


def test_rows_leave_once_half_of_them_are_done() -> None:
    toy = Toy(6, sharp=3.0)
    texts = greedy(toy, Rules(END, 40), range(32))
    lengths = sorted(len(text.tokens) for text in texts)
    assert len(toy.steps) == lengths[-1] + 1  # nobody waits for more than the longest
    assert sum(toy.steps) < 2 * sum(length + 1 for length in lengths) + 32


def test_where_nothing_is_allowed_a_text_breaks_off() -> None:
    rules = Rules(END, 5, prefix=[[1, 2], [3]], banned=[[END], [1], [2], [3]])
    texts = greedy(Toy(4, places=2), rules, [0, 1], attention=True)
    assert [text.tokens for text in texts] == [[1, 2], [3]] and not any(text.finished for text in texts)
    assert [len(text.log_probs) for text in texts] == [len(text.weights) for text in texts] == [2, 1]


def test_no_gradient_is_kept() -> None:
    class Learning(Toy):
        def step(self, state, tokens):
            log_probs, weights, state = super().step(state, tokens)
            weight = torch.ones(1, requires_grad=True, dtype=log_probs.dtype)
            assert not (weight * log_probs).requires_grad
            return log_probs, weights, state

    assert greedy(Learning(), Rules(END, 3), [0])


def test_what_it_cannot_promise_is_refused_in_words() -> None:
    with pytest.raises(SettingError, match=r"Required tokens need a beam search\. Pass Beam"):
        greedy(Toy(), Rules(END, 3, required=[[[1]]]), [0])
    assert greedy(Toy(), Rules(END, 3, required=[[]]), [0])


def test_no_rows_give_no_texts() -> None:
    assert greedy(Toy(), Rules(END, 3), []) == []


@given(seed=st.integers(0, 50), prefix=st.lists(st.integers(0, 4), max_size=6), max_length=st.integers(1, 7))
def test_going_on_from_a_prefix(seed: int, prefix: list[int], max_length: int) -> None:
    """As Greedy does under Rules; a prefix may also hold the end, or be longer than what is written otherwise."""
    toy = Toy(5)
    got = greedy_decode(toy, *begin(toy, [seed]), END, max_length, prefix)
    assert got[: len(prefix)] == prefix
    if END not in prefix and len(prefix) <= max_length:
        [text] = greedy(Toy(5), Rules(END, max_length, prefix=[prefix]), [seed])
        assert got == text.tokens
    elif len(prefix) >= max_length:
        assert got == prefix
